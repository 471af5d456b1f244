"""Checkpoints of the training state, with exact values and verified files.

A checkpoint is a directory, such as ``step-00001000``, with these files:

* ``variables.index`` and ``variables.data-00000-of-00001``: the tensors by name, in the format of
  ``tf.train.load_checkpoint``;
* ``manifest.json``: the step, additional state, and the size and SHA-256 of each file. It is
  written last and atomically.

A checkpoint without a manifest is incomplete; a checkpoint whose files differ from the manifest is
damaged. Neither is restored. All file operations use TensorFlow's file systems, which support
``gs://``. Local files are flushed to disk before the manifest is written.
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
from bert_tf.io.messages import listed, one_line, quote, reason
from bert_tf.io.paths import check_readable

INDEX = ".index"
BUNDLE = "variables"
_MANIFEST = "manifest.json"
_DIRECTORY = re.compile(r"step-\d{8,}")
# Pattern of a checkpoint's file names, including temporary files of an interrupted write.
_WRITTEN = re.compile(
    r"(variables\.(index|data-\d{5}-of-\d{5})|manifest\.json)"
    r"(\.tempstate\d+|(\.[0-9a-f]{32})?\.tmp)?"
)


class Restored(NamedTuple):
    """Checkpoint, and warnings about newer checkpoints that are unusable."""

    step: int
    extra: dict[str, Any]
    path: str
    warnings: list[str]


class _UnusableError(Exception):
    """Raised if a checkpoint cannot be restored; the message contains the reason."""


class _UnfinishedError(_UnusableError):
    """Raised if a checkpoint has no manifest."""


# === Saving ===


def save(
    directory: str,
    step: int,
    variables: Mapping[str, keras.Variable | tf.Tensor],
    extra: Mapping[str, Any],
    *,
    keep: int = 3,
) -> str:
    """Saves a checkpoint, and then deletes older ones.

    An intact checkpoint of the same step is kept. If saving fails, the new files are deleted.

    Args:
        directory: Directory of the checkpoints.
        step: Step of the checkpoint.
        variables: Variables or tensors by name.
        extra: Additional state, saved as JSON.
        keep: Number of checkpoints to keep.

    Returns:
        The path of the checkpoint.

    Raises:
        OSError: If the checkpoint cannot be saved.

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
        raise ValueError(f"keep={keep}: expected at least 1.")
    path, values = os.path.join(directory, directory_name(step)), copy_values(variables)
    try:
        with contextlib.suppress(_UnusableError):
            _read_manifest(path)
            return path
        _delete(path)
        write(path, step, values, extra)
    except (OSError, tf.errors.OpError) as error:
        _delete(path)
        raise OSError(
            f"Cannot save the checkpoint of step {step} in {directory}: "
            f"{reason(error, 300).rstrip('.')}. Free disk space or fix the error, then rerun; "
            "earlier checkpoints are intact."
        ) from error
    _delete_old(path, keep)
    return path


