"""One verified checkpoint: a tensor bundle and the manifest that says what its files are.

A checkpoint is a directory that holds

* ``variables.index`` and ``variables.data-00000-of-00001``: every tensor under the name that the
  caller gives it, in TensorFlow's tensor-bundle format (``tf.train.load_checkpoint`` reads it);
* ``manifest.json``: the step, the caller's extra state, and every file's size and SHA-256. It is
  written last, and moved into place in one operation.

So a directory without a manifest is a save that never ended, and one whose files are not what its
manifest says is damaged.
Everything goes through TensorFlow's file systems, so ``gs://`` works; local files are also forced
to the disk before the manifest says that they are there.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.files import (
    check_readable,
    read_json_object,
    remove,
    remove_written,
    sha256_of,
    whole_file,
)
from bert_tf.untrusted import listed, one_line, quote, reason

MANIFEST = "manifest.json"
BUNDLE = "variables"
# Every file of a checkpoint, the names included that a killed write leaves.
_WRITTEN = re.compile(
    r"(variables\.(index|data-\d{5}-of-\d{5})|manifest\.json)"
    r"(\.tempstate\d+|(\.[0-9a-f]{32})?\.tmp)?"
)


class UnusableError(Exception):
    """A checkpoint that cannot be restored; the message says why."""


class UnfinishedError(UnusableError):
    """A checkpoint without a manifest."""


def write(path: str, step: int, tensors: Mapping[str, tf.Tensor], extra: Mapping[str, Any]) -> None:
    """Writes a checkpoint into a new directory.

    Args:
        path: the directory; made where it is missing.
        step: the number of updates made.
        tensors: what to save, by unique name.
        extra: small state that JSON can hold.

    Raises:
        OSError, tf.errors.OpError: a file could not be written.
    """
    if os.path.islink(path):
        raise OSError(f"{path} is a link, and is not followed")
    tf.io.gfile.makedirs(path)
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=os.path.join(path, BUNDLE),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
    files = {}
    for name in sorted(tf.io.gfile.listdir(path)):
        if name.startswith(f"{BUNDLE}."):
            _force_to_disk(os.path.join(path, name))
            files[name] = _fingerprint(os.path.join(path, name))
    _force_to_disk(path)
    manifest = {"step": step, "extra": dict(extra), "files": files}
    with whole_file(os.path.join(path, MANIFEST)) as temporary:
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write(json.dumps(manifest, indent=1) + "\n")
        _force_to_disk(temporary)
    _force_to_disk(path)
    _force_to_disk(os.path.dirname(path))


def _force_to_disk(path: str) -> None:
    if "://" in path:
        return  # remote file systems commit a file when it is closed
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fingerprint(path: str) -> dict[str, Any]:
    return {"bytes": tf.io.gfile.stat(path).length, "sha256": sha256_of(path)}


def read_manifest(path: str) -> dict[str, Any]:
    """The manifest, after every file was found to be what it says.

    Raises:
        UnfinishedError: there is no manifest.
        UnusableError: the manifest cannot be read, or a file is missing or differs.
    """
    manifest_path = os.path.join(path, MANIFEST)
    if not tf.io.gfile.exists(manifest_path):
        raise UnfinishedError("its save did not end")
    try:
        manifest = read_json_object(manifest_path)
        _check_manifest(manifest)
    except ValueError as error:
        raise UnusableError(f"its {MANIFEST} is damaged: {reason(error).rstrip('.')}") from error
    # A name that the directory lists leads nowhere else.
    listing = set(tf.io.gfile.listdir(path))
    unnamed = {name for name in listing if name.startswith(f"{BUNDLE}.")} - set(manifest["files"])
    if unnamed:
        raise UnusableError(f"its {MANIFEST} does not name {listed(sorted(unnamed))}")
    for name, entry in manifest["files"].items():
        _check_file(path, name, entry, listing)
    return manifest


def _check_manifest(manifest: dict[str, Any]) -> None:
    """Checks that a manifest says what ``write`` writes: the step, the extra state, the files."""
    step, extra, files = (manifest.get(key) for key in ("step", "extra", "files"))
    if type(step) is not int or step < 0 or not isinstance(extra, dict):
        raise ValueError(f"expected a step and an object, got {quote(step)} and {quote(extra)}")
    if not isinstance(files, dict) or f"{BUNDLE}.index" not in files:
        raise ValueError(f"expected {BUNDLE}.index among its files, got {quote(files)}")
    for name, entry in files.items():
        known = isinstance(entry, dict) and entry.keys() == {"bytes", "sha256"}
        if not known or type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise ValueError(f"expected bytes and sha256 of {one_line(name)}, got {quote(entry)}")


def _check_file(path: str, name: str, entry: Mapping[str, Any], listing: set[str]) -> None:
    file_path, shown = os.path.join(path, name), one_line(name)
    try:
        if name not in listing:
            raise UnusableError(f"{shown} is missing or cannot be read")
        check_readable(file_path)
        size = tf.io.gfile.stat(file_path).length
        if size != entry["bytes"]:
            raise UnusableError(f"{shown} has {size} bytes instead of {entry['bytes']}")
        if _fingerprint(file_path) != entry:
            raise UnusableError(f"{shown} has the right size but other contents than were saved")
    except (tf.errors.OpError, ValueError) as error:
        raise UnusableError(f"{shown} is missing or cannot be read") from error


def delete(path: str) -> None:
    """Deletes a checkpoint, its manifest first: half deleted, it counts as unfinished.

    Files that no save wrote are kept.
    """
    remove(os.path.join(path, MANIFEST))
    remove_written(path, _WRITTEN)
