"""A corpus' index: its blocks, and what the documents in them are.

A file is read once, in order: readers cut its text into blocks, workers check and count the blocks
in parallel. Both are threads: what takes time (reading, inflating, NumPy's and TensorFlow's work on
a block) does not hold Python's lock, while processes would each load TensorFlow, and must not be
forked from one that has.

With a cache folder each file's index is saved when it is made, so that a run that is killed loses
the files in work only, and then the whole corpus', which is all that a later opening reads. Blocks
of JSON lines and of large gzip files, which nothing can read from the middle, are saved there too,
each compressed on its own: the copy is about as long as a gzip file, or two fifths of JSON lines.
An index' name holds a key of the files, by path, size and time, and of all that decides how their
text is parsed. Every file appears under its name only when it is whole, and any number of processes
can make or read the same index at once.
"""

import collections
import concurrent.futures
import dataclasses
import gzip
import io
import os
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import tensorflow as tf

from bert_tf.choices import INPUT_FORMATS
from bert_tf.files import replace_whole

from . import corpus_cache, corpus_files, corpus_formats
from .corpus import DocumentTable, FileBlocks, document_table
from .corpus_counting import count_text
from .corpus_files import SourceFile

#: Called now and then with the bytes done and the bytes in all.
Progress = Callable[[int, int], None]

# Files read at the same time: remote file systems answer slowly.
_NUM_READERS = 16
_CHUNK = 1 << 22
# Lines of text enough to tell its format.
_HEAD_BYTES = 1 << 16
# Text is seldom longer than so many times its gzip file.
_GZIP_RATIO = 4
# Blocks of a file that are counted and wait for one before them.
_MOST_WAITING = 64
# How hard blocks are compressed: a sixth longer than gzip's default, in a quarter of the time.
_GZIP_LEVEL = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Index:
    """What is known of a corpus: the sorted formats of its files, its blocks, its documents."""

    formats: tuple[str, ...]
    blocks: FileBlocks
    table: DocumentTable


@dataclasses.dataclass(frozen=True)
class Reading:
    """How files are read: their format, if given, the key of texts in JSON, and a block's size."""

    input_format: str | None
    text_key: str
    block_bytes: int


def open_index(
    sources: Sequence[SourceFile],
    reading: Reading,
    cache_dir: str | None,
    progress: Progress | None = None,
) -> Index:
    """Loads the index of files, or makes it, and saves it where there is a cache folder."""
    if cache_dir is None:
        return _make(sources, reading, None, [], progress)
    samples = corpus_files.sample_files([file.path for file in sources])
    path = _path(cache_dir, sources, reading)
    known = load_index(path, samples, sources)
    if known is None:
        known = _make(sources, reading, cache_dir, samples, progress)
        if len(sources) > 1:
            save_index(path, known, samples)
    return known


def _path(cache_dir: str, sources: Sequence[SourceFile], reading: Reading) -> str:
    parts = (list(sources), reading.input_format, reading.text_key, reading.block_bytes)
    return index_path(cache_dir, *parts, corpus_files.MAX_DOCUMENT_BYTES)


# === Making ===


