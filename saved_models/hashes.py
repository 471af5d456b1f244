"""The SHA-256 of every file of an export, in a file that is written last.

They tell damage: a bit that a disk or a network turned. They are no signature: whoever may write
the export may write them.
"""

import json
import os
from typing import Any

import tensorflow as tf

from bert_tf.files import local_path, sha256_of, write_json
from bert_tf.untrusted import MAX_JSON_BYTES, one_line, parse_json_object, quote

# Where TensorFlow Serving looks at nothing but its warm-up requests.
HASHES = "assets.extra/sha256.json"
_FORMAT_VERSION = 1


def write_hashes(folder: str) -> None:
    """Writes the hashes of all files of an export."""
    files = {name: _entry(os.path.join(folder, name)) for name in sorted(_names(folder))}
    write_json(os.path.join(folder, HASHES), {"format_version": _FORMAT_VERSION, "files": files})


def check_hashes(folder: str) -> bool:
    """Checks an export's files against their hashes.

    Files that are there besides are not looked at.

    Args:
        folder: the version's directory, on any TensorFlow file system.

    Returns:
        Whether there are any hashes: exports of older versions have none.

    Raises:
        ValueError: a file is missing or is not what was exported, or the file of hashes is damaged.
    """
    path = os.path.join(folder, HASHES)
    if not tf.io.gfile.exists(path):
        return False
    for name, expected in _read(path).items():
        file = os.path.join(folder, name)
        if not tf.io.gfile.exists(file):
            raise ValueError(
                f"{folder} has no {one_line(name)}, which was exported: fetch it again."
            )
        _check_regular(file)
        length = tf.io.gfile.stat(file).length
        if length != expected["bytes"]:
            raise ValueError(
                f"{file} has {length:,} bytes, and {expected['bytes']:,} were exported: fetch it "
                "again."
            )
        if _entry(file) != expected:
            raise ValueError(
                f"{file} is not what was exported: its SHA-256 differs; fetch it again, or export "
                f"anew. If the change is yours, delete {path}, and nothing is compared."
            )
    return True


def _read(path: str) -> dict[str, dict[str, Any]]:
    _check_regular(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(MAX_JSON_BYTES)
    values = parse_json_object(content, path)
    files = values.get("files")
    # As it was written to the last blank: a bit of this file, too, may have turned.
    is_whole = content == (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
    if not is_whole or values != {"format_version": _FORMAT_VERSION, "files": files}:
        raise ValueError(f"{path} is damaged, or of another version of this library.")
    if not isinstance(files, dict) or "saved_model.pb" not in files:
        raise ValueError(f"{path}: expected hashes by file, got {quote(files)}.")
    for name, entry in files.items():
        plain = all(part not in ("", ".", "..") for part in name.split("/"))
        if not plain or not name.isprintable() or set(name) & set("\\:"):
            raise ValueError(f"{path} names the file {quote(name)}: expected names below {path}.")
        known = isinstance(entry, dict) and entry.keys() == {"bytes", "sha256"}
        if not known or type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise ValueError(f"{path}: expected bytes and sha256 of {name}, got {quote(entry)}.")
    return files


def _check_regular(path: str) -> None:
    local = local_path(path)
    if tf.io.gfile.isdir(path) if local is None else not os.path.isfile(local):
        raise ValueError(f"{path} is no file: expected what was exported; fetch it again.")


def _names(folder: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in tf.io.gfile.walk(folder)
        for name in names
    ]


def _entry(path: str) -> dict[str, Any]:
    return {"bytes": tf.io.gfile.stat(path).length, "sha256": sha256_of(path)}
