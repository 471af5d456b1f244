"""Extracts features: tokenizes lines, computes the vectors and writes the files.

Dimensions: N lines, T tokens in total, L layers, D values per vector.
"""

import collections
import dataclasses
import functools
import gzip
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.load import load_with_report, open_checkpoint
from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
from bert_tf.choices import PAIR_MARK
from bert_tf.io.files import atomic_path
from bert_tf.io.messages import warn
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding, normalize, pool
from bert_tf.pipelines.corpora.corpus import format_count
from bert_tf.pipelines.corpora.files import SourceFile, find_files
from bert_tf.pipelines.corpora.formats import reject_table_file
from bert_tf.pipelines.corpora.text_bytes import group_items, open_text, split_lines
from bert_tf.pipelines.packing import fit_segments, join_segments, pack
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.pipelines.replicas import compute_batches, get_traced_step
from bert_tf.pipelines.tokenized_examples import prediction_length_multiple, row_examples
from bert_tf.training.distribution import open_devices
from bert_tf.training.progress import Progress, print_progress

from . import output
from .output import WRITERS, Block, Layout, Manifest, Rows, check_can_write
from .settings import ExtractionSettings

_CHUNK_BYTES = 1 << 20
_LINES_CHUNK_SIZE = 1024
_CHARACTERS_CHUNK_SIZE = 1 << 23
# Maximum number of float32 values in memory: 128 MiB.
_VALUES_CHUNK_SIZE = 1 << 25
# Number of lines per file, by ``is_pooled``; a file has about 30 MB or 90 MB.
_LINES_PER_FILE = {True: 10_000, False: 1_000}
_FLAGS = (
    *("format", "layers", "pooling", "normalize"),
    *("max_seq_length", "batch_size", "precision"),
)


def run(settings: ExtractionSettings) -> Manifest:
    """Writes the vectors of all lines, or of the remaining lines if the output exists."""
    check_can_write(settings.format)
    files = find_files(settings.input)
    for file in files:
        remedy = "Write its texts, one per line, to a .txt file"
        reject_table_file(file.path, remedy, allows_json=False)
    total = sum(file.size for file in files)
    with open_devices("auto", settings.precision).scope():
        encoder, preprocessor = _load(settings)
    embedding = encoder.sentence_embedding if settings.pooling is None else None
    model_defaults = (embedding.pooling, embedding.normalize) if embedding else ()
    settings = settings.with_model_defaults(encoder.config.num_hidden_layers, *model_defaults)
    if embedding is not None:
        scaled = ", scaled to length 1" if settings.normalize else ""
        print_progress(f"Uses the pooling of {settings.model}: {settings.pooling}{scaled}.")
    settings = dataclasses.replace(settings, max_seq_length=preprocessor.max_seq_length)
    extractor = _Extractor(encoder, preprocessor, settings, embedding)
    layout = extractor.layout
    manifest = output.open_output(
        settings.output,
        Manifest(
            flags={
                **{name: getattr(settings, name) for name in _FLAGS},
                "layers": list(settings.layers),
                "input": fingerprint(files),
                "model": _model_fingerprint(encoder, preprocessor),
            },
            layers=layout.layers,
            width=layout.width,
        ),
    )
    if manifest.complete:
        print_progress(f"{settings.output} is already complete: {_describe(manifest)}.")
        return manifest
    if manifest.lines:
        print_progress(f"Resuming {settings.output} after {manifest.lines:,} lines.", flush=True)
    lines = read_lines(files)
    skipped = collections.deque(itertools.islice(lines, manifest.lines), maxlen=1)
    display = _Display(skipped[0].bytes_read if skipped else 0, total)
    prefix = "" if embedding is None else embedding.document_prefix
    limit = _LINES_PER_FILE[layout.is_pooled]
    try:
        while shard := _next_shard(lines, preprocessor, limit, prefix):
            manifest = _write_shard(settings, extractor, shard, manifest, display)
    except KeyboardInterrupt:
        print_progress(
            f"\n{settings.output} has {manifest.lines:,} lines. Rerun the command to resume."
        )
        raise
    if not manifest.lines:
        raise ValueError(f"--input={','.join(settings.input)} contains no lines.")
    manifest = dataclasses.replace(manifest, complete=True)
    output.save(settings.output, manifest)
    display.progress.close()
    print_progress(f"{settings.output}: {_describe(manifest)}.")
    return manifest


