"""What files of tensors share: whether one has changed, and checkpoints of several files."""

import os
from collections.abc import Callable

import tensorflow as tf

from bert_tf.files import read_json_object, readable
from bert_tf.untrusted import MAX_TENSORS, quote

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


def file_state(path: str) -> tuple[int, int]:
    """A file's size in bytes and the time of its last change in nanoseconds."""
    with readable(path):
        stat = tf.io.gfile.stat(path)
    return stat.length, stat.mtime_nsec


def check_unchanged(path: str, state: tuple[int, int]) -> None:
    """Raises a ``ValueError`` where a file is no longer as ``file_state`` saw it."""
    if file_state(path) != state:
        raise ValueError(f"{path} has changed since it was opened: open it again.")


def _weight_map(index_path: str) -> dict[str, str]:
    weight_map = read_json_object(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f"{index_path}: expected weight_map, an object of tensors' and files' names, got "
            f"{quote(weight_map)}."
        )
    if len(weight_map) > MAX_TENSORS:
        raise ValueError(
            f"{index_path} names {len(weight_map):,} tensors: expected at most {MAX_TENSORS:,}, "
            "more than any BERT has."
        )
    for shard in weight_map.values():
        if not isinstance(shard, str) or not is_plain_name(shard):
            raise ValueError(
                f"{index_path} names the file {quote(shard)}: expected a plain file name, "
                "without a folder."
            )
    return weight_map


def is_plain_name(name: str) -> bool:
    """Whether a file name says the same everywhere and stays in its folder."""
    return name not in ("", ".", "..") and name.isprintable() and not set(name) & set("/\\:")