class _Report:
    """Adds up the bytes of all files that are done, for ``progress``."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Counts bytes as done."""
        with self._lock:
            self._done = min(self._done + count, self._total)
            if self._progress and count:
                self._progress(self._done, self._total)


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What the first bytes of a file tell of it."""

    text_format: str
    is_gzip: bool


def _make(
    sources: Sequence[SourceFile],
    reading: Reading,
    cache_dir: str | None,
    samples: Sequence[str],
    progress: Progress | None,
) -> Index:
    """Makes the index of each file that has none saved, several at a time, and joins them."""
    report = _Report(sum(file.size for file in sources), progress)
    cores = os.cpu_count() or 1
    with (
        concurrent.futures.ThreadPoolExecutor(cores) as workers,
        concurrent.futures.ThreadPoolExecutor(_NUM_READERS) as readers,
    ):
        found: list[Index | None] = [None] * len(sources)
        if cache_dir is not None and len(sources) > 1:
            paths = [_path(cache_dir, [source], reading) for source in sources]
            found = list(
                readers.map(
                    lambda path, sample, source: load_index(path, [sample], [source]),
                    paths,
                    samples,
                    sources,
                )
            )
        missing = [source for source, index in zip(sources, found, strict=True) if index is None]
        report.add(sum(file.size for file in sources) - sum(file.size for file in missing))
        kinds = list(readers.map(lambda file: _kind(file, reading.input_format), missing))
        _check_packing(missing, kinds, reading, cache_dir)
        making = _Making(reading, cache_dir, report, workers, threading.Semaphore(2 * cores))

        def make(source: SourceFile, kind: _Kind, sample: str) -> Index:
            index = making.index_of(source, kind)
            if cache_dir is not None:
                save_index(_path(cache_dir, [source], reading), index, [sample])
            return index

        of_missing = [
            sample
            for sample, index in zip(samples or [""] * len(sources), found, strict=True)
            if index is None
        ]
        running = [
            readers.submit(make, *each) for each in zip(missing, kinds, of_missing, strict=True)
        ]
        try:
            # One that fails is told at once, whatever is read before it.
            ended, _ = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_EXCEPTION
            )
            for future in ended:
                future.result()
            made = iter([future.result() for future in running])
        except BaseException:
            making.stop.set()
            readers.shutdown(cancel_futures=True)
            raise
    return _join([index or next(made) for index in found])


def _kind(file: SourceFile, input_format: str | None) -> _Kind:
    with corpus_files.open_text(file.path) as stream:
        head = stream.read(_HEAD_BYTES).decode("utf-8", "ignore")
        is_gzip = isinstance(stream, gzip.GzipFile)
    return _Kind(input_format or corpus_formats.detect_format(file.path, head), is_gzip)


def _longest_whole(reading: Reading) -> int:
    """How long a gzip file's text may be that is read whole, as one block."""
    return 2 * max(reading.block_bytes, corpus_files.MAX_DOCUMENT_BYTES)


def _check_packing(
    sources: Sequence[SourceFile],
    kinds: Sequence[_Kind],
    reading: Reading,
    cache_dir: str | None,
) -> None:
    """Checks that there is space for the blocks that will be packed, as far as can be told."""
    if cache_dir is None:
        return
    needed = 0
    for source, kind in zip(sources, kinds, strict=True):
        if kind.text_format == corpus_formats.JSONL:
            needed += source.size if kind.is_gzip else source.size // 2
        elif kind.is_gzip and source.size * _GZIP_RATIO > _longest_whole(reading):
            needed += source.size
    corpus_cache.check_space(cache_dir, needed, "packed blocks of JSON lines and gzip files")


@dataclasses.dataclass(frozen=True)
class _Block:
    """What a worker found in a block: how long it is stored and unpacked, and its documents."""

    stored: int
    length: int
    num_sentences: np.ndarray
    fingerprints: np.ndarray


