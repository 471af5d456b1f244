"""Base class of trainers: steps, callbacks, evaluations, checkpoints and interruption.

After each call of the compiled steps, the workers agree whether to evaluate, save or stop.
"""

import abc
import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import Any, ClassVar, Self

import keras

from bert_tf.io.messages import did_you_mean, listed, quote

from . import saved_states
from .distribution import Distribution
from .loop import BadStepError, Pace, StepResults, TrainingLoop
from .progress import Progress, Summaries, print_progress
from .run_directory import RunDirectory
from .saved_states import BackgroundSaving

_SETS_LEARNING_RATE = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)
# Processes receive SIGTERM before a cloud machine is preempted.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Context that records the first SIGINT or SIGTERM; a second one interrupts immediately.

    Only the main thread records signals, because Python does not handle them in other threads.

    >>> with Interruption() as interruption:
    ...     interruption.requested
    False
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        self._handlers = {n: signal.getsignal(n) for n in (_SIGNALS if is_main else ())}
        for number in self._handlers:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            previous = self._handlers[signal.Signals(number)]
            if callable(previous):  # The command's handler also records the interruption.
                previous(number, frame)
            raise KeyboardInterrupt
        self.requested = True
        print(
            "\nStopping after the current steps to save a checkpoint. Interrupt again to stop "
            "immediately; saved checkpoints are kept.",
            file=sys.stderr,
            flush=True,
        )


class Callbacks:
    """Calls Keras callbacks as ``fit`` does.

    Steps and epochs are numbered from 0 at the start of training, also in a resumed run. ``scores``
    maps the names of scores to Keras' ``mode``, "min" or "max". Trainers call ``hooks`` directly
    for events whose logs need no preparation: evaluations and the end of training.
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
        self.hooks = keras.callbacks.Callback()  # does nothing
        if callbacks:
            check_callbacks(callbacks)
            _set_modes(callbacks, {"loss": "min", **{f"val_{n}": m for n, m in scores.items()}})
            self.hooks = keras.callbacks.CallbackList(
                list(callbacks), model=model, epochs=epochs, steps=steps_per_epoch, verbose=0
            )

    @property
    def stops(self) -> bool:
        """Whether a callback has set ``model.stop_training``."""
        return bool(self._model.stop_training)

    def begin(self) -> None:
        """Reports the start of training to the callbacks."""
        self._model.stop_training = False
        self.hooks.on_train_begin()

    def begin_step(self, step: int) -> None:
        """Reports the start of a step, and of its epoch unless that was already reported."""
        epoch, batch_index = divmod(step, self._steps)
        if epoch != self._epoch:
            self._epoch = epoch
            self._losses = []
            self.hooks.on_epoch_begin(epoch)
        self.hooks.on_train_batch_begin(batch_index)

    def end_step(
        self,
        step: int,
        loss: float,
        *,
        steps: int = 1,
        logs: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Reports the end of one or more steps, with their mean loss and other logged values."""
        self._losses += [loss] * steps
        self.hooks.on_train_batch_end(step % self._steps, {**logs, "loss": loss})

    def end_epoch(self, scores: Mapping[str, float]) -> None:
        """Reports the end of an epoch, with the mean ``loss`` and the scores as ``val_SCORE``."""
        losses = {"loss": sum(self._losses) / len(self._losses)} if self._losses else {}
        logs = {**losses, **{f"val_{name}": value for name, value in scores.items()}}
        self.hooks.on_epoch_end(self._epoch, logs)


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Rejects objects that are not Keras callbacks, and callbacks that set the learning rate."""
    for callback in callbacks:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(
                f"callbacks: expected keras.callbacks.Callback objects, got {callback!r:.60}."
            )
        if isinstance(callback, _SETS_LEARNING_RATE):
            raise ValueError(
                f"callbacks contains {type(callback).__name__}, but the learning rate follows the "
                "run's schedule. Remove the callback, and set the schedule with the flags."
            )


def _set_modes(callbacks: Sequence[Any], modes: Mapping[str, str]) -> None:
    """Replaces the mode "auto" of callbacks that monitor a value in the epoch logs.

    Keras would infer the mode from metrics, but these models are compiled without metrics.

    Raises:
        ValueError: If the logs will not contain a monitored value, or its mode is unknown.
    """
    adds_logs = False
    for callback in callbacks:
        monitor, mode = getattr(callback, "monitor", None), getattr(callback, "mode", None)
        if isinstance(monitor, str) and monitor in modes:
            if mode == "auto":
                callback.mode = modes[monitor]
        elif isinstance(monitor, str) and (
            # A callback that saves every epoch ignores the default monitor.
            getattr(callback, "save_best_only", True) or monitor != "val_loss"
        ):
            name = f"monitor={quote(monitor)} of {type(callback).__name__}"
            if not adds_logs and getattr(callback, "save_freq", "epoch") == "epoch":
                raise ValueError(
                    f"{name}: expected one of {listed(modes)}, got an unknown name"
                    f"{did_you_mean(monitor, modes)}. Pass one of these names."
                )
            if mode == "auto":
                raise ValueError(
                    f"{name}: cannot infer whether higher values are better. Pass mode='min' or "
                    "'max'."
                )
        # Callbacks share the logs, so a custom callback may add values for later callbacks.
        is_of_keras = type(callback).__module__.partition(".")[0] == "keras"
        adds_logs |= not is_of_keras or isinstance(callback, keras.callbacks.LambdaCallback)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Inputs of a training run; subclasses add data and initial weights.

    ``callbacks`` contains Keras callbacks.
    """

    settings: Any
    directory: RunDirectory
    devices: Distribution
    callbacks: Sequence[Any]


