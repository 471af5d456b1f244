"""Flat, exact, verified checkpoints of a training's state.

A checkpoint is a directory, ``step-00001000`` for example, that holds

* ``variables.index`` and ``variables.data-00000-of-00001``: every tensor under the name that the
  caller gives it, in TensorFlow's tensor-bundle format (``tf.train.load_checkpoint`` reads it);
* ``manifest.json``: the step, the caller's extra state, and every file's size and SHA-256. It is
  written last, and moved into place in one operation.

So a directory without a manifest is a save that never ended, and one whose files are not what its
manifest says is damaged: neither is ever restored, whatever the moment the process was killed.
Everything goes through TensorFlow's file systems, so ``gs://`` works; local files are also forced
to the disk before the manifest says that they are there.
"""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.io.files import (
    atomic_path,
    check_fingerprints,
    fingerprint,
    fingerprint_change,
    read_json_object,
    remove,
    remove_written,
)
from bert_tf.io.paths import check_readable
from bert_tf.io.wording import listed, one_line, quote, reason

INDEX = ".index"
BUNDLE = "variables"
_MANIFEST = "manifest.json"
_DIRECTORY = re.compile(r"step-\d{8,}")
# Every file of a checkpoint, the names included that a killed write leaves.
_WRITTEN = re.compile(
    r"(variables\.(index|data-\d{5}-of-\d{5})|manifest\.json)"
    r"(\.tempstate\d+|(\.[0-9a-f]{32})?\.tmp)?"
)


class Restored(NamedTuple):
    """A checkpoint that was found, with a sentence on each newer one that was passed over."""

    step: int
    extra: dict[str, Any]
    path: str
    warnings: list[str]


class _UnusableError(Exception):
    """A checkpoint that cannot be restored; the message says why, without a full stop."""


class _UnfinishedError(_UnusableError):
    """A checkpoint without a manifest."""


# === Saving ===


def save(
    directory: str,
    step: int,
    variables: Mapping[str, keras.Variable | tf.Tensor],
    extra: Mapping[str, Any],
    *,
    keep: int = 3,
) -> str:
    """Saves a checkpoint and, once its manifest is on the disk, deletes the oldest but ``keep``.

    A step that is already there and intact is left as it is. Where the disk is full, for example,
    an OSError says so: what was written is deleted, and the checkpoints before it are intact.

    >>> import tempfile
    >>> directory, weight = tempfile.mkdtemp(), keras.Variable([1.0, 2.0])
    >>> path = save(directory, 3, {"model/weight": weight}, {"pool": 7})
    >>> weight.assign([0.0, 0.0]).numpy().tolist()
    [0.0, 0.0]
    >>> restored = restore_latest(directory, {"model/weight": weight})
    >>> restored.step, restored.extra, weight.numpy().tolist()
    (3, {'pool': 7}, [1.0, 2.0])
    """
    if keep < 1:
        raise ValueError(f"At least one checkpoint has to be kept, got keep={keep}.")
    path, values = os.path.join(directory, directory_name(step)), copy_values(variables)
    try:
        if _is_intact(path):
            return path
        _delete(path)
        write(path, step, values, extra)
    except (OSError, tf.errors.OpError) as error:
        _delete(path)
        raise OSError(
            f"The checkpoint of step {step} could not be saved in {directory} "
            f"({reason(error, 300)}): make room there or mend it, and start again; the checkpoints "
            "before it are intact."
        ) from error
    _delete_old(path, keep)
    return path


def copy_values(variables: Mapping[str, keras.Variable | tf.Tensor]) -> dict[str, tf.Tensor]:
    """The values by name, which later updates of the variables leave as they are.

    On a CPU nothing is copied yet: a variable whose value is held is updated in a place of its own.
    """
    with tf.device("CPU:0"):
        # A mirrored variable gives its first copy.
        return {
            name: tf.identity(one.value if isinstance(one, keras.Variable) else one)
            for name, one in variables.items()
        }


