"""Checkpoints that are written and hashed while the training goes on."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import keras
import tensorflow as tf

from . import checkpoints


class BackgroundSaving:
    """A context that saves checkpoints in a thread, one at a time.

    At its end, unless Ctrl-C ended it, the last one is on the disk. Until then memory holds the
    state twice, and the process does not end.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: list[Future[str]] = []

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
        at_same_step: bool = False,
    ) -> None:
        """Does what `checkpoints.save` does, and returns once the values are copied.

        A save before has to end first, and raises its OSError here; not one ``at_same_step``, whose
        values take no memory again.
        """
        if not at_same_step:
            self.wait()
        values = checkpoints.copy_values(variables)
        save = checkpoints.save_values
        self._pending.append(self._thread.submit(save, directory, step, values, extra, keep=keep))

    def wait(self) -> None:
        """Waits until the last save is on the disk, or raises an OSError of one, once."""
        pending, self._pending = self._pending, []
        for save in pending:
            save.result()
