"""The directory that an extraction writes, and what of it is there.

| path               | what                                                          |
|--------------------|---------------------------------------------------------------|
| part-000000.jsonl  | the first lines; each file appears whole                      |
| manifest.json      | what the files hold, their lines, and whether all are there   |
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.files import is_temporary, read_json_object, write_json
from bert_tf.untrusted import listed, one_line

from .input_lines import BEGINNING, Position

MANIFEST = "manifest.json"
# What a flag's digest stands for, where two are not equal.
_DIGESTS = {"input": "other text", "init_checkpoint": "another model"}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What an output holds so far.

    Attributes:
        flags: what all of its numbers depend on; of the text and the model, digests.
        layers: the layers' names, in the order of the values.
        width: the numbers of a vector.
        shards: the files, each ``{"file": ..., "lines": ...}``, in the order of their lines.
        next: where in the input the next file's lines begin.
        bytes_read: how much of all files has been read, as they lie on the disk.
        tokens: of all lines so far, [CLS] and [SEP] among them.
        lines_cut: how many lines had more than ``max_seq_length``.
        lines_not_utf8: how many lines had bytes that are not UTF-8, which were passed over.
        complete: whether no line is left.
    """

    flags: Mapping[str, Any]
    layers: tuple[int | str, ...]
    width: int
    shards: tuple[Mapping[str, Any], ...] = ()
    next: Position = BEGINNING
    bytes_read: int = 0
    tokens: int = 0
    lines_cut: int = 0
    lines_not_utf8: int = 0
    complete: bool = False

    @property
    def lines(self) -> int:
        """How many lines are done."""
        return self.next.line


def open_output(path: str, new: Manifest) -> Manifest:
    """Finds out what of an output is there; makes the directory where nothing is.

    Args:
        path: the directory.
        new: what an output without a line says, its flags above all.

    Returns:
        What is there; ``new``, where that is no line.

    Raises:
        ValueError: the directory holds something else, an output with other flags, or lacks a file
            that its manifest names.
    """
    manifest = os.path.join(path, MANIFEST)
    if not tf.io.gfile.exists(manifest):
        is_directory = tf.io.gfile.isdir(path)
        names = tf.io.gfile.listdir(path) if is_directory else []
        # What a process left that was killed as it wrote the manifest does not count.
        if tf.io.gfile.exists(path) and not (is_directory and all(map(is_temporary, names))):
            raise ValueError(
                f"{path} is there and holds no {MANIFEST}: name another --output, or delete it."
            )
        write_json(manifest, dataclasses.asdict(new))
        return new
    values = read_json_object(manifest)
    try:
        found = Manifest(
            **{
                **values,
                "layers": tuple(values["layers"]),
                "shards": tuple(values["shards"]),
                "next": Position(*values["next"]),
            }
        )
        _check_types(found)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{manifest} is not what extract_features writes ({error}): name another --output, or "
            "delete it."
        ) from error
    if not found.shards:
        return new
    _check_flags(path, found.flags, new.flags)
    missing = {shard["file"] for shard in found.shards} - set(tf.io.gfile.listdir(path))
    if missing:
        raise ValueError(
            f"{path} lacks {listed(sorted(missing), 3)}, which its {MANIFEST} names: delete "
            "the directory and begin anew."
        )
    return found


def _check_types(found: Manifest) -> None:
    counts = (*found.next, found.width, found.bytes_read, found.tokens, found.lines_cut)
    good = (
        all(type(count) is int and count >= 0 for count in (*counts, found.lines_not_utf8))
        and isinstance(found.flags, dict)
        and isinstance(found.complete, bool)
        and all(isinstance(layer, int | str) for layer in found.layers)
        and all(
            isinstance(shard, dict)
            and isinstance(shard.get("file"), str)
            and type(shard.get("lines")) is int
            for shard in found.shards
        )
    )
    if not good:
        raise TypeError("a value is of another type")


def _check_flags(path: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differences = []
    for name in now:
        if before.get(name) == now[name]:
            continue
        told = (
            _DIGESTS.get(name)
            or f"{one_line(str(before.get(name)))}, now {one_line(str(now[name]))}"
        )
        differences.append(f"--{name} ({told})")
    if differences:
        raise ValueError(
            f"{path} was begun with {', '.join(differences)}: give the flags that it was begun "
            "with, or another --output."
        )


def shard_name(number: int, suffix: str) -> str:
    """A file's name; in the order of their names, files are in the order of their lines."""
    return f"part-{number:06d}{suffix}"


def save(path: str, manifest: Manifest) -> None:
    """Writes the manifest."""
    write_json(os.path.join(path, MANIFEST), dataclasses.asdict(manifest))
