"""Google's TFRecords of a corpus, written at once or shard by shard, by any process.

A shard has every ``num_shards``-th pool of rows, which the seed and the pool's number decide: each
shard is the same whoever writes it, and whether or not others are written.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import tensorflow as tf

from bert_tf.io.files import check_not_exists, rename_exclusive, scratch_directory
from bert_tf.io.runtime import initialize_worker, usable_cores
from bert_tf.io.wording import listed
from bert_tf.pipelines.corpora.sources import Corpus, open_corpus
from bert_tf.pipelines.wordpiece import BertTokenizer

from . import tfrecords
from .dataset import RowOptions, make_row_batches

_BATCH = 256


@dataclasses.dataclass(frozen=True)
class Source:
    """The corpus of records, its index' place, and the tokenizer, for processes to open."""

    input: tuple[str, ...]
    input_format: str | None
    cache_dir: str
    vocab_file: str
    do_lower_case: bool
    num_epochs: int = 1  # how often it is read


@functools.lru_cache(maxsize=1)  # a process may write many shards
def open_source(source: Source) -> tuple[Corpus, BertTokenizer]:
    """Opens the corpus, whose index is made at the first call, and the tokenizer."""
    tokenizer = BertTokenizer(source.vocab_file, do_lower_case=source.do_lower_case)
    corpus = open_corpus(source.input, input_format=source.input_format, cache_dir=source.cache_dir)
    return corpus, tokenizer


def examples(
    source: Source, rows: RowOptions, shard: int = 0, num_shards: int = 1
) -> tf.data.Dataset:
    """The batches of a shard's examples, or of all."""
    return make_row_batches(
        *open_source(source),
        rows,
        batch_size=_BATCH,
        num_epochs=source.num_epochs,
        shard_index=shard,
        num_shards=num_shards,
        drop_remainder=False,
    )


def write_shard(source: Source, rows: RowOptions, paths: Sequence[str], shard: int) -> int:
    """Writes one shard, in a process that may have opened nothing yet: the number of its rows."""
    return tfrecords.write_tfrecords(examples(source, rows, shard, len(paths)), paths[shard])


def write_shards(
    source: Source, rows: RowOptions, paths: Sequence[str], scratch: str | None = None
) -> int:
    """Writes every shard by a process for each core: the number of rows.

    If this process is killed, its processes end, too, and remove ``scratch``.
    """
    work = functools.partial(write_shard, source, rows, paths)
    count = min(usable_cores(), len(paths))
    if count == 1:
        return sum(map(work, range(len(paths))))
    # A process must not be forked from one that has loaded TensorFlow.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(count, context, initialize_worker, (scratch,))
    try:
        # Not by map, which cancels them: of these a pool complains whose processes end.
        futures = [pool.submit(work, shard) for shard in range(len(paths))]
        return sum(future.result() for future in futures)
    except BaseException as error:
        # What they write is of no use any more, and is removed after them.
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        if isinstance(error, BrokenProcessPool):
            raise ChildProcessError(
                f"One of the {count} processes that write shards was killed, as the system does "
                "for want of memory: end what else runs, or give this command fewer cores."
            ) from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def write_on_beam(pipeline: Any, source: Source, rows: RowOptions, paths: Sequence[str]) -> None:
    """Writes every shard by a pipeline of Apache Beam, which has workers elsewhere perhaps."""
    import apache_beam as beam

    write = functools.partial(write_shard, source, rows, paths)
    _ = pipeline | beam.Create(range(len(paths))) | beam.Reshuffle() | beam.Map(write)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:  # of a kind that differs by runner; its text may hold tracebacks
        last = str(error).strip().rpartition("\n")[2] or type(error).__name__
        raise ValueError(f"Apache Beam failed: {last.removeprefix('RuntimeError: ')}") from error


@contextlib.contextmanager
def atomic_shards(paths: Sequence[str]) -> Iterator[list[str]]:
    """Gives paths to write all shards to, which get their names, all or none, after the block."""
    name = paths[0].rsplit("-", 3)[0]  # without the shard's number
    _check_new(name, paths)
    with scratch_directory(name) as folder:
        written = [os.path.join(folder, os.path.basename(path)) for path in paths]
        yield written
        _check_new(name, paths)
        for source, path in zip(written, paths, strict=True):
            rename_exclusive(source, path)


def _check_new(name: str, paths: Sequence[str]) -> None:
    """Checks that no shard exists, nor one of another count, which ``NAME*`` would also match."""
    for path in paths:
        check_not_exists(path)
    folder, start = os.path.split(name)
    shard = re.compile(rf"{re.escape(start)}(-\d{{5}}-of-\d{{5}})?")
    existing = tf.io.gfile.listdir(folder or ".") if tf.io.gfile.isdir(folder or ".") else []
    earlier = [each for each in sorted(existing) if shard.fullmatch(each)]
    if earlier := [each for each in earlier if not tf.io.gfile.isdir(os.path.join(folder, each))]:
        raise ValueError(
            f"{name}@{len(paths)}: {name}* would also match the earlier {listed(earlier, 2)}. "
            "Remove them, or use another name."
        )
