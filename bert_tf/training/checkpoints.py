"""Flat, exact, verified checkpoints.

Each is a directory, ``step-00001000`` for example, whose files ``checkpoint_files`` describes. One
that is unfinished or damaged is never restored, whatever the moment the process was killed.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.files import remove
from bert_tf.untrusted import reason

from . import checkpoint_files
from .bundle_reader import Bundle

_DIRECTORY = re.compile(r"step-(\d{8,})/?")


class Restored(NamedTuple):
    """A checkpoint that was found, or restored.

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
    path = os.path.join(directory, directory_name(step))
    try:
        if _is_intact(path):
            return path
        checkpoint_files.delete(path)
        with tf.device("CPU:0"):
            # A mirrored variable gives its first copy; on a CPU reading copies nothing.
            values = {name: tf.identity(variable.value) for name, variable in variables.items()}
        checkpoint_files.write(path, step, values, extra)
    except (OSError, tf.errors.OpError) as error:
        checkpoint_files.delete(path)
        raise OSError(
            f"The checkpoint of step {step} could not be saved in {directory} "
            f"({reason(error, 300)}): make room there or mend it, and start again; the checkpoints "
            "before it are intact."
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
    found = find_latest(directory)
    if found is None:
        return None
    bundle = Bundle(os.path.join(found.path, checkpoint_files.BUNDLE))
    _check_agreement(found.path, bundle, variables, prefix)
    for name, variable in variables.items():
        variable.assign(bundle.read(name))
    return found


def find_latest(directory: str) -> Restored | None:
    """Finds the newest intact checkpoint.

    Args:
        directory: where the checkpoints lie; it need not exist.

    Returns:
        What ``restore_latest`` would restore; ``None`` where no save ever ended.

    Raises:
        ValueError: checkpoints are there but none is intact.
    """
    warnings: list[str] = []
    damaged = False
    for path in reversed(_checkpoint_paths(directory)):
        try:
            manifest = checkpoint_files.read_manifest(path)
        except checkpoint_files.UnusableError as error:
            damaged = damaged or not isinstance(error, checkpoint_files.UnfinishedError)
            warnings.append(f"Passed over the checkpoint {path}: {error}.")
            continue
        return Restored(manifest["step"], manifest["extra"], path, warnings)
    if damaged:
        raise ValueError(
            f"No checkpoint in {directory} is intact: bring one back from a copy, or delete them "
            f"to start anew. {' '.join(warnings)}"
        )
    return None


def has_finished(directory: str) -> bool:
    """Whether a save has ended there; whether its files are intact is not asked."""
    return any(_is_finished(path) for path in _checkpoint_paths(directory))


def delete_all(directory: str) -> None:
    """Deletes every checkpoint, and the directory if nothing else is in it."""
    for path in _checkpoint_paths(directory):
        checkpoint_files.delete(path)
    if tf.io.gfile.isdir(directory) and not tf.io.gfile.listdir(directory):
        remove(directory)


def directory_name(step: int) -> str:
    """The name of a step's checkpoint.

    >>> directory_name(1000)
    'step-00001000'
    """
    return f"step-{step:08d}"


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


def _is_finished(path: str) -> bool:
    return bool(tf.io.gfile.exists(os.path.join(path, checkpoint_files.MANIFEST)))


def _is_intact(path: str) -> bool:
    try:
        checkpoint_files.read_manifest(path)
    except checkpoint_files.UnusableError:
        return False
    return True


def _check_agreement(
    path: str, bundle: Bundle, variables: Mapping[str, keras.Variable], prefix: str
) -> None:
    saved = {
        name: (shape, bundle.dtypes[name])
        for name, shape in bundle.shapes.items()
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
    finished = [path for path in paths if _is_finished(path)]
    for path in paths:
        if path not in finished[-keep:]:
            checkpoint_files.delete(path)


def _step_of(path: str) -> int:
    return int(path.rsplit("-", 1)[1])
