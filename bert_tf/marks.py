"""The files by which a checkpoint is known, looked for before TensorFlow loads.

Whatever has such a mark goes on to the reader of its format, which looks closer.
"""

import os
from collections.abc import Collection

from .untrusted import listed

#: This library's directories have both.
DESCRIPTION, SIZES = "model.json", "bert_config.json"
#: Hugging Face's have one of the weights beside it, the form that is safest to read first.
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TF_WEIGHTS = "tf_model.h5"
PICKLED = "pytorch_model.bin"
WEIGHT_FILES = (WEIGHTS, f"{WEIGHTS}.index.json", TF_WEIGHTS, PICKLED, f"{PICKLED}.index.json")
#: Those of sentence-transformers.
MODULES = "modules.json"
#: Exports have it, in their directory or in those of their versions.
GRAPH = "saved_model.pb"
#: A .keras file; the first bytes of an HDF5 file.
KERAS = ".keras"
HDF5 = b"\x89HDF\r\n\x1a\n"
_INDEX = ".index"  # of a TensorFlow checkpoint
_KERAS_HUB = b"class_name"  # in its config.json
_MAX_CONFIG_BYTES = 1 << 20


def is_marked(path: str) -> bool:
    """True if a path of this machine may be a checkpoint, or the prefix of one."""
    if os.path.exists(path + _INDEX):
        return True
    if not os.path.isdir(path):
        is_file = os.path.isfile(path)  # of a pipe the first bytes may never come
        return is_file and (path.endswith(KERAS) or _first_bytes(path, len(HDF5)) == HDF5)
    names = {*os.listdir(path)}
    versions = (name for name in names if name.isascii() and name.isdecimal())
    return (
        names >= {DESCRIPTION, SIZES}
        or MODULES in names
        or (CONFIG in names and (not names.isdisjoint(WEIGHT_FILES) or _is_keras_hub(path)))
        or any(name.endswith(_INDEX) for name in names)
        or _has_graph(path)
        or any(_has_graph(os.path.join(path, version)) for version in versions)
    )


def _first_bytes(path: str, most: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(most)


def _is_keras_hub(path: str) -> bool:
    config = os.path.join(path, CONFIG)
    return os.path.isfile(config) and _KERAS_HUB in _first_bytes(config, _MAX_CONFIG_BYTES)


def _has_graph(path: str) -> bool:
    return os.path.exists(os.path.join(path, GRAPH))


def unknown(path: str, names: Collection[str] | None) -> str:
    """The sentence where something is, and no checkpoint; ``names`` are a directory's files."""
    there = "a file: name the directory that it lies in"
    if names is not None:
        if "flags.json" in names:
            return (
                f"{path} is of a run that has kept no model yet: give the run's command again, "
                "which continues it, and use the directory when it has ended."
            )
        there = f"a directory with {listed(sorted(names), 8) if names else 'nothing'} in it"
    return (
        f"{path} is not a checkpoint of a known format: expected {DESCRIPTION} and {SIZES} (this "
        f"library), {CONFIG} and {WEIGHTS} or {TF_WEIGHTS} (Hugging Face), {SIZES} and "
        f"bert_model.ckpt.* (Google, Model Garden), {CONFIG} and model.weights.h5 (KerasHub), "
        f"{GRAPH} (an export), or a {KERAS} file; it is {there}."
    )
