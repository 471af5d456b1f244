"""Files of tensors by name: safetensors, HDF5, PyTorch's pickles, TensorFlow's bundles.

Opening a file reads names, shapes and dtypes; each tensor is read when it is wanted.
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
from bert_tf.io.paths import local_path
from bert_tf.io.wording import listed, one_line, quote, reason
from bert_tf.training import saved_states

from .checkpoint import StoredTensor
from .weights import to_tensor


class LocalFile:
    """A file on this machine; of another file system a copy, which goes with this object."""

    def __init__(self, path: str) -> None:
        local = local_path(path)
        with readable(path):
            if local is None:
                self._folder = tempfile.TemporaryDirectory(prefix="bert_tf-")
                local = os.path.join(self._folder.name, os.path.basename(path))
                tf.io.gfile.copy(path, local)
        self.path = local


# What the libraries raise where a file is damaged.
_UNREADABLE = (
    *(safetensors.SafetensorError, OSError, RuntimeError, KeyError, TypeError),
    *(OverflowError, MemoryError),
)


@contextlib.contextmanager
def _open(path: str, kind: str, open_file: Callable[[], Any]) -> Iterator[Any]:
    """A library's open file, whose errors become a sentence."""
    try:
        with open_file() as file:
            yield file
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} is no {kind} file that can be read, it is damaged or cut off "
            f"({one_line(reason(error).rstrip('.'))}): fetch it again."
        ) from error


# === Several files ===

VARIABLE = ":0"  # the end of a TensorFlow variable's name


def open_shards(
    index_path: str, open_shard: Callable[[str], dict[str, StoredTensor]]
) -> dict[str, StoredTensor]:
    """Opens a checkpoint of several files by its index, ``*.index.json``.

    Each tensor must be in the file that the index' ``weight_map`` names for it. Another of its name
    in a later file must equal it: transformers takes the last file's, whatever the index says.
    The files' names must be plain, so that a stranger's index cannot lead out of its directory; the
    file may be a symbolic link, as in the Hugging Face hub's cache: the directory's owner made it.
    """
    # TensorFlow's have the scope of the model's class in front, of which the files know nothing.
    weight_map = {
        name.partition("/")[2] if name.endswith(VARIABLE) else name: files
        for name, files in read_weight_map(index_path).items()
    }
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(itertools.chain(*weight_map.values()))):
        path = os.path.join(os.path.dirname(index_path), shard)
        if not tf.io.gfile.exists(path):
            raise ValueError(
                f"{index_path} names {quote(shard)}, which is not there: put the file beside it."
            )
        opened = open_shard(path)
        expected = {name for name, places in weight_map.items() if shard in places}
        for name in sorted((opened.keys() - weight_map.keys()) | (expected - opened.keys())):
            raise ValueError(
                f"{index_path} gives {quote(name)} to {listed(weight_map.get(name, ()))}, and "
                f"{path} {'holds' if name in opened else 'lacks'} it: they do not belong together."
            )
        for name in sorted(opened.keys() - expected):
            if not add_copy(tensors, name, opened.pop(name)):
                raise ValueError(
                    f"{index_path} gives {quote(name)} to {listed(weight_map[name])}, and {path} "
                    "holds another of that name: remove the one that is not meant."
                )
        tensors |= opened
    return tensors


def add_copy(tensors: dict[str, StoredTensor], name: str, tensor: StoredTensor) -> bool:
    """Adds a tensor that is not there yet; false where another one has the name."""
    first = tensors.setdefault(name, tensor)
    return first is tensor or (
        first.shape == tensor.shape and np.array_equal(first.read(), tensor.read())
    )


def read_weight_map(index_path: str) -> dict[str, list[str]]:
    """The files of each name in an index: one, or those that Keras lists."""
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{index_path}: expected weight_map, an object of tensors' and files' names, got "
            f"{quote(weight_map)}."
        )
    files = {name: at if isinstance(at, list) else [at] for name, at in weight_map.items()}
    for shard in itertools.chain(*files.values()):
        if not isinstance(shard, str) or not is_plain_name(shard):
            raise ValueError(
                f"{index_path} names the file {quote(shard)}: expected a plain file name, "
                "without a folder."
            )
    return files


def is_plain_name(name: str) -> bool:
    """True if a file name says the same everywhere and stays in its folder."""
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
    """A safetensors file's tensors by name."""
    local = LocalFile(path)
    tensors = {}
    with _safetensors(path, local) as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            header = file.get_slice(name)
            code, shape = header.get_dtype(), tuple(header.get_shape())
            if code not in _DTYPES:
                raise ValueError(
                    f"{path}: tensor {quote(name)} has the dtype {quote(code)}: expected one of "
                    f"{', '.join(_DTYPES)}; convert the file to one of these."
                )
            read = functools.partial(_read_safetensors, path, local, name)
            tensors[name] = StoredTensor(name, shape, _DTYPES[code].name, read)
    return tensors


