"""The order of every training: steps, what follows them, and how it ends.

After each call of the compiled steps come the figures, the callbacks, an evaluation and a save
where they are due, and the question whether someone asked to stop, which all workers answer alike.
"""

import abc
import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import Any, ClassVar, Protocol, Self

import keras

from bert_tf.io.wording import did_you_mean, listed, quote

from . import saved_states
from .distribution import Distribution
from .loop import BadStepError, Pace, StepResults, TrainingLoop
from .progress import Progress, Summaries, print_progress
from .run_directory import RunDirectory
from .saved_states import BackgroundSaving

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
    """Keras callbacks, called as ``fit`` would call them.

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
        self._list = keras.callbacks.Callback()  # does nothing
        if callbacks:
            check_callbacks(callbacks)
            _set_modes(callbacks, {"loss": "min", **{f"val_{n}": m for n, m in scores.items()}})
            self._list = keras.callbacks.CallbackList(
                list(callbacks), model=model, epochs=epochs, steps=steps_per_epoch, verbose=0
            )

    @property
    def stops(self) -> bool:
        """True if a callback has set ``model.stop_training``."""
        return bool(self._model.stop_training)

    def begin(self) -> None:
        """Begins the training."""
        self._model.stop_training = False
        self._list.on_train_begin()

    def begin_step(self, step: int) -> None:
        """Begins a step, and its epoch where it is the first that is made of it."""
        epoch, batch_index = divmod(step, self._steps)
        if epoch != self._epoch:
            self._epoch = epoch
            self._losses = []
            self._list.on_epoch_begin(epoch)
        self._list.on_train_batch_begin(batch_index)

    def end_step(
        self,
        step: int,
        loss: float,
        *,
        steps: int = 1,
        others: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Ends a step with its loss, or the last of ``steps`` with the loss of all of them."""
        self._losses += [loss] * steps
        self._list.on_train_batch_end(step % self._steps, {**others, "loss": loss})

    def begin_evaluation(self) -> None:
        """Begins an evaluation."""
        self._list.on_test_begin()

    def end_evaluation(self, scores: Mapping[str, float]) -> None:
        """Ends an evaluation with its scores."""
        self._list.on_test_end(dict(scores))

    def end_epoch(self, scores: Mapping[str, float]) -> None:
        """Ends an epoch: ``loss``, the mean of its steps, and each score as ``val_SCORE``."""
        losses = {"loss": sum(self._losses) / len(self._losses)} if self._losses else {}
        logs = {**losses, **{f"val_{name}": value for name, value in scores.items()}}
        self._list.on_epoch_end(self._epoch, logs)

    def end(self) -> None:
        """Ends the training."""
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


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a training needs; pre-training and fine-tuning add their data and their start.

    ``callbacks`` are Keras callbacks.
    """

    settings: Any
    directory: RunDirectory
    devices: Distribution
    callbacks: Sequence[Any]


class State(Protocol):
    """What a training saves as JSON, next to the loop's variables."""

    def to_json(self) -> dict[str, Any]:
        """Form that ``from_json`` reads."""

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Reads what ``to_json`` gave."""


class Trainer(abc.ABC):
    """A training of a run: stopped and resumed it ends as one that was not, bit for bit.

    Of several workers the chief writes. A subclass makes the ``loop`` and the ``callbacks``, has a
    ``state`` besides the loop's variables, and says what is evaluated and shown. An epoch, of
    ``steps_per_epoch`` steps, ends with a save and an evaluation.

    Args:
        inputs: the settings, the directory, the devices.
        save_seconds: time after which a state is saved within an epoch, too.
        num_states: number of saved states to keep; 0 saves none.
    """

    loop: TrainingLoop
    callbacks: Callbacks
    state: State
    steps_per_epoch: int
    # Whether every call makes one step.
    single_step_calls = False
    # What a line calls the state that a training continues from, up to its step.
    saved: ClassVar[str]
    # Whether callbacks get all figures of a step, or its loss alone.
    logs_figures: ClassVar[bool]

    def __init__(self, inputs: Inputs, *, save_seconds: float, num_states: int) -> None:
        self.settings, self.directory = inputs.settings, inputs.directory
        self.devices, self.workers = inputs.devices, inputs.devices.workers
        self.background = BackgroundSaving()
        self.interruption = Interruption()
        self.summaries = Summaries(self.directory.logs if self.workers.is_chief else None)
        self._num_states = num_states if self.workers.is_chief else 0
        self._saved_step, self._saved_at = -1, time.monotonic()
        self._save_seconds = save_seconds

    @property
    def step(self) -> int:
        """Number of steps done."""
        return self.loop.step

    # --- Saved states ----------------------------------------------------------------------------

    def save(self) -> None:
        """Saves all that going on needs, once for each step."""
        if self._num_states and self.step != self._saved_step:
            variables, state = self.loop.state(), self.state.to_json()
            states, keep = self.directory.states, self._num_states
            self.background.save(states, self.step, variables, state, keep=keep)
        self.summaries.flush()
        self._saved_step, self._saved_at = self.step, time.monotonic()

    def restore(self) -> bool:
        """Restores the newest saved state and says so; returns whether there is one."""
        restored = saved_states.restore_latest(self.directory.states, self.loop.state())
        self.workers.check_same(self.step, "newest checkpoint in --model_dir")
        if restored is None:
            return False
        for warning in restored.warnings:
            print_progress(warning)
        self.state = self.state.from_json(restored.extra)
        self._saved_step = self.step
        if not self.has_ended():
            print_progress(f"Continuing from the {self.saved} step {self.step:,}.", flush=True)
        return True

    # --- Steps -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def batches(self) -> Iterator[Any]:
        """The batches from here on, for the loop."""

    def next_pause(self) -> int:
        """The next step that may be followed by a save or an evaluation."""
        return (self.step // self.steps_per_epoch + 1) * self.steps_per_epoch

    @property
    @abc.abstractmethod
    def last_step(self) -> int:
        """The step up to which ``train`` trains."""

    def is_epochs_end(self) -> bool:
        """True if the newest step was an epoch's last, or the training's."""
        return self.step % self.steps_per_epoch == 0 or self.step == self.last_step

    def is_evaluation_due(self) -> bool:
        """True if the newest step is to be followed by an evaluation."""
        return self.is_epochs_end() or self.callbacks.stops

    def is_save_due(self) -> bool:
        """True if the newest step is to be followed by a save."""
        seconds = time.monotonic() - self._saved_at
        asked = self.interruption.requested or self.callbacks.stops
        return self.is_epochs_end() or asked or seconds >= self._save_seconds

    @abc.abstractmethod
    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Saves and evaluates what is due; ``stops``: a signal asked to, ``ends``: a callback."""

    @abc.abstractmethod
    def take(
        self, results: StepResults, seconds: float | None
    ) -> tuple[dict[str, float], int, int]:
        """Takes the results of some steps: figures with the ``loss``, tokens and examples."""

    @abc.abstractmethod
    def labels(self, figures: Mapping[str, float]) -> dict[str, str]:
        """What of the figures is shown while the training runs, by its label."""

    def note(self, progress: Progress, results: StepResults, seconds: float | None) -> None:
        """Shows the results of some steps, and writes them for TensorBoard.

        ``seconds`` are those of the steps, ``None`` for the first ones, which are mostly tracing.
        """
        figures, tokens, examples = self.take(results, seconds)
        figures |= {"gradient_norm": results.gradient_norm, "learning_rate": results.learning_rate}
        if seconds is not None:
            devices = self.loop.strategy.num_replicas_in_sync
            figures |= results.speed(
                seconds=seconds, tokens=tokens, examples=examples, devices=devices
            )
        progress.update(results.step, self.labels(figures))
        self.summaries.write("train", results.step, figures)
        others = figures if self.logs_figures else {}
        steps = len(results.losses)
        self.callbacks.end_step(results.step - 1, figures["loss"], steps=steps, others=others)

    @abc.abstractmethod
    def remedy(self, error: BadStepError) -> Exception:
        """The error that says what is to be done about a bad step."""

    def has_ended(self) -> bool:
        """True if no step is to follow, whatever was planned."""
        return False

    def note_end(self) -> None:
        """Keeps that a callback ended the training here, where that has to be kept."""
        return

    def train(self, label: str) -> bool:
        """Trains up to the last step; returns whether a callback ended the training.

        Raises:
            KeyboardInterrupt: a signal asked to stop; all is saved.
        """
        iterator, last_step = self.batches(), self.last_step
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
                progress.write(f"First step made: {seconds:.1f} s, most of it to compile.")
            self.note(progress, results, seconds if compiled else None)
            if compiled and not self.single_step_calls:
                pace.note(steps, seconds)
            compiled = True
            # All workers stop if one is asked to; the chief decides the number of the next steps.
            mine = (
                self.interruption.requested,
                self.callbacks.stops,
                self.is_evaluation_due() or self.is_save_due(),
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
        if not self.directory.is_temporary:
            print_progress(f"Stopped at step {self.step:,}. The same command goes on from there.")
        raise KeyboardInterrupt
