"""The model directory of a run: its paths, what the run was started with, one run at a time."""

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
from bert_tf.io.paths import local_path
from bert_tf.io.wording import listed, one_line, quote, reason

from . import saved_states
from .progress import print_progress

_LOCK = ".lock"
# What a run keeps, and how a run of the same flags goes on. CHANGELOG has the promise.
_FORMAT = {"format_version": 5}
# The keys of flags.json that are no settings; "masks": how the newest steps drew dropout's.
_NO_SETTINGS = {*_FORMAT, "changes", "masks"}


class RunDirectory:
    """The paths of a run's ``--model_dir``, and the promises that hold across restarts.

    | path                    | contents                                                      |
    |-------------------------|---------------------------------------------------------------|
    | flags.json              | every resolved setting, and its changes                       |
    | inputs.json             | fingerprints of the files that the run was started with       |
    | model.json and others   | what makes a model of the weights: class, casing, sizes       |
    | corpus/                 | the sample corpus, the corpus' index, unpacked copies         |
    | checkpoints/            | whole states; the newest has the weights of the run           |
    | best/                   | the weights of the best evaluation, a model directory itself  |
    | logs/                   | for TensorBoard                                               |
    | progress.json           | which checkpoint was evaluated, or ended by a callback        |
    | export/1/               | the SavedModel                                                |
    | results.json            | the final evaluation; written last: the run is finished       |

    Args:
        path: the directory.
        is_chief: whether this process is the one that writes to the directory.
        is_temporary: whether the directory is gone after the run: no next command is named.
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
        """A path in the directory."""
        return os.path.join(self.path, *names)

    def check_location(self, inputs: Mapping[str, str | Sequence[str] | None]) -> None:
        """Checks that the directory holds nothing but a run's, before anything is written.

        Before the run has progress, no flag in ``inputs`` may name a path in it.
        """
        if self._local is not None and not self.has_progress():
            own = os.path.realpath(self._local)
            for flag, value in inputs.items():
                for path in [value] if isinstance(value, str) else value or ():
                    local = local_path(path)
                    if local is not None and f"{os.path.realpath(local)}/".startswith(f"{own}/"):
                        raise ValueError(
                            f"{flag}={path} is in --model_dir={self.path}, which is for what the "
                            "run writes: name another --model_dir."
                        )
        if tf.io.gfile.isdir(self.path):
            self._check_foreign_files()

    def _check_foreign_files(self) -> None:
        if tf.io.gfile.exists(self.flags):
            try:
                flags = read_json_object(self.flags)
            except ValueError:
                flags = {}
            is_own = flags.keys() >= _FORMAT.keys()
            foreign_files = [] if is_own else ["a flags.json of something else"]
        else:
            names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(self.path))
            foreign_files = [name for name in names if not (is_temporary(name) or name == _LOCK)]
        if foreign_files:
            raise ValueError(
                f"--model_dir={self.path} holds {listed(foreign_files, 3)}, which no run of this "
                "library wrote, and a run would write over it: name an empty directory, or one yet "
                "to be made."
            )

    def create(self) -> None:
        """Makes the directory where it is not there yet."""
        if not self._is_chief:
            return
        if tf.io.gfile.exists(self.path) and not tf.io.gfile.isdir(self.path):
            raise ValueError(
                f"--model_dir={self.path} is a file: name a directory, or one yet to be made."
            )
        self._created, path = [], os.path.abspath(self._local or os.sep)
        while not os.path.exists(path):
            self._created.append(path)
            path = os.path.dirname(path)
        try:
            tf.io.gfile.makedirs(self.path)
        except tf.errors.OpError as error:
            raise ValueError(f"--model_dir={self.path} cannot be made: {reason(error)}.") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory for one process at a time, where its file system has locks.

        A process that fails before it wrote anything but its flags leaves nothing.
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
                f"{self.path} cannot be written to ({error.strerror}), and its run is not "
                f"finished: make it writable, or name another --model_dir."
            ) from error
        try:
            try:
                lock_file(descriptor)
                # Its holder may just have removed it.
                if not os.path.samestat(os.fstat(descriptor), os.lstat(lock)):
                    raise BlockingIOError
            except (BlockingIOError, FileNotFoundError):
                holder = one_line(os.pread(descriptor, 99, 0).decode("utf-8", "replace").strip())
                raise ValueError(
                    f"{self.path} is in use by a run of process {holder or '?'}: "
                    f"wait for it, or name another --model_dir."
                ) from None
            except OSError:
                pass  # a file system without locks
            try:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
            except OSError as error:  # the disk is full, and the error would name no file
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
        """Removes the lock, the flags and the folders of a start, where nothing else is there."""
        own = {_LOCK, os.path.basename(self.flags)}
        for name in set(os.listdir(local)) - own:
            with contextlib.suppress(OSError):  # a file, or a folder that is not empty
                os.rmdir(os.path.join(local, name))
        if own.issuperset(os.listdir(local)):
            for name in own:
                remove(os.path.join(local, name))
            with contextlib.suppress(OSError):  # others may be in them by now
                for path in self._created:
                    os.rmdir(path)

    # --- Progress ------------------------------------------------------------------------------

    def has_progress(self) -> bool:
        """True if there is anything that other settings would spoil: a checkpoint, or results."""
        return self.is_finished() or self.has_checkpoint()

    def is_finished(self) -> bool:
        """True if the run has written its results, which it does last."""
        return bool(tf.io.gfile.exists(self.results))

    def has_state(self) -> bool:
        """True if a whole state was saved to its end."""
        return saved_states.has_finished(self.states)

    def has_checkpoint(self) -> bool:
        """True if anything of the training was saved to its end."""
        return self.has_state()

    def newest_step(self) -> int:
        """The step of the newest checkpoint, which a run with other settings goes on from."""
        newest = saved_states.find_latest(self.checkpoints)
        if newest is None:
            raise ValueError(
                f"{self.path} has no checkpoint to go on from with other settings: bring one back "
                "from a copy, or name another --model_dir."
            )
        return newest.step

    # --- What the run was started with ---------------------------------------------------------

    def saved_flags(self) -> dict[str, Any]:
        """Contents of flags.json; empty without it. A ValueError: another version wrote it."""
        flags = _read(self.flags)
        version = flags.get("format_version")
        if flags and version != _FORMAT["format_version"]:
            raise ValueError(
                f"{self.flags} is of a run of format {quote(version)}, and this version of bert_tf "
                f"goes on with runs of format {_FORMAT['format_version']}: use the version that "
                f"began it, or name another --model_dir."
            )
        return flags

    def record_changes(self, step: int, values: Mapping[str, Any]) -> None:
        """Records new values of settings from a step on; a finished run is unfinished again."""
        recorded = self.saved_flags()
        changes = [
            {"step": step, "flag": name, "from": recorded.get(name), "to": value}
            for name, value in values.items()
        ]
        remove(self.results)  # first: a killed change is made again
        changes = [*recorded.get("changes", []), *changes]
        write_json(self.flags, {**recorded, **values, "changes": changes})

    def record_dropout_masks(self, masks: str, step: int) -> None:
        """Keeps how dropout's masks are drawn from a step on; prints a change, which is no flag."""
        recorded = self.saved_flags()
        before = recorded.get("masks")
        if not (self._is_chief and recorded) or before == masks:
            return
        if before is None or step == 0:
            write_json(self.flags, {**recorded, "masks": masks})
            return
        self.record_changes(step, {"masks": masks})
        print_progress(
            f"From step {step:,} on dropout's masks are drawn by {masks}, and not by {before}, as "
            "suits the device and --jit_compile: the run does not end as an unbroken one would."
        )

    def check_settings(
        self,
        settings: Mapping[str, Any],
        may_change: Mapping[str, Collection[str]] = MappingProxyType({}),
        older: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[str]:
        """Keeps the settings of a start, and refuses others once the run has progress.

        A start that ended before its first checkpoint is forgotten, but for the corpus' copies and
        its index.

        Args:
            settings: every setting by the name of its flag.
            may_change: the settings that a restart may change, by how: ``FREELY``; a ``PATH`` to
                files that may have moved; another way, which the caller sees to. Others stay.
            older: settings that a run has which was begun before they were recorded.

        Returns:
            The names of the settings that were changed, but for those that may change freely:
            ``check_inputs`` is to compare what is at the paths.
        """
        # A tuple is read back as a list.
        recorded, current = {**older, **self.saved_flags()}, json.loads(json.dumps(dict(settings)))
        how = {name: each for each, names in may_change.items() for name in names}
        changed = [
            name
            for name in sorted({*recorded, *current} - _NO_SETTINGS)
            if recorded.get(name) != current.get(name) and how.get(name) != FREELY
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
                f"--model_dir={self.path} is not where the chief keeps the run: name a directory "
                "that every worker sees."
            )
        allowed: list[str] = []
        other: list[str] = []
        for name in changed:
            before, now = recorded.get(name), current.get(name)
            may_differ = name in how
            if how.get(name) == PATH:
                if _is_same_path(before, now):
                    continue
                may_differ = bool(before and now and _read(self.inputs))
            (allowed if may_differ else other).append(name)
        if other:
            differences = ", ".join(
                f"--{name}={current.get(name)} (was {recorded.get(name)})" for name in other
            )
            raise ValueError(
                f"{self.path} holds a run with other settings: {differences}. Start again with the "
                "same flags to go on with it, or name another --model_dir."
            )
        return allowed

    def check_inputs(self, fingerprints: Mapping[str, str]) -> None:
        """Keeps what the files behind the flags held, and refuses others once there is progress."""
        recorded, has_progress = _read(self.inputs), self.has_progress()
        changed = sorted(
            name for name, value in fingerprints.items() if recorded.get(name, value) != value
        )
        if changed and (has_progress or not self._is_chief):
            # Inputs that are not flags change with the flags: name the flags alone.
            flags = [name for name in changed if name.startswith("--")] or changed
            raise ValueError(
                f"What {' and '.join(flags)} read is not what the run in {self.path} was started "
                "with (files have changed, or this version reads them otherwise): bring the files "
                "back to go on, or name another --model_dir."
            )
        values = {**recorded, **fingerprints} if has_progress else dict(fingerprints)
        if values != recorded:
            write_json(self.inputs, values)


class FineTuningDirectory(RunDirectory):
    """The paths of a fine-tuning's ``--model_dir``; ``bert_tf.load`` takes it.

    | path              | contents, besides the paths of every run                          |
    |-------------------|-------------------------------------------------------------------|
    | task.json         | what ``bert_tf.predict`` needs: columns, lengths                  |
    | checkpoints/      | the weights of the best evaluation                                |
    | last/             | the whole state at the newest save, until the run has finished    |
    | dev/, test/, ...  | by set: predictions, a page of scores and errors                  |
    | skipped_rows.txt  | the bad rows that were left out                                   |
    | runs/             | of a sweep: a directory like this for each run                    |
    | README.md         | the model card, for people and model hubs                         |
    | results.tsv       | of a sweep: its table                                             |
    """

    def __init__(self, path: str, *, is_temporary: bool = False) -> None:
        super().__init__(path, is_temporary=is_temporary)
        self.states, self.best_weights = self.join("last"), self.checkpoints
        self.described.append(self.join("task.json"))
        self.skipped_rows, self.table = self.join("skipped_rows.txt"), self.join("results.tsv")
        self.runs, self.card = self.join("runs"), self.join("README.md")

    def has_checkpoint(self) -> bool:
        """True if the training, or one of a sweep, has saved anything."""
        if self.has_state() or saved_states.has_finished(self.best_weights):
            return True
        runs = tf.io.gfile.listdir(self.runs) if tf.io.gfile.isdir(self.runs) else ()
        below = [FineTuningDirectory(os.path.join(self.runs, name)) for name in runs]
        return any(run.has_progress() for run in below)

    def delete_state(self) -> None:
        """Deletes the training's state, which a finished run does not need."""
        saved_states.delete_all(self.states)


def _read(path: str) -> dict[str, Any]:
    """The object of a JSON file; {} without the file."""
    return read_json_object(path) if tf.io.gfile.exists(path) else {}


def fingerprint(value: Any) -> str:
    """A short hash of a JSON value, for ``RunDirectory.check_inputs``.

    >>> fingerprint({"a": 1}) == fingerprint({"a": 2})
    False
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _is_same_path(before: Any, now: Any) -> bool:
    """True if two values of a flag name the same local files."""
    resolved = []
    for value in (before, now):
        names = value if isinstance(value, list) else [value]
        local = [local_path(name) if isinstance(name, str) else None for name in names]
        resolved.append([name and os.path.realpath(name) for name in local])
    return resolved[0] == resolved[1] and all(resolved[0])


def is_unfinished(path: str) -> bool:
    """True if a model is what a run has kept that has not ended."""
    directory = RunDirectory(path)
    return tf.io.gfile.exists(directory.flags) and not directory.is_finished()
