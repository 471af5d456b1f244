"""safetensors files, by the package of that name: read and checked tensor by tensor, written."""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf.files import whole_file
from bert_tf.paths import local_path
from bert_tf.untrusted import one_line, quote, reason

from .checkpoint import StoredTensor
from .tensor_files import LocalFile

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
}


def open_file(path: str) -> dict[str, StoredTensor]:
    """A file's tensors by name: its header is read, and no tensor."""
    local = LocalFile(path)
    tensors = {}
    with _opened(path, local) as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            found = file.get_slice(name)
            code, shape = found.get_dtype(), tuple(found.get_shape())
            if code not in DTYPES:
                raise ValueError(
                    f"{path}: tensor {quote(name)} has the dtype {quote(code)}: expected one of "
                    f"{', '.join(DTYPES)}; convert the file to one of these."
                )
            read = functools.partial(_read, path, local, name)
            tensors[name] = StoredTensor((name,), shape, DTYPES[code].name, read)
    return tensors


def _read(path: str, local: LocalFile, name: str) -> np.ndarray:
    # Opened anew for each tensor: what is mapped counts as the process' memory from then on.
    with _opened(path, local) as file:
        array: np.ndarray = file.get_tensor(name)
    return array


@contextlib.contextmanager
def _opened(path: str, local: LocalFile) -> Iterator[Any]:
    try:
        with safetensors.safe_open(local.path, "np") as file:
            yield file
    except (safetensors.SafetensorError, OSError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"{path} is no safetensors file that can be read, it is damaged or cut short "
            f"({one_line(reason(error).rstrip('.'))}): fetch it again."
        ) from error


def write_file(path: str, tensors: Iterable[StoredTensor], metadata: Mapping[str, str]) -> None:
    """Writes a safetensors file, which appears whole or not at all.

    transformers reads no file without the metadata ``{"format": "pt"}``.
    """
    arrays = {tensor.name: np.asarray(tensor.read(), order="C") for tensor in tensors}
    with whole_file(path) as temporary:
        local = local_path(temporary)
        if local is not None:
            try:
                safetensors.numpy.save_file(arrays, local, dict(metadata))
            except safetensors.SafetensorError as error:  # a full disk's is no OSError
                raise OSError(f"{path} cannot be written: {reason(error)}") from error
        else:
            with tf.io.gfile.GFile(temporary, "wb") as file:
                file.write(safetensors.numpy.save(arrays, dict(metadata)))
