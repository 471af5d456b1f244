"""One training: ``compile`` and ``fit`` on one device, evaluated, saved, resumed exactly.

A loss that is no number, or does not fall, and a model with one answer only are found here.
"""

import collections
import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.modeling.dropout import seed_variables
from bert_tf.pipelines.length_buckets import Examples
from bert_tf.training import checkpoints
from bert_tf.training.optimizers import create_optimizer
from bert_tf.training.progress import Interruption, Progress, Summaries
from bert_tf.training.schedules import WarmupLinearDecay

from .model import device_type
from .results import evaluation_line
from .run_directory import FineTuningDirectory
from .settings import FineTuningSettings
from .task import Inference, Task

_CLIP_NORM = 1.0
_REPORT_SECONDS = 1.0
_SHOWN_STEPS = 20  # the loss of a step or two says little
# On a CPU ragged batches cost nothing; elsewhere each new length is compiled for.
_LENGTH_MULTIPLE = {"CPU": 1, "GPU": 16}
_TENTHS = 10
# With fewer steps a tenth of them is a batch or two, and says nothing.
_FEWEST_STEPS = 50
_LEAST_FALL = 0.02


class Training:
    """A model in training, by ``fit``.

    Batches, order, dropout and so the weights are functions of the settings alone: a training that
    was stopped at any step and goes on ends as one that was not, bit for bit.

    Args:
        settings: rate, batch size, epochs and so on.
        task: gives the loss and evaluates.
        inference: the model, built, with the weights to start from, which is compiled here; and
            how it is evaluated.
        examples: to train on.
        directory: where the best weights and the last state go.
    """

    def __init__(
        self,
        settings: FineTuningSettings,
        task: Task,
        inference: Inference,
        examples: Examples,
        directory: FineTuningDirectory,
    ) -> None:
        self.settings = settings
        self.task = task
        self.model = model = inference.model
        self.inference = inference
        self.examples = examples
        self.directory = directory
        self.interruption = Interruption()
        self._summaries = Summaries(directory.logs)
        self.steps_per_epoch = examples.num_batches(settings.train_batch_size)
        self.total_steps = self.steps_per_epoch * settings.num_train_epochs
        self._schedule = WarmupLinearDecay(
            settings.learning_rate,
            int(settings.warmup_proportion * self.total_steps),
            self.total_steps,
        )
        optimizer = create_optimizer(
            settings.optimizer,
            self._schedule,
            model.trainable_variables,
            global_clipnorm=_CLIP_NORM,
        )
        self._weights = {f"model/{weight.path}": weight for weight in model.weights}
        self._variables = {
            **self._weights,
            **{f"model/{seed.path}": seed for seed in seed_variables(model)},
            **{f"optimizer/{variable.path}": variable for variable in optimizer.variables},
        }
        self.state = TrainingState(0, LossCurve(self.total_steps))
        self._recent: collections.deque[float] = collections.deque(maxlen=_SHOWN_STEPS)
        self._outputs_of_best: dict[str, Any] = {}  # where this process evaluated it
        self._saved_step = -1
        self._saved_at = time.monotonic()
        # Shapes differ from batch to batch: XLA would compile each.
        model.encoder.trains_without_padding = True
        model.compile(optimizer=optimizer, jit_compile=False, **task.compile_arguments())

    # --- Training --------------------------------------------------------------------------

    def finish(self) -> None:
        """Trains what is left and puts the best weights into the model.

        Raises:
            DivergedError: the loss is no number.
            KeyboardInterrupt: a signal asked to stop; the state is saved.
        """
        self._restore()
        if not self.has_ended():
            self.examples = self.task.prepared(self.model, self.examples)
        with self.interruption:
            if not self.has_ended():
                progress = Progress("Training", self.total_steps, "steps", self.state.step)
                while not self.has_ended():
                    self._fit(progress)
                progress.close()
        self._summaries.flush()
        checkpoints.restore_latest(self.directory.checkpoints, self._weights)
        if self.inference.kept is not None:
            self.inference.kept.clear()
            self.inference.kept.update(self._outputs_of_best)

    def _fit(self, progress: Progress) -> None:
        """Fits to the end; or, where that is not an epoch's first step, to this epoch's end."""
        settings, steps = self.settings, self.steps_per_epoch
        epoch, done = divmod(self.state.step, steps)
        batches = self.examples.training_batches(
            settings.train_batch_size,
            epochs=settings.num_train_epochs,
            seed=settings.seed,
            first_step=self.state.step,
            length_multiple=_LENGTH_MULTIPLE[device_type()],
        )
        self.model.fit(
            self.task.target_scale.scaled(batches),
            initial_epoch=epoch,
            epochs=epoch + 1 if done else settings.num_train_epochs,
            steps_per_epoch=steps - done,
            shuffle=False,
            verbose=0,
            callbacks=[_AfterEachStep(self, progress)],
        )

    def has_ended(self) -> bool:
        """Whether all steps are made, or the best evaluation is too old to go on."""
        state = self.state
        patience = self.settings.early_stopping_epochs * self.steps_per_epoch
        stopped = False
        if patience and state.evaluations:
            newest = state.step if self.task.by_earlier_rules else state.evaluations[-1]["step"]
            stopped = newest - state.best_step >= patience
        return state.step >= self.total_steps or stopped

    # --- What follows a step -----------------------------------------------------------------

    def is_epochs_end(self) -> bool:
        """Whether the newest step was an epoch's last."""
        return self.state.step % self.steps_per_epoch == 0

    def is_evaluation_due(self) -> bool:
        """Whether the newest step is to be followed by an evaluation."""
        every = self.settings.eval_steps
        return self.is_epochs_end() or bool(every and self.state.step % every == 0)

    def is_save_due(self) -> bool:
        """Whether the newest step is to be followed by a save."""
        minutes = (time.monotonic() - self._saved_at) / 60
        return (
            self.is_epochs_end()
            or self.interruption.requested
            or minutes >= self.settings.save_checkpoints_minutes
        )

    def evaluate(self) -> str | None:
        """Evaluates on the set that decides and keeps the weights if they are the best so far.

        Returns:
            A line to print; ``None`` where nothing is evaluated on.
        """
        deciding = self.task.deciding_set
        if deciding is None:
            with self.task.target_scale.folded(self.model):
                self._keep_weights()
            return None
        with self.task.target_scale.folded(self.model):
            return self._evaluate(deciding)

    def _evaluate(self, deciding: str) -> str:
        state = self.state
        if self.inference.kept is not None:
            self.inference.kept.clear()
        evaluation = self.task.evaluate(self.inference, deciding)
        scores = {name: float(score) for name, score in evaluation.scores.items()}
        headline = self.task.headline
        best = [e["scores"][headline] for e in state.evaluations if e["step"] == state.best_step]
        is_best = not best or scores[headline] > best[0]
        state.evaluations.append(
            {"step": state.step, "scores": scores, "constant": bool(evaluation.constant)}
        )
        if is_best:
            self._keep_weights()
            self._outputs_of_best = dict(self.inference.kept or {})
        self._summaries.write("eval", state.step, scores)
        epoch = state.step / self.steps_per_epoch
        return evaluation_line(f"Epoch {epoch:.3g}", self.task, scores, is_best=is_best)

    def _keep_weights(self) -> None:
        self.state.best_step = self.state.step
        checkpoints.save(self.directory.checkpoints, self.state.step, self._weights, {}, keep=1)

    def save(self) -> None:
        """Saves all that going on needs."""
        if self.state.step != self._saved_step:
            checkpoints.save(
                self.directory.last,
                self.state.step,
                self._variables,
                self.state.to_dict(),
                keep=1,
            )
        self._summaries.flush()
        self._saved_step = self.state.step
        self._saved_at = time.monotonic()

    def _restore(self) -> None:
        restored = checkpoints.restore_latest(self.directory.last, self._variables)
        if restored is None:
            return
        for warning in restored.warnings:
            print(warning)
        self.state = TrainingState.from_dict(restored.extra)
        self._saved_step = restored.step
        if not self.has_ended():
            print(f"Going on from the state saved at step {restored.step:,}.", flush=True)

    def report(self, progress: Progress, losses: list[float]) -> None:
        """Shows the newest steps, and writes them for TensorBoard."""
        self._recent.extend(losses)
        loss = sum(losses) / len(losses)
        rate = float(self._schedule(self.state.step))
        figures = {"loss": loss, "learning_rate": rate}
        shown = {"loss": f"{sum(self._recent) / len(self._recent):#.4g}"}
        if self.state.seconds:
            per_second = self.state.examples / self.state.seconds
            figures["examples_per_second"] = per_second
            shown["examples/s"] = f"{per_second:,.0f}"
        progress.update(self.state.step, shown)
        self._summaries.write("train", self.state.step, figures)


