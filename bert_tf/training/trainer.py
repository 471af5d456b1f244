"""The order of every training: steps, what follows them, and how it ends.

After each call of the compiled steps come the figures, the callbacks, an evaluation and a save
where they are due, and the question whether someone asked to stop, which all workers answer alike.
"""

import abc
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import Any, Self

import keras

from bert_tf.wording import did_you_mean, listed, quote

from .loop import BadStepError, Pace, StepResults, TrainingLoop
from .progress import Progress, print_progress
from .saved_states import BackgroundSaving
from .workers.agreement import Workers

_SETS_LEARNING_RATE = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)
# SIGTERM is what a preempted cloud machine sends before it goes away.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A context in which a first signal is noted, and a second one interrupts at once.

    Outside of a process' main thread Python notes no signals.

    >>> with Interruption() as interruption:
    ...     interruption.requested
    False
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        self._before = {n: signal.getsignal(n) for n in (_SIGNALS if is_main else ())}
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print(
            "\nStopping after the steps in progress, to keep a checkpoint. "
            "Once more stops at once; nothing that is saved is lost either way.",
            file=sys.stderr,
            flush=True,
        )


class Callbacks:
    """Keras callbacks, called as ``fit`` would call them; without any no call does anything.

    Steps and epochs are counted from 0, from the training's start, in a resumed one too. ``scores``
    maps the names of an evaluation's scores to the ``mode`` of Keras, "min" or "max".
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        *,
        steps_per_epoch: int,
        epochs: int,
        scores: Mapping[str, str],
    ) -> None:
        self._model = model
        self._steps = steps_per_epoch
        self._losses: list[float] = []
        self._epoch = -1
        self._list: keras.callbacks.CallbackList | None = None
        if callbacks:
            check_callbacks(callbacks)
            _set_modes(callbacks, {"loss": "min", **{f"val_{n}": m for n, m in scores.items()}})
            self._list = keras.callbacks.CallbackList(
                list(callbacks), model=model, epochs=epochs, steps=steps_per_epoch, verbose=0
            )

    @property
    def stops(self) -> bool:
        """True if a callback has set ``model.stop_training``."""
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
        """Ends a step with its loss, or the last of ``steps`` with the loss of all of them."""
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
    """Rejects objects that are not Keras callbacks, and callbacks that set the learning rate."""
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(
                f"callbacks holds {callback!r:.60}: expected objects of keras.callbacks.Callback."
            )
        if isinstance(callback, _SETS_LEARNING_RATE):
            raise ValueError(
                f"callbacks contains {type(callback).__name__}, but the learning rate follows the "
                "schedule of the run. Remove the callback, and set the schedule by the flags."
            )


def _set_modes(callbacks: Sequence[Any], modes: Mapping[str, str]) -> None:
    """Sets the automatic modes of callbacks that monitor a value of an epoch's logs.

    Keras infers a mode from compiled metrics, which this training does not have.

    Raises:
        ValueError: If the logs will not contain a monitored value.
    """
    adds_logs = False
    for callback in callbacks:
        monitor, mode = getattr(callback, "monitor", None), getattr(callback, "mode", None)
        if isinstance(monitor, str) and monitor in modes:
            if mode == "auto":
                callback.mode = modes[monitor]
        elif isinstance(monitor, str) and not _is_unused(callback):
            name = f"monitor={quote(monitor)} of {type(callback).__name__}"
            if not adds_logs and getattr(callback, "save_freq", "epoch") == "epoch":
                raise ValueError(
                    f"{name}: expected one of {listed(modes)}, got an unknown name"
                    f"{did_you_mean(monitor, modes)}. Pass one of these names."
                )
            if mode == "auto":
                raise ValueError(f"{name}: its direction is unknown. Pass mode='min' or 'max'.")
        # Callbacks share the logs, and one of the user's own may add values for those after it.
        is_of_keras = type(callback).__module__.partition(".")[0] == "keras"
        adds_logs |= not is_of_keras or isinstance(callback, keras.callbacks.LambdaCallback)


def _is_unused(callback: Any) -> bool:
    """Whether a callback that saves each epoch has the default ``monitor``."""
    return not getattr(callback, "save_best_only", True) and callback.monitor == "val_loss"


class Trainer(abc.ABC):
    """A training, inside its ``interruption`` and ``background``; a subclass has its own stages.

    ``is_temporary``: nothing is left to go on from.
    """

    loop: TrainingLoop
    callbacks: Callbacks

    def __init__(self, workers: Workers | None = None, *, is_temporary: bool = False) -> None:
        self.background = BackgroundSaving()
        self.interruption = Interruption()
        self.workers = workers or Workers()
        self.is_temporary = is_temporary

    @property
    @abc.abstractmethod
    def step(self) -> int:
        """Number of steps done."""

    @abc.abstractmethod
    def batches(self) -> Iterator[Any]:
        """The batches from here on, for the loop."""

    @abc.abstractmethod
    def next_pause(self) -> int:
        """The next step that may be followed by a save or an evaluation."""

    @abc.abstractmethod
    def is_pause_due(self) -> bool:
        """True if a save or an evaluation follows the newest step."""

    @abc.abstractmethod
    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Saves and evaluates what is due; ``stops``: a signal asked to, ``ends``: a callback."""

    @abc.abstractmethod
    def note(self, progress: Progress, results: StepResults, seconds: float | None) -> None:
        """Shows the results of some steps; their speed, too, if ``seconds`` are given."""

    @abc.abstractmethod
    def remedy(self, error: BadStepError) -> Exception:
        """The error that says what is to be done about a bad step."""

    def has_ended(self) -> bool:
        """True if no step is to follow, whatever was planned."""
        return False

    def note_end(self) -> None:
        """Keeps that a callback ended the training here, where that has to be kept."""
        return

    def train(self, label: str, last_step: int, single: bool = False) -> bool:
        """Trains up to a step; returns whether a callback ended the training.

        ``single``: every call makes one step.

        Raises:
            KeyboardInterrupt: a signal asked to stop; all is saved.
        """
        iterator = self.batches()
        progress = Progress(label, last_step, "steps", self.step)
        pace, compiled, ends = Pace(), False, False
        while self.step < last_step and not (ends or self.has_ended()):
            steps = min(pace.steps, last_step - self.step, self.next_pause() - self.step)
            self.callbacks.begin_step(self.step)
            began = time.monotonic()
            try:
                results = self.loop.make(iterator, steps)
            except BadStepError as error:
                raise self.remedy(error) from error
            seconds = time.monotonic() - began
            if not compiled:
                progress.say(f"First step made: {seconds:.1f} s, most of it to compile.")
            self.note(progress, results, seconds if compiled else None)
            if compiled and not single:
                pace.note(steps, seconds)
            compiled = True
            # All workers stop if one is asked to; the chief decides the number of the next steps.
            mine = (
                self.interruption.requested,
                self.callbacks.stops,
                self.is_pause_due(),
                pace.steps,
            )
            requests, stopping, pauses, paces = self.workers.gather(mine).T
            pace.steps = int(paces[0])
            # A signal that comes from here on is looked at behind the pause, or the next time: all
            # do the same till then.
            stops, ends = bool(requests.any()), bool(stopping.any())
            if stops or ends or pauses[0]:
                self.pause(progress, stops, ends)
                # A callback may end the training when it hears of the evaluation, and someone may
                # have asked to stop in the meantime.
                requests, stopping = self.workers.gather(
                    [self.interruption.requested, self.callbacks.stops]
                ).T
                ends = bool(stopping.any())
                if requests.any() and not stops:
                    self.pause(progress, True, ends)
                stops = stops or bool(requests.any())
                if ends:
                    self.note_end()
            if stops:
                progress.close()
                self._stop()
        progress.close()
        return ends

    def _stop(self) -> None:
        self.background.wait()
        self.workers.leave()
        if not self.is_temporary:
            print_progress(f"Stopped at step {self.step:,}. The same command goes on from there.")
        raise KeyboardInterrupt
