"""Local copies of files of tensors, and checkpoints of several files."""

import os
import tempfile
from collections.abc import Callable

import tensorflow as tf

from bert_tf.files import read_json_object, readable
from bert_tf.paths import local_path
from bert_tf.untrusted import quote

from .checkpoint import StoredTensor


def open_shards(
    index_path: str, open_shard: Callable[[str], dict[str, StoredTensor]]
) -> dict[str, StoredTensor]:
    """Opens a checkpoint of several files by its index, ``*.index.json``.

    Each tensor must be in the file that the index' ``weight_map`` names for it, and in no other.
    The files' names must be plain: what a stranger wrote cannot lead out of the index' directory.
    A file of such a name may be a symbolic link all the same, because the cache of the Hugging
    Face hub consists of them: whoever holds the directory has made it, not the index.
    """
    weight_map = _weight_map(index_path)
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(weight_map.values())):
        path = os.path.join(os.path.dirname(index_path), shard)
        if not tf.io.gfile.exists(path):
            raise ValueError(
                f"{index_path} names {quote(shard)}, which is not there: put the file beside it."
            )
        opened = open_shard(path)
        for name in opened:
            listed = weight_map.get(name)
            if listed != shard:
                raise ValueError(
                    f"{path} holds {quote(name)}, which {index_path} gives to "
                    f"{quote(listed) if listed else 'no file'}: they do not belong together."
                )
        tensors |= opened
    for name, shard in weight_map.items():
        if name not in tensors:
            raise ValueError(
                f"{index_path} gives {quote(name)} to {quote(shard)}, which does not hold it: "
                "they do not belong together."
            )
    return tensors


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


def _weight_map(index_path: str) -> dict[str, str]:
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{index_path}: expected weight_map, an object of tensors' and files' names, got "
            f"{quote(weight_map)}."
        )
    for shard in weight_map.values():
        if not isinstance(shard, str) or not is_plain_name(shard):
            raise ValueError(
                f"{index_path} names the file {quote(shard)}: expected a plain file name, "
                "without a folder."
            )
    return weight_map


def is_plain_name(name: str) -> bool:
    """True if a file name says the same everywhere and stays in its folder."""
    return name not in ("", ".", "..") and name.isprintable() and not set(name) & set("/\\:")
