"""The files that vectors are written to: JSON lines, NumPy, Parquet or TFRecord.

Of one vector a line:

* ``jsonl``: an object a line, of ``linex_index`` and ``layers``.
* ``numpy``: an ``.npz`` of ``line_index`` (N,) int64 and ``values`` (N, D).
* ``parquet``: a row a line, of ``line_index`` and ``values``, a list of D floats.
* ``tfrecord``: a ``tf.train.Example`` a line, of ``line_index`` and ``values``, D floats.

Of one vector a token:

* ``jsonl`` is Google's: an object a line, of ``linex_index`` and ``features``, for each token an
  object of ``token`` and ``layers``.
* ``numpy`` has ``lengths`` (N,) and ``token_ids`` (T,) int32 besides, and ``values`` (T, D).
* ``parquet`` has ``tokens`` besides, a list of strings; ``values`` is a list of lists.
* ``tfrecord`` has ``tokens`` besides; ``values`` has each token's, one behind the other.

``layers`` is a list of objects of ``index`` and ``values``, which are rounded to six places.
Elsewhere values are float32, and where there are several layers an axis for them is before D.

Letters: N lines, T tokens of all of them, L layers, D numbers of a vector.

Source: google-research/bert ``extract_features.py``.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .rows import Rows
from .vectors import Block

_DECIMALS = 6


class Layout(NamedTuple):
    """What every file of an output has in common.

    Attributes:
        layers: L names.
        width: D.
        is_pooled: whether a line has one vector.
        vocabulary: the pieces in the order of their ids.
    """

    layers: tuple[int | str, ...]
    width: int
    is_pooled: bool
    vocabulary: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a line's or a token's numbers: (D,), or (L, D) where there are several layers."""
        return (self.width,) if len(self.layers) == 1 else (len(self.layers), self.width)


class _Stream(io.RawIOBase):
    """A ``GFile`` that can be written alone, for libraries that ask what a file can do."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(bytes(data))
        return len(data)


def _write_jsonl(path: str, layout: Layout, rows: Rows, blocks: Iterable[Block]) -> None:
    with tf.io.gfile.GFile(path, "wb") as file:
        for block in blocks:
            starts = block.rows.starts
            for number in range(len(block.rows.lengths)):
                line: dict[str, Any] = {"linex_index": block.rows.first_line + number}
                if layout.is_pooled:
                    line["layers"] = _layers(layout, block.values[number])
                else:
                    line["features"] = [
                        {
                            "token": layout.vocabulary[block.rows.ids[token]],
                            "layers": _layers(layout, block.values[token]),
                        }
                        for token in range(starts[number], starts[number + 1])
                    ]
                file.write((json.dumps(line) + "\n").encode())


def _layers(layout: Layout, values: np.ndarray) -> list[dict[str, Any]]:
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
    with (
        tf.io.gfile.GFile(path, "wb") as file,
        zipfile.ZipFile(_Stream(file), "w") as archive,
    ):
        for name, array in first.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        with archive.open(zipfile.ZipInfo("values.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(block.values.astype("<f4").tobytes())


def _write_tfrecord(path: str, layout: Layout, rows: Rows, blocks: Iterable[Block]) -> None:
    vocabulary = [piece.encode() for piece in layout.vocabulary]
    with tf.io.TFRecordWriter(path) as writer:
        for block in blocks:
            starts = block.rows.starts
            for number in range(len(block.rows.lengths)):
                example = tf.train.Example()
                feature = example.features.feature
                feature["line_index"].int64_list.value.append(block.rows.first_line + number)
                values = block.values[number]
                if not layout.is_pooled:
                    of_line = slice(starts[number], starts[number + 1])
                    tokens = [vocabulary[token] for token in block.rows.ids[of_line]]
                    feature["tokens"].bytes_list.value.extend(tokens)
                    values = block.values[of_line]
                feature["values"].float_list.value.extend(values.reshape(-1))
                writer.write(example.SerializeToString(deterministic=True))


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
            _Stream(file), schema, use_dictionary=False, compression="none"
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


# By format: the file name's suffix, and what writes a file of consecutive lines, which are given
# whole and again with their vectors, some at a time.
Writer = Callable[[str, Layout, Rows, Iterable[Block]], None]
WRITERS: Mapping[str, tuple[str, Writer]] = {
    "jsonl": (".jsonl", _write_jsonl),
    "numpy": (".npz", _write_numpy),
    "parquet": (".parquet", _write_parquet),
    "tfrecord": (".tfrecord", _write_tfrecord),
}


def check_can_write(format: str) -> None:
    """Checks that what a format needs is installed.

    Raises:
        ValueError: it is not.
    """
    if format != "parquet":
        return
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "--format=parquet needs the package pyarrow: pip install pyarrow, or give another "
            "--format."
        ) from error
