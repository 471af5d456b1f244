"""The model directory of a run: where things lie, what it was started with, one run at once."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.files import read_json, write_json


class RunDirectory:
    """The paths of a model directory, and the promises that hold across restarts.

    | path             | what                                                              |
    |------------------|-------------------------------------------------------------------|
    | flags.json       | every resolved setting of the run                                 |
    | inputs.json      | fingerprints of the files that the run was started with           |
    | vocab.txt        | the vocabulary, one piece a line                                  |
    | bert_config.json | the model's sizes                                                 |
    | model.json       | the model's class and its casing, for ``bert_tf.load``            |
    | corpus/          | the sample corpus, the corpus' index, unpacked copies             |
    | checkpoints/     | the newest checkpoints, each with its manifest                    |
    | logs/            | TensorBoard's event files                                         |
    | results.json     | the final evaluation; written last, so it says the run is whole   |
    | export/1         | the SavedModel                                                    |

    Args:
        path: the model directory, local or on any file system that TensorFlow reads.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.flags = os.path.join(path, "flags.json")
        self.vocabulary = os.path.join(path, "vocab.txt")
        self.config = os.path.join(path, "bert_config.json")
        self.description = os.path.join(path, "model.json")
        self.inputs = os.path.join(path, "inputs.json")
        self.corpus = os.path.join(path, "corpus")
        self.checkpoints = os.path.join(path, "checkpoints")
        self.logs = os.path.join(path, "logs")
        self.results = os.path.join(path, "results.json")
        self.export = os.path.join(path, "export", "1")

    def create(self) -> None:
        """Makes the directory where it is not there yet.

        Raises:
            ValueError: the path is a file, or cannot be made.
        """
        if tf.io.gfile.exists(self.path) and not tf.io.gfile.isdir(self.path):
            raise ValueError(
                f"--model_dir={self.path} is a file: name a directory, or one yet to be made."
            )
        try:
            tf.io.gfile.makedirs(self.path)
        except tf.errors.OpError as error:
            raise ValueError(f"--model_dir={self.path} cannot be made: {error.message}.") from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory for one process at a time; a killed process lets go of it.

        Remote file systems have no such lock, and go without.

        Raises:
            ValueError: another process holds it.
        """
        if "://" in self.path:
            yield
            return
        import fcntl  # only where processes lock local files

        with open(os.path.join(self.path, ".lock"), "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise ValueError(
                    f"{self.path} is in use by a run of process {file.read().strip() or '?'}: "
                    "wait for it, or name another --model_dir."
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def has_progress(self) -> bool:
        """Whether there is anything that other settings would spoil: a checkpoint, or results."""
        return tf.io.gfile.exists(self.results) or self.has_checkpoint()

    def has_checkpoint(self) -> bool:
        """Whether a checkpoint was begun."""
        return bool(tf.io.gfile.glob(os.path.join(self.checkpoints, "step-*")))

    def check_settings(
        self, settings: Mapping[str, Any], may_differ: frozenset[str] = frozenset()
    ) -> None:
        """Keeps the settings of a start, and refuses others once the run has got anywhere.

        A start that ended before its first checkpoint is forgotten: its vocabulary, its config and
        what it said of its inputs go. The corpus' copies and its index stay.

        Args:
            settings: JSON values by flag name.
            may_differ: names that a restart may change: hardware, logging, saving.

        Raises:
            ValueError: a setting outside ``may_differ`` is not the first start's; the message
                names each with both values.
        """
        kept, current = self._kept(self.flags), _through_json(settings)
        changed = sorted(
            name for name in {*kept, *current} - may_differ if kept.get(name) != current.get(name)
        )
        if not kept or (changed and not self.has_progress()):
            for path in (self.inputs, self.vocabulary, self.config, self.description):
                if tf.io.gfile.exists(path):
                    tf.io.gfile.remove(path)
            write_json(self.flags, current)
        elif changed:
            differences = ", ".join(
                f"--{name}={current.get(name)} (was {kept.get(name)})" for name in changed
            )
            raise ValueError(
                f"{self.path} holds a run with other settings: {differences}. "
                "Start again with the same flags to go on with it, or name another --model_dir."
            )

    def check_inputs(self, fingerprints: Mapping[str, str]) -> None:
        """Keeps what the files behind the flags held, and refuses others once the run got anywhere.

        Args:
            fingerprints: by flag, ``--vocab_file`` for example.

        Raises:
            ValueError: a file's contents are not those that the run was started with.
        """
        kept = self._kept(self.inputs)
        changed = sorted(
            name for name, value in fingerprints.items() if kept.get(name, value) != value
        )
        if changed and self.has_progress():
            raise ValueError(
                f"What {' and '.join(changed)} read is not what the run in {self.path} was started "
                "with: bring the files back to go on, or name another --model_dir."
            )
        write_json(self.inputs, dict(fingerprints))

    @staticmethod
    def _kept(path: str) -> dict[str, Any]:
        return read_json(path) if tf.io.gfile.exists(path) else {}


def fingerprint(value: Any) -> str:
    """A short hash of a JSON value, for ``RunDirectory.check_inputs``.

    >>> fingerprint({"a": 1}) == fingerprint({"a": 2})
    False
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _through_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    # A tuple is read back as a list.
    return json.loads(json.dumps(dict(settings)))
