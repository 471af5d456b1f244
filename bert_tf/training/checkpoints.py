"""Flat, exact, verified checkpoints.

A checkpoint is a directory, ``step-00001000`` for example, that holds

* ``variables.index`` and ``variables.data-00000-of-00001``: every variable under the name that
  the caller gives it, in TensorFlow's tensor-bundle format (``tf.train.load_checkpoint`` reads it);
* ``manifest.json``: the step, the caller's extra state, and every file's size and SHA-256. It is
  written last, and moved into place in one operation.

So a directory without a manifest is a save that never ended, and one whose files are not what its
manifest says is damaged; neither is ever restored, whatever the moment the process was killed.
Everything goes through TensorFlow's file systems, so ``gs://`` works; local files are also forced
to the disk before the manifest says that they are there.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

MANIFEST = "manifest.json"
_BUNDLE = "variables"
_DIRECTORY = re.compile(r"step-(\d{8,})/?")
_CHUNK_BYTES = 16 << 20


class Restored(NamedTuple):
    """What `restore_latest` found.

    Attributes:
        step: the step of the checkpoint.
        extra: the caller's state, as it was given to `save`.
        path: the checkpoint's directory.
        warnings: one sentence for each newer checkpoint that was passed over.
    """

    step: int
    extra: dict[str, Any]
    path: str
    warnings: list[str]


class _UnusableError(Exception):
    """A checkpoint that cannot be restored; the message says why."""


class _UnfinishedError(_UnusableError):
    """A checkpoint without a manifest."""


def save(
    directory: str,
    step: int,
    variables: Mapping[str, keras.Variable],
    extra: Mapping[str, Any],
    *,
    keep: int = 3,
) -> str:
    """Saves a checkpoint and, once its manifest is on the disk, deletes the oldest.

    A step that is already there and intact is left as it is.

    Args:
        directory: where the checkpoints lie; made where it is missing.
        step: the number of updates made.
        variables: what to save, by unique name; mirrored variables are saved once.
        extra: small state that JSON can hold.
        keep: how many finished checkpoints to keep, this one included.

    Returns:
        The checkpoint's directory.

    Raises:
        ValueError: ``keep`` is below 1.
        OSError: the checkpoint could not be written, for want of space for example. What was
            written of it is deleted; the checkpoints before it are intact.

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
    path = os.path.join(directory, f"step-{step:08d}")
    try:
        if _is_intact(path):
            return path
        _delete(path)
        tf.io.gfile.makedirs(path)
        _write(path, step, variables, extra)
    except (OSError, tf.errors.OpError) as error:
        reason = " ".join(str(getattr(error, "message", None) or error).split())[:300]
        _delete(path)
        raise OSError(
            f"The checkpoint of step {step} could not be saved in {directory} ({reason}): make "
            "room there or mend it, and start again; the checkpoints before it are intact."
        ) from error
    _delete_old(directory, step, keep)
    return path


def restore_latest(
    directory: str, variables: Mapping[str, keras.Variable], *, prefix: str = ""
) -> Restored | None:
    """Restores the newest intact checkpoint into the variables, bit for bit.

    Args:
        directory: where the checkpoints lie; it need not exist.
        variables: what to restore, under the names given to `save`.
        prefix: restore only the names that begin so (``"model/"`` leaves the optimizer out);
            ``variables`` must then hold exactly these.

    Returns:
        What was restored; ``None`` where no save ever ended.

    Raises:
        ValueError: checkpoints are there but none is intact, or the checkpoint's names, shapes or
            dtypes are not the variables' (nothing is assigned then).
    """
    warnings: list[str] = []
    damaged = False
    for path in reversed(_checkpoint_paths(directory)):
        try:
            manifest = _read_verified_manifest(path)
        except _UnusableError as error:
            damaged = damaged or not isinstance(error, _UnfinishedError)
            warnings.append(f"Passed over the checkpoint {path}: {error}.")
            continue
        reader = tf.train.load_checkpoint(os.path.join(path, _BUNDLE))
        _check_agreement(path, reader, variables, prefix)
        for name, variable in variables.items():
            variable.assign(reader.get_tensor(name))
        return Restored(manifest["step"], manifest["extra"], path, warnings)
    if damaged:
        raise ValueError(
            f"No checkpoint in {directory} is intact: bring one back from a copy, or delete them "
            f"to start anew. {' '.join(warnings)}"
        )
    return None


# === Writing ===


