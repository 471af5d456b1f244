"""The size and SHA-256 of files, by which a checkpoint and an export tell a damaged one."""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import tensorflow as tf

from bert_tf.untrusted import one_line, quote

_CHUNK_BYTES = 16 << 20


def sha256_of(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


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