class _Making:
    """Makes indexes of files; ``index_of`` runs in several readers at once."""

    def __init__(
        self,
        reading: Reading,
        cache_dir: str | None,
        report: _Report,
        workers: concurrent.futures.Executor,
        room: threading.Semaphore,
    ) -> None:
        self._reading = reading
        self._cache_dir = cache_dir
        self._report = report
        self._workers = workers
        self._room = room  # for blocks in memory
        self.stop = threading.Event()

    def index_of(self, source: SourceFile, kind: _Kind) -> Index:
        """Reads a file once and makes its index; packs its blocks where that is needed."""
        text_format = kind.text_format
        is_jsonl = text_format == corpus_formats.JSONL
        if kind.is_gzip and not is_jsonl:
            text = corpus_files.inflate_small(source, _longest_whole(self._reading))
            if text is not None:
                ((block, _),) = self._count([text], source.path, text_format)
                self._report.add(source.size)
                whole = [dataclasses.replace(block, stored=source.size)]
                return _index(source.path, text_format, text_format, True, whole)
        with corpus_files.open_text(source.path, self._report.add) as stream:
            if not kind.is_gzip and not is_jsonl:
                blocks = self._cut(_chunks(stream), text_format)
                found = [block for block, _ in self._count(blocks, source.path, text_format)]
                return _index(source.path, text_format, text_format, False, found)
            if self._cache_dir is None:
                raise ValueError(
                    f"{source.path} has to be packed into blocks once, as JSON lines and large "
                    "gzip files have: give a cache folder."
                )
            chunks, parsed_as = _chunks(stream), text_format
            if is_jsonl:
                texts = corpus_cache.json_texts(stream, source.path, self._reading.text_key)
                chunks, parsed_as = corpus_cache.paragraphs(texts), corpus_formats.PARAGRAPHS
            path = self._packed_path(source, self._cache_dir)
            found = []
            with replace_whole(path) as file:
                blocks = self._cut(chunks, parsed_as)
                for block, packed in self._count(blocks, source.path, parsed_as, pack=True):
                    file.write(packed)
                    found.append(block)
        return _index(path, text_format, parsed_as, True, found)

    def _packed_path(self, source: SourceFile, cache_dir: str) -> str:
        index = os.path.basename(_path(cache_dir, [source], self._reading))
        name = os.path.basename(source.path).removesuffix(".gz")
        return os.path.join(cache_dir, f"{name}-{os.path.splitext(index)[0]}.gz")

    def _cut(self, chunks: Iterable[bytes], text_format: str) -> Iterator[bytes]:
        return corpus_files.cut_blocks(chunks, text_format, self._reading.block_bytes)

    def _count(
        self, blocks: Iterable[bytes], path: str, text_format: str, pack: bool = False
    ) -> Iterator[tuple[_Block, bytes]]:
        """Yields what workers find in a file's blocks, in order, and the blocks packed, if asked.

        ``path`` is what errors name.
        """
        running: collections.deque[concurrent.futures.Future[tuple[_Block, bytes]]]
        running = collections.deque()
        offset = 0
        has_document = text_format != corpus_formats.WIKIEXTRACTOR
        for block in blocks:
            if self.stop.is_set():
                raise concurrent.futures.CancelledError
            has_document = has_document or corpus_files.starts_document(block)
            self._room.acquire()
            running.append(self._workers.submit(self._work, block, path, offset, text_format, pack))
            offset += len(block)
            while running and (running[0].done() or len(running) > _MOST_WAITING):
                yield running.popleft().result()
        for future in running:
            yield future.result()
        if not has_document:
            raise ValueError(
                f"{path} has no line that begins with '<doc ', as WikiExtractor's output has: give "
                f"its format as one of {', '.join(INPUT_FORMATS)}."
            )

    def _work(
        self, text: bytes, path: str, offset: int, text_format: str, pack: bool
    ) -> tuple[_Block, bytes]:
        try:
            corpus_files.check_utf8(text, path, offset)
            num_sentences, fingerprints = count_text(text, text_format)
            # By zlib: what ISA-L makes of a text was seen to differ by some bytes, and processes
            # that pack the same file at once have to write the same.
            packed = gzip.compress(text, _GZIP_LEVEL, mtime=0) if pack else b""
        finally:
            self._room.release()
        stored = len(packed) if pack else len(text)
        return _Block(stored, len(text), num_sentences, fingerprints), packed


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _index(
    path: str, found_as: str, parsed_as: str, is_gzip: bool, blocks: Sequence[_Block]
) -> Index:
    """The index of a file that holds blocks one after another."""
    stored = np.array([block.stored for block in blocks], np.int64)
    return Index(
        (found_as,),
        FileBlocks(
            files=(path,),
            file_sizes=np.array([stored.sum()]),
            file_is_gzip=np.array([is_gzip]),
            file_formats=(parsed_as,),
            block_files=np.zeros(len(blocks), np.int64),
            offsets=np.cumsum(stored) - stored,
            stored=stored,
            lengths=np.array([block.length for block in blocks], np.int64),
        ),
        document_table(
            [block.num_sentences for block in blocks], [block.fingerprints for block in blocks]
        ),
    )


def _join(indexes: Sequence[Index]) -> Index:
    """The index of several files' blocks, in their order."""

    def joined(part: str, name: str) -> np.ndarray:
        return np.concatenate([getattr(getattr(index, part), name) for index in indexes])

    block_files = [index.blocks.block_files + number for number, index in enumerate(indexes)]
    documents = [np.diff(index.table.block_splits) for index in indexes]
    return Index(
        tuple(sorted({name for index in indexes for name in index.formats})),
        FileBlocks(
            files=tuple(path for index in indexes for path in index.blocks.files),
            file_formats=tuple(name for index in indexes for name in index.blocks.file_formats),
            block_files=np.concatenate(block_files),
            **{
                name: joined("blocks", name)
                for name in ("file_sizes", "file_is_gzip", "offsets", "stored", "lengths")
            },
        ),
        DocumentTable(
            block_splits=np.cumsum([0, *np.concatenate(documents)], dtype=np.int64),
            num_sentences=joined("table", "num_sentences"),
            fingerprints=joined("table", "fingerprints"),
        ),
    )


