"""Atomic writes of files and directories on any TensorFlow file system, JSON files and hashes.

A file is written to ``NAME.TOKEN.tmp`` in the same directory and then renamed. The token consists
of random digits and a checksum of the digits and the name, so that other files are not mistaken for
temporary ones. On local disks, the writer locks the temporary file. The next write of the same name
removes unlocked temporary files, which killed processes left. Remote file systems have no such
lock.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Literal

import tensorflow as tf

from .messages import one_line, quote, reason
from .paths import check_readable, local_path
from .untrusted import MAX_JSON_BYTES, parse_json, parse_json_object

_TEMPORARY = re.compile(r"(.+)\.([0-9a-f]{16})([0-9a-f]{16})\.tmp", re.DOTALL)


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing that replaces ``path`` only if the block succeeds.

    Missing directories are created. If ``path`` exists, it must be a file.
    """
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(b"")  # Otherwise TensorFlow creates no file if the block writes nothing.
        yield file


@contextlib.contextmanager
def atomic_path(path: str, *, is_new: bool = False) -> Iterator[str]:
    """Yields a temporary path for a file that is renamed to ``path`` if the block succeeds.

    With ``is_new``, ``path`` must not exist.
    """
    check = check_not_exists if is_new else check_is_file
    check(path)
    with _temporary(path, _make_file) as temporary:
        local = local_path(temporary)
        mode = None if local is None else os.stat(local).st_mode
        yield temporary
        check(path)  # The file system may have changed during the block.
        # safetensors replaces the file with one that only the owner can read.
        if local is not None and mode is not None and os.stat(local).st_mode != mode:
            os.chmod(local, stat.S_IMODE(mode))
        tf.io.gfile.rename(temporary, path, overwrite=True)


@contextlib.contextmanager
def atomic_directory(path: str) -> Iterator[str]:
    """Yields a temporary directory that is renamed to ``path`` if the block succeeds.

    ``path`` must not exist or must be an empty directory. On object stores, which have no
    directories, the files are renamed one by one.
    """
    check_not_exists(path)
    with scratch_directory(path) as folder:
        yield folder
        rename_exclusive(folder, path)


@contextlib.contextmanager
def scratch_directory(path: str) -> Iterator[str]:
    """Yields a temporary directory next to ``path``, and removes the directory after the block."""
    with _temporary(path.rstrip("/"), tf.io.gfile.makedirs) as folder:
        yield folder


def rename_exclusive(source: str, path: str) -> None:
    """Renames a file or directory to ``path``, which must be new or an empty directory."""
    path = path.rstrip("/")
    check_not_exists(path)
    try:
        tf.io.gfile.rename(source, path, overwrite=True)
    except tf.errors.OpError:
        check_not_exists(path)  # Another process may have created the path.
        raise


def check_not_exists(path: str) -> None:
    """Checks that a path does not exist, or is an empty directory."""
    path = path.rstrip("/")
    local = local_path(path)
    exists = tf.io.gfile.exists(path) if local is None else os.path.lexists(local)
    is_link = local is not None and os.path.islink(local)
    if exists and (is_link or not tf.io.gfile.isdir(path) or tf.io.gfile.listdir(path)):
        raise ValueError(f"{path} already exists and is not overwritten. Use another path.")


def check_outside(flag: str, output: str, inputs: Iterable[str]) -> None:
    """Checks that an output path is not in a directory that is read as input.

    ``inputs`` are paths and glob patterns. Directories are read recursively.
    """
    output_path = local_path(output)
    if output_path is None:
        return
    folders = [pathlib.Path(form(output_path)) for form in (os.path.realpath, os.path.abspath)]
    candidates = [candidate for folder in folders for candidate in (folder, *folder.parents)]
    for pattern in inputs:
        local = local_path(pattern)
        forms = [os.path.realpath(local), os.path.abspath(local)] if local else []
        if any(candidate.match(form) for candidate in candidates for form in forms):
            raise ValueError(
                f"{flag}={output} is in {pattern}, so the output would be read as input. Use "
                "another directory, or list the input files: "
                f"{os.path.join(pattern.rstrip('/*') or '.', '*.txt')}."
            )


