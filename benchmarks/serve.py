"""``bert_tf.serve`` under load, compared with a plain server and another version of bert_tf.

    python -m benchmarks.serve [--what=vectors,tagger,reader,classifier] [--peers=PYTHON]
        [--before=PYTHON] [--clients=1,2,8,32] [--rounds=5] [--seconds=10] [--rows=1] [--soak=20000]

| what       | model, from all-MiniLM-L6-v2         | example in a request                    |
|------------|--------------------------------------|-----------------------------------------|
| vectors    | unchanged                            | a sentence of the dev set of SST-2      |
| tagger     | tags of 4 types, untrained           | same                                    |
| reader     | span head of SQuAD, untrained        | a question and a paragraph of 150 words |
| classifier | two classes, untrained               | a sentence of the dev set of SST-2      |

--peers is the Python interpreter of an environment with onnxruntime, tokenizers, starlette and
uvicorn; nothing else is needed. It runs serve_plain.py, which returns vectors, in two settings: two
threads per operation with a pool of one, and one thread with a pool of two. It runs the file of
PyTorch's exporter, written in the current environment, which needs torch, transformers and onnx.

--before is the interpreter of an older version of bert_tf. It writes the models that both versions
export and serve.

All servers run at the same time, and the clients send requests to one at a time, over persistent
connections. In each round, the clients use each server for --seconds, per number of clients, after
a warmup of a tenth of that. Rates are medians of the rounds, and ratios are medians of the ratios
in each round. After the round, each reply is compared with the result of the signature for the same
texts. Memory is measured after all rounds.

--soak sends this many requests of one to 16 texts of one to eight sentences. It measures memory
after half of them and at the end, each time immediately and again after a pause, in which the
server frees the memory of its answers.
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
from .serve_models import KINDS, VECTORS, make_requests, mixed_requests

_HERE = os.path.dirname(os.path.abspath(__file__))
_NUM_REQUESTS = 128
_OURS, _BEFORE = "bert_tf", "before"
# The last digits of float32 results depend on the other examples in the batch. For a MiniLM with 20
# classes, calls of the SavedModel with two examples or with each separately differ by 1.2e-6.
_TOLERANCE = 1e-5
# The plain server uses other software.
_PLAIN_TOLERANCE = 1e-4
_SOAK_CLIENTS = 8
_PAUSE_SECONDS = 10


def write_checkpoint(kind: str, arguments: argparse.Namespace, folder: str) -> str:
    """Returns the directory of a model, written by the older version, if any."""
    if kind == VECTORS:
        return arguments.source
    program, target = os.path.join(_HERE, "serve_models.py"), os.path.join(folder, "checkpoint")
    line = [arguments.before or sys.executable, program, kind, arguments.source, target]
    subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return target


def write_export(python: str, checkpoint: str, output: str, folder: str) -> str:
    """Exports the model with the bert_tf of an interpreter; returns the directory."""
    line = [python, "-m", "bert_tf.export", f"--model={checkpoint}", f"--output={output}"]
    subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return output


def bert_tf_server(name: str, python: str, export: str, kind: str, folder: str) -> Server:
    """Returns a server of a bert_tf version, with requests for the outputs that a client needs."""
    outputs = KINDS[kind].outputs
    filters = {"output_filter": list(outputs)} if outputs else {}

    return Server(
        name,
        [python, "-m", "bert_tf.serve", f"--model={export}", "--name=m", "--port=0"],
        "/v1/models/m:predict",
        lambda inputs: {"inputs": inputs, **filters},
        lambda reply: reply["outputs"],
        folder,
    )


def plain_servers(python: str, model: str, folder: str) -> list[Server]:
    """Returns the plain server in both settings."""
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
            lambda reply: {KINDS[VECTORS].outputs[0]: reply["vectors"]},
            folder,
        )
        for threads, pool in ((2, 1), (1, 2))
    ]


def direct(export: str, requests: Sequence[Inputs]) -> list[dict[str, Any]]:
    """Returns the results of the signature, computed in this process."""
    import tensorflow as tf

    from bert_tf.saved_models import replay

    replay.load_text_operations()
    loaded = replay.load(export)
    signature = loaded.signatures["serving_default"]
    answers = (signature(**{key: tf.constant(v) for key, v in each.items()}) for each in requests)
    return [{key: replay.to_json(v.numpy()) for key, v in each.items()} for each in answers]


def measure(
    servers: Sequence[Server],
    requests: Sequence[Inputs],
    expected: Sequence[dict[str, Any]],
    arguments: argparse.Namespace,
) -> Iterator[str]:
    """Sends requests to all servers in turn; yields the lines of a table."""
    loads: dict[tuple[int, str], list[Load]] = {}
    differences = dict.fromkeys((server.name for server in servers), 0.0)
    bodies = {server.name: server.bodies(requests) for server in servers}
    for _, clients, server in itertools.product(
        range(arguments.rounds), arguments.clients, servers
    ):
        send = functools.partial(server.load, bodies[server.name], clients)
        send(arguments.seconds / 10)
        load = send(arguments.seconds)
        differences[server.name] = max(differences[server.name], server.difference(load, expected))
        load.replies.clear()
        loads.setdefault((clients, server.name), []).append(load)
    yield "| clients | server | requests/s | p50 | p99 | ratio to the first |"
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
    for clients in arguments.clients:
        yield from compare(clients, loads, [server.name for server in servers])
    for server in servers:
        difference, memory = differences[server.name], format_memory(server)
        yield f"{server.name}: maximum difference {difference:.1e}; {memory}"
        tolerance = _TOLERANCE if server.name in (_OURS, _BEFORE) else _PLAIN_TOLERANCE
        if difference > tolerance:
            raise ValueError(f"{server.name}: expected differences of at most {tolerance}.")


def compare(
    clients: int, loads: dict[tuple[int, str], list[Load]], names: Sequence[str]
) -> Iterator[str]:
    """Compares bert_tf with the other version, and with the faster setting of the plain server."""
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
    """Sends requests of mixed sizes; yields the memory after each half of them."""
    for half in (1, 2):
        requests = mixed_requests(count // 2, half)
        server.load(server.bodies(requests), _SOAK_CLIENTS, count=len(requests))
        yield f"after {half * len(requests):,} mixed requests: {format_memory(server)}"
        time.sleep(_PAUSE_SECONDS)
        yield f"after a pause of {_PAUSE_SECONDS} s: {format_memory(server)}"


def format_memory(server: Server) -> str:
    """Formats the memory of a server."""
    return ", ".join(f"{key} {value:,.0f} MiB" for key, value in server.memory().items())


def serve_and_measure(kind: str, folder: str, arguments: argparse.Namespace) -> None:
    """Measures the servers of one model."""
    checkpoint = write_checkpoint(kind, arguments, folder)
    servers = []
    for name, python in ((_OURS, sys.executable), (_BEFORE, arguments.before)):
        if python:
            output = os.path.join(folder, kind, name, "1")
            export = write_export(python, checkpoint, output, folder)
            servers.append(bert_tf_server(name, python, export, kind, folder))
    if arguments.peers and kind == VECTORS:
        servers += plain_servers(arguments.peers, arguments.source, folder)
    requests = make_requests(kind, _NUM_REQUESTS, arguments.rows)
    expected = direct(os.path.join(folder, kind, _OURS, "1"), requests)
    print(f"\n{kind}, examples per request: {arguments.rows}", flush=True)
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        for line in measure(servers, requests, expected, arguments):
            print(line, flush=True)
        if arguments.soak and kind == VECTORS:
            for line in soak(servers[0], arguments.soak):
                print(line, flush=True)


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", type=lambda text: text.split(","), default=[*KINDS])
    parser.add_argument("--peers", help="Interpreter of the plain server's environment.")
    parser.add_argument("--before", help="Interpreter of another version of bert_tf.")
    parser.add_argument(
        "--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 8, 32]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--soak", type=int, default=0)
    parser.add_argument(
        "--source", default="", help="Directory of all-MiniLM-L6-v2 (default: the package)."
    )
    arguments = parser.parse_args()
    if not set(arguments.what) <= set(KINDS):
        parser.error(
            f"--what: expected some of {', '.join(KINDS)}, got {', '.join(arguments.what)}"
        )
    arguments.source = os.path.abspath(arguments.source) if arguments.source else minilm_directory()
    return arguments


def main() -> None:
    """Measures the requested models."""
    arguments = parse_arguments()
    print(f"{processor()}; load average {os.getloadavg()[0]:.2f}", flush=True)
    for kind in arguments.what:
        with tempfile.TemporaryDirectory() as folder:
            serve_and_measure(kind, folder, arguments)


if __name__ == "__main__":
    main()
