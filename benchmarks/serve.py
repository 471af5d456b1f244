"""The server under load against its SavedModel called directly: requests a second, and memory.

    python -m benchmarks.serve --model=EXPORT [--threads=8] [--seconds=120] [--rows=1]

EXPORT is a version's directory, of a model whose ``serving_default`` takes ``text``. The texts are
SST-2's (BERT_TF_DATA). As many threads call the loaded SavedModel in this process, a tenth of the
time, and then ask ``python -m bert_tf.serve`` over connections that stay open. Every reply is
compared with what the signature answered to the same texts alone. The server's memory is read once
a tenth of the time has passed, and at the end.
"""

import argparse
import csv
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .machine import processor

_DIFFERENT_REQUESTS = 64
# A row's float32 depends in its last digits on the rows beside it: the SavedModel called directly
# with two rows of a MiniLM of 20 classes differs by 1.2e-6 from one called with each alone.
_TOLERANCE = 1e-5

# What a thread calls, with the number of a request; it gives the outputs by name.
Ask = Callable[[int], dict[str, Any]]


def read_requests(rows: int) -> list[list[str]]:
    """Texts of SST-2's development set, ``rows`` a request."""
    path = os.path.join(os.environ["BERT_TF_DATA"], "glue", "SST-2", "dev.tsv")
    with open(path, encoding="utf-8", newline="") as file:
        texts = [row["sentence"] for row in csv.DictReader(file, delimiter="\t", quoting=3)]
    return [[texts[(n * rows + i) % len(texts)] for i in range(rows)]
            for n in range(_DIFFERENT_REQUESTS)]  # fmt: skip


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest difference of two answers' floats; whatever else differs is an error."""
    largest = 0.0
    for name, value in expected.items():
        if np.asarray(value).dtype.kind == "f":
            largest = max(largest, float(np.max(np.abs(np.subtract(found[name], value)))))
        elif found[name] != value:
            raise ValueError(f"{name}: expected {value}, got {found[name]}.")
    return largest


def load(seconds: float, asks: list[Ask], expected: list[dict[str, Any]]) -> tuple[int, float]:
    """Calls each of ``asks`` in a thread of its own: requests answered, the largest difference."""
    until = time.monotonic() + seconds
    counts, largest, errors = [0] * len(asks), [0.0] * len(asks), []

    def work(thread: int) -> None:
        try:
            while time.monotonic() < until:
                # Each begins at another request, so that those that wait together differ.
                number = (7 * thread + counts[thread]) % len(expected)
                found = difference(asks[thread](number), expected[number])
                largest[thread] = max(largest[thread], found)
                counts[thread] += 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        sys.exit(f"{len(errors)} of {len(asks)} threads failed; the first: {errors[0]!r}")
    return sum(counts), max(largest)


def direct(model: str, requests: list[list[str]]) -> Ask:
    """Calls the SavedModel in this process."""
    import tensorflow as tf

    from bert_tf.saved_models import replay

    replay.load_text_operations()
    loaded = replay.load(model)  # which must live as long as its signatures

    def ask(number: int) -> dict[str, Any]:
        outputs = loaded.signatures["serving_default"](text=tf.constant(requests[number]))
        return {name: replay.to_json(value.numpy()) for name, value in outputs.items()}

    return ask


def over_http(place: str, name: str, requests: list[list[str]]) -> Ask:
    """Asks the server, over one connection."""
    connection = http.client.HTTPConnection(place, timeout=60)
    bodies = [json.dumps({"inputs": {"text": texts}}) for texts in requests]

    def ask(number: int) -> dict[str, Any]:
        connection.request("POST", f"/v1/models/{name}:predict", bodies[number])
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise ValueError(f"status {reply.status}: {text[:200]!r}")
        return json.loads(text)["outputs"]

    return ask


def resident(pid: int) -> float:
    """The MiB of memory that a process holds."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) / 1024


def main() -> None:
    """Loads both, and prints what they answered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rows", type=int, default=1)
    given = parser.parse_args()
    requests = read_requests(given.rows)
    ask = direct(given.model, requests)
    expected = [ask(number) for number in range(len(requests))]
    print(f"{processor()}; {given.threads} threads, {given.rows} rows a request")
    begin = given.seconds / 10
    called, _ = load(begin, [ask] * given.threads, expected)
    print(f"called directly: {called / begin:,.1f} requests/s", flush=True)

    line = [sys.executable, "-m", "bert_tf.serve", f"--model={given.model}", "--name=m"]
    with subprocess.Popen([*line, "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"Listening at http://([^/]+)/", "".join(startup_lines(process)))
            if found is None:
                sys.exit("The server did not start: see its message above.")
            asks = [over_http(found[1], "m", requests) for _ in range(given.threads)]
            first, largest = load(begin, asks, expected)
            before = resident(process.pid)
            rest, other = load(given.seconds - begin, asks, expected)
            after = resident(process.pid)
        finally:
            process.terminate()
    print(
        f"over HTTP: {(first + rest) / given.seconds:,.1f} requests/s, {first + rest:,} without an "
        f"error; answers differ by {max(largest, other):.1e} at most\n"
        f"the server's memory: {before:,.0f} MiB after {begin:g} s, {after:,.0f} MiB at the end"
    )
    if max(largest, other) > _TOLERANCE:
        sys.exit(f"Expected differences of at most {_TOLERANCE}.")


def startup_lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    """The lines that a server prints, up to the one that says where it listens."""
    for line in process.stdout or ():
        yield line
        if line.startswith("Listening at "):
            return


if __name__ == "__main__":
    main()
