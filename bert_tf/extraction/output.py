"""Output directory of an extraction: vector files and a manifest.

docs/guides/features.md describes the files. Dimensions: N lines, T tokens in total, L layers, D
values per vector.

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
from bert_tf.io.messages import listed, one_line

_DECIMALS = 6
_MANIFEST = "manifest.json"
_DIGEST_CHANGES = {"input": "different text", "model": "a different model"}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Contents of ``manifest.json``."""

    flags: Mapping[str, Any]  # flags that change the vectors, and digests of the text and model
    layers: tuple[int, ...]  # indices of the layers, in the order of the values
    width: int  # dimensions of a vector
    # The files in the order of their lines, each as ``{"file": ..., "lines": ...}``.
    shards: tuple[Mapping[str, Any], ...] = ()
    lines: int = 0  # number of lines written so far
    tokens: int = 0  # number of tokens in these lines, including [CLS] and [SEP]
    lines_cut: int = 0  # number of lines with more tokens than ``max_seq_length``
    lines_not_utf8: int = 0  # number of lines with bytes that are not UTF-8
    complete: bool = False  # whether all lines are written


def open_output(path: str, new: Manifest) -> Manifest:
    """Reads the manifest of an output directory; writes ``new`` if the directory has no files."""
    manifest = os.path.join(path, _MANIFEST)
    if not tf.io.gfile.exists(manifest):
        is_directory = tf.io.gfile.isdir(path)
        names = tf.io.gfile.listdir(path) if is_directory else []
        # Ignore the temporary file of a process that was killed while it wrote the manifest.
        if tf.io.gfile.exists(path) and not (is_directory and all(map(is_temporary, names))):
            raise ValueError(
                f"--output={path} has no {_MANIFEST} of extract_features. Use an empty or new "
                "directory."
            )
        save(path, new)
        return new
    values = read_json_object(manifest)
    try:
        lists = {name: tuple(values[name]) for name in ("layers", "shards")}
        saved = Manifest(**{**values, **lists})
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{manifest} is not a manifest of extract_features ({error}). Use another --output, or "
            "remove the file."
        ) from error
    if not saved.shards:
        return new
    differences = []
    for name, value in new.flags.items():
        if saved.flags.get(name) != value:
            change = f"{one_line(str(saved.flags.get(name)))}, now {one_line(str(value))}"
            differences.append(f"--{name} ({_DIGEST_CHANGES.get(name, change)})")
    if differences:
        raise ValueError(
            f"{path} was started with different settings: {', '.join(differences)}. Use the "
            "original flags, or another --output."
        )
    missing = {shard["file"] for shard in saved.shards} - set(tf.io.gfile.listdir(path))
    if missing:
        raise ValueError(
            f"{path} has no {listed(sorted(missing), 3)}, which its {_MANIFEST} lists. Remove the "
            "directory and rerun."
        )
    return saved


def save(path: str, manifest: Manifest) -> None:
    """Writes the manifest."""
    write_json(os.path.join(path, _MANIFEST), dataclasses.asdict(manifest))


# === Formats ===


class Rows(NamedTuple):
    """Token ids of consecutive lines, without padding."""

    first_line: int  # index of the first line in the input
    lengths: np.ndarray  # (N,) int32, number of tokens per line, including [CLS] and [SEP]
    ids: np.ndarray  # (T,) int32
    type_ids: np.ndarray  # (T,) int32

    @property
    def starts(self) -> np.ndarray:
        """Offset of each line's first token, and the total number of tokens: (N + 1,) int64."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def slice(self, begin: int, end: int) -> "Rows":
        """Returns the lines from ``begin`` to ``end`` (exclusive)."""
        first, last = self.starts[[begin, end]]
        return Rows(
            self.first_line + begin,
            self.lengths[begin:end],
            self.ids[first:last],
            self.type_ids[first:last],
        )


class Layout(NamedTuple):
    """Properties that all files of an output share."""

    layers: tuple[int, ...]  # (L,) indices
    width: int  # D
    is_pooled: bool  # whether each line has one vector
    vocabulary: tuple[str, ...]  # the pieces in the order of their ids

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values per line or token: (D,), or (L, D) for several layers."""
        return (self.width,) if len(self.layers) == 1 else (len(self.layers), self.width)


class Block(NamedTuple):
    """N consecutive lines and their vectors."""

    rows: Rows
    values: np.ndarray  # float32; (N, L, D), or (T, L, D) for one vector per token


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
    # A float32 times a million is exact in float64, so this equals Python's round().
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
        # Dictionaries and compression do not make floats smaller.
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


# File suffix and writer of each format. A writer takes the token ids of all lines, and then
# blocks of lines with the vectors.
Writer = Callable[[str, Layout, Rows, Iterable[Block]], None]
WRITERS: Mapping[str, tuple[str, Writer]] = {
    "jsonl": (".jsonl", _write_jsonl),
    "numpy": (".npz", _write_numpy),
    "parquet": (".parquet", _write_parquet),
}


def check_can_write(format: str) -> None:
    """Checks that the packages that a format requires are installed."""
    if format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ValueError("--format=parquet requires pyarrow. Run pip install pyarrow.")
