"""The figures of a run over its steps, for TensorBoard."""

import os
import time
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.paths import local_path

# An object store takes all of a file again each time something is added to it.
_REMOTE_SECONDS = 60.0


class Summaries:
    """Writes scalars under ``train`` and ``eval`` of a run's ``logs`` folder, for TensorBoard."""

    def __init__(self, directory: str | None) -> None:
        """Without a directory nothing is written."""
        self._directory = directory
        is_local = directory is None or local_path(directory) is not None
        self._seconds = 0.0 if is_local else _REMOTE_SECONDS
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._waiting: dict[str, list[tuple[int, Mapping[str, float]]]] = {}
        self._written_at = time.monotonic()

    def write(self, group: str, step: int, figures: Mapping[str, float]) -> None:
        """Takes each figure of a group (``train`` or ``eval``) at a global step.

        A run may be killed at any instant, so that on a local disk it is written at once.
        """
        self._waiting.setdefault(group, []).append((step, dict(figures)))
        if time.monotonic() - self._written_at >= self._seconds:
            self.flush()

    def flush(self) -> None:
        """Writes what waits."""
        for group, waiting in self._waiting.items():
            if self._directory is None:
                continue
            if group not in self._writers:
                folder = os.path.join(self._directory, group)
                self._writers[group] = tf.summary.create_file_writer(folder, max_queue=10_000)
            # The end of the block flushes.
            with self._writers[group].as_default():
                for step, figures in waiting:
                    for name, value in figures.items():
                        tf.summary.scalar(name, value, step=step)
        self._waiting = {}
        self._written_at = time.monotonic()
