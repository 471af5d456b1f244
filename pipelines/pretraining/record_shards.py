"""Writes a corpus as TFRecords in Google's format, in one process or in several.

A shard contains every ``num_shards``-th pool of rows. The rows of a pool depend only on the seed
and the pool's index, so a shard does not depend on other shards or on the process that writes it.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import tensorflow as tf

from bert_tf.io.files import check_not_exists, rename_exclusive, scratch_directory
from bert_tf.io.messages import listed
from bert_tf.io.runtime import initialize_worker, usable_cores
from bert_tf.pipelines.corpora.sources import Corpus, open_corpus
from bert_tf.pipelines.wordpiece import BertTokenizer

from . import tfrecords
from .dataset import RowOptions, make_row_batches, trace_pools

_BATCH = 256


@dataclasses.dataclass(frozen=True)
class Source:
    """Corpus, cache folder and tokenizer for processes that write records."""

    input: tuple[str, ...]
    input_format: str | None
    cache_dir: str
    vocab_file: str
    do_lower_case: bool
    num_epochs: int = 1  # number of passes over the corpus


@functools.lru_cache(maxsize=1)  # one process may write many shards
def open_source(source: Source) -> tuple[Corpus, BertTokenizer]:
    """Opens the corpus, which builds its index on the first call, and the tokenizer."""
    tokenizer = BertTokenizer(source.vocab_file, do_lower_case=source.do_lower_case)
    corpus = open_corpus(source.input, input_format=source.input_format, cache_dir=source.cache_dir)
    return corpus, tokenizer


def examples(source: Source, rows: RowOptions) -> tf.data.Dataset:
    """Creates a dataset with batches of all examples."""
    return make_row_batches(
        *open_source(source),
        rows,
        batch_size=_BATCH,
        num_epochs=source.num_epochs,
        drop_remainder=False,
    )


@functools.lru_cache(maxsize=1)
def _traced_pools(source: Source, rows: RowOptions) -> tuple[int, Callable[..., Any]]:
    """Traces the function that creates pools, only once for all shards that a process writes."""
    return trace_pools(*open_source(source), rows)


def write_shard(source: Source, rows: RowOptions, paths: Sequence[str], shard: int) -> int:
    """Writes one shard, possibly in a separate process; returns the number of rows."""
    num_pools, make_pool = _traced_pools(source, rows)
    numbers = range(shard, source.num_epochs * num_pools, len(paths))
    pools = (
        make_pool(*(tf.constant(part, tf.int64) for part in divmod(number, num_pools)))
        for number in numbers
    )
    return tfrecords.write_tfrecords(pools, paths[shard])


def write_shards(
    source: Source, rows: RowOptions, paths: Sequence[str], scratch: str | None = None
) -> int:
    """Writes all shards with one process per core; returns the number of rows.

    If this process is killed, its child processes end and remove ``scratch``.
    """
    work = functools.partial(write_shard, source, rows, paths)
    count = min(usable_cores(), len(paths))
    if count == 1:
        return sum(map(work, range(len(paths))))
    # Processes are spawned, because a process that has loaded TensorFlow must not be forked.
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(count, context, initialize_worker, (scratch,))
    try:
        # map would cancel futures and therefore not report the errors of processes that have ended.
        futures = [pool.submit(work, shard) for shard in range(len(paths))]
        return sum(future.result() for future in futures)
    except BaseException as error:
        # The incomplete shards are removed after the processes have ended.
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        if isinstance(error, BrokenProcessPool):
            raise ChildProcessError(
                f"One of the {count} processes that write shards was killed, probably for lack of "
                "memory. End other processes, or run this command on fewer cores."
            ) from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def write_on_beam(pipeline: Any, source: Source, rows: RowOptions, paths: Sequence[str]) -> None:
    """Writes all shards with an Apache Beam pipeline, possibly on other machines."""
    import apache_beam as beam

    write = functools.partial(write_shard, source, rows, paths)
    _ = pipeline | beam.Create(range(len(paths))) | beam.Reshuffle() | beam.Map(write)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:  # the type depends on the runner; the text may contain tracebacks
        last = str(error).strip().rpartition("\n")[2] or type(error).__name__
        raise ValueError(f"Apache Beam failed: {last.removeprefix('RuntimeError: ')}") from error


@contextlib.contextmanager
def atomic_shards(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yields temporary paths for shards that are renamed to ``paths`` if the block succeeds."""
    name = paths[0].rsplit("-", 3)[0]  # without the index of the shard
    _check_new(name, paths)
    with scratch_directory(name) as folder:
        written = [os.path.join(folder, os.path.basename(path)) for path in paths]
        yield written
        _check_new(name, paths)
        for source, path in zip(written, paths, strict=True):
            rename_exclusive(source, path)


def _check_new(name: str, paths: Sequence[str]) -> None:
    """Checks that no shard exists, even of another count, which ``NAME*`` would also match."""
    for path in paths:
        check_not_exists(path)
    folder, start = os.path.split(name)
    shard = re.compile(rf"{re.escape(start)}(-\d{{5}}-of-\d{{5}})?")
    existing = tf.io.gfile.listdir(folder or ".") if tf.io.gfile.isdir(folder or ".") else []
    earlier = [file for file in sorted(existing) if shard.fullmatch(file)]
    if earlier := [file for file in earlier if not tf.io.gfile.isdir(os.path.join(folder, file))]:
        raise ValueError(
            f"{name}@{len(paths)}: {name}* would also match the existing {listed(earlier, 2)}. "
            "Remove these files, or use another name."
        )