class BackgroundSaving:
    """A context that saves checkpoints in a thread, one at a time, while the training goes on.

    At its end, unless Ctrl-C ended it, the last one is on the disk. Until then memory has two.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: list[Future[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.wait()

    def save(
        self,
        directory: str,
        step: int,
        variables: Mapping[str, keras.Variable | tf.Tensor],
        extra: Mapping[str, Any],
        *,
        keep: int,
        at_same_step: bool = False,
    ) -> None:
        """Does what `save` does, and returns once the values are copied.

        A save before has to end first, and raises its OSError here, unless it is ``at_same_step``.
        """
        if not at_same_step:
            self.wait()
        values = copy_values(variables)
        self._pending.append(self._thread.submit(save, directory, step, values, extra, keep=keep))

    def wait(self) -> None:
        """Waits until the last save is on the disk, or raises an OSError of one, once."""
        pending, self._pending = self._pending, []
        for saving in pending:
            saving.result()


def write(path: str, step: int, tensors: Mapping[str, tf.Tensor], extra: Mapping[str, Any]) -> None:
    """Writes a checkpoint into a new directory; ``extra`` is state that JSON can hold."""
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
            files[name] = fingerprint(os.path.join(path, name))
    _force_to_disk(path)
    manifest = {"step": step, "extra": dict(extra), "files": files}
    with atomic_path(os.path.join(path, _MANIFEST)) as temporary:
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


# === Restoring ===


def restore_latest(directory: str, variables: Mapping[str, keras.Variable]) -> Restored | None:
    """Restores the newest intact checkpoint, bit for bit; None where no save ever ended.

    A ValueError says that none is intact, or that names, shapes or dtypes differ.
    """
    newest = find_latest(directory)
    if newest is not None:
        _assign(newest.path, variables)
    return newest


def find_latest(directory: str) -> Restored | None:
    """Finds the newest intact checkpoint, which ``restore_latest`` would restore."""
    warnings: list[str] = []
    damaged = False
    for path in reversed(_checkpoint_paths(directory)):
        try:
            manifest = _read_manifest(path)
        except _UnusableError as error:
            damaged = damaged or not isinstance(error, _UnfinishedError)
            warnings.append(f"Passed over the checkpoint {path}: {error}.")
            continue
        return Restored(manifest["step"], manifest["extra"], path, warnings)
    if damaged:
        raise ValueError(
            f"No checkpoint in {directory} is intact: restore one from a copy, or delete them to "
            f"start again. {' '.join(warnings)}"
        )
    return None


def has_finished(directory: str) -> bool:
    """True if a save has ended there; whether its files are intact is not asked."""
    return any(_is_finished(path) for path in _checkpoint_paths(directory))


def delete_all(directory: str) -> None:
    """Deletes every checkpoint, and the directory if nothing else is in it."""
    for path in reversed(_checkpoint_paths(directory)):
        _delete(path)
    if tf.io.gfile.isdir(directory) and not tf.io.gfile.listdir(directory):
        remove(directory)


def directory_name(step: int) -> str:
    """The name of a step's checkpoint.

    >>> directory_name(1000)
    'step-00001000'
    """
    return f"step-{step:08d}"


def _checkpoint_paths(directory: str) -> list[str]:
    """Every checkpoint's directory, finished or not, oldest first."""
    if not tf.io.gfile.isdir(directory):
        return []
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(directory)]
    paths = [os.path.join(directory, name) for name in names if _DIRECTORY.fullmatch(name)]
    return sorted(paths, key=_step_of)


def _step_of(path: str) -> int:
    return int(path.rsplit("-", 1)[1])


def _is_finished(path: str) -> bool:
    return bool(tf.io.gfile.exists(os.path.join(path, _MANIFEST)))


def _is_intact(path: str) -> bool:
    try:
        _read_manifest(path)
    except _UnusableError:
        return False
    return True


def _assign(path: str, variables: Mapping[str, keras.Variable]) -> None:
    bundle = Bundle(os.path.join(path, BUNDLE))
    saved = {name: (bundle.dtypes[name], shape) for name, shape in bundle.shapes.items()}
    expected = {
        name: (tf.as_dtype(variable.dtype).name, tuple(variable.shape))
        for name, variable in variables.items()
    }
    problems = [f"{name} is not in it" for name in expected if name not in saved]
    problems += [f"{name} is in it alone" for name in sorted(saved) if name not in expected]
    for name, (dtype, shape) in expected.items():
        if name in saved and saved[name] != (dtype, shape):
            saved_dtype, saved_shape = saved[name]
            problems.append(f"{name} is {saved_dtype} {saved_shape} in it and {dtype} {shape} here")
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ValueError(
            f"The checkpoint {path} is of another model or optimizer: "
            f"{'; '.join(problems[:5])}{more}."
        )
    for name, variable in variables.items():
        variable.assign(bundle.read(name))


