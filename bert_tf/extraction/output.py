"""The directory that an extraction writes: files, and a manifest of what they hold.

docs/guides/features.md describes the files. Letters: N lines, T tokens of all of them, L layers,
D numbers of a vector.

Source: google-research/bert ``extract_features.py``.
"""

import dataclasses
import importlib.util
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.io.files import WritableFile, is_temporary, read_json_object, write_json
from bert_tf.io.wording import listed, one_line

_DECIMALS = 6
_MANIFEST = "manifest.json"
# What has changed where the digests of a flag differ.
_DIGEST_CHANGES = {"input": "other text", "model": "another model"}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """State of an output so far."""

    flags: Mapping[str, Any]  # what all numbers depend on; digests of the text and the model
    layers: tuple[int, ...]  # their numbers, in the order of the values
    width: int  # how many numbers a vector has
    # The files, each ``{"file": ..., "lines": ...}``, in the order of their lines.
    shards: tuple[Mapping[str, Any], ...] = ()
    lines: int = 0  # how many are done
    tokens: int = 0  # of all lines so far, [CLS] and [SEP] included
    lines_cut: int = 0  # those with more tokens than ``max_seq_length``
    lines_not_utf8: int = 0  # those with bytes that are not UTF-8, which were left out
    complete: bool = False  # whether no line is left


def open_output(path: str, new: Manifest) -> Manifest:
    """Reads the manifest of an output; an output without lines begins with ``new``."""
    manifest = os.path.join(path, _MANIFEST)
    if not tf.io.gfile.exists(manifest):
        is_directory = tf.io.gfile.isdir(path)
        names = tf.io.gfile.listdir(path) if is_directory else []
        # Ignore the temporary file of a process that was killed while it wrote the manifest.
        if tf.io.gfile.exists(path) and not (is_directory and all(map(is_temporary, names))):
            raise ValueError(
                f"{path} is there and holds no {_MANIFEST} of extract_features: name another "
                "--output, an empty directory or a new one."
            )
        save(path, new)
        return new
    values = read_json_object(manifest)
    try:
        lists = {name: tuple(values[name]) for name in ("layers", "shards")}
        before = Manifest(**{**values, **lists})
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{manifest} is not what extract_features writes ({error}): name another --output, or "
            "delete it."
        ) from error
    if not before.shards:
        return new
    _check_flags(path, before.flags, new.flags)
    missing = {shard["file"] for shard in before.shards} - set(tf.io.gfile.listdir(path))
    if missing:
        raise ValueError(
            f"{path} lacks {listed(sorted(missing), 3)}, which its {_MANIFEST} names: delete the "
            "directory and start again."
        )
    return before


