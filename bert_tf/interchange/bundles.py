"""TensorFlow's tensor bundles (``.index`` and ``.data-...`` files), read and written by tensor."""

import os
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from . import in_place
from .checkpoint import StoredTensor

_INDEX = ".index"


def find_prefix(path: str, preferred: str = "") -> str | None:
    """The prefix of the bundle that a path means.

    Args:
        path: a prefix, or a directory.
        preferred: the name to take where a directory holds several and none is the last saved.

    Returns:
        The prefix; ``None`` where there is no bundle.

    Raises:
        ValueError: the directory holds several, and nothing says which.
    """
    if tf.io.gfile.exists(path + _INDEX):
        return path
    if not tf.io.gfile.isdir(path):
        return None
    names = sorted(
        name.removesuffix(_INDEX) for name in tf.io.gfile.listdir(path) if name.endswith(_INDEX)
    )
    if len(names) > 1:
        state = tf.train.get_checkpoint_state(path)
        # Only the name counts: the file may have been written in another directory.
        last = os.path.basename(state.model_checkpoint_path) if state else preferred
        if last not in names:
            raise ValueError(
                f"{path} holds {len(names)} checkpoints, {', '.join(names[:5])}, and nothing says "
                f"which to take: name one, {os.path.join(path, names[-1])} for example."
            )
        names = [last]
    return os.path.join(path, names[0]) if names else None


class Bundle:
    """A bundle opened for reading.

    Args:
        prefix: the path up to ``.index``.

    Attributes:
        prefix: as given.
        shapes: every tensor's shape, by name.

    Raises:
        ValueError: the bundle is damaged, or a part of it is missing.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        try:
            reader: Any = tf.train.load_checkpoint(prefix)
        except (tf.errors.OpError, ValueError) as error:
            raise ValueError(
                f"{prefix}{_INDEX} is not a TensorFlow checkpoint that can be read: "
                f"{_first_line(error)}."
            ) from error
        self.shapes = {
            name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()
        }
        self._dtypes = reader.get_variable_to_dtype_map()

    def tensor(self, name: str, columns: tuple[int, int] | None = None) -> StoredTensor:
        """A tensor, or some of its columns.

        Args:
            name: as stored.
            columns: (first, number) along the last axis; all of them by default.
        """
        shape = self.shapes[name]
        if columns:
            shape = (*shape[:-1], columns[1])
        dtype = self._dtypes[name].name
        return StoredTensor((name,), shape, dtype, lambda: self._read(name, columns))

    def _read(self, name: str, columns: tuple[int, int] | None) -> np.ndarray:
        try:
            with tf.device("CPU:0"):
                (value,) = tf.raw_ops.RestoreV2(
                    prefix=self.prefix,
                    tensor_names=[name],
                    # TensorFlow reads no slices of float16.
                    shape_and_slices=[""],
                    dtypes=[self._dtypes[name]],
                )
        except tf.errors.OpError as error:
            raise ValueError(
                f"{self.prefix}: {name} cannot be read, the checkpoint's data file is damaged or "
                f"cut off: {_first_line(error)}."
            ) from error
        # value.numpy() copies, which matters for the large ones: those of plain floats.
        plain = value.dtype in (tf.float16, tf.float32, tf.float64)
        array: Any = np.asarray(memoryview(value)) if plain else value.numpy()
        return array[..., columns[0] : sum(columns)] if columns else array


def write(prefix: str, tensors: Iterable[tuple[str, StoredTensor]]) -> None:
    """Writes tensors to a bundle of one data file.

    Args:
        prefix: the path up to ``.index``.
        tensors: each with the name that it gets.
    """
    names, values = [], []
    with tf.device("CPU:0"):
        for name, tensor in tensors:
            names.append(name)
            values.append(in_place.to_tensor(tensor.read()))
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=values,
        )


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error).strip().split("\n")[0]
    # Without the names of the graph's nodes.
    return re.sub(r"\{\{.*?\}\} ?| ?\[Op:.*", "", text).rstrip(".")
