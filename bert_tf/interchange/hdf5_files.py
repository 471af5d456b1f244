"""HDF5 files as Keras writes them, ``NAME.weights.h5`` or ``NAME.h5``, read as a stranger's data.

HDF5 can do more than hold arrays: a link may lead into another file, a dataset may be kept in
another file, be put together from several or be compressed, an element may be of any length. Keras
uses none of it, and nothing of it is followed here: each dataset has bytes of its own in the file,
as many as its shape says.
"""

import contextlib
import functools
import itertools
from collections.abc import Iterator

import h5py
import ml_dtypes
import numpy as np
import tensorflow as tf

from bert_tf.files import readable
from bert_tf.untrusted import quote

from .checkpoint import StoredTensor
from .tensor_files import check_unchanged, file_state

_NUMBERS = "fiub"  # NumPy's kinds: floats, integers, unsigned integers, booleans
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# Groups and datasets; the largest BERT's file, with an optimizer's, has a sixth of them.
_MAX_OBJECTS = 20_000


def open_file(path: str) -> dict[str, StoredTensor]:
    """Every dataset of a file by its path there, without the first slash; none is read yet."""
    state = file_state(path)
    entries, places = {}, []
    with _opened(path) as file:
        for name, dataset in _datasets(file, path):
            dtype = _checked_dtype(dataset, f"{path}: {quote(name)}")
            places.append((*_place(dataset, state[0], f"{path}: {quote(name)}"), name))
            read = functools.partial(_read, path, state, name, dtype)
            entries[name] = StoredTensor((name,), tuple(dataset.shape), dtype.name, read)
    places.sort()
    for (_, end, first), (begin, _, second) in itertools.pairwise(places):
        if begin < end:
            raise ValueError(
                f"{path}: {quote(first)} and {quote(second)} share their bytes: Keras writes no "
                "such file."
            )
    return dict(sorted(entries.items()))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[h5py.File]:
    """The open file; the errors of HDF5 become sentences."""
    with contextlib.ExitStack() as stack:
        try:
            source = path
            if "://" in path:  # HDF5 itself opens local files alone
                source = stack.enter_context(tf.io.gfile.GFile(path, "rb"))
            with readable(path), h5py.File(source, "r") as file:
                yield file
        except (OSError, RuntimeError, KeyError, TypeError, OverflowError, MemoryError) as error:
            raise ValueError(
                f"{path} is not an HDF5 file that can be read, it is damaged or cut off: "
                f"{' '.join(str(error).split()) or type(error).__name__}."
            ) from error


def _datasets(file: h5py.File, path: str) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every dataset, and its path from the file's root."""
    # A list and no recursion: the depth of the groups is the stranger's choice.
    waiting = [("", file["/"])]
    seen = {h5py.h5o.get_info(file["/"].id).addr}
    objects = 0
    while waiting:
        prefix, group = waiting.pop()
        objects += len(group)
        if objects > _MAX_OBJECTS:
            raise ValueError(
                f"{path} holds more than {_MAX_OBJECTS:,} groups and arrays, which no model has."
            )
        for key in group:
            name = prefix + key
            kind = type(group.get(key, getlink=True))
            if kind is not h5py.HardLink:
                raise ValueError(
                    f"{path}: {quote(name)} is a link of the kind {kind.__name__}, which may lead "
                    "anywhere: Keras writes none, and none is followed."
                )
            found = group[key]
            address = h5py.h5o.get_info(found.id).addr
            if address in seen:
                raise ValueError(
                    f"{path}: {quote(name)} stands in the file twice, or within itself: Keras "
                    "writes no such file."
                )
            seen.add(address)
            if isinstance(found, h5py.Dataset):
                yield name, found
            elif isinstance(found, h5py.Group):
                waiting.append((f"{name}/", found))


def _checked_dtype(dataset: h5py.Dataset, where: str) -> np.dtype:
    """A dataset's type, once it is seen to be an array of numbers."""
    dtype = dataset.dtype
    if dtype.kind == "V" and dtype.itemsize == 2 and str(dataset.attrs.get("dtype")) == "bfloat16":
        return _BFLOAT16
    if dtype.kind not in _NUMBERS or dataset.shape is None:
        raise ValueError(
            f"{where} is of the type {quote(dataset.dtype)}: expected an array of numbers."
        )
    return dtype


def _place(dataset: h5py.Dataset, file_size: int, where: str) -> tuple[int, int]:
    """A dataset's first byte in the file and the one after its last, once it is seen to be there.

    A dataset of chunks or with filters may be any number of times larger than its bytes.
    """
    layout = dataset.id.get_create_plist()
    if dataset.is_virtual or dataset.external:
        raise ValueError(
            f"{where} is kept in other files: Keras writes no such array, and it is not read."
        )
    if layout.get_layout() != h5py.h5d.CONTIGUOUS or layout.get_nfilters():
        raise ValueError(
            f"{where} is compressed or in chunks: Keras writes no such array; write the file "
            "again without compression."
        )
    size, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    begin = dataset.id.get_offset() or 0
    if size != stored or begin + size > file_size or (size and not begin):
        raise ValueError(
            f"{where} is {size:,} bytes large, of which the file of {file_size:,} bytes holds "
            f"{stored:,} from byte {begin:,}: it was never written, or is cut off."
        )
    return begin, begin + size


def _read(path: str, state: tuple[int, int], name: str, dtype: np.dtype) -> np.ndarray:
    check_unchanged(path, state)
    with _opened(path) as file:
        value: np.ndarray = file[name][()]
    return np.asarray(value).view(dtype) if dtype == _BFLOAT16 else np.asarray(value)
