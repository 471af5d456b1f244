"""Seals: what files were when they were written, so that a damaged or foreign file is told.

A checkpoint's manifest and an export's ``sha256.json`` hold a fingerprint of each file; a sealed
JSON object holds the SHA-256 of itself and of the files next to it.
"""

import hashlib
import os
from collections.abc import Mapping
from typing import Any, Literal

import tensorflow as tf

from bert_tf.files import encode_json, read_bounded, replace_whole
from bert_tf.paths import check_readable
from bert_tf.untrusted import MAX_JSON_BYTES, one_line, parse_json_object, quote

_CHUNK_BYTES = 16 << 20
_SEAL = "sha256"
_NO_HASH = "0" * 64
_CHANGED = "has other contents than were saved: bring it back from a copy"
_UNSEALED = (
    f". If the change is yours, delete {_SEAL} from the JSON file that holds it, and nothing is "
    "checked."
)


def sha256_of(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


# === Fingerprints ===


def fingerprint(path: str) -> dict[str, Any]:
    """A file's size and SHA-256, as JSON holds them."""
    return {"bytes": tf.io.gfile.stat(path).length, "sha256": sha256_of(path)}


def check_fingerprints(files: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` where the value of a file's name is no fingerprint."""
    for name, entry in files.items():
        known = isinstance(entry, dict) and entry.keys() == {"bytes", "sha256"}
        if not known or type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise ValueError(f"expected bytes and sha256 of {one_line(name)}, got {quote(entry)}")


def change(path: str, before: Mapping[str, Any]) -> Literal["bytes", "sha256"] | None:
    """Which part of a file's fingerprint is another than before; the size alone is quick to ask."""
    if tf.io.gfile.stat(path).length != before["bytes"]:
        return "bytes"
    return None if sha256_of(path) == before["sha256"] else "sha256"


# === JSON objects ===


def write_sealed(path: str, value: Mapping[str, Any], beside: Mapping[str, bytes]) -> None:
    """Writes a JSON object and files next to it, whose SHA-256 and its own it holds.

    ``beside`` has the files' contents, by name. The object is written first: whatever the moment of
    a kill, a file that differs from what the object says is either of before or not this library's.
    """
    folder, name = os.path.split(path)
    hashes = {other: hashlib.sha256(content).hexdigest() for other, content in beside.items()}
    blank = encode_json({**value, _SEAL: {**hashes, name: _NO_HASH}})
    before, _, after = blank.rpartition(_NO_HASH.encode())
    with replace_whole(path) as file:
        file.write(before + hashlib.sha256(blank).hexdigest().encode() + after)
    for other, content in beside.items():
        with replace_whole(os.path.join(folder, other)) as file:
            file.write(content)


def read_sealed(path: str, remedy: str = _UNSEALED) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Reads the object that ``write_sealed`` wrote, without its seal.

    Also returned: the SHA-256 of the files next to it by name, ``None`` where there is no seal.
    ``remedy`` ends the sentence that refuses other contents.
    """
    content = read_bounded(path, "JSON", MAX_JSON_BYTES)
    values = parse_json_object(content, path)
    if _SEAL not in values:
        return values, None
    hashes = values.pop(_SEAL)
    own = hashes.pop(os.path.basename(path), None) if isinstance(hashes, dict) else None
    if isinstance(own, str) and len(own) == len(_NO_HASH):
        before, _, after = content.rpartition(own.encode())
        if hashlib.sha256(before + _NO_HASH.encode() + after).hexdigest() == own:
            return values, hashes
    raise ValueError(f"{path} {_CHANGED}{remedy}")


def check_sealed(path: str, sha256: str | None) -> None:
    """Checks that a file, where it exists, has the SHA-256 that was sealed, if one was."""
    if sha256 is not None and tf.io.gfile.exists(path):
        check_readable(path)
        if sha256_of(path) != sha256:
            raise ValueError(f"{path} {_CHANGED}{_UNSEALED}")