def check_is_file(path: str) -> None:
    """Checks that a path is a regular file or does not exist."""
    local, kind = local_path(path), ""
    if path.endswith("/") or (local is None and tf.io.gfile.isdir(path)):
        kind = "a directory"
    elif local is not None and os.path.islink(local):
        kind = "a link"
    elif local is not None and os.path.exists(local) and not os.path.isfile(local):
        kind = "a directory" if os.path.isdir(local) else "a device or a pipe"
    if kind:
        raise ValueError(f"{path}: expected a file, got {kind}.")


def remove(path: str) -> None:
    """Removes a file or a directory tree if it exists. Links are not followed."""
    local = local_path(path.rstrip("/"))
    if local is None:
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        elif tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)
    elif os.path.isdir(local) and not os.path.islink(local):
        shutil.rmtree(local)
    elif os.path.lexists(local):
        os.unlink(local)


def remove_written(path: str, written: re.Pattern[str]) -> list[str]:
    """Removes the files that bert_tf wrote into a directory, and the directory if it is then empty.

    Args:
        path: The directory. A link is neither followed nor removed.
        written: Pattern of the paths to remove, relative to the directory.

    Returns:
        The relative paths of the remaining files, sorted.
    """
    local = local_path(path)
    if local is not None and (os.path.islink(local) or not os.path.isdir(local)):
        return [os.path.basename(path)] if os.path.lexists(local) else []
    remaining = []
    for name in [*_walk_names(path)]:
        if written.fullmatch(name):
            remove(os.path.join(path, name))
        else:
            remaining.append(name)
    if not remaining:
        remove(path)
    return sorted(remaining)


def _walk_names(path: str) -> Iterator[str]:
    """Yields the relative paths of all files and local links in a directory tree."""
    local = local_path(path)
    for folder, folders, names in tf.io.gfile.walk(path) if local is None else os.walk(local):
        for name in [*names, *folders]:
            candidate = os.path.join(folder, name)
            if name in names or (local is not None and os.path.islink(candidate)):
                yield os.path.relpath(candidate, local or path)


# === Temporary names ===


def is_temporary(name: str) -> bool:
    """Whether a name is that of a temporary file or directory of bert_tf."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and match[3] == _check_sum(match[1], match[2])


def _check_sum(name: str, digits: str) -> str:
    return hashlib.sha256(os.fsencode(f"bert_tf {digits} {name}")).hexdigest()[:16]


@contextlib.contextmanager
def _temporary(path: str, make: Callable[[str], None]) -> Iterator[str]:
    """Creates a temporary path with ``make``, locks and yields it, and finally removes it."""
    folder, name = os.path.split(path)
    if folder:
        tf.io.gfile.makedirs(folder)
    _remove_leftovers(path)
    while True:
        digits = secrets.token_hex(8)
        temporary = f"{path}.{digits}{_check_sum(name, digits)}.tmp"
        make(temporary)
        try:
            lock = _lock(temporary)
        except (BlockingIOError, FileNotFoundError):
            continue  # Another process removed the path as a leftover before it was locked.
        except OSError:
            lock = None  # The file system does not support locks.
        break
    try:
        yield temporary
    finally:
        remove(temporary)
        if lock is not None:
            os.close(lock)


def _make_file(path: str) -> None:
    local = local_path(path)
    if local is not None:
        os.close(os.open(local, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def lock_file(descriptor: int) -> None:
    """Locks an open local file until it is closed.

    Raises:
        BlockingIOError: If another process has locked the file.
        OSError: If the file system does not support locks.
    """
    import fcntl  # Not available on every platform.

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock(path: str) -> int | None:
    """Locks a local file or directory, but not a link, and returns the open descriptor."""
    local = local_path(path)
    if local is None:
        return None
    descriptor = os.open(local, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        lock_file(descriptor)
        if not os.path.samestat(os.fstat(descriptor), os.lstat(local)):
            raise FileNotFoundError(f"{path} was replaced.")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_leftovers(path: str) -> None:
    """Removes temporary files and directories that killed processes left."""
    folder, name = os.path.split(path)
    local = local_path(folder)
    if local is None:
        return
    for entry in os.listdir(local or "."):
        if not (entry.startswith(f"{name}.") and is_temporary(entry)):
            continue
        leftover = os.path.join(local, entry)
        try:
            lock = _lock(leftover)
        except OSError:
            continue  # The path is in use, or the file system does not support locks.
        try:
            remove(leftover)
        finally:
            if lock is not None:
                os.close(lock)


# === JSON, sizes ===


def encode_json(value: Any) -> bytes:
    """Encodes a value as the content of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write_json(path: str, value: Any) -> None:
    """Writes a JSON file atomically."""
    with atomic_write(path) as file:
        file.write(encode_json(value))