def copy_values(variables: Mapping[str, keras.Variable | tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the current values by name; later updates of the variables do not change them.

    On CPUs, TensorFlow copies the values only when a variable is updated.
    """
    with tf.device("CPU:0"):
        # The value of a mirrored variable is its first copy.
        return {
            name: tf.identity(one.value if isinstance(one, keras.Variable) else one)
            for name, one in variables.items()
        }


class BackgroundSaving:
    """Context that saves checkpoints in a background thread, one after another.

    On exit, except after Ctrl-C, the context waits for the last checkpoint. Saving requires memory
    for a second copy of the variables.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: list[Future[str]] = []
        self._step = -1

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
    ) -> None:
        """Copies the values and calls `save` in the background.

        First waits for checkpoints of other steps, and raises their OSError. A checkpoint is not
        saved if an earlier one of the same step could not be saved.
        """
        if step != self._step:
            self.wait()
        self._step, earlier, values = step, [*self._pending], copy_values(variables)

        def save_after_earlier() -> str:
            for saving in earlier:
                saving.result()
            return save(directory, step, values, extra, keep=keep)

        self._pending.append(self._thread.submit(save_after_earlier))

    def wait(self) -> None:
        """Waits for pending checkpoints; raises OSError if one could not be saved."""
        pending, self._pending = self._pending, []
        for saving in pending:
            saving.result()


def write(path: str, step: int, tensors: Mapping[str, tf.Tensor], extra: Mapping[str, Any]) -> None:
    """Writes a checkpoint into a new directory; ``extra`` is additional state, saved as JSON."""
    if os.path.islink(path):
        raise OSError(f"{path} is a symbolic link")
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
        return  # Remote file systems commit files when they are closed.
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# === Restoring ===


def restore_latest(directory: str, variables: Mapping[str, keras.Variable]) -> Restored | None:
    """Restores the newest intact checkpoint; returns None if there is no complete checkpoint.

    Raises:
        ValueError: If all checkpoints are damaged, or if names, shapes or dtypes differ.
    """
    newest = find_latest(directory)
    if newest is not None:
        _assign(newest.path, variables)
    return newest


def find_latest(directory: str) -> Restored | None:
    """Finds the newest intact checkpoint; returns None if there is no complete checkpoint."""
    warnings: list[str] = []
    damaged = False
    for path in reversed(_checkpoint_paths(directory)):
        try:
            manifest = _read_manifest(path)
        except _UnusableError as error:
            damaged = damaged or not isinstance(error, _UnfinishedError)
            warnings.append(f"Skipped the checkpoint {path}: {error}.")
            continue
        return Restored(manifest["step"], manifest["extra"], path, warnings)
    if damaged:
        raise ValueError(
            f"No checkpoint in {directory} is intact. Restore one from a copy, or delete all to "
            f"start again. {' '.join(warnings)}"
        )
    return None


def has_finished(directory: str) -> bool:
    """Returns whether a complete checkpoint exists, without verifying any files."""
    return any(_is_finished(path) for path in _checkpoint_paths(directory))


def delete_all(directory: str) -> None:
    """Deletes all checkpoints, and the directory if it is then empty."""
    for path in reversed(_checkpoint_paths(directory)):
        _delete(path)
    if tf.io.gfile.isdir(directory) and not tf.io.gfile.listdir(directory):
        remove(directory)


def directory_name(step: int) -> str:
    """Returns the name of the checkpoint of a step.

    >>> directory_name(1000)
    'step-00001000'
    """
    return f"step-{step:08d}"


def _checkpoint_paths(directory: str) -> list[str]:
    """Returns the paths of all checkpoints, including incomplete ones, oldest first."""
    if not tf.io.gfile.isdir(directory):
        return []
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(directory)]
    paths = [os.path.join(directory, name) for name in names if _DIRECTORY.fullmatch(name)]
    return sorted(paths, key=_step_of)


def _step_of(path: str) -> int:
    return int(path.rsplit("-", 1)[1])


def _is_finished(path: str) -> bool:
    return bool(tf.io.gfile.exists(os.path.join(path, _MANIFEST)))


def _assign(path: str, variables: Mapping[str, keras.Variable]) -> None:
    bundle = Bundle(os.path.join(path, BUNDLE))
    saved = {name: (bundle.dtypes[name], shape) for name, shape in bundle.shapes.items()}
    expected = {
        name: (tf.as_dtype(variable.dtype).name, tuple(variable.shape))
        for name, variable in variables.items()
    }
    problems = [f"{name} is missing" for name in expected if name not in saved]
    problems += [f"{name} is unexpected" for name in sorted(saved) if name not in expected]
    for name, (dtype, shape) in expected.items():
        if name in saved and saved[name] != (dtype, shape):
            saved_dtype, saved_shape = saved[name]
            expectation = f"expected {dtype} {shape}, got {saved_dtype} {saved_shape}"
            problems.append(f"{name}: {expectation}")
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ValueError(
            f"The checkpoint {path} belongs to a different model or optimizer: "
            f"{'; '.join(problems[:5])}{more}."
        )
    for name, variable in variables.items():
        variable.assign(bundle.read(name))


