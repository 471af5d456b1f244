"""Tensor files: safetensors, HDF5, PyTorch pickles and TensorFlow bundles.

Opening a file reads only names, shapes and dtypes. Each tensor is read on access.
"""

import contextlib
import functools
import importlib
import itertools
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf.io.files import atomic_path, read_json_object, readable
from bert_tf.io.messages import listed, one_line, quote, reason
from bert_tf.io.paths import local_path
from bert_tf.training import saved_states

from .checkpoint import StoredTensor
from .weights import to_tensor


class LocalFile:
    """Local file, or temporary copy of a remote file; the copy is deleted with this object."""

    def __init__(self, path: str) -> None:
        local = local_path(path)
        with readable(path):
            if local is None:
                self._folder = tempfile.TemporaryDirectory(prefix="bert_tf-")
                local = os.path.join(self._folder.name, os.path.basename(path))
                tf.io.gfile.copy(path, local)
        self.path = local


# Exceptions that the libraries raise for damaged files.
_UNREADABLE = (
    *(safetensors.SafetensorError, OSError, RuntimeError, KeyError, TypeError),
    *(OverflowError, MemoryError),
)


@contextlib.contextmanager
def _open(path: str, kind: str, open_file: Callable[[], Any]) -> Iterator[Any]:
    """Opens a file with a library and converts the library's errors to ``ValueError``."""
    try:
        with open_file() as file:
            yield file
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read as {kind} ({one_line(reason(error).rstrip('.'))}). Download it "
            "again."
        ) from error


# === Several files ===

VARIABLE = ":0"  # the suffix of a TensorFlow variable's name


def open_shards(
    index_path: str, open_shard: Callable[[str], dict[str, StoredTensor]]
) -> dict[str, StoredTensor]:
    """Opens the files listed in an index, ``*.index.json``.

    Each tensor must be in the file that ``weight_map`` specifies. If a later file also contains a
    tensor of this name, both must be equal, because transformers loads the last one. File names
    must not contain a directory, so that an untrusted index cannot refer to other files. Symbolic
    links are followed, as in the Hugging Face Hub's cache.
    """
    # Names in TensorFlow's indexes start with the model's scope, unlike names in the files.
    weight_map = {
        name.partition("/")[2] if name.endswith(VARIABLE) else name: files
        for name, files in read_weight_map(index_path).items()
    }
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(itertools.chain(*weight_map.values()))):
        path = os.path.join(os.path.dirname(index_path), shard)
        if not tf.io.gfile.exists(path):
            raise ValueError(
                f"No such file: {path}, listed in {index_path}. Add it to the directory."
            )
        opened = open_shard(path)
        expected = {name for name, files in weight_map.items() if shard in files}
        for name in sorted((opened.keys() - weight_map.keys()) | (expected - opened.keys())):
            raise ValueError(
                f"{index_path}: expected {quote(name)} in {listed(weight_map.get(name, ()))}, but "
                f"{path} {'contains' if name in opened else 'lacks'} it. Use the index of these "
                "files."
            )
        for name in sorted(opened.keys() - expected):
            if not add_copy(tensors, name, opened.pop(name)):
                raise ValueError(
                    f"{index_path}: expected {quote(name)} in {listed(weight_map[name])}, but "
                    f"{path} contains a different one. Remove one of them."
                )
        tensors |= opened
    return tensors


def add_copy(tensors: dict[str, StoredTensor], name: str, tensor: StoredTensor) -> bool:
    """Adds a tensor if the name is new; otherwise returns whether the existing tensor is equal."""
    first = tensors.setdefault(name, tensor)
    return first is tensor or (
        first.shape == tensor.shape and np.array_equal(first.read(), tensor.read())
    )


def read_weight_map(index_path: str) -> dict[str, list[str]]:
    """Returns the file names of each tensor in an index; Keras may list several per tensor."""
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{index_path}: weight_map: expected an object that maps tensors to file names, got "
            f"{quote(weight_map)}."
        )
    files = {name: at if isinstance(at, list) else [at] for name, at in weight_map.items()}
    for shard in itertools.chain(*files.values()):
        if not isinstance(shard, str) or not is_plain_name(shard):
            raise ValueError(
                f"{index_path}: expected file names without a directory, got {quote(shard)}."
            )
    return files


def is_plain_name(name: str) -> bool:
    """Whether a file name is printable and does not contain a directory."""
    return name not in ("", ".", "..") and name.isprintable() and not set(name) & set("/\\:")


# === safetensors ===

