"""``bert_tf.serve`` under load, against a plain server and another build of it, in one run.

    python -m benchmarks.serve [--what=vectors,tagger,reader,classifier] [--peers=PYTHON]
        [--before=PYTHON] [--clients=1,2,8,32] [--rounds=5] [--seconds=10] [--rows=1] [--soak=20000]

| what       | model, of all-MiniLM-L6-v2           | a row of a request                      |
|------------|--------------------------------------|-----------------------------------------|
| vectors    | as it is                             | a sentence of SST-2's dev               |
| tagger     | tags of 4 types, untrained           | the same                                |
| reader     | SQuAD's head, untrained              | a question and a paragraph of 150 words |
| classifier | two classes, untrained               | a sentence of SST-2's dev               |

--peers is the interpreter of an environment with onnxruntime, tokenizers, starlette and uvicorn,
and nothing else that is needed; it runs serve_plain.py, which gives vectors, twice: two threads
within an operation and a pool of one, and one thread and a pool of two. It reads the file of
PyTorch's exporter, which this environment makes: torch, transformers, onnx.

--before is the interpreter of another, older, build of bert_tf, which writes the models that both
export and serve.

Everything listens at once, and one is asked at a time, over connections that stay open, by the same
clients: a round is each of them in turn, for so many seconds by each number of clients, after a
tenth of that which does not count. Rates are medians of the rounds, and ratios of the rounds'
ratios. Every reply is compared with what this build's signature answers to the same texts alone,
when the round is over. Memory is read at the end of all rounds. --soak then asks this build so many
requests of one to 16 rows, of one to eight sentences, and reads it at half of them and at the end,
at once and when the server has given back what its answers needed.
"""

import argparse
import contextlib
import functools
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .finetune import minilm_directory
from .machine import processor
from .serve_load import Inputs, Load, Server
from .serve_models import KINDS, VECTORS, mixed_requests, requests_of

_HERE = os.path.dirname(os.path.abspath(__file__))
_DIFFERENT_REQUESTS = 128
_OURS, _BEFORE = "bert_tf", "before"
# A row's float32 depends in its last digits on the rows beside it: the SavedModel called directly
# with two rows of a MiniLM of 20 classes differs by 1.2e-6 from one called with each alone.
_TOLERANCE = 1e-5
# The plain server's model is computed by other software.
_PLAIN_TOLERANCE = 1e-4
_SOAK_CLIENTS = 8
_REST_S = 10


def write_checkpoint(kind: str, given: argparse.Namespace, folder: str) -> str:
    """The directory of a kind's model; a newer build reads what an older one wrote."""
    if kind == VECTORS:
        return given.source
    program, target = os.path.join(_HERE, "serve_models.py"), os.path.join(folder, "checkpoint")
    line = [given.before or sys.executable, program, kind, given.source, target]
    subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return target


def write_export(python: str, checkpoint: str, output: str, folder: str) -> str:
    """An export's directory, as a build of bert_tf writes it."""
    line = [python, "-m", "bert_tf.export", f"--model={checkpoint}", f"--output={output}"]
    subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return output


def our_server(name: str, python: str, export: str, kind: str, folder: str) -> Server:
    """A build of bert_tf, asked for what a client wants of a model."""
    wanted = KINDS[kind].wanted
    filters = {"output_filter": list(wanted)} if wanted else {}

    return Server(
        name,
        [python, "-m", "bert_tf.serve", f"--model={export}", "--name=m", "--port=0"],
        "/v1/models/m:predict",
        lambda inputs: {"inputs": inputs, **filters},
        lambda reply: reply["outputs"],
        folder,
    )


def plain_servers(python: str, model: str, folder: str) -> list[Server]:
    """The plain server, in both settings."""
    target = os.path.join(folder, "model.onnx")
    write = "import sys; from benchmarks.inference_peers import write_onnx as write"
    subprocess.run([sys.executable, "-c", f"{write}; write(*sys.argv[1:])", model, target],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)  # fmt: skip
    program = os.path.join(_HERE, "serve_plain.py")
    tokenizer = os.path.join(model, "tokenizer.json")
    return [
        Server(
            f"plain, {threads} x {pool}",
            [python, program, target, tokenizer, str(threads), str(pool)],
            "/embed",
            lambda inputs: {"texts": inputs["text"]},
            lambda reply: {KINDS[VECTORS].wanted[0]: reply["vectors"]},
            folder,
        )
        for threads, pool in ((2, 1), (1, 2))
    ]


def direct(export: str, requests: Sequence[Inputs]) -> list[dict[str, Any]]:
    """What the signature answers, in this process."""
    import tensorflow as tf

    from bert_tf.saved_models import replay

    replay.load_text_operations()
    loaded = replay.load(export)
    ask = loaded.signatures["serving_default"]
    answers = (ask(**{key: tf.constant(v) for key, v in each.items()}) for each in requests)
    return [{key: replay.to_json(v.numpy()) for key, v in each.items()} for each in answers]


