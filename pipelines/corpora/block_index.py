"""Index of a corpus: blocks, and the sizes and fingerprints of the documents in each block.

Each file is read once, in order. Reader threads split its text into blocks, and worker threads
validate the blocks and measure their documents in parallel. Threads suffice because the slow
operations (reading, inflating, NumPy and TensorFlow) release Python's lock.

In a cache folder, the index is saved under a key of the files and of all options that affect
parsing. Blocks of JSON lines and of large gzip files do not support random access, so they are also
saved in the cache folder, each compressed separately. All files are written atomically, so any
number of processes can create or read the same index.
"""

import collections
import concurrent.futures
import dataclasses
import gzip
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from bert_tf.choices import INPUT_FORMATS
from bert_tf.io.files import atomic_write
from bert_tf.io.runtime import usable_cores

from . import files as corpus_files
from . import formats as corpus_formats
from .corpus import Corpus, DocumentTable, FileBlocks, count_text, join, make_corpus
from .files import SourceFile, in_threads
from .text_bytes import check_utf8, inflate_small, open_text, text_chunks

#: Called repeatedly with the number of processed bytes and the total.
Progress = Callable[[int, int], None]

# Number of files to read in parallel, because remote file systems have a high latency.
_NUM_READERS = 16
# Number of indexes to collect before joining them. Joining saves memory.
_MAX_PENDING_INDEXES = 1024
# Number of bytes at the start of a file from which the format is detected.
_HEAD_BYTES = 1 << 16
# Formats that cannot be confused with another format.
_UNAMBIGUOUS = (corpus_formats.JSONL, corpus_formats.WIKIEXTRACTOR)
# Estimated maximum compression ratio of text.
_GZIP_RATIO = 4
# Maximum number of processed blocks per file that may wait for an earlier block.
_MAX_WAITING = 64
# Compression level. Files are a sixth larger than by default, but take a quarter of the time.
_GZIP_LEVEL = 1


@dataclasses.dataclass(frozen=True)
class Reading:
    """Reading options: input format (or ``None``), JSON key of texts, and block size."""

    input_format: str | None
    text_key: str
    block_bytes: int

    def key(self) -> tuple[object, ...]:
        """Returns the options that affect an index, including the parser's limit."""
        return (*dataclasses.astuple(self), corpus_formats.MAX_DOCUMENT_BYTES)


def open_index(
    sources: Sequence[SourceFile],
    reading: Reading,
    cache_dir: str | None,
    progress: Progress | None = None,
) -> Corpus:
    """Loads the index of files, or builds it and saves it to the cache folder."""
    if cache_dir is None:
        return _build(sources, reading, None, progress)
    path = index_path(cache_dir, list(sources), *reading.key())
    corpus = load_index(path, sources)
    if corpus is None:
        corpus = _build(sources, reading, cache_dir, progress)
        save_index(path, corpus)
    return corpus


# === Building ===


def _build(
    sources: Sequence[SourceFile],
    reading: Reading,
    cache_dir: str | None,
    progress: Progress | None,
) -> Corpus:
    """Builds the indexes of files in parallel, and joins them."""
    kinds = list(in_threads(lambda file: _kind(file, reading.input_format), sources))
    if cache_dir is not None:
        _check_packing(sources, kinds, reading, cache_dir)
    cores = usable_cores()
    room = threading.Semaphore(2 * cores)
    indexes = []
    with (
        concurrent.futures.ThreadPoolExecutor(cores) as workers,
        concurrent.futures.ThreadPoolExecutor(_NUM_READERS) as readers,
    ):
        size = sum(file.size for file in sources)
        builder = _IndexBuilder(reading, cache_dir, workers, room, size, progress)
        for first in range(0, len(sources), _MAX_PENDING_INDEXES):
            batch = slice(first, first + _MAX_PENDING_INDEXES)
            running = [
                readers.submit(builder.build_index, source, *kind)
                for source, kind in zip(sources[batch], kinds[batch], strict=True)
            ]
            try:
                # Report the first error immediately, even if other files are still being read.
                ended, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_EXCEPTION
                )
                for future in ended:
                    future.result()
            except BaseException:
                builder.stop.set()
                readers.shutdown(cancel_futures=True)
                raise
            indexes.append(join([future.result() for future in running]))
    return join(indexes)


def _kind(file: SourceFile, input_format: str | None) -> tuple[str, bool]:
    """Returns the format of a file, and whether it is a gzip file."""
    with open_text(file.path) as stream:
        head = stream.read(_HEAD_BYTES).decode("utf-8", "ignore")
        is_gzip = isinstance(stream, gzip.GzipFile)
    if input_format is None:
        remedy = "Write its texts to a .jsonl or .txt file, or pass --input_format=prose"
        corpus_formats.reject_table_file(file.path, remedy, allows_json=True)
    found = corpus_formats.detect_format(file.path, head)
    # Only the library writes files of paragraphs, whose first line can look like another format.
    if found in _UNAMBIGUOUS and input_format not in (None, found, corpus_formats.PARAGRAPHS):
        raise ValueError(
            f"{file.path} is {found} according to its name or first line. Pass "
            f"--input_format={found}, or omit the flag."
        )
    return input_format or found, is_gzip


