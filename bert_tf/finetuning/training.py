"""One training, evaluated, saved, resumed exactly; what went wrong in it."""

import collections
import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf import features
from bert_tf.evaluation.evaluation import Inference
from bert_tf.evaluation.scores import LOWER_IS_BETTER, json_scores, rank, score_text
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.tasks.task import Task, evaluate
from bert_tf.training import saved_states
from bert_tf.training.attention import attention_to
from bert_tf.training.compilation import asks_for_xla
from bert_tf.training.distribution import device_type
from bert_tf.training.loop import BadStep, BadStepError, StepResults, TrainingLoop
from bert_tf.training.optimizers import create_optimizer
from bert_tf.training.progress import Progress, Summaries, print_progress
from bert_tf.training.schedules import WarmupLinearDecay
from bert_tf.training.trainer import Callbacks, Trainer
from bert_tf.wording import one_line

from .objective import Learner, TaskObjective, training_batches
from .run_directory import FineTuningDirectory
from .settings import FineTuningSettings

_AVERAGED_STEPS = 20  # the loss of a step or two says little
_TENTHS = 10
# With fewer steps a tenth of them is a batch or two, and says nothing.
_FEWEST_STEPS = 50
_LEAST_FALL = 0.02


class FineTuningTrainer(Trainer):
    """A model in training: stopped and resumed it ends as one that was not, bit for bit.

    The model of ``inference`` is built and has the weights to start from; it is compiled here. A
    ``learner`` learns another task than what is evaluated.
    """

    def __init__(
        self,
        settings: FineTuningSettings,
        task: Task,
        inference: Inference,
        examples: Examples,
        directory: FineTuningDirectory,
        callbacks: Sequence[Any] = (),
        learner: Learner | None = None,
    ) -> None:
        super().__init__(is_temporary=directory.is_temporary)
        self.settings, self.task, self.directory = settings, task, directory
        self.inference, self.model = inference, inference.model
        learner = learner or Learner(self.model, task, examples)
        self.examples, self._fit = learner.examples, learner.fit
        self._summaries = Summaries(directory.logs)
        self.steps_per_epoch = self.examples.num_batches(settings.train_batch_size)
        self.total_steps = settings.max_steps or self.steps_per_epoch * settings.num_train_epochs
        self._num_epochs = -(-self.total_steps // self.steps_per_epoch)
        self.state = TrainingState(0, LossCurve(self.total_steps))
        # A squared error, where numbers are learned: in their own units, as the scores are.
        self._unit = task.target_scale.std**2
        self._recent: collections.deque[float] = collections.deque(maxlen=_AVERAGED_STEPS)
        # By their names in what is kept.
        self._weights = {f"model/{weight.path}": weight for weight in self.model.weights}
        self._outputs_of_best: dict[str, Any] = {}  # where this process evaluated it
        self._judged_step = self._saved_step = -1
        self._saved_at = time.monotonic()
        replicas = self.model.distribute_strategy.num_replicas_in_sync
        self.loop = self._make_loop(learner, replicas)
        names = task.logged_scores if task.deciding_set else ()
        self.callbacks = Callbacks(
            callbacks,
            learner.model,
            steps_per_epoch=self.steps_per_epoch,
            epochs=self._num_epochs,
            scores={n: "min" if n in LOWER_IS_BETTER else "max" for n in names},
        )
        # A callback hears of each step; and within a call TensorFlow's collectives take one shape.
        self._makes_single_steps = bool(callbacks) or replicas > 1

    def _make_loop(self, learner: Learner, replicas: int) -> TrainingLoop:
        """The steps of the learner's model, which is compiled for callbacks to look at."""
        settings, strategy = self.settings, self.model.distribute_strategy
        warmup = int(settings.warmup_proportion * self.total_steps)
        schedule = WarmupLinearDecay(settings.learning_rate, warmup, self.total_steps)
        device, changes = device_type(), settings.changes_shapes(replicas)
        jit_compile = asks_for_xla(settings.jit_compile, device, changes)
        self.model.encoder.trains_without_padding = not jit_compile
        self.model.encoder.recomputes_blocks = settings.remat
        arguments = learner.task.compile_arguments
        with strategy.scope():
            optimizer = create_optimizer(
                settings.optimizer,
                schedule,
                learner.model.trainable_variables,
                weight_decay=settings.weight_decay,
            )
            learner.model.compile(optimizer, jit_compile=False, **arguments)
        compares_rows = getattr(arguments["loss"], "compares_rows", False)
        return TrainingLoop(
            learner.model,
            optimizer,
            strategy,
            TaskObjective(learner.model, learner.task.loss_weight, compares_rows=compares_rows),
            seed=settings.seed,
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
            device_type=device,
            jit_compile=jit_compile,
        )

    # --- Training --------------------------------------------------------------------------

    def finish(self) -> None:
        """Trains what is left and puts the best weights into the model.

        Raises ``DivergedError`` when the loss is no number, ``KeyboardInterrupt`` when a signal
        asked to stop; the state is saved.
        """
        self._restore()
        goes_on = not self.has_ended()
        if goes_on:
            self.directory.keep_masks(self.loop.compilation.masks.name, self.step)
            self.examples = self.task.prepared(self.model, self.examples)
            if self.loop.compilation.jit_compile:
                lengths = ", ".join(map(str, self.examples.few_lengths()))
                print_progress(
                    f"XLA compiles the step once for each length of rows: {lengths} tokens."
                )
        with self.interruption, self.background:
            if goes_on:
                self.callbacks.begin()
                self.train("Training", self.total_steps, self._makes_single_steps)
                self.callbacks.end()
        self._summaries.flush()
        saved_states.restore_latest(self.directory.checkpoints, self._weights)
        if self.inference.cache is not None:
            self.inference.cache.clear()
            self.inference.cache.update(self._outputs_of_best)

    @property
    def step(self) -> int:
        """The steps that are made."""
        return self.state.step

    def batches(self) -> Iterator[Any]:
        """The batches from the state on; how attention is computed depends on their shapes."""
        settings, model = self.settings, self.model
        batches = training_batches(
            self.examples,
            self.task.target_scale,
            settings.train_batch_size,
            epochs=self._num_epochs,
            seed=settings.seed,
            first_step=self.state.step,
            length_multiple=self.loop.compilation.length_multiple,
            few_shapes=self.loop.compilation.jit_compile,
        )
        mask = batches.element_spec["rows"].get(features.INPUT_MASK)
        if mask is not None and self.loop.compilation.groups_attention:
            # (B, S), or (B, K, S) where an example is K rows.
            texts = settings.train_batch_size * math.prod(mask.shape[1:-1])
            heads = model.config.num_attention_heads
            attend = attention_to(self.examples.lengths, texts, heads)
            model.encoder.training_attention = attend
        return iter(batches)

    def next_pause(self) -> int:
        """The next step that may be followed by an evaluation."""
        each = self.steps_per_epoch
        return min(self.total_steps, (self.state.step // each + 1) * each)

    def has_ended(self) -> bool:
        """True if all steps are made, the best evaluation is too old, or a callback says so."""
        state = self.state
        patience = self.settings.early_stopping_epochs * self.steps_per_epoch
        stopped = False
        if patience and state.evaluations:
            stopped = state.evaluations[-1]["step"] - state.best_step >= patience
        return state.step >= self.total_steps or stopped or state.stopped

    # --- After a step ------------------------------------------------------------------------

    def is_epochs_end(self) -> bool:
        """True if the newest step was an epoch's last, or the training's."""
        step = self.state.step
        return step % self.steps_per_epoch == 0 or step >= self.total_steps

    def is_evaluation_due(self) -> bool:
        """True if the newest step is to be followed by an evaluation."""
        return self.is_epochs_end() or self.callbacks.stops

    def is_save_due(self) -> bool:
        """True if the newest step is to be followed by a save."""
        minutes = (time.monotonic() - self._saved_at) / 60
        return (
            self.is_epochs_end()
            or self.interruption.requested
            or self.callbacks.stops
            or minutes >= self.settings.save_checkpoints_minutes
        )

    def is_pause_due(self) -> bool:
        """True if the newest step is followed by either."""
        return self.is_evaluation_due() or self.is_save_due()

    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Evaluates, then saves: who asked to stop waits for an evaluation that is due."""
        if self.is_evaluation_due() and self._judged_step != self.step:
            if (line := self.evaluate()) is not None:
                progress.say(line)
            self._judged_step = self.step
        self.state.stopped = self.callbacks.stops
        # A signal may have come in the meantime.
        if stops or self.is_save_due():
            self.save()

    def remedy(self, error: BadStepError) -> Exception:
        """Says what went wrong, and what helps."""
        return DivergedError(_divergence(error.bad, self.settings))

    def evaluate(self) -> str | None:
        """Evaluates on the deciding set, keeps the best weights, and gives a line to print."""
        self._fit()
        with self.task.target_scale.folded(self.model):
            deciding, line = self.task.deciding_set, None
            if deciding is not None:
                self.callbacks.begin_evaluation()
                line = self._evaluate(deciding)
                self.callbacks.end_evaluation(_defined(self.state.evaluations[-1]["scores"]))
            else:
                self._keep_weights()
            if self.is_epochs_end() or self.callbacks.stops:
                evaluated = self.state.evaluations[-1:] if deciding is not None else []
                self.callbacks.end_epoch(_defined(evaluated[0]["scores"]) if evaluated else {})
            return line

    def _evaluate(self, deciding: str) -> str:
        state = self.state
        if self.inference.cache is not None:
            self.inference.cache.clear()
        evaluation = evaluate(self.task, self.inference, deciding)
        scores = json_scores(evaluation.scores)
        headline = self.task.headline
        best = [each["scores"] for each in state.evaluations if each["step"] == state.best_step]
        ranks = [rank(headline, each) for each in (scores, *best)]
        # An undefined score without a loss decides nothing: the last weights are kept.
        is_equal = scores[headline] is None and len({*ranks}) == 1
        is_best = not best or ranks[0] > ranks[1] or is_equal
        state.evaluations.append(
            {"step": state.step, "scores": scores, "constant": bool(evaluation.constant)}
        )
        if is_best:
            self._keep_weights()
            self._outputs_of_best = dict(self.inference.cache or {})
        self._summaries.write("eval", state.step, _defined(scores))
        epoch, best_so_far = state.step / self.steps_per_epoch, " (best so far)" if is_best else ""
        return f"Epoch {epoch:.3g}: {deciding} {scores_line(headline, scores)}{best_so_far}"

    def _keep_weights(self) -> None:
        self.state.best_step = self.state.step
        values = saved_states.copy_values(self._weights)
        self.background.save(self.directory.checkpoints, self.state.step, values, {}, keep=1)

    def save(self) -> None:
        """Saves all that going on needs; of a temporary directory nothing goes on."""
        if self.state.step != self._saved_step and not self.directory.is_temporary:
            state, variables = dataclasses.asdict(self.state), self.loop.state()
            self.background.save(self.directory.last, self.state.step, variables, state, keep=1)
        self._summaries.flush()
        self._saved_step = self.state.step
        self._saved_at = time.monotonic()

    def _restore(self) -> None:
        restored = saved_states.restore_latest(self.directory.last, self.loop.state())
        if restored is None:
            return
        for warning in restored.warnings:
            print_progress(warning)
        state = dict(restored.extra)
        self.state = TrainingState(**{**state, "curve": LossCurve(**state["curve"])})
        self._saved_step = restored.step
        if not self.has_ended():
            print_progress(
                f"Continuing from the state saved at step {restored.step:,}.", flush=True
            )

    def note(self, progress: Progress, results: StepResults, seconds: float | None) -> None:
        """Shows the results of some steps, and writes them for TensorBoard."""
        state, steps = self.state, len(results.losses)
        losses = [loss * self._unit for loss in results.losses]
        for step, loss in enumerate(losses, start=state.step):
            state.curve.add(step, loss)
        self._recent.extend(losses)
        figures = {"gradient_norm": results.gradient_norm, "learning_rate": results.learning_rate}
        figures["loss"] = sum(losses) / len(losses)
        labels = {"loss": f"{sum(self._recent) / len(self._recent):#.4g}"}
        examples = sum(map(self._examples_of, range(state.step + 1, state.step + steps + 1)))
        state.step += steps
        if seconds is not None:  # the first step of a process is mostly tracing
            figures |= results.speed(
                seconds=seconds,
                tokens=int(results.sums[1]),
                examples=examples,
                devices=self.loop.strategy.num_replicas_in_sync,
            )
            state.seconds += seconds
            state.examples += examples
        if state.seconds:
            labels["examples/s"] = f"{state.examples / state.seconds:,.0f}"
        progress.update(state.step, labels)
        self._summaries.write("train", state.step, figures)
        self.callbacks.end_step(state.step - 1, losses[-1], steps=steps)

    def _examples_of(self, step: int) -> int:
        """Number of examples of a step; steps count from 1."""
        size, total = self.settings.train_batch_size, len(self.examples)
        place = (step - 1) % self.steps_per_epoch
        return min(size, total - place * size)


# === Where a training is, and whether it went wrong ===


@dataclasses.dataclass
class TrainingState:
    """State of a training that is saved as JSON beside its variables.

    ``evaluations`` are those of the set that decides; ``best_step`` is the step of the best one, or
    the newest epoch's end. ``seconds`` were spent on ``examples``: those of all steps but each
    process' first. ``stopped``: a callback ended the training.
    """

    step: int
    curve: "LossCurve"
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_step: int = 0
    seconds: float = 0.0
    examples: int = 0
    stopped: bool = False


class DivergedError(ValueError):
    """The training went wrong at a step; the message says what to do."""


def _divergence(bad: BadStep, settings: FineTuningSettings) -> str:
    what = str(bad._replace(cursors=()))
    or_else = " (or --precision=float32)" if settings.precision != "float32" else ""
    if not bad.ruins and not math.isfinite(bad.loss):
        what = f"The loss of step {bad.step + 1:,} is {bad.loss}"
    return (
        f"{what}: start again with a lower --learning_rate and another --model_dir{or_else}; what "
        "was saved before is kept."
    )


@dataclasses.dataclass
class LossCurve:
    """The training loss, by tenths of the planned steps."""

    num_steps: int
    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0] * _TENTHS)
    counts: list[int] = dataclasses.field(default_factory=lambda: [0] * _TENTHS)

    def add(self, step: int, loss: float) -> None:
        """Adds the finite loss of a step, counted from 0."""
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
        """True if, after 50 steps or more, the last tenth's mean is not 2% below the first's."""
        means = self._means()
        if sum(self.counts) < _FEWEST_STEPS or len(means) < 2:
            return False
        return means[-1] > (1 - _LEAST_FALL) * means[0]


def describe_collapse(curve: LossCurve, constant: str | None, set_name: str | None) -> str | None:
    """Why a run counts as collapsed, in a phrase, of which ``constant`` is one; else ``None``."""
    reasons = []
    if constant:
        reasons.append(f"on {set_name} {constant}")
    if curve.is_flat():
        reasons.append(f"the training loss did not fall ({curve.fall()})")
    return " and ".join(reasons) or None


def _defined(scores: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if value is not None}


def scores_line(headline: str, scores: Mapping[str, float | None]) -> str:
    """Scores in one line, the one that decides first."""
    names = sorted(scores, key=lambda name: name != headline)
    return ", ".join(f"{one_line(name)} {score_text(name, scores[name], scores)}" for name in names)
