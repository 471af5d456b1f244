"""Run directory: paths, saved settings, input fingerprints, and a lock."""

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.choices import FREELY, PATH
from bert_tf.io.files import is_temporary, lock_file, read_json_object, remove, write_json
from bert_tf.io.messages import listed, one_line, quote, reason
from bert_tf.io.paths import local_path

from . import saved_states
from .progress import print_progress

_LOCK = ".lock"
# Version of the saved state; CHANGELOG describes the compatibility.
_FORMAT = {"format_version": 5}
# Keys of flags.json that are not settings; "masks" is the method for drawing dropout masks.
_NO_SETTINGS = {*_FORMAT, "changes", "masks"}


class RunDirectory:
    """Run directory (``--model_dir``).

    | path                    | contents                                                      |
    |-------------------------|---------------------------------------------------------------|
    | flags.json              | settings and their changes                                    |
    | inputs.json             | fingerprints of the input files                               |
    | model.json and others   | description of the model: class, casing, sizes                |
    | corpus/                 | sample corpus, index of the corpus, decompressed copies       |
    | checkpoints/            | saved states; the last one contains the run's final weights   |
    | best/                   | model directory with the weights of the best evaluation       |
    | logs/                   | TensorBoard summaries                                         |
    | progress.json           | evaluated checkpoints, and whether a callback stopped the run |
    | export/1/               | SavedModel                                                    |
    | results.json            | final evaluation; written last, marks the run as finished     |

    Args:
        path: Path of the directory.
        is_chief: Whether this process writes to the directory.
        is_temporary: Whether the directory is deleted after the run.
    """

    def __init__(self, path: str, *, is_chief: bool = True, is_temporary: bool = False) -> None:
        self.path = path
        self.is_temporary = is_temporary
        self._is_chief = is_chief
        self._local = local_path(path)
        self._created: list[str] = []
        self.flags, self.inputs = self.join("flags.json"), self.join("inputs.json")
        self.description = self.join("model.json")
        self.vocabulary, self.config = self.join("vocab.txt"), self.join("bert_config.json")
        self.described = [self.description, self.vocabulary, self.config]
        self.corpus, self.logs = self.join("corpus"), self.join("logs")
        self.states = self.checkpoints = self.join("checkpoints")
        self.best, self.best_weights = self.join("best"), self.join("best", "checkpoints")
        self.progress = self.join("progress.json")
        self.export, self.results = self.join("export", "1"), self.join("results.json")

    def join(self, *names: str) -> str:
        """Returns a path in the directory."""
        return os.path.join(self.path, *names)

    def check_location(self, inputs: Mapping[str, str | Sequence[str] | None]) -> None:
        """Checks that the directory contains only files of a run.

        Until the run has progress, the paths in ``inputs`` (by flag) must be outside the directory.
        """
        if self._local is not None and not self.has_progress():
            directory = f"{os.path.realpath(self._local)}/"
            for flag, value in inputs.items():
                for path in [value] if isinstance(value, str) else value or ():
                    local = local_path(path)
                    if local is not None and f"{os.path.realpath(local)}/".startswith(directory):
                        raise ValueError(
                            f"{flag}={path} is in --model_dir={self.path}. Use another --model_dir."
                        )
        if tf.io.gfile.isdir(self.path):
            self._check_foreign_files()

    def _check_foreign_files(self) -> None:
        if tf.io.gfile.exists(self.flags):
            try:
                flags = read_json_object(self.flags)
            except ValueError:
                flags = {}
            is_valid = flags.keys() >= _FORMAT.keys()
            foreign_files = [] if is_valid else ["an invalid flags.json"]
        else:
            names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(self.path))
            foreign_files = [name for name in names if not (is_temporary(name) or name == _LOCK)]
        if foreign_files:
            raise ValueError(
                f"--model_dir={self.path} contains files that bert_tf did not write: "
                f"{listed(foreign_files, 3)}. Use an empty or new directory."
            )

    def create(self) -> None:
        """Creates the directory if it does not exist."""
        if not self._is_chief:
            return
        if tf.io.gfile.exists(self.path) and not tf.io.gfile.isdir(self.path):
            raise ValueError(f"--model_dir={self.path} is a file. Use an empty or new directory.")
        self._created, path = [], os.path.abspath(self._local or os.sep)
        while not os.path.exists(path):
            self._created.append(path)
            path = os.path.dirname(path)
        try:
            tf.io.gfile.makedirs(self.path)
        except tf.errors.OpError as error:
            raise ValueError(f"Cannot create --model_dir={self.path}: {reason(error)}.") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the directory for this process, if the file system supports locks.

        If a new run fails before it has written anything else, its initial files are removed.
        """
        if self._local is None or not self._is_chief:
            yield
            return
        lock = os.path.join(self._local, _LOCK)
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(lock, flags, 0o666)
        except OSError as error:
            raise OSError(
                f"Cannot write to --model_dir={self.path}, whose run is not finished: "
                f"{error.strerror}. Make the directory writable, or use another --model_dir."
            ) from error
        try:
            try:
                lock_file(descriptor)
                # Another process may have removed the file meanwhile.
                if not os.path.samestat(os.fstat(descriptor), os.lstat(lock)):
                    raise BlockingIOError
            except (BlockingIOError, FileNotFoundError):
                holder = one_line(os.pread(descriptor, 99, 0).decode("utf-8", "replace").strip())
                raise ValueError(
                    f"--model_dir={self.path} is in use by process {holder or '?'}. Wait for it to "
                    "finish, or use another --model_dir."
                ) from None
            except OSError:
                pass  # The file system does not support locks.
            try:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
            except OSError as error:  # For example, the disk is full; add the path.
                raise OSError(error.errno, error.strerror, lock) from error
            has_started = os.path.lexists(self.flags)
            try:
                yield
            except BaseException:
                if not has_started:
                    self._remove_start(self._local)
                raise
        finally:
            os.close(descriptor)

    def _remove_start(self, local: str) -> None:
        """Removes the lock, the flags and empty folders if the directory contains nothing else."""
        removable = {_LOCK, os.path.basename(self.flags)}
        for name in set(os.listdir(local)) - removable:
            with contextlib.suppress(OSError):  # Files, and folders that are not empty, are kept.
                os.rmdir(os.path.join(local, name))
        if removable.issuperset(os.listdir(local)):
            for name in removable:
                remove(os.path.join(local, name))
            with contextlib.suppress(OSError):  # Parent folders may contain other files.
                for path in self._created:
                    os.rmdir(path)

    # --- Progress ------------------------------------------------------------------------------

    def has_progress(self) -> bool:
        """Returns whether the directory contains a checkpoint or results."""
        return self.is_finished() or self.has_checkpoint()

    def is_finished(self) -> bool:
        """Returns whether the run has written its results, its last file."""
        return bool(tf.io.gfile.exists(self.results))

    def has_state(self) -> bool:
        """Returns whether a state has been saved completely."""
        return saved_states.has_finished(self.states)

    def has_checkpoint(self) -> bool:
        """Returns whether any checkpoint has been saved completely."""
        return self.has_state()

    def newest_step(self) -> int:
        """Returns the step of the last checkpoint, for resuming with changed settings."""
        newest = saved_states.find_latest(self.checkpoints)
        if newest is None:
            raise ValueError(
                f"--model_dir={self.path} has no checkpoint to resume with changed settings. "
                "Restore one from a copy, or use another --model_dir."
            )
        return newest.step

    # --- Settings and inputs -------------------------------------------------------------------

    def saved_flags(self) -> dict[str, Any]:
        """Returns the contents of flags.json; {} if it does not exist.

        Raises:
            ValueError: If an incompatible version of bert_tf wrote the file.
        """
        flags = _read(self.flags)
        version = flags.get("format_version")
        if flags and version != _FORMAT["format_version"]:
            raise ValueError(
                f"{self.flags}: expected format version {_FORMAT['format_version']}, got "
                f"{quote(version)}. Use the version of bert_tf that started the run, or another "
                "--model_dir."
            )
        return flags

    def record_changes(self, step: int, values: Mapping[str, Any]) -> None:
        """Records settings that change at a step, and marks a finished run as unfinished."""
        recorded = self.saved_flags()
        changes = [
            {"step": step, "flag": name, "from": recorded.get(name), "to": value}
            for name, value in values.items()
        ]
        remove(self.results)  # first, so that an interrupted change is repeated
        changes = [*recorded.get("changes", []), *changes]
        write_json(self.flags, {**recorded, **values, "changes": changes})

    def record_dropout_masks(self, masks: str, step: int) -> None:
        """Records the method for drawing dropout masks, and reports a change of method."""
        recorded = self.saved_flags()
        previous = recorded.get("masks")
        if not (self._is_chief and recorded) or previous == masks:
            return
        if previous is None or step == 0:
            write_json(self.flags, {**recorded, "masks": masks})
            return
        self.record_changes(step, {"masks": masks})
        print_progress(
            f"From step {step:,}, dropout masks are drawn by {masks} instead of {previous}, "
            "because the device or --jit_compile changed. The results will differ."
        )

    def check_settings(
        self,
        settings: Mapping[str, Any],
        may_change: Mapping[str, Collection[str]] = MappingProxyType({}),
        older: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[str]:
        """Saves the settings of a new run, or compares them with those of a run in progress.

        A run without a checkpoint is replaced, except for the copies and the index of the corpus.

        Args:
            settings: Settings by flag name.
            may_change: Names of the settings that may change when a run resumes, by rule:
                ``FREELY``, ``PATH`` (a path to moved files), or a rule that the caller applies.
            older: Values to assume for settings that an older version did not record.

        Returns:
            The names of the changed settings, except those that may change freely. Call
            ``check_inputs`` to compare the files of changed paths.

        Raises:
            ValueError: If settings have changed that must not change.
        """
        # JSON converts tuples to lists.
        recorded, current = {**older, **self.saved_flags()}, json.loads(json.dumps(dict(settings)))
        rules = {name: rule for rule, names in may_change.items() for name in names}
        changed = [
            name
            for name in sorted({*recorded, *current} - _NO_SETTINGS)
            if recorded.get(name) != current.get(name) and rules.get(name) != FREELY
        ]
        if self._is_chief and not (recorded and self.has_progress()):
            if recorded and changed:
                for path in (self.inputs, *self.described):
                    remove(path)
            if changed:
                write_json(self.flags, {**_FORMAT, **current})
            return []
        if not recorded:
            raise ValueError(
                f"--model_dir={self.path} does not contain the chief's run. Use a directory that "
                "all workers share."
            )
        allowed: list[str] = []
        conflicts: list[str] = []
        for name in changed:
            old, new = recorded.get(name), current.get(name)
            may_differ = name in rules
            if rules.get(name) == PATH:
                if _is_same_path(old, new):
                    continue
                may_differ = bool(old and new and _read(self.inputs))
            (allowed if may_differ else conflicts).append(name)
        if conflicts:
            differences = ", ".join(
                _difference(name, current.get(name), recorded.get(name)) for name in conflicts
            )
            raise ValueError(
                f"{self.path} contains a run with different settings: {differences}. Rerun with "
                "the original flags to resume it, or use another --model_dir."
            )
        return allowed

    def check_inputs(self, fingerprints: Mapping[str, str]) -> None:
        """Saves the inputs' fingerprints; if the run has progress, first compares them."""
        recorded, has_progress = _read(self.inputs), self.has_progress()
        changed = sorted(
            name for name, value in fingerprints.items() if recorded.get(name, value) != value
        )
        if changed and (has_progress or not self._is_chief):
            # Inputs that have no flag change only together with flags, which are reported instead.
            flags = [name for name in changed if name.startswith("--")] or changed
            raise ValueError(
                f"The data of {' and '.join(flags)} differ from the data that the run in "
                f"{self.path} started with. Restore the files to resume it, or use another "
                "--model_dir."
            )
        values = {**recorded, **fingerprints} if has_progress else dict(fingerprints)
        if values != recorded:
            write_json(self.inputs, values)