def _read_safetensors(path: str, local: LocalFile, name: str) -> np.ndarray:
    # Opened anew for each tensor: what is mapped counts as the process' memory from then on.
    with _safetensors(path, local) as file:
        array: np.ndarray = file.get_tensor(name)
    return array


def _safetensors(path: str, local: LocalFile) -> contextlib.AbstractContextManager[Any]:
    return _open(path, "safetensors", lambda: safetensors.safe_open(local.path, "np"))


def write_safetensors(path: str, tensors: Iterable[StoredTensor]) -> None:
    """Writes a safetensors file, which appears whole or not at all."""
    arrays = {tensor.name: np.asarray(tensor.read(), order="C") for tensor in tensors}
    metadata = {"format": "pt"}  # without it transformers does not read the file
    with atomic_path(path) as temporary:
        local = local_path(temporary)
        if local is not None:
            try:
                safetensors.numpy.save_file(arrays, local, metadata)
            except safetensors.SafetensorError as error:  # a full disk's is no OSError
                raise OSError(f"{path} cannot be written: {reason(error)}") from error
        else:
            with tf.io.gfile.GFile(temporary, "wb") as file:
                file.write(safetensors.numpy.save(arrays, metadata))


# === HDF5, as Keras writes it: NAME.weights.h5, NAME.h5 ===

_NUMBERS = "fiub"  # NumPy's kinds: floats, integers, unsigned integers, booleans
_BFLOAT16 = _DTYPES["BF16"]


def open_hdf5(path: str) -> dict[str, StoredTensor]:
    """Every dataset of an HDF5 file by its path there, without the first slash.

    Links are not followed. Datasets that are compressed or lie in other files, which Keras does not
    write, are refused, so that what is read is no larger than the file.
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
    """A dataset's type, once it is seen to be an array of numbers that lies in the file whole."""
    dtype = dataset.dtype
    if dtype.kind == "V" and dtype.itemsize == 2 and str(dataset.attrs.get("dtype")) == "bfloat16":
        dtype = _BFLOAT16
    elif dtype.kind not in _NUMBERS:
        raise ValueError(f"{where} is of the type {quote(dtype)}: expected an array of numbers.")
    if dataset.shape is None:
        raise ValueError(f"{where} is empty: expected an array of numbers.")
    size = dataset.size * dtype.itemsize
    is_contiguous = dataset.id.get_storage_size() == size <= file_size
    if dataset.is_virtual or dataset.external or not is_contiguous:
        raise ValueError(
            f"{where} has {size:,} bytes, which do not lie in the file of {file_size:,} as they "
            "are: it is compressed, kept in other files, or cut off; write the file again without "
            "compression."
        )
    return dtype


def _read_hdf5(path: str, local: LocalFile, name: str, dtype: np.dtype) -> np.ndarray:
    with _hdf5(path, local) as file:
        value: np.ndarray = file[name][()]
    return np.asarray(value).view(dtype) if dtype == _BFLOAT16 else np.asarray(value)


# === PyTorch's pickles: read through torch, and only when asked to ===

_TORCH_DTYPES = sorted(dtype.name for dtype in _DTYPES.values())
# Before this release a crafted file ran code although only weights were asked for (CVE-2025-32434).
_FIRST_SAFE_TORCH = (2, 6)


