"""Keras callbacks, called by a training that is not ``fit`` as ``fit`` would call them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras


class Callbacks:
    """The callbacks of one training of a model, in epochs of ``steps_per_epoch`` steps.

    Steps and epochs are counted from 0, from the training's start, in a resumed one too. Without a
    callback no call does anything. ``stops`` says whether a callback has set
    ``model.stop_training``.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        *,
        steps_per_epoch: int,
        epochs: int,
    ) -> None:
        self._model = model
        self._steps = steps_per_epoch
        self._losses: list[float] = []
        self._epoch = -1
        self._list: keras.callbacks.CallbackList | None = None
        if callbacks:
            check_callbacks(callbacks)
            self._list = keras.callbacks.CallbackList(
                list(callbacks), model=model, epochs=epochs, steps=steps_per_epoch, verbose=0
            )

    @property
    def stops(self) -> bool:
        """True if the training is to end."""
        return self._list is not None and bool(self._model.stop_training)

    def begin(self) -> None:
        """Begins the training."""
        if self._list is not None:
            self._model.stop_training = False
            self._list.on_train_begin()

    def begin_step(self, step: int) -> None:
        """Begins a step, and its epoch where it is the first that is made of it."""
        if self._list is not None:
            epoch, place = divmod(step, self._steps)
            if epoch != self._epoch:
                self._epoch = epoch
                self._losses = []
                self._list.on_epoch_begin(epoch)
            self._list.on_train_batch_begin(place)

    def end_step(
        self,
        step: int,
        loss: float,
        *,
        steps: int = 1,
        others: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Ends a step with its loss.

        Where ``steps`` are reported together, loss and ``others`` are of all of them, and ``step``
        is the last.
        """
        if self._list is not None:
            self._losses += [loss] * steps
            self._list.on_train_batch_end(step % self._steps, {**others, "loss": loss})

    def begin_evaluation(self) -> None:
        """Begins an evaluation."""
        if self._list is not None:
            self._list.on_test_begin()

    def end_evaluation(self, scores: Mapping[str, float]) -> None:
        """Ends an evaluation with its scores."""
        if self._list is not None:
            self._list.on_test_end(dict(scores))

    def end_epoch(self, scores: Mapping[str, float]) -> None:
        """Ends an epoch: ``loss``, the mean of its steps, and each score as ``val_SCORE``."""
        if self._list is not None:
            losses = {"loss": sum(self._losses) / len(self._losses)} if self._losses else {}
            logs = {**losses, **{f"val_{name}": value for name, value in scores.items()}}
            self._list.on_epoch_end(self._epoch, logs)

    def end(self) -> None:
        """Ends the training."""
        if self._list is not None:
            self._list.on_train_end()


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuses what is no Keras callback."""
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(
                f"callbacks holds {callback!r:.60}: expected objects of keras.callbacks.Callback."
            )
