"""The model directory of a run: where things lie, what it was started with, one run at once."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.files import replace_whole


class RunDirectory:
    """The paths of a model directory, and the promises that hold across restarts.

    | path             | what                                                              |
    |------------------|-------------------------------------------------------------------|
    | flags.json       | every resolved setting of the run                                 |
    | corpus.json      | the fingerprint of the corpus that the run was started with       |
    | vocab.txt        | the vocabulary, one piece a line                                  |
    | bert_config.json | the model's sizes                                                 |
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

    def check_settings(
        self, settings: Mapping[str, Any], may_differ: frozenset[str] = frozenset()
    ) -> None:
        """Keeps the settings of the first start, and refuses a later one with others.

        Args:
            settings: JSON values by flag name.
            may_differ: names that a restart may change: hardware, logging, saving.

        Raises:
            ValueError: a setting outside ``may_differ`` is not the first start's; the message
                names each with both values.
        """
        if not tf.io.gfile.exists(self.flags):
            write_json(self.flags, dict(settings))
            return
        kept = read_json(self.flags)
        # Through JSON, so that a tuple equals the list that it was written as.
        current = json.loads(json.dumps(dict(settings)))
        changed = [
            f"--{name}={current.get(name)} (was {kept.get(name)})"
            for name in sorted({*kept, *current} - may_differ)
            if kept.get(name) != current.get(name)
        ]
        if changed:
            raise ValueError(
                f"{self.path} holds a run with other settings: {', '.join(changed)}. "
                "Start again with the same flags to go on with it, or name another --model_dir."
            )

    def check_corpus(self, fingerprint: str) -> None:
        """Keeps the fingerprint of the first start's corpus, and refuses a later one that differs.

        Raises:
            ValueError: the files of the corpus are not those that the run was started with.
        """
        path = os.path.join(self.path, "corpus.json")
        if not tf.io.gfile.exists(path):
            write_json(path, {"fingerprint": fingerprint})
        elif read_json(path)["fingerprint"] != fingerprint:
            raise ValueError(
                f"The corpus is not the one that the run in {self.path} was started with: put its "
                "files back to go on, or name another --model_dir."
            )


def write_json(path: str, value: Any) -> None:
    """Writes JSON so that the file appears whole or not at all."""
    with replace_whole(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


def read_json(path: str) -> Any:
    """Reads a JSON file.

    Raises:
        ValueError: the file is not JSON.
    """
    with tf.io.gfile.GFile(path, "r") as file:
        text = file.read()
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