class FineTuningDirectory(RunDirectory):
    """Directory of a fine-tuning run (``--model_dir``), which ``bert_tf.load`` can load.

    | path              | contents, in addition to the files of every run                   |
    |-------------------|-------------------------------------------------------------------|
    | task.json         | settings for ``bert_tf.predict``: columns, lengths                |
    | checkpoints/      | weights of the best evaluation                                    |
    | last/             | last saved state, until the run has finished                      |
    | dev/, test/, ...  | predictions and reports, one directory per split                  |
    | skipped_rows.txt  | skipped bad rows                                                  |
    | runs/             | a directory like this for each run of a sweep                     |
    | README.md         | model card                                                        |
    | results.tsv       | results table of a sweep                                          |
    """

    def __init__(self, path: str, *, is_temporary: bool = False) -> None:
        super().__init__(path, is_temporary=is_temporary)
        self.states, self.best_weights = self.join("last"), self.checkpoints
        self.described.append(self.join("task.json"))
        self.skipped_rows, self.table = self.join("skipped_rows.txt"), self.join("results.tsv")
        self.runs, self.card = self.join("runs"), self.join("README.md")

    def has_checkpoint(self) -> bool:
        """Returns whether the run, or a run of its sweep, has saved a checkpoint."""
        if self.has_state() or saved_states.has_finished(self.best_weights):
            return True
        runs = tf.io.gfile.listdir(self.runs) if tf.io.gfile.isdir(self.runs) else ()
        directories = [FineTuningDirectory(os.path.join(self.runs, name)) for name in runs]
        return any(directory.has_progress() for directory in directories)

    def delete_state(self) -> None:
        """Deletes the state, which a finished run does not need."""
        saved_states.delete_all(self.states)


def _read(path: str) -> dict[str, Any]:
    """Returns the object of a JSON file; {} if the file does not exist."""
    return read_json_object(path) if tf.io.gfile.exists(path) else {}


def fingerprint(value: Any) -> str:
    """Returns a short hash of a JSON value, for ``RunDirectory.check_inputs``.

    >>> fingerprint({"a": 1}) == fingerprint({"a": 2})
    False
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _difference(name: str, value: Any, before: Any) -> str:
    flag = f"--{name} is not set" if value is None else f"--{name}={value}"
    return f"{flag} (was {'not set' if before is None else before})"


def _is_same_path(old: Any, new: Any) -> bool:
    """Returns whether two values of a flag refer to the same local files."""
    resolved = []
    for value in (old, new):
        names = value if isinstance(value, list) else [value]
        local = [local_path(name) if isinstance(name, str) else None for name in names]
        resolved.append([name and os.path.realpath(name) for name in local])
    return resolved[0] == resolved[1] and all(resolved[0])


def is_unfinished(path: str) -> bool:
    """Returns whether a path is the directory of an unfinished run."""
    directory = RunDirectory(path)
    return tf.io.gfile.exists(directory.flags) and not directory.is_finished()