class Trainer(abc.ABC):
    """Base class of trainers. A resumed run has bit-for-bit the results of an uninterrupted run.

    Only the chief writes files. Subclasses create ``loop``, ``callbacks`` and ``state``, and define
    the evaluation and the displayed values. A checkpoint contains the variables of the loop, and
    ``state.to_json()``, from which ``state.from_json`` restores the state. Each epoch of
    ``steps_per_epoch`` steps ends with an evaluation and a checkpoint.

    Args:
        inputs: Settings, directory, devices and callbacks.
        save_seconds: Maximum number of seconds between checkpoints within an epoch.
        num_states: Number of checkpoints to keep; 0 saves none.
    """

    loop: TrainingLoop
    callbacks: Callbacks
    state: Any
    steps_per_epoch: int
    # Whether each call of the loop runs a single step.
    single_step_calls = False
    # Description of the saved state in the message that is printed when a run resumes.
    saved: ClassVar[str]
    # Whether the logs of callbacks contain all values of a step, not only the loss.
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
        """Number of finished steps."""
        return self.loop.step

    # --- Saved states ----------------------------------------------------------------------------

    def save(self) -> None:
        """Saves the state, unless it is already saved for this step."""
        if self._num_states and self.step != self._saved_step:
            variables, state = self.loop.state(), self.state.to_json()
            states, keep = self.directory.states, self._num_states
            self.background.save(states, self.step, variables, state, keep=keep)
        self.summaries.flush()
        self._saved_step, self._saved_at = self.step, time.monotonic()

    def restore(self) -> bool:
        """Restores the newest saved state, if any; returns whether there is one."""
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
        """Returns the remaining batches."""

    def next_pause(self) -> int:
        """Returns the next step after which a checkpoint or an evaluation may be due."""
        return (self.step // self.steps_per_epoch + 1) * self.steps_per_epoch

    @property
    @abc.abstractmethod
    def last_step(self) -> int:
        """Step at which ``train`` ends."""

    def is_epochs_end(self) -> bool:
        """Returns whether an epoch or training as a whole ends at the current step."""
        return self.step % self.steps_per_epoch == 0 or self.step == self.last_step

    def is_evaluation_due(self) -> bool:
        """Returns whether an evaluation is due."""
        return self.is_epochs_end() or self.callbacks.stops

    def is_save_due(self) -> bool:
        """Returns whether a checkpoint is due."""
        seconds = time.monotonic() - self._saved_at
        stops = self.interruption.requested or self.callbacks.stops
        return self.is_epochs_end() or stops or seconds >= self._save_seconds

    @abc.abstractmethod
    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Saves and evaluates if due.

        ``stops`` is true if a signal stops the run; ``ends`` is true if a callback ends training.
        """

    @abc.abstractmethod
    def take(
        self, results: StepResults, seconds: float | None
    ) -> tuple[dict[str, float], int, int]:
        """Records results; returns values including ``loss``, and counts of tokens and examples."""

    @abc.abstractmethod
    def labels(self, figures: Mapping[str, float]) -> dict[str, str]:
        """Returns the displayed values by label."""

    def note(self, progress: Progress, results: StepResults, seconds: float | None) -> None:
        """Displays the results of some steps, and writes them for TensorBoard.

        ``seconds`` is the steps' duration, or ``None`` for the first call, which is mostly tracing.
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
        logs = figures if self.logs_figures else {}
        steps = len(results.losses)
        self.callbacks.end_step(results.step - 1, figures["loss"], steps=steps, logs=logs)

    @abc.abstractmethod
    def remedy(self, error: BadStepError) -> Exception:
        """Returns the error to raise for a bad step, with a remedy in its message."""

    def has_ended(self) -> bool:
        """Returns whether training has ended before ``last_step``."""
        return False

    def note_end(self) -> None:
        """Records that a callback ended training."""
        return

    def train(self, label: str) -> bool:
        """Trains up to the last step; returns whether a callback ended training early.

        Raises:
            KeyboardInterrupt: If a signal stopped training; the state is saved.
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
                progress.write(f"First step: {seconds:.1f} s, mostly compilation.")
            self.note(progress, results, seconds if compiled else None)
            if compiled and not self.single_step_calls:
                pace.note(steps, seconds)
            compiled = True
            # All workers stop if one receives a signal. The chief chooses the number of steps.
            mine = (
                self.interruption.requested,
                self.callbacks.stops,
                self.is_evaluation_due() or self.is_save_due(),
                pace.steps,
            )
            requests, stopping, pauses, paces = self.workers.gather(mine).T
            pace.steps = int(paces[0])
            # Later signals are handled after the pause or in the next iteration.
            stops, ends = bool(requests.any()), bool(stopping.any())
            if stops or ends or pauses[0]:
                self.pause(progress, stops, ends)
                # Meanwhile, a callback may have ended training, or a signal may have arrived.
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
            print_progress(f"Stopped at step {self.step:,}. Rerun the same command to resume.")
        raise KeyboardInterrupt