def total_size(path: str) -> int:
    """Returns the size of a file or directory tree in bytes."""
    if not tf.io.gfile.isdir(path):
        length: int = tf.io.gfile.stat(path).length
        return length
    return sum(
        tf.io.gfile.stat(os.path.join(folder, name)).length
        for folder, _, names in tf.io.gfile.walk(path)
        for name in names
    )


def read_json(path: str) -> Any:
    """Reads a JSON file of at most 32 MiB with ``untrusted.parse_json``."""
    return parse_json(read_bounded(path, "JSON", MAX_JSON_BYTES), path)


def read_json_object(path: str) -> dict[str, Any]:
    """Reads a JSON file that contains an object."""
    return parse_json_object(read_bounded(path, "JSON", MAX_JSON_BYTES), path)


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Converts TensorFlow's errors while a file is read to a ``ValueError`` with the path."""
    check_readable(path)
    try:
        yield
    except tf.errors.OpError as error:
        raise ValueError(f"{path} cannot be read: {reason(error)}.") from error


class WritableFile(io.RawIOBase):
    """Adapter from a writable TensorFlow file to Python's ``io`` interface."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        """Returns ``True``."""
        return True

    def write(self, data: Any) -> int:
        """Appends bytes."""
        self._file.write(bytes(data))
        return len(data)


def read_bounded(path: str, kind: str, limit: int) -> bytes:
    """Reads a file of at most ``limit`` bytes; errors contain ``kind``, the file's format."""
    with readable(path), tf.io.gfile.GFile(path, "rb") as file:
        content: bytes = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{path}: expected a {kind} file of at most {limit:,} bytes.")
    return content


# === Fingerprints, which detect damaged files of checkpoints and exports ===

_CHUNK_BYTES = 1 << 20


def hash_file(path: str) -> str:
    """Returns the SHA-256 hash of a file in hexadecimal."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def fingerprint(path: str) -> dict[str, Any]:
    """Returns the size and SHA-256 hash of a file as a JSON object."""
    return {"bytes": tf.io.gfile.stat(path).length, "sha256": hash_file(path)}


def check_fingerprints(files: Mapping[str, Any]) -> None:
    """Checks that a JSON object maps file names to fingerprints."""
    for name, entry in files.items():
        is_valid = isinstance(entry, dict) and entry.keys() == {"bytes", "sha256"}
        if not is_valid or type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise ValueError(f"expected bytes and sha256 of {one_line(name)}, got {quote(entry)}")


def fingerprint_change(path: str, before: Mapping[str, Any]) -> Literal["bytes", "sha256"] | None:
    """Returns the part of a file's fingerprint that changed; the size is compared first."""
    if tf.io.gfile.stat(path).length != before["bytes"]:
        return "bytes"
    return None if hash_file(path) == before["sha256"] else "sha256"
