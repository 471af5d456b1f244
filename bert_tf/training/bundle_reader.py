"""TensorFlow's tensor bundles (``.index`` and ``.data-...`` files), read tensor by tensor."""

import contextlib
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert_tf.untrusted import one_line, reason

INDEX = ".index"
# Errors of TensorFlow's reader; IndexError if a data file is cut off.
_ERRORS = (tf.errors.OpError, IndexError, RuntimeError)


class Bundle:
    """A bundle opened for reading: ``prefix`` is its path up to ``.index``.

    ``shapes`` and ``dtypes``, as TensorFlow calls them, are every tensor's, by name. A ValueError
    says that the bundle is damaged, or a part of it is missing.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        with self._readable(""):
            self._reader = tf.train.load_checkpoint(prefix)
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        dtypes = self._reader.get_variable_to_dtype_map()
        self.dtypes = {name: dtype.name for name, dtype in dtypes.items()}

    def read(self, name: str) -> np.ndarray:
        """A tensor of numbers; a ValueError where it is none, or is damaged."""
        dtype = tf.as_dtype(self.dtypes[name])
        if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
            raise ValueError(
                f"{self.prefix}: {one_line(name)} is {dtype.name}, expected a tensor of numbers."
            )
        with self._readable(name):
            # Before TensorFlow takes memory for it.
            size, stored = math.prod(self.shapes[name]) * dtype.size, self._data_size()
            if size > stored:
                raise IndexError(f"it has {size:,} bytes, and the data files {stored:,}")
            return np.asarray(self._reader.get_tensor(name))

    def read_string(self, name: str) -> bytes:
        """A tensor that is one string; a ValueError where it is none, or is damaged."""
        with self._readable(name):
            value = self._reader.get_tensor(name)
        if not isinstance(value, bytes):
            raise ValueError(f"{self.prefix}: {one_line(name)} is no string.")
        return value

    def _data_size(self) -> int:
        files = tf.io.gfile.glob(f"{self.prefix}.data-*")
        return sum(tf.io.gfile.stat(file).length for file in files)

    @contextlib.contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Turns TensorFlow's errors into a sentence."""
        try:
            yield
        except _ERRORS as error:
            what = f": {one_line(name)} cannot be read, the" if name else f"{INDEX}: the"
            raise ValueError(
                f"{self.prefix}{what} checkpoint is damaged or cut off: "
                f"{reason(error).rstrip('.')}."
            ) from error