def part_of(index: Index, first: int, last: int) -> Index:
    """The index of the blocks from ``first`` to before ``last`` alone, with only their files."""
    blocks, table = index.blocks, index.table
    used, block_files = np.unique(blocks.block_files[first:last], return_inverse=True)
    splits = table.block_splits[first : last + 1]
    documents = slice(splits[0], splits[-1])
    return Index(
        index.formats,
        FileBlocks(
            files=tuple(blocks.files[file] for file in used),
            file_sizes=blocks.file_sizes[used],
            file_is_gzip=blocks.file_is_gzip[used],
            file_formats=tuple(blocks.file_formats[file] for file in used),
            block_files=block_files,
            offsets=blocks.offsets[first:last],
            stored=blocks.stored[first:last],
            lengths=blocks.lengths[first:last],
        ),
        DocumentTable(
            splits - splits[0], table.num_sentences[documents], table.fingerprints[documents]
        ),
    )


# === Saving ===

# To be raised when blocks or counts come out differently for another reason than the patterns.
_VERSION = 1


def index_path(cache_dir: str, *parts: object) -> str:
    """Where the index is kept of what ``parts`` describe, parsed as this version parses."""
    key = corpus_cache.digest(_VERSION, corpus_formats.PATTERNS, *parts)
    return os.path.join(cache_dir, f"index-{key}.npz")


def save_index(path: str, index: Index, samples: Sequence[str] = ()) -> None:
    """Writes an index, whole or not at all; ``samples`` are the inputs' ``sample_files``."""
    arrays = {
        "samples": np.asarray(samples, np.str_),
        "formats": np.asarray(", ".join(index.formats)),
        **{
            f"{part}/{field.name}": np.asarray(getattr(values, field.name))
            for part, values in (("blocks", index.blocks), ("table", index.table))
            for field in dataclasses.fields(values)
        },
    }
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    with replace_whole(path) as file:
        file.write(buffer.getvalue())


def load_index(
    path: str, samples: Sequence[str] = (), sources: Sequence[SourceFile] = ()
) -> Index | None:
    """Reads an index that ``save_index`` wrote.

    None where there is no index at ``path``, it is damaged, its samples are others, or a file that
    it refers to is gone or has another size; the sizes of ``sources`` are known. Earlier releases
    wrote no samples: none are compared then. They unpacked what is packed now, so that blocks were
    stored as they are.
    """
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        data = io.BytesIO(file.read())
    try:
        with np.load(data, allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in arrays.files}
        formats = tuple(str(values.pop("formats")).split(", "))
        if values.pop("samples", np.asarray(samples)).tolist() != list(samples):
            return None
        parts: dict[str, dict[str, Any]] = {"blocks": {}, "table": {}}
        for name, value in values.items():
            part, field = name.split("/")
            parts[part][field] = value
        fields = parts["blocks"]
        if "stored" not in fields:
            file_of = fields["block_files"]
            fields["stored"] = np.where(
                fields["file_is_gzip"][file_of], fields["file_sizes"][file_of], fields["lengths"]
            )
        for name in ("files", "file_formats"):
            fields[name] = tuple(fields[name].tolist())
        # What is packed is beside the index, in a folder that may be mounted elsewhere or moved.
        folder, given = os.path.dirname(path), {source.path for source in sources}
        fields["files"] = tuple(
            name
            if name in given or tf.io.gfile.exists(name)
            else os.path.join(folder, os.path.basename(name))
            for name in fields["files"]
        )
        index = Index(formats, FileBlocks(**fields), DocumentTable(**parts["table"]))
    except (ValueError, KeyError, TypeError, IndexError, OSError, EOFError, zipfile.BadZipFile):
        return None  # cut short, or another version's: it is made anew
    sizes = dict(zip(index.blocks.files, index.blocks.file_sizes.tolist(), strict=True))
    for source in sources:
        if sizes.get(source.path) == source.size:
            del sizes[source.path]
    for name, size in sizes.items():
        if not tf.io.gfile.exists(name) or tf.io.gfile.stat(name).length != size:
            return None
    return index