_DTYPES: dict[str, np.dtype] = {
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


def open_safetensors(path: str) -> dict[str, StoredTensor]:
    """Opens the tensors of a safetensors file, keyed by name."""
    local = LocalFile(path)
    tensors = {}
    with _safetensors(path, local) as file:
        for name in file.keys():  # noqa: SIM118 - The file is not a mapping.
            header = file.get_slice(name)
            code, shape = header.get_dtype(), tuple(header.get_shape())
            if code not in _DTYPES:
                raise ValueError(
                    f"{path}: dtype of {quote(name)}: expected one of {', '.join(_DTYPES)}, got "
                    f"{quote(code)}. Convert the file to one of these."
                )
            read = functools.partial(_read_safetensors, path, local, name)
            tensors[name] = StoredTensor(name, shape, _DTYPES[code].name, read)
    return tensors


def _read_safetensors(path: str, local: LocalFile, name: str) -> np.ndarray:
    # The file is reopened for each tensor, because mapped pages count towards process memory.
    with _safetensors(path, local) as file:
        array: np.ndarray = file.get_tensor(name)
    return array


def _safetensors(path: str, local: LocalFile) -> contextlib.AbstractContextManager[Any]:
    return _open(path, "safetensors", lambda: safetensors.safe_open(local.path, "np"))


def write_safetensors(path: str, tensors: Iterable[StoredTensor]) -> None:
    """Writes a safetensors file atomically."""
    arrays = {tensor.name: np.asarray(tensor.read(), order="C") for tensor in tensors}
    metadata = {"format": "pt"}  # Required by transformers.
    with atomic_path(path) as temporary:
        local = local_path(temporary)
        if local is not None:
            try:
                safetensors.numpy.save_file(arrays, local, metadata)
            except safetensors.SafetensorError as error:  # For example, the disk is full.
                raise OSError(f"Cannot write {path}: {reason(error)}") from error
        else:
            with tf.io.gfile.GFile(temporary, "wb") as file:
                file.write(safetensors.numpy.save(arrays, metadata))


# === HDF5 files of Keras: NAME.weights.h5, NAME.h5 ===

_NUMERIC_KINDS = "fiub"  # NumPy kinds: float, int, unsigned int, bool
_BFLOAT16 = _DTYPES["BF16"]


def open_hdf5(path: str) -> dict[str, StoredTensor]:
    """Opens the datasets of an HDF5 file, keyed by path without the leading slash.

    Links are not followed. Compressed datasets and external storage, which Keras does not write,
    are rejected, so that the data cannot be larger than the file.
    """
    local = LocalFile(path)
    size = os.path.getsize(local.path)
    entries = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            dtype = _checked_dtype(item, size, f"{path}: {quote(name)}")
            read = functools.partial(_read_hdf5, path, local, name, dtype)
            entries[name] = StoredTensor(name, tuple(item.shape), dtype.name, read)

    with _hdf5(path, local) as file:
        file.visititems(visit)
    return dict(sorted(entries.items()))


def _hdf5(path: str, local: LocalFile) -> contextlib.AbstractContextManager[h5py.File]:
    return _open(path, "HDF5", lambda: h5py.File(local.path, "r"))


def _checked_dtype(dataset: h5py.Dataset, file_size: int, where: str) -> np.dtype:
    """Checks that a dataset is a numeric, uncompressed array in the file; returns its dtype."""
    dtype = dataset.dtype
    if dtype.kind == "V" and dtype.itemsize == 2 and str(dataset.attrs.get("dtype")) == "bfloat16":
        dtype = _BFLOAT16
    elif dtype.kind not in _NUMERIC_KINDS:
        raise ValueError(f"{where}: expected a numeric array, got the type {quote(dtype)}.")
    if dataset.shape is None:
        raise ValueError(f"{where}: expected a numeric array, got an empty dataset.")
    size = dataset.size * dtype.itemsize
    is_contiguous = dataset.id.get_storage_size() == size <= file_size
    if dataset.is_virtual or dataset.external or not is_contiguous:
        raise ValueError(
            f"{where}: the {size:,} bytes are not stored in the file ({file_size:,} bytes): the "
            "dataset is compressed, external or truncated. Save the file again uncompressed."
        )
    return dtype


def _read_hdf5(path: str, local: LocalFile, name: str, dtype: np.dtype) -> np.ndarray:
    with _hdf5(path, local) as file:
        value: np.ndarray = file[name][()]
    return np.asarray(value).view(dtype) if dtype == _BFLOAT16 else np.asarray(value)


# === PyTorch pickles, read with torch only if allow_pickle is set ===

_TORCH_DTYPES = sorted(dtype.name for dtype in _DTYPES.values())
# In earlier releases, a crafted file could run code despite weights_only (CVE-2025-32434).
_FIRST_SAFE_TORCH = (2, 6)


def open_pickle(path: str, allow_pickle: bool) -> dict[str, StoredTensor]:
    """Opens the tensors of a ``torch.save`` file with ``weights_only``, given ``allow_pickle``."""
    if not allow_pickle:
        raise ValueError(
            f"{path} is a pickle, which can run arbitrary code. "
            f"{pickle_remedy(os.path.dirname(path))}."
        )
    torch = _import_torch(path)
    entries = {}
    for name, tensor in _unpickle(torch, path).items():
        _check_tensor(path, name, tensor)
        read = functools.partial(_to_numpy, torch, tensor)
        entries[name] = StoredTensor(name, tuple(tensor.shape), _dtype_name(tensor), read)
    return entries


def pickle_remedy(model: str) -> str:
    """Returns the remedy for a pickle. ``model`` is the model's directory or hub name."""
    return (
        "Use a safetensors file or, if you trust the source, run python -m bert_tf.convert "
        f"--model={model} --output=DIR --format=huggingface --allow_pickle (in Python: "
        "bert_tf.load(..., allow_pickle=True))"
    )


def _import_torch(path: str) -> Any:
    try:
        # Imported by name, because torch is optional and its types are not available to mypy.
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise ValueError(
            f"{path}: PyTorch is not installed. Run pip install torch, or use a safetensors file."
        ) from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < _FIRST_SAFE_TORCH:
        raise ValueError(
            f"{path}: expected torch 2.6 or later, got {torch.__version__}. Run pip install -U "
            "torch."
        )
    return torch


def _unpickle(torch: Any, path: str) -> dict[Any, Any]:
    local = LocalFile(path).path
    try:
        # Mapped tensors use memory only when read. Files of torch before 1.6 cannot be mapped.
        mapped = zipfile.is_zipfile(local)
        weights = torch.load(local, map_location="cpu", weights_only=True, mmap=mapped)
    # A damaged pickle can raise KeyError, EOFError, RuntimeError, UnpicklingError and others.
    except Exception as error:
        # PyTorch's own error message includes a page of advice on disabling weights_only.
        cause = error.__context__ or error
        words = re.split(r"\.\s|\.$|\n", str(cause).strip())[0]
        raise ValueError(
            f"{path}: expected a dict of tensors; torch.load failed with "
            f"{one_line(words) or type(cause).__name__}."
        ) from error
    if not isinstance(weights, dict):
        raise ValueError(f"{path}: expected a dict of tensors, got {type(weights).__name__}.")
    return weights


def _check_tensor(path: str, name: Any, tensor: Any) -> None:
    """Checks that an item is a dense tensor with a name and complete storage."""
    if not isinstance(name, str) or not hasattr(tensor, "untyped_storage"):
        raise ValueError(
            f"{path}: {quote(name)}: expected a tensor, got {type(tensor).__name__}. Save only "
            "the model's state_dict()."
        )
    dense = str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu"
    if not dense or _dtype_name(tensor) not in _TORCH_DTYPES:
        raise ValueError(
            f"{path}: {quote(name)}: expected a dense tensor of {', '.join(_TORCH_DTYPES)}, got "
            f"{_dtype_name(tensor)}, {tensor.layout}, {tensor.device}."
        )
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(
            f"{path}: {quote(name)}: the shape {tuple(tensor.shape)} is larger than the stored "
            "data."
        )


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _to_numpy(torch: Any, tensor: Any) -> np.ndarray:
    # A tensor may have a pending negation or conjugation.
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if _dtype_name(tensor) == "bfloat16":  # torch cannot convert it to NumPy.
        return np.array(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.array(tensor.numpy())


# === TensorFlow bundles: NAME.index and NAME.data-00000-of-00001 ===

RELEASED = "bert_model.ckpt"  # the prefix of released checkpoints
_MAX_STATE_BYTES = 1 << 20


class Bundle(saved_states.Bundle):
    """TensorFlow bundle, opened for reading."""

    def tensor(self, name: str) -> StoredTensor:
        """Returns a tensor by its stored name."""
        return StoredTensor(name, self.shapes[name], self.dtypes[name], lambda: self.read(name))


def find_prefix(path: str) -> str | None:
    """Finds the bundle at a prefix or in a directory; returns the bundle's prefix, or ``None``.

    If a directory contains several bundles, the last saved one is used, else ``bert_model.ckpt``.
    """
    if tf.io.gfile.exists(path + saved_states.INDEX):
        return path
    files = tf.io.gfile.listdir(path) if tf.io.gfile.isdir(path) else []
    ends = saved_states.INDEX
    names = sorted(name.removesuffix(ends) for name in files if name.endswith(ends))
    if len(names) > 1:
        last = _last_saved(path) or RELEASED
        if last not in names:
            raise ValueError(
                f"{path}: expected one checkpoint, got {len(names)}: {listed(names, 5)}. Pass one "
                f"of them, such as {os.path.join(path, names[-1])}."
            )
        names = [last]
    return os.path.join(path, names[0]) if names else None


def bundle_contains_tensor(path: str, tensor: str) -> bool:
    """Whether the bundle at a path contains a tensor."""
    prefix = find_prefix(path)
    return prefix is not None and tensor in Bundle(prefix).shapes


def _last_saved(path: str) -> str:
    """Returns the newest checkpoint that the directory's file ``checkpoint`` names, or ``""``."""
    try:
        if tf.io.gfile.stat(os.path.join(path, "checkpoint")).length > _MAX_STATE_BYTES:
            return ""
        state = tf.train.get_checkpoint_state(path)
    except (tf.errors.OpError, UnicodeDecodeError):
        return ""
    # The directory is ignored, because it may have been renamed.
    return os.path.basename(state.model_checkpoint_path) if state else ""


def write_bundle(prefix: str, tensors: Iterable[StoredTensor]) -> None:
    """Writes tensors to a bundle with one data file."""
    values = {tensor.name: to_tensor(tensor.read()) for tensor in tensors}
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=[*values],
            shape_and_slices=[""] * len(values),
            tensors=[*values.values()],
        )