def _check_flags(path: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses to go on with flags other than those of the first start."""
    differences = []
    for name in now:
        if before.get(name) == now[name]:
            continue
        change = f"{one_line(str(before.get(name)))}, now {one_line(str(now[name]))}"
        differences.append(f"--{name} ({_DIGEST_CHANGES.get(name, change)})")
    if differences:
        raise ValueError(
            f"{path} was begun with {', '.join(differences)}: give the flags of its first start, "
            "or another --output."
        )


def save(path: str, manifest: Manifest) -> None:
    """Writes the manifest."""
    write_json(os.path.join(path, _MANIFEST), dataclasses.asdict(manifest))


# === Formats ===


class Rows(NamedTuple):
    """Lines as a model reads them, without padding."""

    first_line: int  # the number of the first one in the input
    lengths: np.ndarray  # (N,) int32, the tokens of each, [CLS] and [SEP] included
    ids: np.ndarray  # (T,) int32
    type_ids: np.ndarray  # (T,) int32

    @property
    def starts(self) -> np.ndarray:
        """(N + 1,) where each line's tokens begin among all, and where the last one's end."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def slice(self, begin: int, end: int) -> "Rows":
        """The lines from one to before another, counted from 0."""
        first, last = self.starts[[begin, end]]
        return Rows(
            self.first_line + begin,
            self.lengths[begin:end],
            self.ids[first:last],
            self.type_ids[first:last],
        )


class Layout(NamedTuple):
    """Properties that every file of an output shares."""

    layers: tuple[int, ...]  # L numbers
    width: int  # D
    is_pooled: bool  # whether a line has one vector
    vocabulary: tuple[str, ...]  # the pieces in the order of their ids

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a line's or a token's numbers: (D,), or (L, D) with several layers."""
        return (self.width,) if len(self.layers) == 1 else (len(self.layers), self.width)


class Block(NamedTuple):
    """Consecutive lines, N of them, and their vectors."""

    rows: Rows
    values: np.ndarray  # float32; (N, L, D), or (T, L, D) where each token has its vectors


def _write_jsonl(path: str, layout: Layout, rows: Rows, blocks: Iterable[Block]) -> None:
    with tf.io.gfile.GFile(path, "wb") as file:
        for block in blocks:
            starts = block.rows.starts
            for number in range(len(block.rows.lengths)):
                line: dict[str, Any] = {"linex_index": block.rows.first_line + number}
                if layout.is_pooled:
                    line["layers"] = _format_layers(layout, block.values[number])
                else:
                    line["features"] = [
                        {
                            "token": layout.vocabulary[block.rows.ids[token]],
                            "layers": _format_layers(layout, block.values[token]),
                        }
                        for token in range(starts[number], starts[number + 1])
                    ]
                file.write((json.dumps(line) + "\n").encode())


def _format_layers(layout: Layout, values: np.ndarray) -> list[dict[str, Any]]:
    # A float32 times a million is exact in float64: these are Python's round().
    rounded = np.round(values.astype(np.float64), _DECIMALS).tolist()
    pairs = zip(layout.layers, rounded, strict=True)
    return [{"index": layer, "values": numbers} for layer, numbers in pairs]


def _write_numpy(path: str, layout: Layout, rows: Rows, blocks: Iterable[Block]) -> None:
    numbers = len(rows.lengths)
    first = {"line_index": np.arange(rows.first_line, rows.first_line + numbers)}
    if not layout.is_pooled:
        first |= {"lengths": rows.lengths, "token_ids": rows.ids}
    count = numbers if layout.is_pooled else len(rows.ids)
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, *layout.shape)}
    with tf.io.gfile.GFile(path, "wb") as file, zipfile.ZipFile(WritableFile(file), "w") as archive:
        for name, array in first.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        with archive.open(zipfile.ZipInfo("values.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(block.values.astype("<f4").tobytes())


def _write_parquet(path: str, layout: Layout, rows: Rows, blocks: Iterable[Block]) -> None:
    import pyarrow
    import pyarrow.parquet

    vector = pyarrow.float32()
    for size in reversed(layout.shape):
        vector = pyarrow.list_(vector, size)
    fields = {"line_index": pyarrow.int64()}
    if layout.is_pooled:
        fields["values"] = vector
    else:
        fields |= {"tokens": pyarrow.list_(pyarrow.string()), "values": pyarrow.list_(vector)}
    schema = pyarrow.schema(fields)
    with (
        tf.io.gfile.GFile(path, "wb") as file,
        # Floats neither repeat nor shrink.
        pyarrow.parquet.ParquetWriter(
            WritableFile(file), schema, use_dictionary=False, compression="none"
        ) as writer,
    ):
        for block in blocks:
            values = pyarrow.array(block.values.reshape(-1))
            for size in reversed(layout.shape):
                values = pyarrow.FixedSizeListArray.from_arrays(values, size)
            first, starts = block.rows.first_line, block.rows.starts
            columns = {"line_index": pyarrow.array(np.arange(first, first + len(starts) - 1))}
            if not layout.is_pooled:
                tokens = pyarrow.array([layout.vocabulary[token] for token in block.rows.ids])
                offsets = pyarrow.array(starts.astype(np.int32))
                columns["tokens"] = pyarrow.ListArray.from_arrays(offsets, tokens)
                values = pyarrow.ListArray.from_arrays(offsets, values)
            columns["values"] = values
            writer.write_table(pyarrow.table(columns, schema))


# By format: the file name's suffix, and what writes a file of consecutive lines. It takes all the
# lines without their vectors, and then blocks of some with them.
Writer = Callable[[str, Layout, Rows, Iterable[Block]], None]
WRITERS: Mapping[str, tuple[str, Writer]] = {
    "jsonl": (".jsonl", _write_jsonl),
    "numpy": (".npz", _write_numpy),
    "parquet": (".parquet", _write_parquet),
}


def check_can_write(format: str) -> None:
    """Raises a ``ValueError`` where what a format needs is not installed."""
    if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            "--format=parquet needs the package pyarrow: pip install pyarrow, or give another "
            "--format."
        )