def _max_single_block(reading: Reading) -> int:
    """Returns the maximum size of a gzip file's text that becomes a single block."""
    return 2 * max(reading.block_bytes, corpus_formats.MAX_DOCUMENT_BYTES)


def _check_packing(
    sources: Sequence[SourceFile],
    kinds: Sequence[tuple[str, bool]],
    reading: Reading,
    cache_dir: str,
) -> None:
    """Checks that the cache has enough space for the estimated size of packed blocks."""
    needed = 0
    for source, (text_format, is_gzip) in zip(sources, kinds, strict=True):
        if text_format == corpus_formats.JSONL:
            needed += source.size if is_gzip else source.size // 2
        elif is_gzip and source.size * _GZIP_RATIO > _max_single_block(reading):
            needed += source.size
    corpus_files.check_space(cache_dir, needed, "packed blocks of JSON lines and gzip files")


class Block(NamedTuple):
    """Stored and uncompressed size of a block, and sizes and fingerprints of its documents."""

    stored: int
    length: int
    num_bytes: np.ndarray
    fingerprints: np.ndarray


@dataclasses.dataclass(eq=False)
class _IndexBuilder:
    """Builds indexes of files; ``build_index`` runs in several threads."""

    reading: Reading
    cache_dir: str | None
    workers: concurrent.futures.Executor
    room: threading.Semaphore  # limits the blocks in memory
    size: int  # total size of all files
    progress: Progress | None
    done: int = 0  # number of processed bytes
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    def _report(self, count: int) -> None:
        """Adds processed bytes and calls ``progress``."""
        with self.lock:
            self.done = min(self.done + count, self.size)
            if self.progress and count:
                self.progress(self.done, self.size)

    def build_index(self, source: SourceFile, text_format: str, is_gzip: bool) -> Corpus:
        """Reads a file once and builds its index; packs its blocks if needed."""
        is_jsonl = text_format == corpus_formats.JSONL
        if is_gzip and not is_jsonl:
            text = inflate_small(source.path, source.size, _max_single_block(self.reading))
            if text is not None:
                ((block, _),) = self._count([text], source.path, text_format)
                self._report(source.size)
                blocks = [block._replace(stored=source.size)]
                return index_file(source.path, [text_format], text_format, True, blocks)
        with open_text(source.path, self._report) as stream:
            read = text_chunks(stream, source.path)
            if not is_gzip and not is_jsonl:
                chunks = self._cut(read, text_format)
                blocks = [block for block, _ in self._count(chunks, source.path, text_format)]
                return index_file(source.path, [text_format], text_format, False, blocks)
            if self.cache_dir is None:
                raise ValueError(
                    f"{source.path} needs a cache folder, because JSON lines and large gzip files "
                    "are packed into blocks. Pass cache_dir."
                )
            chunks, parsed_as = read, text_format
            if is_jsonl:
                texts = corpus_formats.json_texts(stream, source.path, self.reading.text_key)
                chunks, parsed_as = corpus_formats.paragraphs(texts), corpus_formats.PARAGRAPHS
            path = self._packed_path(source, self.cache_dir)
            blocks = []
            with atomic_write(path) as file:
                cut = self._cut(chunks, parsed_as)
                for block, packed in self._count(cut, source.path, parsed_as, pack=True):
                    file.write(packed)
                    blocks.append(block)
        return index_file(path, [text_format], parsed_as, True, blocks)

    def _packed_path(self, source: SourceFile, cache_dir: str) -> str:
        # The change time is excluded, because chmod would otherwise change the name of the copy.
        source = dataclasses.replace(source, changed_nsec=0)
        key, _ = os.path.splitext(index_path("", source, *self.reading.key()))
        name = os.path.basename(source.path).removesuffix(".gz")
        return os.path.join(cache_dir, f"{name}-{key}.gz")

    def _cut(self, chunks: Iterable[bytes], text_format: str) -> Iterator[bytes]:
        return corpus_formats.cut_blocks(chunks, text_format, self.reading.block_bytes)

    def _count(
        self, blocks: Iterable[bytes], path: str, text_format: str, pack: bool = False
    ) -> Iterator[tuple[Block, bytes]]:
        """Yields the index entry and the packed bytes of each block, in order."""
        running: collections.deque[concurrent.futures.Future[tuple[Block, bytes]]]
        running = collections.deque()
        offset = 0
        has_document = text_format != corpus_formats.WIKIEXTRACTOR
        for block in blocks:
            if self.stop.is_set():
                raise concurrent.futures.CancelledError
            has_document = has_document or corpus_formats.starts_document(block)
            self.room.acquire()
            running.append(self.workers.submit(self._work, block, path, offset, text_format, pack))
            offset += len(block)
            while running and (running[0].done() or len(running) > _MAX_WAITING):
                yield running.popleft().result()
        for future in running:
            yield future.result()
        if not has_document:
            raise ValueError(
                f"{path} has no line that starts with '<doc ', as in WikiExtractor's output. Pass "
                f"its format, one of {', '.join(INPUT_FORMATS)}."
            )

    def _work(
        self, text: bytes, path: str, offset: int, text_format: str, pack: bool
    ) -> tuple[Block, bytes]:
        try:
            check_utf8(text, path, offset)
            num_bytes, fingerprints = count_text(text, text_format)
            # Compressed by zlib, because the output of ISA-L varies by a few bytes, and processes
            # that pack the same file must write the same bytes.
            packed = gzip.compress(text, _GZIP_LEVEL, mtime=0) if pack else b""
        finally:
            self.room.release()
        stored = len(packed) if pack else len(text)
        return Block(stored, len(text), num_bytes, fingerprints), packed