def _read_manifest(path: str) -> dict[str, Any]:
    """Reads the manifest and verifies all files; raises `_UnusableError` if this fails."""
    manifest_path = os.path.join(path, _MANIFEST)
    if not tf.io.gfile.exists(manifest_path):
        raise _UnfinishedError("it is incomplete")
    try:
        manifest = read_json_object(manifest_path)
        _check_manifest(manifest)
    except ValueError as error:
        raise _UnusableError(f"its {_MANIFEST} is damaged: {reason(error).rstrip('.')}") from error
    # Names in a directory listing cannot refer to other directories, unlike those in a manifest.
    listing = set(tf.io.gfile.listdir(path))
    unnamed = {name for name in listing if name.startswith(f"{BUNDLE}.")} - set(manifest["files"])
    if unnamed:
        raise _UnusableError(f"its {_MANIFEST} does not list {listed(sorted(unnamed))}")
    for name, entry in manifest["files"].items():
        _check_file(path, name, entry, listing)
    return manifest


def _check_manifest(manifest: dict[str, Any]) -> None:
    """Checks the format of a manifest."""
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
        raise _UnusableError(f"the contents of {label} differ from the saved contents")


# === Deleting ===


def _delete(path: str) -> None:
    """Deletes a checkpoint's files, its manifest first, so that the rest counts as incomplete."""
    remove(os.path.join(path, _MANIFEST))
    remove_written(path, _WRITTEN)


def _delete_old(newest: str, keep: int) -> None:
    """Deletes incomplete checkpoints before ``newest``, and all but the last complete ones."""
    paths = _checkpoint_paths(os.path.dirname(newest))
    paths = [path for path in paths if _step_of(path) <= _step_of(newest)]
    finished = [path for path in paths if _is_finished(path)]
    for path in paths:
        if path not in finished[-keep:]:
            _delete(path)


# === Bundles ===


class Bundle:
    """TensorFlow checkpoint (tensor bundle).

    Args:
        prefix: Path of the checkpoint without ``.index``.

    Attributes:
        shapes: Shapes of the tensors by name.
        dtypes: Names of the dtypes of the tensors by name.

    Raises:
        ValueError: If the checkpoint is damaged or incomplete.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        files = tf.io.gfile.glob(f"{prefix}.data-*")
        for file in (prefix + INDEX, *files):
            check_readable(file)
        with self._readable(""):
            self._reader = tf.train.load_checkpoint(prefix)
            self._stored = sum(tf.io.gfile.stat(file).length for file in files)
        shapes = self._reader.get_variable_to_shape_map()
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        dtypes = self._reader.get_variable_to_dtype_map()
        self.dtypes = {name: dtype.name for name, dtype in dtypes.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns a numeric tensor; raises ValueError if it is not numeric or is damaged."""
        dtype = tf.as_dtype(self.dtypes[name])
        if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
            raise ValueError(
                f"{self.prefix}: expected a numeric tensor {one_line(name)}, got {dtype.name}."
            )
        with self._readable(name):
            # Check before TensorFlow allocates memory.
            size = math.prod(self.shapes[name]) * dtype.size
            if size > self._stored:
                raise IndexError(f"it has {size:,} bytes, but the data files have {self._stored:,}")
            return np.asarray(self._reader.get_tensor(name))

    def read_string(self, name: str) -> bytes:
        """Returns a scalar string tensor; raises ValueError if it is not a string or is damaged."""
        with self._readable(name):
            value = self._reader.get_tensor(name)
        if not isinstance(value, bytes):
            raise ValueError(f"{self.prefix}: {one_line(name)} is not a string.")
        return value

    @contextlib.contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Converts TensorFlow's errors to a ValueError."""
        try:
            yield
        except (tf.errors.OpError, IndexError, RuntimeError) as error:
            file = f": cannot read {one_line(name)}, the" if name else f"{INDEX}: the"
            raise ValueError(
                f"{self.prefix}{file} checkpoint is damaged or truncated: "
                f"{reason(error).rstrip('.')}."
            ) from error