def _load(settings: ExtractionSettings) -> tuple[BertEncoder, BertPreprocessor]:
    """Loads the encoder and the preprocessor of the checkpoint."""
    checkpoint = open_checkpoint(settings.model)
    if settings.pooling is None and checkpoint.unsupported_modules:
        raise ValueError(
            f"{checkpoint.unsupported_modules}; to extract the hidden states of its encoder, pass "
            "--layers or --pooling."
        )
    encoder, report = load_with_report(
        checkpoint, BertEncoder, max_seq_length=settings.max_seq_length, pooler=False
    )
    warn(report.notes)
    if encoder.config.is_decoder and settings.pooling == "cls":
        raise ValueError(
            f"--pooling=cls: {settings.model} is causal (is_decoder), so [CLS] sees no other "
            "token. Use --pooling=last or mean."
        )
    if encoder.preprocessor is None:
        raise ValueError(
            f"--model={settings.model} has no tokenizer: {missing_tokenizer_reason(report.notes)}"
        )
    return encoder, encoder.preprocessor


# === Lines ===


class Line(NamedTuple):
    """A line of the input."""

    first: str  # the text, or the first text of a pair, without surrounding white space
    second: str | None  # the second text of a pair
    is_utf8: bool  # whether all bytes are valid UTF-8
    line_index: int  # position in all files, from 0
    bytes_read: int  # number of bytes of all files on disk up to the end of the line