def index_file(
    path: str, formats: Iterable[str], parsed_as: str, is_gzip: bool, blocks: Sequence[Block]
) -> Corpus:
    """Creates the index of a file of consecutive blocks."""
    stored = np.array([block.stored for block in blocks], np.int64)
    file_blocks = FileBlocks(
        files=(path,),
        file_sizes=np.array([stored.sum()]),
        file_is_gzip=np.array([is_gzip]),
        file_formats=(parsed_as,),
        block_files=np.zeros(len(blocks), np.int64),
        offsets=np.cumsum(stored) - stored,
        stored=stored,
        lengths=np.array([block.length for block in blocks], np.int64),
    )
    table = DocumentTable(
        np.cumsum([0, *(len(block.num_bytes) for block in blocks)], dtype=np.int64),
        np.concatenate([np.zeros(0, np.int32), *(block.num_bytes for block in blocks)]),
        np.concatenate([np.zeros(0, np.int64), *(block.fingerprints for block in blocks)]),
    )
    return make_corpus(formats, file_blocks, table)


# === Saving ===

# Increase this if blocks or counts change for a reason other than the patterns.
_VERSION = 3


def index_path(cache_dir: str, *parts: object) -> str:
    """Returns the path of the index for the given parts of a key."""
    key = corpus_files.digest(_VERSION, corpus_formats.PATTERNS, *parts)
    return os.path.join(cache_dir, f"index-{key}.npz")


def save_index(path: str, index: Corpus) -> None:
    """Writes the index of a complete corpus of files."""
    blocks = cast(FileBlocks, index.blocks)
    arrays = {
        f"{part}/{field.name}": np.asarray(getattr(values, field.name))
        for part, values in (("blocks", blocks), ("table", index.table))
        for field in dataclasses.fields(values)
        if field.name != "files"
    }
    names = "\0".join(blocks.files).encode("utf-8", "surrogateescape")
    arrays["blocks/files"] = np.frombuffer(names, np.uint8)
    arrays["formats"] = np.asarray(", ".join(index.formats))
    corpus_files.save_arrays(path, arrays)


def load_index(path: str, sources: Sequence[SourceFile] = ()) -> Corpus | None:
    """Reads a saved index; returns ``None`` if it is missing, invalid or outdated."""
    arrays = corpus_files.load_arrays(path)
    if arrays is None:
        return None
    try:
        return _parsed(arrays, path, {file.path: file.size for file in sources})
    except corpus_files.ERRORS:
        return None  # written by another version


def _parsed(arrays: Mapping[str, np.ndarray], path: str, sizes: Mapping[str, int]) -> Corpus | None:
    parts: dict[str, dict[str, Any]] = {"blocks": {}, "table": {}}
    for name, value in arrays.items():
        part, _, field = name.partition("/")
        if field:
            parts[part][field] = value
    fields = parts["blocks"]
    names = fields["files"].tobytes().decode("utf-8", "surrogateescape").split("\0")
    fields["files"] = _find_files(names, fields["file_sizes"].tolist(), path, sizes)
    if fields["files"] is None:
        return None
    fields["file_formats"] = tuple(map(sys.intern, fields["file_formats"].tolist()))
    formats = str(arrays["formats"]).split(", ")
    return make_corpus(formats, FileBlocks(**fields), DocumentTable(**parts["table"]))


def _find_files(
    names: Sequence[str], sizes: Sequence[int], path: str, known: Mapping[str, int]
) -> tuple[str, ...] | None:
    """Finds the files of an index, or copies next to the index; ``None`` if any has changed."""
    paths = list(names)
    unknown = [number for number, name in enumerate(names) if known.get(name) != sizes[number]]

    def find(name: str) -> tuple[str, int]:
        for candidate in (name, os.path.join(os.path.dirname(path), os.path.basename(name))):
            if tf.io.gfile.exists(candidate):
                return candidate, tf.io.gfile.stat(candidate).length
        return name, -1

    found = in_threads(find, [names[number] for number in unknown])
    for number, (paths[number], size) in zip(unknown, found, strict=True):
        if size != sizes[number]:
            return None
    return tuple(paths)