def measure(
    servers: Sequence[Server],
    requests: Sequence[Inputs],
    expected: Sequence[dict[str, Any]],
    given: argparse.Namespace,
) -> Iterator[str]:
    """Asks all servers in turn; gives the lines of a table."""
    loads: dict[tuple[int, str], list[Load]] = {}
    apart = dict.fromkeys((server.name for server in servers), 0.0)
    bodies = {server.name: server.bodies(requests) for server in servers}
    for _, clients, server in itertools.product(range(given.rounds), given.clients, servers):
        ask = functools.partial(server.load, bodies[server.name], clients)
        ask(given.seconds / 10)
        load = ask(given.seconds)
        apart[server.name] = max(apart[server.name], server.difference(load, expected))
        load.replies.clear()
        loads.setdefault((clients, server.name), []).append(load)
    yield "| clients | server | requests/s | p50 | p99 | times the first |"
    yield "|---|---|---|---|---|---|"
    for (clients, name), rounds in loads.items():
        milliseconds = 1e3 * np.concatenate([load.seconds for load in rounds])
        rates = [load.rate for load in rounds]
        first = [load.rate for load in loads[clients, servers[0].name]]
        ratio = statistics.median(b / a for a, b in zip(first, rates, strict=True))
        yield (
            f"| {clients} | {name} | {statistics.median(rates):.1f} | "
            f"{np.percentile(milliseconds, 50):.1f} ms | {np.percentile(milliseconds, 99):.1f} ms "
            f"| {ratio:.2f} |"
        )
    for clients in given.clients:
        yield from compare(clients, loads, [server.name for server in servers])
    for server in servers:
        yield f"{server.name}: differs by {apart[server.name]:.1e} at most; {shown_memory(server)}"
        most = _TOLERANCE if server.name in (_OURS, _BEFORE) else _PLAIN_TOLERANCE
        if apart[server.name] > most:
            raise ValueError(f"{server.name}: expected differences of at most {most}.")


def compare(
    clients: int, loads: dict[tuple[int, str], list[Load]], names: Sequence[str]
) -> Iterator[str]:
    """Ours to the other build, and to the better setting of the plain server."""
    rates = {name: [load.rate for load in loads[clients, name]] for name in names}
    plain = [name for name in names if name not in (_OURS, _BEFORE)]
    others = [_BEFORE] if _BEFORE in names else []
    if plain:
        others.append(max(plain, key=lambda name: statistics.median(rates[name])))
    for name in others:
        ratios = [ours / other for ours, other in zip(rates[_OURS], rates[name], strict=True)]
        yield (
            f"{clients} clients: {_OURS} is {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}) times {name}"
        )


def soak(server: Server, count: int) -> Iterator[str]:
    """Asks requests of mixed lengths and rows, and gives the memory at half of them."""
    for half in (1, 2):
        requests = mixed_requests(count // 2, half)
        server.load(server.bodies(requests), _SOAK_CLIENTS, count=len(requests))
        yield f"after {half * len(requests):,} mixed requests: {shown_memory(server)}"
        time.sleep(_REST_S)
        yield f"{_REST_S} seconds later: {shown_memory(server)}"


def shown_memory(server: Server) -> str:
    """Its memory, for people."""
    return ", ".join(f"{key} {value:,.0f} MiB" for key, value in server.memory().items())


def serve_and_measure(kind: str, folder: str, given: argparse.Namespace) -> None:
    """Measures one of the models."""
    checkpoint = write_checkpoint(kind, given, folder)
    servers = []
    for name, python in ((_OURS, sys.executable), (_BEFORE, given.before)):
        if python:
            output = os.path.join(folder, kind, name, "1")
            export = write_export(python, checkpoint, output, folder)
            servers.append(our_server(name, python, export, kind, folder))
    if given.peers and kind == VECTORS:
        servers += plain_servers(given.peers, given.source, folder)
    requests = requests_of(kind, _DIFFERENT_REQUESTS, given.rows)
    expected = direct(os.path.join(folder, kind, _OURS, "1"), requests)
    print(f"\n{kind}, {given.rows} rows a request", flush=True)
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        for line in measure(servers, requests, expected, given):
            print(line, flush=True)
        if given.soak and kind == VECTORS:
            for line in soak(servers[0], given.soak):
                print(line, flush=True)


def parsed() -> argparse.Namespace:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", type=lambda text: text.split(","), default=[*KINDS])
    parser.add_argument("--peers", help="the interpreter of the plain server's environment")
    parser.add_argument("--before", help="the interpreter of another build of bert_tf")
    parser.add_argument(
        "--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 8, 32]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--soak", type=int, default=0)
    parser.add_argument("--source", default="", help="all-MiniLM-L6-v2, if not the package")
    given = parser.parse_args()
    if not set(given.what) <= set(KINDS):
        parser.error(f"--what: expected some of {', '.join(KINDS)}; got {', '.join(given.what)}")
    given.source = os.path.abspath(given.source) if given.source else minilm_directory()
    return given


def main() -> None:
    """Measures what is asked for."""
    given = parsed()
    print(f"{processor()}; load average {os.getloadavg()[0]:.2f}", flush=True)
    for kind in given.what:
        with tempfile.TemporaryDirectory() as folder:
            serve_and_measure(kind, folder, given)


if __name__ == "__main__":
    main()
