r"""Opening a corpus: how fast it is indexed, and what the index of a terabyte costs.

    python -m benchmarks.indexing [--megabytes=100] [--documents=10000000] [--records=200] \
        [--json=FILE]

The first part indexes real text, repeated to so many megabytes, in every format, and prints
megabytes of text per second of processor time (what one core does) and of the clock; beside them
what ``sha256`` takes, which does nothing but read. The second part makes up an index of a terabyte:
so many documents, in blocks of a megabyte that all are blocks of one small file. It is saved,
opened, divided, and read at its start and at a place in the middle, as a resumed run does, with the
seconds and the memory of each; a corpus a thousandth as large shows what does not grow. The third
part opens so many TFRecord files of 50,000 rows, for the first and for the second time.
"""

import argparse
import functools
import glob
import gzip
import hashlib
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from .machine import processor

T = TypeVar("T")

BLOCKS_OF_A_TERABYTE = 1_000_000


# === How fast text is indexed ===


def real_text(folder: str, corpus: str, size: int) -> bytes:
    """The text of a corpus' files, repeated to so many bytes."""
    parts = []
    for path in sorted(glob.glob(os.path.join(folder, "corpora", corpus, "*.gz"))):
        with gzip.open(path) as file:
            parts.append(file.read())
    text = b"".join(parts)
    if not text:
        sys.exit(f"No .gz file in {folder}/corpora/{corpus}.")
    return (text * (size // len(text) + 1))[:size].rsplit(b"\n\n", 1)[0] + b"\n"


def write_formats(folder: str, scratch: str, size: int) -> list[str]:
    """Writes a file of each format, and returns their paths."""
    from bert_tf.pipelines import sources

    wiki, prose = real_text(folder, "enwiki", size), real_text(folder, "books", size)
    with open(os.path.join(scratch, "wikiextractor.txt"), "wb") as file:
        file.write(wiki)
    with open(os.path.join(scratch, "prose.md"), "wb") as file:
        file.write(prose)
    with gzip.open(os.path.join(scratch, "wikiextractor.gz"), "wb", 6) as packed:
        packed.write(wiki)
    corpus = sources.open_corpus(os.path.join(scratch, "wikiextractor.txt"))
    with (
        open(os.path.join(scratch, "google.txt"), "wb") as google,
        open(os.path.join(scratch, "one-line.jsonl"), "w", encoding="utf-8") as lines,
        open(os.path.join(scratch, "paragraphs.jsonl"), "w", encoding="utf-8") as paragraphs,
    ):
        # As WikiExtractor writes them: every document with its paragraphs' line breaks.
        for text in re.findall(rb"^<doc [^\n]*\n(.*?)\n</doc>", wiki, re.MULTILINE | re.DOTALL):
            paragraphs.write(json.dumps({"text": text.decode()}) + "\n")
        for number in range(corpus.num_blocks):
            for document in corpus.read_documents(number).to_list():
                google.write(b"\n".join(document) + b"\n\n")
                lines.write(json.dumps({"text": b" ".join(document).decode()}) + "\n")
    names = ("google.txt", "wikiextractor.txt", "prose.md", "wikiextractor.gz", "paragraphs.jsonl")
    return [os.path.join(scratch, name) for name in (*names, "one-line.jsonl")]


def measure_speed(folder: str, size: int) -> list[dict[str, float | str]]:
    from bert_tf.pipelines import sources

    figures: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as scratch:
        paths = write_formats(folder, scratch, size)
        for path in paths:
            with open(path, "rb") as file:
                content = file.read()
            began = time.process_time()
            hashlib.sha256(content).hexdigest()
            limit = len(content) / 1e6 / (time.process_time() - began)
            with tempfile.TemporaryDirectory() as cache:
                began, cpu = time.perf_counter(), time.process_time()
                corpus = sources.open_corpus(path, cache_dir=cache)
                seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
                kept = sum(entry.stat().st_size for entry in os.scandir(cache)) / 1e6
                began = time.perf_counter()
                sources.open_corpus(path, cache_dir=cache)
                again = time.perf_counter() - began
            text = int(corpus.blocks.lengths.sum()) / 1e6
            figures.append(
                {"file": os.path.basename(path), "text": text, "per_core": text / cpu, "sha": limit}
            )
            print(
                f"{os.path.basename(path):18} {text:6.0f} MB of text: {text / cpu:6.1f} MB/s a "
                f"core, {text / seconds:6.1f} MB/s by the clock (sha256 {limit:,.0f} MB/s); "
                f"{kept:.1f} MB kept, opened again in {again:.2f} s",
                flush=True,
            )
    return figures


# === What the index of a terabyte costs ===


def memory() -> float:
    """The most memory that this process has had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def step(name: str, run: Callable[[], T]) -> T:
    """Runs something and prints its seconds, and the most memory so far."""
    began = time.perf_counter()
    result = run()
    print(f"  {name:44} {time.perf_counter() - began:7.2f} s, {memory():7.0f} MB", flush=True)
    return result


def measure_large(documents: int, blocks: int, scratch: str) -> None:
    import numpy as np

    from bert_tf.pipelines import corpus_index, sources
    from bert_tf.pipelines.corpus import Corpus, DocumentTable, FileBlocks
    from bert_tf.pipelines.pretraining import pretraining_dataset
    from bert_tf.pipelines.wordpiece import BertTokenizer

    per_block = documents // blocks
    line = b"the cat sat on the mat and the dog lay by the door of the old house. "
    path = os.path.join(scratch, "text.txt")
    with open(path, "wb") as file:
        for number in range(16 * per_block):
            lines = [b"%d %s" % (number, line)] * (1_000_000 // per_block // len(line))
            file.write(b"\n".join(lines) + b"\n\n")
    small = sources.open_corpus(path, input_format="google", block_bytes=1_000_000 // per_block)
    # Blocks of so many documents: the entries are made up, their text is the small file's.
    sizes = small.blocks.lengths[: 16 * per_block].reshape(16, per_block).sum(1)
    turn = np.arange(blocks) % 16
    rng = np.random.default_rng(0)
    index = corpus_index.Index(
        ("google",),
        FileBlocks(
            files=(path,),
            file_sizes=small.blocks.file_sizes,
            file_is_gzip=np.array([False]),
            file_formats=("google",),
            block_files=np.zeros(blocks, np.int64),
            offsets=(np.cumsum(sizes) - sizes)[turn],
            stored=sizes[turn],
            lengths=sizes[turn],
        ),
        DocumentTable(
            block_splits=np.arange(blocks + 1) * per_block,
            num_bytes=np.resize(small.table.num_bytes, documents),
            fingerprints=rng.integers(1 << 62, size=documents),
        ),
    )
    print(f"{documents:,} documents, {sizes[turn].sum() / 1e9:,.1f} GB, {memory():.0f} MB before:")
    saved = os.path.join(scratch, "index.npz")
    step("save the index", functools.partial(corpus_index.save_index, saved, index))
    print(f"  {'it takes':44} {os.path.getsize(saved) / 1e6:7.0f} MB on the disk")
    opened = step("open it", lambda: corpus_index.load_index(saved))
    if opened is None:
        sys.exit(f"{saved} does not open.")
    kept = np.ones(documents, bool)
    corpus = Corpus("google", 1, opened.blocks, opened.table, kept)
    step("fingerprint it", lambda: corpus.fingerprint)
    train, _ = step("hold documents out", corpus.split_held_out)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(line.decode().split()))]
    tokenizer = BertTokenizer(words)

    def batch(start: tuple[int, int, int]) -> object:
        dataset = pretraining_dataset(train, tokenizer, batch_size=256, start=start)
        return next(iter(dataset))["cursor"][0].numpy().tolist()

    step("first batch", lambda: batch((0, 0, 0)))
    place = (3, max(1, blocks // 40), 7)
    found = step(f"first batch from {place} on", lambda: batch(place))
    if found != list(place):
        sys.exit(f"The first batch from {place} on begins at {found}.")


# === Where the records of TFRecord files begin ===


def measure_records(files: int, scratch: str) -> None:
    """Opens short records, of 16 tokens: what each of them takes is not hidden by its bytes."""
    import numpy as np

    from bert_tf.pipelines import record_files
    from bert_tf.pipelines.tfrecords import tfrecord_dataset, write_tfrecords

    rng = np.random.default_rng(0)
    rows, length, predictions = 50_000, 16, 3
    batch = {
        "input_word_ids": rng.integers(1, 30_000, (rows, length), np.int32),
        "input_mask": np.ones((rows, length), np.int32),
        "input_type_ids": np.zeros((rows, length), np.int32),
        "masked_lm_positions": np.tile(np.int32([1, 2, 3]), (rows, 1)),
        "masked_lm_ids": rng.integers(1, 30_000, (rows, predictions), np.int32),
        "masked_lm_weights": np.ones((rows, predictions), np.float32),
        "next_sentence_labels": np.zeros(rows, np.int32),
    }
    folder = os.path.join(scratch, "records")
    first = os.path.join(folder, "0")
    write_tfrecords([batch], first)
    for number in range(1, files):
        shutil.copyfile(first, os.path.join(folder, str(number)))
    size = files * os.path.getsize(first)
    print(f"{files * rows:,} records in {files:,} files, {size / 1e9:.1f} GB:", flush=True)

    def first_batch() -> None:
        record_files._open.cache_clear()  # as a new process does
        records = record_files.open_records(f"{folder}/*", os.path.join(scratch, "cache"))
        dataset = tfrecord_dataset(
            records, batch_size=256, max_seq_length=length, max_predictions_per_seq=predictions
        )
        next(iter(dataset))

    step("first batch, nothing known", first_batch)
    step("first batch, opened again", first_batch)
    os.utime(first, (0, 0))
    step("first batch, one file changed", first_batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100, help="0 leaves the first part out")
    parser.add_argument("--documents", type=int, default=10_000_000, help="0 leaves it out")
    parser.add_argument("--records", type=int, default=200, help="files; 0 leaves it out")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    print(processor(), flush=True)
    if arguments.megabytes:
        folder = os.environ.get("BERT_TF_DATA")
        if not folder:
            sys.exit("Set BERT_TF_DATA to the folder that holds corpora/.")
        figures = measure_speed(folder, arguments.megabytes * 1_000_000)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(figures, file, indent=1)
    for share in (1000, 1) if arguments.documents else ():
        with tempfile.TemporaryDirectory() as scratch:
            measure_large(arguments.documents // share, BLOCKS_OF_A_TERABYTE // share, scratch)
    if arguments.records:
        with tempfile.TemporaryDirectory() as scratch:
            measure_records(arguments.records, scratch)


if __name__ == "__main__":
    main()
