"""Text to WordPiece ids compared with Hugging Face's Rust ``tokenizers``, on real text.

    python -m benchmarks.tokenizer [--threads=1,2] [--rounds=7] [--files=6] [--json=FILE]

The input is lines of Wikipedia (in BERT_TF_DATA) in batches of 1,024, with the vocabulary of
bert-base-uncased. bert_tf runs ``BertTokenizer.tokenize`` in ``Dataset.map``. The peer runs
``encode_batch_fast``, which computes no offsets; extracting the ids from its results is not timed.
Each contender is a separate process, limited to as many cores as it has threads. The rounds of the
contenders alternate; the result is the median. First, the ids of all lines are compared.
"""

import argparse
import functools
import glob
import gzip
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .machine import processor
from .measured_process import MeasuredProcess

BATCH_SIZE = 1024
TARGET = 5.0
OURS, PEER = "bert_tf", "tokenizers"


def read_batches(folder: str, num_files: int) -> list[list[str]]:
    """Returns the paragraphs of the first files in batches."""
    paths = sorted(glob.glob(os.path.join(folder, "corpora", "enwiki", "*.gz")))[:num_files]
    if not paths:
        sys.exit(f"No .gz file in {folder}/corpora/enwiki.")
    lines = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            stripped = (line.strip() for line in file)
            lines += [line for line in stripped if line and not line.startswith(("<doc", "</doc"))]
    return [lines[start : start + BATCH_SIZE] for start in range(0, len(lines), BATCH_SIZE)]


# === The contenders' processes ===

# Function that returns the flat ids and the row lengths of one batch.
Result = Callable[[], tuple[np.ndarray, np.ndarray]]
# Function that tokenizes all batches a number of times.
Runner = Callable[[int], Iterator[Result]]


def our_runner(folder: str, batches: list[list[str]], threads: int) -> Runner:
    """Returns a runner with bert_tf."""
    import tensorflow as tf

    from bert_tf.pipelines.wordpiece import BertTokenizer

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tokenizer = BertTokenizer(os.path.join(folder, "vocab", "bert-base-uncased.txt"))
    lines = tf.ragged.constant(batches, tf.string)
    dataset = tf.data.Dataset.range(len(batches)).map(lambda index: lines[index])
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    dataset = dataset.cache().with_options(options).repeat()
    # All rounds share one iterator, as in training.
    iterator = iter(dataset.map(tokenizer.tokenize, num_parallel_calls=threads))

    def run(passes: int) -> Iterator[Result]:
        for ids in itertools.islice(iterator, passes * len(batches)):
            yield functools.partial(_unpack_ours, ids)

    return run


def peer_runner(folder: str, batches: list[list[str]], threads: int) -> Runner:
    """Returns a runner with ``tokenizers``."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    import tokenizers

    with open(os.path.join(folder, "vocab", "bert-base-uncased.txt"), encoding="utf-8") as file:
        vocab = {line.rstrip("\n"): index for index, line in enumerate(file)}
    model = tokenizers.models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=200)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    def run(passes: int) -> Iterator[Result]:
        for batch in itertools.chain.from_iterable(itertools.repeat(batches, passes)):
            rows = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            yield functools.partial(_unpack_peers, rows)

    return run


def _unpack_ours(ids: Any) -> tuple[np.ndarray, np.ndarray]:
    return ids.flat_values.numpy(), ids.row_lengths().numpy()


def _unpack_peers(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([row.ids for row in rows]), np.array([len(row.ids) for row in rows])


def serve(name: str, folder: str, num_files: int, threads: int, path: str) -> None:
    """Writes a checksum of the ids of each line to a file, then runs the requested passes."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    batches = read_batches(folder, num_files)
    runner = our_runner if name == OURS else peer_runner
    run = runner(folder, batches, threads)
    checksums, num_tokens = [], 0
    for result in run(1):
        flat, lengths = result()
        num_tokens += flat.size
        rows = np.split(flat.astype(np.int32), np.cumsum(lengths)[:-1])
        checksums += [zlib.crc32(row.tobytes()) for row in rows]
    np.save(path, np.array(checksums))
    print(f"ANSWER {num_tokens}", flush=True)
    for line in sys.stdin:
        start_time = time.perf_counter()
        for _ in run(int(line)):
            pass
        print(f"ANSWER {time.perf_counter() - start_time}", flush=True)


# === The comparison ===


class Contender:
    """A worker process that tokenizes the text on request, and its measurements."""

    def __init__(self, name: str, threads: int, arguments: argparse.Namespace, path: str):
        self.name = name
        # A round takes about a second.
        self.passes = 6 * threads if name == OURS else 1
        self.seconds: list[float] = []
        command = ["benchmarks.tokenizer", "--serve", name, "--path", path]
        self.process = MeasuredProcess(
            name,
            [*command, f"--threads={threads}", f"--files={arguments.files}"],
            {"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.num_tokens = int(self.process.answer())
        self.checksums = np.load(path)

    def run_round(self) -> None:
        """Measures one round."""
        self.seconds.append(self.process.ask(self.passes) / self.passes)

    def speed(self) -> float:
        """Returns the median tokens per second of the rounds."""
        return self.num_tokens / statistics.median(self.seconds)


def compare(threads: int, arguments: argparse.Namespace, path: str) -> dict[str, float]:
    """Returns the tokens per second of each contender with a number of threads."""
    contenders = [Contender(name, threads, arguments, path) for name in (OURS, PEER)]
    ours, peer = contenders
    if threads == min(arguments.thread_counts):
        equal = ours.checksums == peer.checksums
        print(
            f"{equal.size:,} lines, {ours.num_tokens:,} tokens; equal ids in "
            f"{equal.mean():.3%} of the lines ({np.count_nonzero(~equal)} differ)",
            flush=True,
        )
    for _ in range(arguments.rounds):
        for contender in contenders:
            contender.run_round()
    for contender in contenders:
        contender.process.close()
    return {contender.name: contender.speed() for contender in contenders}


def main() -> None:
    """Compares, prints a table, and writes it to ``--json`` if specified."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=6)
    parser.add_argument("--json", default="")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--path", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = os.environ.get("BERT_TF_DATA")
    if not folder:
        sys.exit("Set BERT_TF_DATA to the folder that contains corpora/ and vocab/.")
    if arguments.serve:
        serve(arguments.serve, folder, arguments.files, int(arguments.threads), path=arguments.path)
        return
    arguments.thread_counts = [int(threads) for threads in arguments.threads.split(",")]
    print(processor(), flush=True)
    figures = []
    with tempfile.TemporaryDirectory() as temporary:
        for threads in arguments.thread_counts:
            speeds = compare(threads, arguments, os.path.join(temporary, "checksums.npy"))
            ratio = speeds[OURS] / speeds[PEER]
            figures.append({"threads": threads, **speeds, "ratio": ratio})
    print(f"{'threads':>7} {OURS + ' tokens/s':>18} {PEER + ' tokens/s':>20} {'ratio':>6}")
    for row in figures:
        print(f"{row['threads']:7} {row[OURS]:18,.0f} {row[PEER]:20,.0f} {row['ratio']:6.2f}")
    print(f"target: a ratio of {TARGET:g} for each number of threads")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
