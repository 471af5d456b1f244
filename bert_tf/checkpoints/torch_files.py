"""PyTorch's pickled weights, ``pytorch_model.bin``: read through torch, and only when asked to."""

import functools
import importlib
import os
import re
import zipfile
from typing import Any

import ml_dtypes
import numpy as np

from bert_tf.untrusted import one_line, quote

from .checkpoint import StoredTensor
from .safetensors import DTYPES
from .tensor_files import LocalFile, open_shards

_DTYPE_NAMES = {dtype.name for dtype in DTYPES.values()}
# Before this release a crafted file ran code although only weights were asked for (CVE-2025-32434).
_FIRST_SAFE_TORCH = (2, 6)


def open_pytorch_bin(path: str, allow_pickle: bool) -> dict[str, StoredTensor]:
    """The tensors that ``torch.save`` wrote to a file, or to several files with an index.

    Only tensors are unpickled (``weights_only``), and only if ``allow_pickle``.
    """
    if not allow_pickle:
        raise ValueError(
            f"{path} is a pickle, which can run code of whoever made it: "
            f"{what_to_do(os.path.dirname(path))}."
        )
    _check_torch(path)
    return open_shards(path, _open_file) if path.endswith(".json") else _open_file(path)


def what_to_do(model: str) -> str:
    """The clause on a pickle that is not read; ``model`` is its directory, or its hub's name."""
    return (
        "take the model's safetensors file, or, if you trust the source, convert it once and name "
        f"the output: python -m bert_tf.convert --model={model} --output=DIR --format=huggingface "
        "--allow_pickle (in Python: bert_tf.load(..., allow_pickle=True))"
    )


def _import_torch() -> Any:
    # By name: torch is no requirement, and its types are not there to check against.
    return importlib.import_module("torch")


def _check_torch(path: str) -> None:
    try:
        version = _import_torch().__version__
    except ImportError as error:
        raise ValueError(
            f"{path} can be read with PyTorch only, which is not installed: pip install torch, or "
            "take the model's safetensors file."
        ) from error
    if tuple(map(int, version.split(".")[:2])) < _FIRST_SAFE_TORCH:
        raise ValueError(
            f"{path}: expected torch 2.6 or later, whose reader of weights runs no code, got "
            f"{version}: pip install -U torch."
        )


def _open_file(path: str) -> dict[str, StoredTensor]:
    entries = {}
    for name, tensor in _load(path).items():
        _check_tensor(path, name, tensor)
        read = functools.partial(_to_numpy, tensor)
        entries[name] = StoredTensor((name,), tuple(tensor.shape), _dtype_name(tensor), read)
    return entries


def _load(path: str) -> dict[Any, Any]:
    local = LocalFile(path).path
    try:
        # Mapped, a tensor takes memory when it is read; files of torch before 1.6 are loaded whole.
        mapped = zipfile.is_zipfile(local)
        weights = _import_torch().load(local, map_location="cpu", weights_only=True, mmap=mapped)
    # A damaged pickle can fail as anything: KeyError, EOFError, RuntimeError, UnpicklingError...
    except Exception as error:
        raise ValueError(
            f"{path} was refused by torch.load ({_reason(error)}): expected a dict of tensors."
        ) from error
    if not isinstance(weights, dict):
        raise ValueError(
            f"{path}: expected a dict of tensors by name, got a {type(weights).__name__}."
        )
    return weights


def _reason(error: Exception) -> str:
    """Error in torch's words, without its advice."""
    # torch wraps the error of an unpickling in a page on how to be less careful.
    cause = error.__context__ or error
    words = re.split(r"\.\s|\.$|\n", str(cause).strip())[0]
    return one_line(words) or type(cause).__name__


def _check_tensor(path: str, name: Any, tensor: Any) -> None:
    """Checks that an item is a name and a dense tensor that does not claim more than it has."""
    if not isinstance(name, str):
        raise ValueError(f"{path}: expected tensors by name, got the key {quote(name)}.")
    if not hasattr(tensor, "untyped_storage"):
        raise ValueError(
            f"{path}: expected {quote(name)} to be a tensor, got a {type(tensor).__name__}: save "
            "the model's state_dict() by itself."
        )
    dense = str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu"
    if not dense or _dtype_name(tensor) not in _DTYPE_NAMES:
        raise ValueError(
            f"{path}: tensor {quote(name)} has the dtype {_dtype_name(tensor)}, the layout "
            f"{tensor.layout} and the device {tensor.device}: expected a dense tensor of one of "
            f"{', '.join(sorted(_DTYPE_NAMES))}."
        )
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(
            f"{path}: tensor {quote(name)} of shape {tuple(tensor.shape)} has more elements than "
            "the file stores for it."
        )


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _to_numpy(tensor: Any) -> np.ndarray:
    # Some are stored as the negative, or the conjugate, of what they are.
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if _dtype_name(tensor) == "bfloat16":
        # NumPy's bfloat16 is unknown to torch: the same 16 bits under another name.
        view = tensor.view(_import_torch().int16).numpy()
        view = view.view(ml_dtypes.bfloat16)
    else:
        view = tensor.numpy()
    return np.array(view)
