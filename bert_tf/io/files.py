"""Files and directories that appear whole or not at all, on any file system of TensorFlow; JSON.

A file is written under a temporary name next to its own: ``NAME.TOKEN.tmp``. The token has random
digits and a check sum of them and the name, so that nobody else's file is taken for one, and on
local disks its writer holds a lock on it. A temporary name that nobody holds was left by a killed
process; the next write of the same name removes it. Remote file systems have no such lock.
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

from .paths import check_readable, local_path
from .untrusted import MAX_JSON_BYTES, parse_json, parse_json_object
from .wording import one_line, quote, reason

_TEMPORARY = re.compile(r"(.+)\.([0-9a-f]{16})([0-9a-f]{16})\.tmp", re.DOTALL)


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing that takes its name only after the block has ended well.

    Missing folders are made; a file of that name is replaced, and anything else refused. After an
    error, or where the process is killed, what was there before is there still.
    """
    with atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(b"")  # or TensorFlow makes no file for a block that writes nothing
        yield file


@contextlib.contextmanager
def atomic_path(path: str, *, is_new: bool = False) -> Iterator[str]:
    """Gives the name to write a file under that takes its own after the block has ended well.

    As ``atomic_write``, for libraries that open files themselves. ``is_new``: nothing is replaced.
    """
    check = check_not_exists if is_new else check_is_file
    check(path)
    with _temporary(path, _make_file) as temporary:
        local = local_path(temporary)
        mode = None if local is None else os.stat(local).st_mode
        yield temporary
        check(path)  # again: the block took its time
        # Some libraries replace the file by one that only its owner can read (safetensors).
        if local is not None and mode is not None and os.stat(local).st_mode != mode:
            os.chmod(local, stat.S_IMODE(mode))
        tf.io.gfile.rename(temporary, path, overwrite=True)


@contextlib.contextmanager
def atomic_directory(path: str) -> Iterator[str]:
    """Gives a directory to write into, which takes its name when the block has ended well.

    Anything but an empty directory at ``path``, before the block or after it, is an error, and
    nothing is left then. On an object store the files take their names one after the other.
    """
    check_not_exists(path)
    with scratch_directory(path) as folder:
        yield folder
        rename_exclusive(folder, path)


@contextlib.contextmanager
def scratch_directory(path: str) -> Iterator[str]:
    """Gives a new directory next to ``path``, which is removed when the block has ended."""
    with _temporary(path.rstrip("/"), tf.io.gfile.makedirs) as folder:
        yield folder


def rename_exclusive(source: str, path: str) -> None:
    """Gives a file or a directory its name, where nothing but an empty directory has it."""
    path = path.rstrip("/")
    check_not_exists(path)
    try:
        tf.io.gfile.rename(source, path, overwrite=True)
    except tf.errors.OpError:
        check_not_exists(path)  # it may have come in between
        raise


def check_not_exists(path: str) -> None:
    """Checks that nothing is at a path; an empty directory is as good as nothing."""
    path = path.rstrip("/")
    local = local_path(path)
    exists = tf.io.gfile.exists(path) if local is None else os.path.lexists(local)
    is_link = local is not None and os.path.islink(local)
    if exists and (is_link or not tf.io.gfile.isdir(path) or tf.io.gfile.listdir(path)):
        raise ValueError(f"{path} exists, and is never overwritten: name another.")


def check_outside(flag: str, output: str, inputs: Iterable[str]) -> None:
    """Checks that an output would not be in a folder that is read.

    ``inputs`` are paths and globs of files and folders; a folder stands for all that is below it.
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
                f"{flag}={output} is in {pattern}, which is read, and what is written there "
                "would be read with it: name another place, or the files to read themselves, "
                f"as {os.path.join(pattern.rstrip('/*') or '.', '*.txt')}."
            )


def check_is_file(path: str) -> None:
    """Checks that a path is a file or nothing at all, so that a file may take its place."""
    kind = _file_type(path)
    if kind not in (None, "a file"):
        raise ValueError(f"{path} is {kind}, and only a file is replaced: name a file.")


def _file_type(path: str) -> str | None:
    local = local_path(path)
    if path.endswith("/") or (local is None and tf.io.gfile.isdir(path)):
        return "a directory"
    if local is None or not os.path.lexists(local):
        return None
    mode = os.lstat(local).st_mode
    if stat.S_ISREG(mode):
        return "a file"
    if stat.S_ISLNK(mode):
        return "a link"
    return "a directory" if stat.S_ISDIR(mode) else "a device or a pipe"


def remove(path: str) -> None:
    """Removes a file, or a directory and all in it, where it is there; links are not followed."""
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
    """Removes what this library wrote into a directory, and the directory if nothing is left in it.

    ``written`` matches the names, below the directory, of the files to remove; the names of the
    others are returned. A link in the directory's place is kept, not followed.
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
    """The names of all files, and of all local links, below a directory."""
    local = local_path(path)
    for folder, folders, names in tf.io.gfile.walk(path) if local is None else os.walk(local):
        for name in [*names, *folders]:
            candidate = os.path.join(folder, name)
            if name in names or (local is not None and os.path.islink(candidate)):
                yield os.path.relpath(candidate, local or path)