class _AfterEachStep(keras.callbacks.Callback):
    """Counts the steps, shows them, and evaluates and saves where that is due."""

    def __init__(self, training: Training, progress: Progress) -> None:
        super().__init__()
        self._training = training
        self._progress = progress
        # Losses as tensors: read one by one, each would wait for the device.
        self._losses: list[Any] = []
        self._reported = time.monotonic()
        self._step_began: float | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # Keras gives the mean of the epoch so far; of one step it is that step's loss.
        self.model.reset_metrics()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        training, state = self._training, self._training.state
        self._losses.append(logs["loss"])
        state.step += 1
        evaluates, saves = training.is_evaluation_due(), training.is_save_due()
        now = time.monotonic()
        if evaluates or saves or now - self._reported >= _REPORT_SECONDS:
            self._report()
        if self._step_began is not None:  # the first step of a process is mostly tracing
            state.seconds += time.monotonic() - self._step_began
            state.examples += self._examples_of(state.step)
        if evaluates:
            line = training.evaluate()
            if line is not None:
                self._progress.say(line)
        # A signal may have come in the meantime.
        if saves or training.interruption.requested:
            training.save()
        if training.interruption.requested:
            self._progress.close()
            print(f"Stopped at step {state.step:,}. The same command goes on from there.")
            raise KeyboardInterrupt
        if training.has_ended():
            self.model.stop_training = True
        self._step_began = time.monotonic()

    def _report(self) -> None:
        state = self._training.state
        # A squared error, where numbers are learned: in their own units, as the scores are.
        unit = self._training.task.target_scale.std**2
        losses = [float(loss) * unit for loss in self._losses]
        for step, loss in enumerate(losses, start=state.step - len(losses)):
            state.curve.add(step, loss)
        self._training.report(self._progress, losses)
        self._losses = []
        self._reported = time.monotonic()

    def _examples_of(self, step: int) -> int:
        """How many examples a step had, counted from 1."""
        size, total = self._training.settings.train_batch_size, len(self._training.examples)
        place = (step - 1) % self._training.steps_per_epoch
        return min(size, total - place * size)


