"""HDF5 files as Keras writes them, ``NAME.weights.h5`` or ``NAME.h5``, read by h5py.

HDF5 can do more than hold arrays: a link may lead into another file, a dataset may be kept in
another file, be put together from several or be compressed. Keras uses none of it; links are not
followed, and such datasets are refused, so that what is read is no larger than the file.
"""

import contextlib
import functools
import os
from collections.abc import Iterator

import h5py
import ml_dtypes
import numpy as np

from bert_tf.untrusted import quote, reason

from .checkpoint import StoredTensor
from .tensor_files import LocalFile

_NUMBERS = "fiub"  # NumPy's kinds: floats, integers, unsigned integers, booleans
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def open_file(path: str) -> dict[str, StoredTensor]:
    """Every dataset of a file by its path there, without the first slash; none is read yet."""
    local = LocalFile(path)
    size = os.path.getsize(local.path)
    entries = {}

    def visit(name: str, found: h5py.Dataset | h5py.Group) -> None:
        if isinstance(found, h5py.Dataset):
            dtype = _checked_dtype(found, size, f"{path}: {quote(name)}")
            read = functools.partial(_read, path, local, name, dtype)
            entries[name] = StoredTensor((name,), tuple(found.shape), dtype.name, read)

    with _opened(path, local) as file:
        file.visititems(visit)
    return dict(sorted(entries.items()))


@contextlib.contextmanager
def _opened(path: str, local: LocalFile) -> Iterator[h5py.File]:
    """The open file; the errors of HDF5 become sentences."""
    try:
        with h5py.File(local.path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"{path} is not an HDF5 file that can be read, it is damaged or cut off: "
            f"{reason(error).rstrip('.')}."
        ) from error


def _checked_dtype(dataset: h5py.Dataset, file_size: int, where: str) -> np.dtype:
    """A dataset's type, once it is seen to be an array of numbers that lies in the file whole."""
    dtype = dataset.dtype
    if dtype.kind == "V" and dtype.itemsize == 2 and str(dataset.attrs.get("dtype")) == "bfloat16":
        dtype = _BFLOAT16
    elif dtype.kind not in _NUMBERS or dataset.shape is None:
        raise ValueError(f"{where} is of the type {quote(dtype)}: expected an array of numbers.")
    size = dataset.size * dtype.itemsize
    if (
        dataset.is_virtual
        or dataset.external
        or not dataset.id.get_storage_size() == size <= file_size
    ):
        raise ValueError(
            f"{where} has {size:,} bytes, which do not lie in the file of {file_size:,} as they "
            "are: it is compressed, kept in other files, or cut off; write the file again without "
            "compression."
        )
    return dtype


def _read(path: str, local: LocalFile, name: str, dtype: np.dtype) -> np.ndarray:
    with _opened(path, local) as file:
        value: np.ndarray = file[name][()]
    return np.asarray(value).view(dtype) if dtype == _BFLOAT16 else np.asarray(value)