def fingerprint(files: Sequence[SourceFile]) -> str:
    """Returns a digest of the files' contents in order; it does not depend on the file names."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.size}\n".encode())
        with tf.io.gfile.GFile(file.path, "rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def read_lines(files: Sequence[SourceFile]) -> Iterator[Line]:
    """Yields the lines of all files; like the tokenizer, drops bytes that are not valid UTF-8."""
    index = bytes_before = on_disk = 0

    def count(size: int) -> None:
        nonlocal on_disk
        on_disk += size

    for file in files:
        on_disk = bytes_before
        with open_text(file.path, count) as text:
            is_gzip = isinstance(text, gzip.GzipFile)
            for _, end, raw in split_lines(text, file.path):
                line = raw.decode("utf-8", "ignore")
                # Google's regular expression is greedy: the last mark separates a pair.
                first, mark, second = line.strip().rpartition(PAIR_MARK)
                texts: tuple[str, str | None] = (first, second) if mark else (second, None)
                # In a gzip file, ``end`` is an offset in the uncompressed text.
                bytes_read = on_disk if is_gzip else bytes_before + end
                yield Line(*texts, line.encode() == raw, index, bytes_read)
                index += 1
        bytes_before += file.size


def tokenize(preprocessor: BertPreprocessor, lines: Sequence[Line]) -> tuple[Rows, int]:
    """Tokenizes consecutive lines; also returns the number of truncated lines."""
    tokenizer, max_seq_length = preprocessor.tokenizer, preprocessor.max_seq_length
    num_texts = np.array([1 if line.second is None else 2 for line in lines])
    packed = {
        key: np.zeros((len(lines), max_seq_length), np.int32) for key in features.ENCODER_FEATURES
    }
    num_cut = 0
    for count in np.unique(num_texts):
        indices = np.flatnonzero(num_texts == count)
        columns = zip(*(lines[index][:count] for index in indices.tolist()), strict=True)
        segments = [tokenizer.tokenize(tf.constant(column)) for column in columns]
        ids, ranges = join_segments(segments)
        fitted = fit_segments(ranges, max_seq_length, tokenizer)
        rows = pack(ids, fitted.ranges, max_seq_length, tokenizer)
        for key, values in rows.items():
            packed[key][indices] = values
        num_cut += int(tf.math.count_nonzero(fitted.truncated))
    mask = packed[features.INPUT_MASK].astype(bool)
    return (
        Rows(
            first_line=lines[0].line_index,
            lengths=mask.sum(axis=1, dtype=np.int32),
            ids=packed[features.INPUT_WORD_IDS][mask],
            type_ids=packed[features.INPUT_TYPE_IDS][mask],
        ),
        num_cut,
    )


class _Shard(NamedTuple):
    """Lines of one output file, before their vectors are computed."""

    rows: Rows
    last: Line
    num_cut: int
    num_not_utf8: int


def _next_shard(
    lines: Iterator[Line], preprocessor: BertPreprocessor, limit: int, prefix: str
) -> _Shard | None:
    """Tokenizes up to ``limit`` lines after adding the prefix; ``None`` if no lines are left."""
    chunks: list[Rows] = []
    last, num_cut, num_not_utf8 = None, 0, 0
    groups = group_items(
        itertools.islice(lines, limit),
        lambda line: len(line.first) + len(line.second or ""),
        _LINES_CHUNK_SIZE,
        _CHARACTERS_CHUNK_SIZE,
    )
    for group in groups:
        texts = [line._replace(first=prefix + line.first) for line in group]
        rows, cut = tokenize(preprocessor, texts)
        chunks.append(rows)
        last = group[-1]
        num_cut += cut
        num_not_utf8 += sum(not line.is_utf8 for line in group)
    if last is None:
        return None
    _, *columns = zip(*chunks, strict=True)
    rows = Rows(chunks[0].first_line, *map(np.concatenate, columns))
    return _Shard(rows, last, num_cut, num_not_utf8)


# === Files ===


def _write_shard(
    settings: ExtractionSettings,
    extractor: "_Extractor",
    shard: _Shard,
    manifest: Manifest,
    display: "_Display",
) -> Manifest:
    """Writes one output file and then the updated manifest, which it returns."""
    suffix, write = WRITERS[settings.format]
    name = f"part-{len(manifest.shards):06d}{suffix}"
    blocks = extractor.blocks(shard.rows, functools.partial(display.add, shard))
    with atomic_path(os.path.join(settings.output, name)) as path:
        write(path, extractor.layout, shard.rows, blocks)
    manifest = dataclasses.replace(
        manifest,
        shards=(*manifest.shards, {"file": name, "lines": len(shard.rows.lengths)}),
        lines=manifest.lines + len(shard.rows.lengths),
        tokens=manifest.tokens + len(shard.rows.ids),
        lines_cut=manifest.lines_cut + shard.num_cut,
        lines_not_utf8=manifest.lines_not_utf8 + shard.num_not_utf8,
    )
    output.save(settings.output, manifest)
    return manifest


def _describe(manifest: Manifest) -> str:
    lines, files = format_count(manifest.lines, "line"), format_count(len(manifest.shards), "file")
    parts = [f"{lines}, {manifest.tokens:,} tokens, {files}"]
    if manifest.lines_cut:
        parts.append(f"{format_count(manifest.lines_cut, 'line')} cut to --max_seq_length")
    if manifest.lines_not_utf8:
        count = format_count(manifest.lines_not_utf8, "line")
        parts.append(f"{count} with invalid UTF-8 (bytes skipped)")
    return ", ".join(parts)


class _Display:
    """Progress bar in input bytes; within an output file, bytes are estimated from tokens."""

    def __init__(self, start: int, total: int) -> None:
        self.progress = Progress("Extracting", total, "bytes", start=start)
        self._before = start  # bytes before the current output file
        self._tokens = self._in_shard = 0
        self._start_time = time.monotonic()

    def add(self, shard: _Shard, tokens: int) -> None:
        """Adds a number of finished tokens of a shard to the progress."""
        self._in_shard += tokens
        self._tokens += tokens
        fraction = self._in_shard / len(shard.rows.ids)
        rate = self._tokens / max(time.monotonic() - self._start_time, 1e-9)
        done = self._before + round(fraction * (shard.last.bytes_read - self._before))
        self.progress.update(done, {"tokens/s": f"{rate:,.0f}"})
        if fraction == 1:
            self._before, self._in_shard = shard.last.bytes_read, 0


# === Vectors ===


_BATCH = {
    key: tf.TensorSpec((None, None), feature.dtype)
    for key, feature in features.ENCODER_FEATURES.items()
}


class _Extractor:
    """Computes vectors of D dimensions from L layers of an encoder."""

    def __init__(
        self,
        encoder: BertEncoder,
        preprocessor: BertPreprocessor,
        settings: ExtractionSettings,
        embedding: SentenceEmbedding | None,
    ) -> None:
        blocks, hidden = encoder.config.num_hidden_layers, encoder.config.hidden_size
        for layer in settings.layers:
            if not -blocks <= layer < blocks:
                raise ValueError(
                    f"--layers={layer}: expected {-blocks} to {blocks - 1}, because "
                    f"{settings.model} has {blocks} blocks."
                )
        width = hidden if embedding is None else encoder.embedding_size
        vocabulary = tuple(preprocessor.tokenizer.vocab)
        self.layout = Layout(settings.layers, width, settings.is_pooled, vocabulary)
        self._batch_size, self._preprocessor = settings.batch_size, preprocessor
        options = (embedding, settings.layers, settings.pooling, settings.normalize)
        # The step is traced on first use, because the checks of the output may raise errors first.
        self._step = functools.partial(get_traced_step, encoder, _vectors, _BATCH, *options)

    def blocks(self, rows: Rows, on_progress: Callable[[int], None]) -> Iterator[Block]:
        """Yields the vectors of the lines in order, in blocks of limited size."""
        limit = max(1, _VALUES_CHUNK_SIZE // (len(self.layout.layers) * self.layout.width))
        sizes = np.ones_like(rows.lengths) if self.layout.is_pooled else rows.lengths
        begin = total = 0
        # A final size that exceeds the limit ends the last block.
        for row, size in enumerate([*sizes.tolist(), limit + 1]):
            if total and total + size > limit:
                chunk = rows.slice(begin, row)
                yield Block(chunk, self._values(chunk, on_progress))
                begin, total = row, 0
            total += size

    def _values(self, rows: Rows, on_progress: Callable[[int], None]) -> np.ndarray:
        """Returns the vectors of the lines, or of all their tokens, in the order of the lines."""
        layout, step = self.layout, self._step()
        starts = np.arange(len(rows.lengths) + 1) if layout.is_pooled else rows.starts
        values = np.empty((starts[-1], len(layout.layers), layout.width), np.float32)
        columns = {
            features.INPUT_WORD_IDS: (rows.ids, self._preprocessor.tokenizer.pad_id),
            features.INPUT_MASK: (np.ones_like(rows.ids), 0),
            features.INPUT_TYPE_IDS: (rows.type_ids, 0),
        }
        examples = row_examples(rows.lengths, columns, self._preprocessor.max_seq_length)
        batches, _ = examples.sorted_batches(self._batch_size, prediction_length_multiple())
        for batch, vectors in compute_batches(
            lambda batch: step({key: batch[key] for key in _BATCH}), batches
        ):
            lines = batch[features.EXAMPLE_INDEX].numpy()
            if not layout.is_pooled:
                vectors = tf.boolean_mask(vectors, batch[features.INPUT_MASK])
            counts = starts[lines + 1] - starts[lines]
            # The vectors of a batch are contiguous; their positions in ``values`` are not.
            offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            values[np.repeat(starts[lines], counts) + offsets] = vectors.numpy()
            on_progress(int(rows.lengths[lines].sum()))
        return values


def _vectors(
    encoder: BertEncoder,
    batch: Any,
    embedding: SentenceEmbedding | None,
    layers: tuple[int, ...],
    pooling: str,
    normalized: bool,
) -> tf.Tensor:
    """Computes the vectors of a batch: (B, L, D), or (B, S, L, D) without pooling."""
    if embedding is not None:
        vectors = encoder.embed(batch)[:, None]
        return normalize(vectors) if normalized and not embedding.normalize else vectors
    outputs = encoder(batch, training=False)
    states = [outputs[features.ENCODER_OUTPUTS][layer] for layer in layers]
    vectors = [pool(tf.cast(s, tf.float32), batch[features.INPUT_MASK], pooling) for s in states]
    return tf.stack([normalize(v) if normalized else v for v in vectors], axis=-2)


def _model_fingerprint(encoder: BertEncoder, preprocessor: BertPreprocessor) -> str:
    """Returns a digest of the weights, config, vocabulary and casing."""
    tokenizer = preprocessor.tokenizer
    digest = hashlib.sha256(encoder.config.to_json().encode())
    digest.update("\n".join([*tokenizer.vocab, str(tokenizer.do_lower_case)]).encode())
    for weight in encoder.weights:
        digest.update(weight.numpy().reshape(-1))
    return digest.hexdigest()