# === Temporary names ===


def is_temporary(name: str) -> bool:
    """True if a file's or a directory's name is a temporary one of this library."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and match[3] == _check_sum(match[1], match[2])


def _check_sum(name: str, digits: str) -> str:
    return hashlib.sha256(os.fsencode(f"bert_tf {digits} {name}")).hexdigest()[:16]


@contextlib.contextmanager
def _temporary(path: str, make: Callable[[str], None]) -> Iterator[str]:
    """Makes something under a temporary name and holds it; removes it if it is there in the end."""
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
            continue  # another process took it for a leftover before it was locked
        except OSError:
            lock = None  # a file system without locks
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

    A ``BlockingIOError`` says that another process holds the lock; another ``OSError`` that the
    file system has no locks, and the writer does without.
    """
    import fcntl  # only where processes lock local files

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock(path: str) -> int | None:
    """Locks a local file or directory, but no link, as ``lock_file`` does; gives what to close."""
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
    """Removes what killed processes left of writing a file or a directory."""
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
            continue  # it is being written, or nobody can tell
        try:
            remove(leftover)
        finally:
            if lock is not None:
                os.close(lock)


# === JSON, sizes ===


def encode_json(value: Any) -> bytes:
    """A JSON file's content, as this library writes it."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write_json(path: str, value: Any) -> None:
    """Writes JSON so that the file appears whole or not at all."""
    with atomic_write(path) as file:
        file.write(encode_json(value))


def total_size(path: str) -> int:
    """Bytes of a file, or of all files below a directory."""
    if not tf.io.gfile.isdir(path):
        length: int = tf.io.gfile.stat(path).length
        return length
    return sum(
        tf.io.gfile.stat(os.path.join(folder, name)).length
        for folder, _, names in tf.io.gfile.walk(path)
        for name in names
    )


def read_json(path: str) -> Any:
    """Reads a JSON file of at most 32 MiB, with the checks of ``untrusted.parse_json``."""
    return parse_json(read_bounded(path, "JSON", MAX_JSON_BYTES), path)


def read_json_object(path: str) -> dict[str, Any]:
    """Reads a JSON file that holds an object."""
    return parse_json_object(read_bounded(path, "JSON", MAX_JSON_BYTES), path)


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Turns errors while a file is read into a ``ValueError`` that names it; refuses a pipe."""
    check_readable(path)
    try:
        yield
    except tf.errors.OpError as error:
        raise ValueError(f"{path} cannot be read: {reason(error)}.") from error


class WritableFile(io.RawIOBase):
    """A file of TensorFlow's for writing alone, for libraries that ask what a file can do."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        """Yes; it is neither read nor sought."""
        return True

    def write(self, data: Any) -> int:
        """Appends bytes."""
        self._file.write(bytes(data))
        return len(data)


def read_bounded(path: str, kind: str, limit: int) -> bytes:
    """A file's content, of at most ``limit`` bytes; ``kind`` is its format, for the error."""
    with readable(path), tf.io.gfile.GFile(path, "rb") as file:
        content: bytes = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{path}: expected a {kind} file of at most {limit:,} bytes.")
    return content


# === Fingerprints, by which a checkpoint and an export tell a damaged file ===

_CHUNK_BYTES = 16 << 20


def hash_file(path: str) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def fingerprint(path: str) -> dict[str, Any]:
    """A file's size and SHA-256, as JSON holds them."""
    return {"bytes": tf.io.gfile.stat(path).length, "sha256": hash_file(path)}


def check_fingerprints(files: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` where the value of a file's name is no fingerprint."""
    for name, entry in files.items():
        is_valid = isinstance(entry, dict) and entry.keys() == {"bytes", "sha256"}
        if not is_valid or type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise ValueError(f"expected bytes and sha256 of {one_line(name)}, got {quote(entry)}")


def fingerprint_change(path: str, before: Mapping[str, Any]) -> Literal["bytes", "sha256"] | None:
    """The part of a file's fingerprint that differs from before; the size alone is quick to ask."""
    if tf.io.gfile.stat(path).length != before["bytes"]:
        return "bytes"
    return None if hash_file(path) == before["sha256"] else "sha256"
