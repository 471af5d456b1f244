"""BERT-base in TensorFlow Serving's engine: the first answer, and eight clients for a minute.

    python -m benchmarks.serving [--seconds=60] [--clients=8] [--json=FILE]

The engine is the C++ program of ``tests/saved_models/engine.cc``: the loader and the sessions that
TensorFlow Serving is built round, without its network. The export is of a pre-trained model of
BERT-base's size with random weights and bert-base-uncased's vocabulary. Its first answer counts
from the start of a process with the export's files out of the page cache: loading TensorFlow's
libraries, the weights and the warm-up requests. Then as many threads as there are clients send
paragraphs of Wikipedia (BERT_TF_DATA) as they are long, in turn to each signature that takes
strings, and wait for the answer each. Latencies count that waiting; memory is the resident set's.
"""

import argparse
import glob
import gzip
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf.startup import filter_native_log

BAR_SECONDS = 10.0
NUM_REQUESTS = 600
MASKED_WORD = 5
# What the process may grow by in the second half of the load, of what it has in the middle: at
# first oneDNN keeps something for each new length of rows; a leak would go on at the same rate.
BAR_GROWTH = 0.05


def make_export(folder: str, path: str) -> None:
    """Exports BERT-base with random weights."""
    import keras

    from bert_tf import BertConfig, BertPretrainer
    from bert_tf.pipelines.vocabulary import load_vocabulary
    from bert_tf.pipelines.wordpiece import BertTokenizer
    from bert_tf.saved_models import export

    keras.utils.set_random_seed(1)
    vocabulary = load_vocabulary(os.path.join(folder, "vocab", "bert-base-uncased.txt"))
    export(BertPretrainer(BertConfig()), path, tokenizer=BertTokenizer(vocabulary), name="base")


def paragraphs(folder: str) -> Iterator[str]:
    """The paragraphs of Wikipedia, in the order of the files."""
    for path in sorted(glob.glob(os.path.join(folder, "corpora", "enwiki", "*.gz"))):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in map(str.strip, file):
                if line and not line.startswith(("<doc", "</doc")):
                    yield line


def write_requests(folder: str, into: str) -> list[str]:
    """Writes requests to each signature that takes strings, in turn."""
    from bert_tf.saved_models.serving_files import predict_request

    lines = list(itertools.islice(paragraphs(folder), NUM_REQUESTS + 1))
    if len(lines) <= NUM_REQUESTS:
        sys.exit(f"Fewer than {NUM_REQUESTS} paragraphs in {folder}/corpora/enwiki.")
    paths = []
    for number, (line, following) in enumerate(itertools.pairwise(lines)):
        words = line.split()
        words[min(MASKED_WORD, len(words) - 1)] = "[MASK]"
        signature, columns = (
            ("serving_default", {"text": " ".join(words)}),
            ("embed", {"text": line}),
            ("next_sentence", {"first": line, "second": following}),
        )[number % 3]
        inputs = {name: np.array([text.encode()], object) for name, text in columns.items()}
        paths.append(os.path.join(into, f"{number:04d}.pb"))
        with open(paths[-1], "wb") as file:
            file.write(predict_request("base", signature, inputs))
    return paths


def forget(path: str) -> None:
    """Takes the files of a directory out of the page cache."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def serve(engine: str, export: str, seconds: float, clients: int, requests: list[str]) -> Any:
    """Runs the engine; what it says, with the seconds from its start to its first answer."""
    from tests.saved_models import cpp_engine

    forget(export)
    began = time.perf_counter()
    process = cpp_engine.start(engine, "load", export, str(seconds), str(clients), *requests)
    first = process.stdout.readline()
    cold_start = time.perf_counter() - began
    rest, errors = process.communicate()
    if process.returncode:
        sys.exit(f"The engine ended with status {process.returncode}: {errors}")
    if errors:
        print(errors, file=sys.stderr)
    return {"cold_start_seconds": cold_start, **json.loads(first), **json.loads(rest)}


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def report(found: dict[str, Any], clients: int) -> bool:
    """Prints what was measured; returns whether it is within the bars."""
    cold, memory = found["cold_start_seconds"], found["memory_start"]
    growth = found["memory_end"] / found["memory_middle"] - 1
    print(
        f"First answer after {cold:.2f} s: reading the export {found['loading_seconds']:.2f} s, "
        f"{found['warm_up_requests']} warm-up requests {found['warm_up_seconds']:.2f} s, the "
        f"answer {found['first_answer_seconds']:.2f} s (bar: {BAR_SECONDS:.0f} s)."
    )
    print(
        f"{clients} clients: {found['requests']:,} requests, {found['errors']} errors, "
        f"{found['requests_per_second']:.1f} requests/s, median {found['median_ms']:.0f} ms, "
        f"p99 {found['p99_ms']:.0f} ms."
    )
    print(
        f"Memory: {_megabytes(memory)} at the start, {_megabytes(found['memory_middle'])} in the "
        f"middle, {_megabytes(found['memory_end'])} at the end ({growth:+.1%}), "
        f"{_megabytes(found['memory_most'])} at most (bar: {BAR_GROWTH:+.0%})."
    )
    return cold <= BAR_SECONDS and not found["errors"] and growth <= BAR_GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--json", help="write the numbers to this file, too")
    arguments = parser.parse_args()
    folder = os.environ.get("BERT_TF_DATA") or sys.exit("Set BERT_TF_DATA to the real data.")
    filter_native_log()
    from tests.saved_models import cpp_engine

    if cpp_engine.compiler() is None:
        sys.exit("No C++ compiler: install g++.")
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}.")
    with tempfile.TemporaryDirectory() as work:
        engine = cpp_engine.compile_engine(work)
        export = os.path.join(work, "base", "1")
        # A process of its own, so that its memory is free again when the engine starts.
        code = "import sys; from benchmarks.serving import make_export; make_export(*sys.argv[1:])"
        subprocess.run([sys.executable, "-c", code, folder, export], check=True)
        requests = write_requests(folder, work)
        found = serve(engine, export, arguments.seconds, arguments.clients, requests)
    passed = report(found, arguments.clients)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