def open_pickle(path: str, allow_pickle: bool) -> dict[str, StoredTensor]:
    """The tensors that ``torch.save`` wrote to a file.

    Only tensors are unpickled (``weights_only``), and only if ``allow_pickle``.
    """
    if not allow_pickle:
        raise ValueError(
            f"{path} is a pickle, which can run code of whoever made it: "
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
    """The clause on a pickle that is not read; ``model`` is its directory, or its hub's name."""
    return (
        "take the model's safetensors file, or, if you trust the source, convert it once and name "
        f"the output: python -m bert_tf.convert --model={model} --output=DIR --format=huggingface "
        "--allow_pickle (in Python: bert_tf.load(..., allow_pickle=True))"
    )


def _import_torch(path: str) -> Any:
    try:
        # By name: torch is no requirement, and its types are not there to check against.
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise ValueError(
            f"{path} can be read with PyTorch only, which is not installed: pip install torch, or "
            "take the model's safetensors file."
        ) from error
    if tuple(map(int, torch.__version__.split(".")[:2])) < _FIRST_SAFE_TORCH:
        raise ValueError(
            f"{path}: expected torch 2.6 or later, whose reader of weights runs no code, got "
            f"{torch.__version__}: pip install -U torch."
        )
    return torch


def _unpickle(torch: Any, path: str) -> dict[Any, Any]:
    local = LocalFile(path).path
    try:
        # Mapped, a tensor takes memory when it is read; files of torch before 1.6 are loaded whole.
        mapped = zipfile.is_zipfile(local)
        weights = torch.load(local, map_location="cpu", weights_only=True, mmap=mapped)
    # A damaged pickle can fail as anything: KeyError, EOFError, RuntimeError, UnpicklingError...
    except Exception as error:
        # torch wraps the error of an unpickling in a page on how to be less careful.
        cause = error.__context__ or error
        words = re.split(r"\.\s|\.$|\n", str(cause).strip())[0]
        raise ValueError(
            f"{path} was refused by torch.load ({one_line(words) or type(cause).__name__}): "
            "expected a dict of tensors."
        ) from error
    if not isinstance(weights, dict):
        raise ValueError(
            f"{path}: expected a dict of tensors by name, got a {type(weights).__name__}."
        )
    return weights


def _check_tensor(path: str, name: Any, tensor: Any) -> None:
    """Checks that an item is a name and a dense tensor that does not claim more than it has."""
    if not isinstance(name, str) or not hasattr(tensor, "untyped_storage"):
        raise ValueError(
            f"{path}: expected tensors by name, got a {type(tensor).__name__} by {quote(name)}: "
            "save the model's state_dict() by itself."
        )
    dense = str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu"
    if not dense or _dtype_name(tensor) not in _TORCH_DTYPES:
        raise ValueError(
            f"{path}: tensor {quote(name)} has the dtype {_dtype_name(tensor)}, the layout "
            f"{tensor.layout} and the device {tensor.device}: expected a dense tensor of one of "
            f"{', '.join(_TORCH_DTYPES)}."
        )
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(
            f"{path}: tensor {quote(name)} of shape {tuple(tensor.shape)} has more elements than "
            "the file stores for it."
        )


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _to_numpy(torch: Any, tensor: Any) -> np.ndarray:
    # Some are stored as the negative, or the conjugate, of what they are.
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if _dtype_name(tensor) == "bfloat16":  # NumPy's is unknown to torch: the same 16 bits
        return np.array(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.array(tensor.numpy())


# === TensorFlow's bundles: NAME.index and NAME.data-00000-of-00001 ===

RELEASED = "bert_model.ckpt"  # the name of Google's and Model Garden's
_MAX_STATE_BYTES = 1 << 20


class Bundle(saved_states.Bundle):
    """A bundle opened for reading, whose tensors go into a ``Checkpoint``."""

    def tensor(self, name: str) -> StoredTensor:
        """A tensor by its name there."""
        return StoredTensor(name, self.shapes[name], self.dtypes[name], lambda: self.read(name))


def find_prefix(path: str) -> str | None:
    """The prefix of the bundle at a prefix or in a directory; ``None`` where there is none.

    Of several in a directory it is the last saved, else the one named as the released ones are.
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
                f"{path} holds {len(names)} checkpoints, {listed(names, 5)}, and nothing says "
                f"which to take: name one, {os.path.join(path, names[-1])} for example."
            )
        names = [last]
    return os.path.join(path, names[0]) if names else None


def bundle_contains_tensor(path: str, tensor: str) -> bool:
    """True if there is a bundle at a path that has a tensor of the name."""
    prefix = find_prefix(path)
    return prefix is not None and tensor in Bundle(prefix).shapes


def _last_saved(path: str) -> str:
    """The newest checkpoint's name, as the directory's file ``checkpoint`` has it, or ""."""
    try:
        if tf.io.gfile.stat(os.path.join(path, "checkpoint")).length > _MAX_STATE_BYTES:
            return ""
        state = tf.train.get_checkpoint_state(path)
    except (tf.errors.OpError, UnicodeDecodeError):
        return ""
    # Only the name counts: the file may have been written in another directory.
    return os.path.basename(state.model_checkpoint_path) if state else ""


def write_bundle(prefix: str, tensors: Iterable[StoredTensor]) -> None:
    """Writes tensors to a bundle of one data file."""
    values = {tensor.name: to_tensor(tensor.read()) for tensor in tensors}
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=[*values],
            shape_and_slices=[""] * len(values),
            tensors=[*values.values()],
        )
