"""TensorBoard's curves of a run: one folder for the training, one for the evaluations."""

import os
from collections.abc import Mapping

import tensorflow as tf


class Summaries:
    """Writes scalars under ``logs/train`` and ``logs/eval``.

    Args:
        directory: the run's ``logs`` folder; ``tensorboard --logdir`` takes it.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def write(self, group: str, step: int, figures: Mapping[str, float]) -> None:
        """Writes each figure of a group (``train`` or ``eval``) at a global step."""
        if group not in self._writers:
            self._writers[group] = tf.summary.create_file_writer(
                os.path.join(self._directory, group)
            )
        writer = self._writers[group]
        with writer.as_default(step):
            for name, value in figures.items():
                tf.summary.scalar(name, value)
        # A run may be killed at any instant: what was shown is on disk.
        writer.flush()