def _read_manifest(path: str) -> dict[str, Any]:
    """The manifest, after every file was found to be what it says; else an `_UnusableError`."""
    manifest_path = os.path.join(path, _MANIFEST)
    if not tf.io.gfile.exists(manifest_path):
        raise _UnfinishedError("its save did not end")
    try:
        manifest = read_json_object(manifest_path)
        _check_manifest(manifest)
    except ValueError as error:
        raise _UnusableError(f"its {_MANIFEST} is damaged: {reason(error).rstrip('.')}") from error
    # A name that the directory lists leads nowhere else.
    listing = set(tf.io.gfile.listdir(path))
    unnamed = {name for name in listing if name.startswith(f"{BUNDLE}.")} - set(manifest["files"])
    if unnamed:
        raise _UnusableError(f"its {_MANIFEST} does not name {listed(sorted(unnamed))}")
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
    check_fingerprints(files)


def _check_file(path: str, name: str, entry: Mapping[str, Any], listing: set[str]) -> None:
    file_path, label = os.path.join(path, name), one_line(name)
    try:
        if name not in listing:
            raise FileNotFoundError
        check_readable(file_path)
        changed = fingerprint_change(file_path, entry)
        size = tf.io.gfile.stat(file_path).length
    except (tf.errors.OpError, FileNotFoundError, ValueError) as error:
        raise _UnusableError(f"{label} is missing or cannot be read") from error
    if changed == "bytes":
        raise _UnusableError(f"{label} has {size} bytes instead of {entry['bytes']}")
    if changed:
        raise _UnusableError(f"{label} has the right size but other contents than were saved")


# === Deleting ===


def _delete(path: str) -> None:
    """Deletes the files that a save wrote, the manifest first: half deleted, it is unfinished."""
    remove(os.path.join(path, _MANIFEST))
    remove_written(path, _WRITTEN)


def _delete_old(newest: str, keep: int) -> None:
    """Deletes unfinished saves before the newest, and all but the last ``keep`` finished ones."""
    paths = _checkpoint_paths(os.path.dirname(newest))
    paths = [path for path in paths if _step_of(path) <= _step_of(newest)]
    finished = [path for path in paths if _is_finished(path)]
    for path in paths:
        if path not in finished[-keep:]:
            _delete(path)


# === Bundles ===


class Bundle:
    """A tensor bundle of TensorFlow's, opened by its path up to ``.index``.

    ``shapes`` and ``dtypes``, as TensorFlow calls them, are every tensor's, by name. A ValueError
    says that the bundle is damaged, or a part of it is missing.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        for file in (prefix + INDEX, *tf.io.gfile.glob(f"{prefix}.data-*")):
            check_readable(file)
        with self._readable(""):
            self._reader = tf.train.load_checkpoint(prefix)
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        dtypes = self._reader.get_variable_to_dtype_map()
        self.dtypes = {name: dtype.name for name, dtype in dtypes.items()}

    def read(self, name: str) -> np.ndarray:
        """A tensor of numbers; a ValueError where it is none, or is damaged."""
        dtype = tf.as_dtype(self.dtypes[name])
        if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
            raise ValueError(
                f"{self.prefix}: {one_line(name)} is {dtype.name}, expected a tensor of numbers."
            )
        with self._readable(name):
            # Before TensorFlow takes memory for it.
            size, stored = math.prod(self.shapes[name]) * dtype.size, self._data_size()
            if size > stored:
                raise IndexError(f"it has {size:,} bytes, and the data files {stored:,}")
            return np.asarray(self._reader.get_tensor(name))

    def read_string(self, name: str) -> bytes:
        """A tensor that is one string; a ValueError where it is none, or is damaged."""
        with self._readable(name):
            value = self._reader.get_tensor(name)
        if not isinstance(value, bytes):
            raise ValueError(f"{self.prefix}: {one_line(name)} is no string.")
        return value

    def _data_size(self) -> int:
        files = tf.io.gfile.glob(f"{self.prefix}.data-*")
        return sum(tf.io.gfile.stat(file).length for file in files)

    @contextlib.contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Turns TensorFlow's errors into a sentence."""
        try:
            yield
        except (tf.errors.OpError, IndexError, RuntimeError) as error:  # IndexError: a file is cut
            what = f": {one_line(name)} cannot be read, the" if name else f"{INDEX}: the"
            raise ValueError(
                f"{self.prefix}{what} checkpoint is damaged or cut off: "
                f"{reason(error).rstrip('.')}."
            ) from error