def _write(
    path: str, step: int, variables: Mapping[str, keras.Variable], extra: Mapping[str, Any]
) -> None:
    with tf.device("CPU:0"):
        # A mirrored variable gives its first copy; on a CPU reading copies nothing.
        values = [tf.identity(variable.value) for variable in variables.values()]
        tf.raw_ops.SaveV2(
            prefix=os.path.join(path, _BUNDLE),
            tensor_names=list(variables),
            shape_and_slices=[""] * len(values),
            tensors=values,
        )
    files = {}
    for name in sorted(tf.io.gfile.listdir(path)):
        _force_to_disk(os.path.join(path, name))
        files[name] = _fingerprint(os.path.join(path, name))
    _force_to_disk(path)
    manifest = {"step": step, "extra": dict(extra), "files": files}
    temporary = os.path.join(path, MANIFEST + ".tmp")
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps(manifest, indent=1) + "\n")
    _force_to_disk(temporary)
    tf.io.gfile.rename(temporary, os.path.join(path, MANIFEST), overwrite=True)
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
    digest, size = hashlib.sha256(), 0
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


# === Reading ===


def _checkpoint_paths(directory: str) -> list[str]:
    """Every checkpoint's directory, finished or not, oldest first."""
    if not tf.io.gfile.isdir(directory):
        return []
    found = []
    for name in tf.io.gfile.listdir(directory):
        match = _DIRECTORY.fullmatch(name)
        if match:
            found.append((int(match[1]), os.path.join(directory, name.rstrip("/"))))
    return [path for _, path in sorted(found)]


def _read_verified_manifest(path: str) -> dict[str, Any]:
    """The manifest, after every file was found to be what it says.

    Raises:
        _UnfinishedError: there is no manifest.
        _UnusableError: the manifest cannot be read, or a file is missing or differs.
    """
    manifest_path = os.path.join(path, MANIFEST)
    if not tf.io.gfile.exists(manifest_path):
        raise _UnfinishedError("its save did not end")
    try:
        with tf.io.gfile.GFile(manifest_path) as file:
            manifest: dict[str, Any] = json.loads(file.read())
        expected = {name: dict(entry) for name, entry in manifest["files"].items()}
        manifest["step"], manifest["extra"]
    except (ValueError, KeyError, AttributeError, TypeError, tf.errors.OpError) as error:
        raise _UnusableError(f"its {MANIFEST} is damaged") from error
    for name, entry in expected.items():
        file_path = os.path.join(path, name)
        try:
            size = tf.io.gfile.stat(file_path).length
            if size != entry["bytes"]:
                raise _UnusableError(f"{name} has {size} bytes instead of {entry['bytes']}")
            if _fingerprint(file_path) != entry:
                raise _UnusableError(
                    f"{name} has the right size but other contents than were saved"
                )
        except tf.errors.OpError as error:
            raise _UnusableError(f"{name} is missing or cannot be read") from error
    return manifest


def _is_intact(path: str) -> bool:
    try:
        _read_verified_manifest(path)
    except _UnusableError:
        return False
    return True


def _check_agreement(
    path: str, reader: Any, variables: Mapping[str, keras.Variable], prefix: str
) -> None:
    dtypes = reader.get_variable_to_dtype_map()
    saved = {
        name: (tuple(shape), dtypes[name].name)
        for name, shape in reader.get_variable_to_shape_map().items()
        if name.startswith(prefix)
    }
    wanted = {
        name: (tuple(variable.shape), tf.as_dtype(variable.dtype).name)
        for name, variable in variables.items()
    }
    problems = [f"{name} is not in it" for name in wanted if name not in saved]
    problems += [f"{name} is in it alone" for name in sorted(saved) if name not in wanted]
    problems += [
        f"{name} is {saved[name][1]} {saved[name][0]} in it and {wanted[name][1]} "
        f"{wanted[name][0]} here"
        for name in wanted
        if name in saved and saved[name] != wanted[name]
    ]
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ValueError(
            f"The checkpoint {path} is of another model or optimizer: "
            f"{'; '.join(problems[:5])}{more}."
        )


# === Deleting ===


def _delete_old(directory: str, newest_step: int, keep: int) -> None:
    """Deletes unfinished saves before the newest, and all but the last ``keep`` finished ones."""
    paths = [p for p in _checkpoint_paths(directory) if _step_of(p) <= newest_step]
    finished = [p for p in paths if tf.io.gfile.exists(os.path.join(p, MANIFEST))]
    for path in paths:
        if path not in finished[-keep:]:
            _delete(path)


def _step_of(path: str) -> int:
    return int(path.rsplit("-", 1)[1])


def _delete(path: str) -> None:
    """Deletes a checkpoint, its manifest first: half deleted, it counts as unfinished."""
    manifest = os.path.join(path, MANIFEST)
    if tf.io.gfile.exists(manifest):
        tf.io.gfile.remove(manifest)
    if tf.io.gfile.exists(path):
        tf.io.gfile.rmtree(path)