# === Where a training is, and whether it went wrong ===


@dataclasses.dataclass
class TrainingState:
    """What is saved with a training's variables, as JSON.

    Attributes:
        step: updates made.
        curve: the loss so far.
        evaluations: of the set that decides, in order: ``step``, ``scores``, ``constant``.
        best_step: the step of the best evaluation; the newest epoch's end where none is made.
        seconds: spent on the steps that ``examples`` counts: all but each process' first.
        examples: see ``seconds``.
    """

    step: int
    curve: "LossCurve"
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_step: int = 0
    seconds: float = 0.0
    examples: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The state, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingState":
        """The state that ``to_dict`` gave."""
        return cls(**{**values, "curve": LossCurve(**values["curve"])})


class DivergedError(ValueError):
    """The loss is no number; the message says what to do."""


@dataclasses.dataclass
class LossCurve:
    """The training loss, by tenths of the planned steps.

    Args:
        num_steps: the steps planned.
        sums: of each tenth.
        counts: of each tenth's steps so far.

    >>> curve = LossCurve(100)
    >>> for step in range(100):
    ...     curve.add(step, 1.0 - 0.001 * step)
    >>> curve.fall()
    'from 0.9955 to 0.9055'
    >>> curve.is_flat()
    False
    """

    num_steps: int
    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0] * _TENTHS)
    counts: list[int] = dataclasses.field(default_factory=lambda: [0] * _TENTHS)

    def add(self, step: int, loss: float) -> None:
        """Adds the loss of a step, counted from 0.

        Raises:
            DivergedError: it is not finite.
        """
        if not math.isfinite(loss):
            raise DivergedError(
                f"The loss of step {step + 1:,} is {loss}: start again with a lower "
                "--learning_rate and another --model_dir (or --precision=float32); what was saved "
                "before is kept."
            )
        tenth = step * _TENTHS // self.num_steps
        self.sums[tenth] += loss
        self.counts[tenth] += 1

    def _means(self) -> list[float]:
        return [total / count for total, count in zip(self.sums, self.counts, strict=True) if count]

    def fall(self) -> str:
        """The means of the first and of the last tenth, in words."""
        means = self._means()
        return f"from {means[0]:#.4g} to {means[-1]:#.4g}"

    def is_flat(self) -> bool:
        """Whether the mean of the last tenth is not below that of the first by 2%.

        ``False`` after fewer than 50 steps, of which it cannot be told.
        """
        means = self._means()
        if sum(self.counts) < _FEWEST_STEPS or len(means) < 2:
            return False
        return means[-1] > (1 - _LEAST_FALL) * means[0]


def describe_collapse(curve: LossCurve, constant: str | None, set_name: str | None) -> str | None:
    """Why a run counts as collapsed, in a phrase; ``None`` where it does not.

    ``constant`` says in words that the best weights give every example of the set one prediction.
    """
    reasons = []
    if constant:
        reasons.append(f"on {set_name} {constant}")
    if curve.is_flat():
        reasons.append(f"the training loss did not fall ({curve.fall()})")
    return " and ".join(reasons) or None
