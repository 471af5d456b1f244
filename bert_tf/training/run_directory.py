"""The model directory of a run: where things lie, what it was started with, one run at once."""

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.files import hold, is_temporary, read_json_object, remove, write_json
from bert_tf.paths import local_path
from bert_tf.wording import listed, one_line, quote, reason

from . import saved_states
from .progress import print_progress

_LOCK = ".lock"
# What a run keeps, and how a run of the same flags goes on. CHANGELOG has the promise.
_FORMAT = {"format_version": 5}
_CHANGES = "changes"
_MASKS = "masks"  # the way in which the newest steps drew dropout's


class RunDirectory:
    """The paths of a model directory, and the promises that hold across restarts.

    ``is_chief``: this process alone writes to the directory.
    """

    def __init__(self, path: str, *, is_chief: bool = True) -> None:
        self.path = path
        self.is_temporary = False  # gone after the run: nothing is named that comes next
        self._is_chief = is_chief
        self._made: list[str] = []
        # Every resolved setting of the run, and its changes.
        self.flags = os.path.join(path, "flags.json")
        # Fingerprints of the files that the run was started with.
        self.inputs = os.path.join(path, "inputs.json")
        # What makes a model of weights: class and casing, pieces, sizes.
        self.description = os.path.join(path, "model.json")
        self.vocabulary = os.path.join(path, "vocab.txt")
        self.config = os.path.join(path, "bert_config.json")
        self.described = [self.vocabulary, self.config]
        # The sample corpus, the corpus' index, unpacked copies.
        self.corpus = os.path.join(path, "corpus")
        self.checkpoints = os.path.join(path, "checkpoints")
        # The weights of the best evaluation, a model directory in itself.
        self.best = os.path.join(path, "best")
        self.logs = os.path.join(path, "logs")
        # The final evaluation; written last, so it says that the run is whole.
        self.results = os.path.join(path, "results.json")
        self.export = os.path.join(path, "export", "1")
        # Of an unfinished pre-training: which checkpoint was evaluated, or ended by a callback.
        self.progress = os.path.join(path, "progress.json")

    def check_place(self, inputs: Mapping[str, str | Sequence[str] | None]) -> None:
        """Checks that the directory holds nothing but a run's, before anything is written.

        Before the run has progress, no flag in ``inputs`` may name a path in it.
        """
        own = local_path(self.path)
        if own is not None and not self.has_progress():
            own = os.path.realpath(own)
            for flag, value in inputs.items():
                for path in [value] if isinstance(value, str) else value or ():
                    local = local_path(path)
                    if local is not None and f"{os.path.realpath(local)}/".startswith(f"{own}/"):
                        raise ValueError(
                            f"{flag}={path} is in --model_dir={self.path}, which is for what the "
                            "run writes: name another --model_dir."
                        )
        if tf.io.gfile.isdir(self.path):
            self._check_own()

    def _check_own(self) -> None:
        if tf.io.gfile.exists(self.flags):
            try:
                flags = read_json_object(self.flags)
            except ValueError:
                flags = {}
            is_own = flags.keys() >= _FORMAT.keys()
            strangers = [] if is_own else ["a flags.json of something else"]
        else:
            names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(self.path))
            strangers = [name for name in names if not (is_temporary(name) or name == _LOCK)]
        if strangers:
            raise ValueError(
                f"--model_dir={self.path} holds {listed(strangers, 3)}, which no run of this "
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
        self._made, place = [], os.path.abspath(local_path(self.path) or os.sep)
        while not os.path.exists(place):
            self._made.append(place)
            place = os.path.dirname(place)
        try:
            tf.io.gfile.makedirs(self.path)
        except tf.errors.OpError as error:
            raise ValueError(f"--model_dir={self.path} cannot be made: {reason(error)}.") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory for one process at a time, where its file system has locks.

        A process that fails before it wrote anything but its flags leaves nothing.
        """
        local = local_path(self.path)
        if local is None or not self._is_chief:
            yield
            return
        lock = os.path.join(local, _LOCK)
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
                hold(descriptor)
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
            is_begun = os.path.lexists(self.flags)
            try:
                yield
            except BaseException:
                if not is_begun:
                    self._remove_start(local)
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
                for path in self._made:
                    os.rmdir(path)

    def has_progress(self) -> bool:
        """True if there is anything that other settings would spoil: a checkpoint, or results."""
        return self.is_finished() or self.has_checkpoint()

    def is_finished(self) -> bool:
        """True if the run has written its results, which it does last."""
        return bool(tf.io.gfile.exists(self.results))

    def has_checkpoint(self) -> bool:
        """True if a checkpoint was saved to its end."""
        return saved_states.has_finished(self.checkpoints)

    def kept_flags(self) -> dict[str, Any]:
        """Contents of flags.json; empty without it. A ValueError: another version wrote it."""
        if not tf.io.gfile.exists(self.flags):
            return {}
        flags = read_json_object(self.flags)
        version = flags.get("format_version")
        if version != _FORMAT["format_version"]:
            raise ValueError(
                f"{self.flags} is of a run of format {quote(version)}, and this version of bert_tf "
                f"goes on with runs of format {_FORMAT['format_version']}: use the version that "
                f"began it, or name another --model_dir."
            )
        return flags

    def newest_step(self) -> int:
        """The step of the newest checkpoint, which a run with other settings goes on from."""
        newest = saved_states.find_latest(self.checkpoints)
        if newest is None:
            raise ValueError(
                f"{self.path} has no checkpoint to go on from with other settings: bring one back "
                "from a copy, or name another --model_dir."
            )
        return newest.step

    def keep_changes(self, step: int, values: Mapping[str, Any]) -> None:
        """Records new values of settings from a step on; a finished run is unfinished again."""
        recorded = self.kept_flags()
        changes = [
            {"step": step, "flag": name, "from": recorded.get(name), "to": value}
            for name, value in values.items()
        ]
        remove(self.results)  # first: a killed change is made again
        write_json(
            self.flags, {**recorded, **values, _CHANGES: [*recorded.get(_CHANGES, []), *changes]}
        )

    def keep_masks(self, masks: str, step: int) -> None:
        """Keeps how dropout's masks are drawn from a step on; prints a change, which is no flag."""
        recorded = self.kept_flags()
        before = recorded.get(_MASKS)
        if not (self._is_chief and recorded) or before == masks:
            return
        if before is None or step == 0:
            write_json(self.flags, {**recorded, _MASKS: masks})
            return
        self.keep_changes(step, {_MASKS: masks})
        print_progress(
            f"From step {step:,} on dropout's masks are drawn by {masks}, and not by {before}, as "
            "suits the device and --jit_compile: the run does not end as an unbroken one would."
        )

    def check_settings(
        self,
        settings: Mapping[str, Any],
        may_differ: frozenset[str] = frozenset(),
        paths: frozenset[str] = frozenset(),
        older: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[str]:
        """Keeps the settings of a start, and refuses others once the run has progress.

        A start that ended before its first checkpoint is forgotten, but for the corpus' copies and
        its index. A restart may change the settings in ``may_differ``. Those in ``paths`` name
        files that may have moved, and are returned where ``check_inputs`` is to compare them.
        ``older`` are settings that a run has which was begun before they were recorded.
        """
        # A tuple is read back as a list.
        recorded, current = {**older, **self.kept_flags()}, json.loads(json.dumps(dict(settings)))
        names = sorted({*recorded, *current} - may_differ - {*_FORMAT, _CHANGES, _MASKS})
        changed = [name for name in names if recorded.get(name) != current.get(name)]
        if self._is_chief and not (recorded and self.has_progress()):
            if recorded and changed:
                for path in (self.inputs, *self.described, self.description):
                    remove(path)
            if changed:
                write_json(self.flags, {**_FORMAT, **current})
            return []
        if not recorded:
            raise ValueError(
                f"--model_dir={self.path} is not where the chief keeps the run: name a directory "
                "that every worker sees."
            )
        moved: list[str] = []
        other: list[str] = []
        for name in changed:
            values = recorded.get(name), current.get(name)
            if name not in paths or not _is_same_place(*values):
                is_compared = name in paths and all(values) and bool(self._kept_inputs())
                (moved if is_compared else other).append(name)
        if other:
            differences = ", ".join(
                f"--{name}={current.get(name)} (was {recorded.get(name)})" for name in other
            )
            raise ValueError(
                f"{self.path} holds a run with other settings: {differences}. Start again with the "
                "same flags to go on with it, or name another --model_dir."
            )
        return moved

    def check_inputs(self, fingerprints: Mapping[str, str]) -> None:
        """Keeps what the files behind the flags held, and refuses others once there is progress."""
        recorded, has_progress = self._kept_inputs(), self.has_progress()
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

    def _kept_inputs(self) -> dict[str, Any]:
        return read_json_object(self.inputs) if tf.io.gfile.exists(self.inputs) else {}


def fingerprint(value: Any) -> str:
    """A short hash of a JSON value, for ``RunDirectory.check_inputs``.

    >>> fingerprint({"a": 1}) == fingerprint({"a": 2})
    False
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _is_same_place(before: Any, now: Any) -> bool:
    """True if two values of a flag name the same local files."""
    places = []
    for value in (before, now):
        names = value if isinstance(value, list) else [value]
        local = [local_path(name) if isinstance(name, str) else None for name in names]
        places.append([name and os.path.realpath(name) for name in local])
    return places[0] == places[1] and all(places[0])


def is_unfinished(path: str) -> bool:
    """True if a model is what a run has kept that has not ended."""
    directory = RunDirectory(path)
    return tf.io.gfile.exists(directory.flags) and not directory.is_finished()
