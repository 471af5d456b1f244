"""Trains a task's model, with evaluation, exact resumption and detection of divergence."""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf import features
from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.evaluation.evaluation import Evaluation, Inference
from bert_tf.evaluation.metrics import LOWER_IS_BETTER, json_scores, rank, score_text
from bert_tf.io.messages import one_line
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.tasks.task import Task, evaluate
from bert_tf.tasks.task_file import TaskFile, to_json
from bert_tf.training import saved_states
from bert_tf.training.attention import choose_attention
from bert_tf.training.compilation import should_use_xla
from bert_tf.training.loop import BadStep, BadStepError, StepResults, TrainingLoop
from bert_tf.training.optimizers import create_optimizer
from bert_tf.training.progress import Progress, print_progress
from bert_tf.training.run_directory import FineTuningDirectory
from bert_tf.training.schedules import WarmupLinearDecay
from bert_tf.training.trainer import Callbacks, Inputs, Trainer

from .few_shot import few_shot_training
from .model import InitialModel, build_model, model_spec
from .objective import FewShotTraining, TaskObjective, with_cursors
from .settings import FineTuningSettings

_AVERAGED_STEPS = 20  # number of steps over which the displayed loss is averaged
_TENTHS = 10
# Minimum number of steps for detecting a constant loss.
_FEWEST_STEPS = 50
_MIN_FALL = 0.02


@dataclasses.dataclass(frozen=True)
class FineTuningInputs(Inputs):
    """Inputs of a run; the runs of a sweep share ``start`` and the tokenized ``examples``.

    ``columns`` contains the keyword arguments of the table reader, and is empty for other formats.
    """

    directory: FineTuningDirectory
    task: Task
    columns: Mapping[str, Any]
    start: InitialModel
    examples: Examples


class FineTuningTrainer(Trainer):
    """Trains a task's model from its initial weights.

    ``few_shot`` replaces the model, task and examples for training, but not for evaluation.
    """

    state: "TrainingState"
    saved = "state saved at"
    logs_figures = False

    def __init__(
        self,
        inputs: FineTuningInputs,
        inference: Inference,
        few_shot: FewShotTraining | None = None,
    ) -> None:
        super().__init__(
            inputs,
            save_seconds=60 * inputs.settings.save_checkpoints_minutes,
            # Runs in temporary directories are not resumed.
            num_states=0 if inputs.directory.is_temporary else 1,
        )
        settings, self.task = self.settings, inputs.task
        self.inference, self.model = inference, inference.model
        few_shot = few_shot or FewShotTraining(self.model, self.task, inputs.examples)
        self.examples, self._fit = few_shot.examples, few_shot.fit
        self.steps_per_epoch = self.examples.num_batches(settings.train_batch_size)
        self._num_epochs = -(-self.last_step // self.steps_per_epoch)
        self.state = TrainingState(0, LossCurve(self.last_step))
        # Converts squared errors of normalized targets to the original units.
        self._unit = self.task.target_scale.std**2
        self._recent: collections.deque[float] = collections.deque(maxlen=_AVERAGED_STEPS)
        # Weights by their names in checkpoints.
        self._weights = {f"model/{weight.path}": weight for weight in self.model.weights}
        self._outputs: dict[str, Any] = {} if inference.cache is None else inference.cache
        self._best_outputs: dict[str, Any] = {}  # empty if the run resumes
        self._evaluated_step = -1
        self.loop = self._make_loop(few_shot)
        names = self.task.logged_scores if self.task.deciding_set else ()
        self.callbacks = Callbacks(
            inputs.callbacks,
            few_shot.model,
            steps_per_epoch=self.steps_per_epoch,
            epochs=self._num_epochs,
            scores={n: "min" if n in LOWER_IS_BETTER else "max" for n in names},
        )
        # Callbacks are called after each step. TensorFlow's collective operations require constant
        # shapes within a call.
        replicas = self.devices.strategy.num_replicas_in_sync
        self.single_step_calls = bool(inputs.callbacks) or replicas > 1

    def _make_loop(self, few_shot: FewShotTraining) -> TrainingLoop:
        """Creates the training loop; compiles the model for its loss and for callbacks."""
        settings, strategy, device = self.settings, self.devices.strategy, self.devices.device_type
        warmup = int(settings.warmup_proportion * self.last_step)
        schedule = WarmupLinearDecay(settings.learning_rate, warmup, self.last_step)
        changes = settings.changes_shapes(strategy.num_replicas_in_sync)
        jit_compile = should_use_xla(settings.jit_compile, device, changes)
        self.model.encoder.trains_without_padding = not jit_compile
        self.model.encoder.recomputes_blocks = settings.remat
        arguments = few_shot.task.compile_arguments
        with strategy.scope():
            optimizer = create_optimizer(
                settings.optimizer,
                schedule,
                few_shot.model.trainable_variables,
                weight_decay=settings.weight_decay,
            )
            few_shot.model.compile(optimizer, jit_compile=False, **arguments)
        compares_rows = getattr(arguments["loss"], "compares_rows", False)
        return TrainingLoop(
            few_shot.model,
            optimizer,
            strategy,
            TaskObjective(few_shot.model, few_shot.task.loss_weight, compares_rows=compares_rows),
            seed=settings.seed,
            gradient_accumulation_steps=settings.gradient_accumulation_steps,
            device_type=device,
            jit_compile=jit_compile,
        )

    # --- Training --------------------------------------------------------------------------

    def finish(self) -> None:
        """Trains the remaining steps and restores the best weights.

        Raises:
            DivergedError: If the loss, the gradient or the weights are not finite.
            KeyboardInterrupt: If a signal stopped training; the state is saved.
        """
        self.restore()
        resumes = not self.has_ended()
        if resumes:
            self.directory.record_dropout_masks(self.loop.compilation.masks.name, self.step)
            self.examples = self.task.prepare_examples(self.model, self.examples)
            if self.loop.compilation.jit_compile:
                lengths = ", ".join(map(str, self.examples.few_lengths()))
                print_progress(f"XLA compiles the step once per sequence length: {lengths} tokens.")
        with self.interruption, self.background:
            if resumes:
                self.callbacks.begin()
                self.train("Training")
                self.callbacks.hooks.on_train_end()
        self.summaries.flush()
        saved_states.restore_latest(self.directory.best_weights, self._weights)
        self._outputs.clear()
        self._outputs.update(self._best_outputs)

    @property
    def last_step(self) -> int:
        """Number of training steps."""
        epochs: int = self.settings.num_train_epochs
        return self.settings.max_steps or self.steps_per_epoch * epochs

    def batches(self) -> Iterator[Any]:
        """Returns the remaining batches; selects the attention for their shapes."""
        settings, model, first_step = self.settings, self.model, self.state.step
        size = settings.train_batch_size
        batches = self.examples.training_batches(
            size,
            epochs=self._num_epochs,
            seed=settings.seed,
            first_step=first_step,
            length_multiple=self.loop.compilation.length_multiple,
            few_shapes=self.loop.compilation.jit_compile,
        )
        batches = self.task.target_scale.scaled(batches)
        batches = with_cursors(batches, self.examples, size, first_step)
        mask = batches.element_spec["rows"].get(features.INPUT_MASK)
        if mask is not None and self.loop.compilation.groups_attention:
            # (B, S), or (B, K, S) for examples with K sequences
            texts = size * math.prod(mask.shape[1:-1])
            heads = model.config.num_attention_heads
            attend = choose_attention(self.examples.lengths, texts, heads)
            model.encoder.training_attention = attend
        return iter(batches)

    def has_ended(self) -> bool:
        """Returns whether all steps are done, or early stopping or a callback ended training."""
        state = self.state
        patience = self.settings.early_stopping_epochs * self.steps_per_epoch
        stopped = False
        if patience and state.evaluations:
            stopped = state.evaluations[-1]["step"] - state.best_step >= patience
        return state.step >= self.last_step or stopped or state.stopped

    # --- After a step ------------------------------------------------------------------------

    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Evaluates and saves if due; a requested stop waits for the evaluation."""
        if self.is_evaluation_due() and self._evaluated_step != self.step:
            if (line := self.evaluate()) is not None:
                progress.write(line)
            self._evaluated_step = self.step
        self.state.stopped = self.callbacks.stops
        # A signal may have arrived during the evaluation.
        if stops or self.is_save_due():
            self.save()

    def remedy(self, error: BadStepError) -> Exception:
        """Returns a DivergedError whose message contains a remedy."""
        return DivergedError(_divergence(error.bad, self.settings))

    def evaluate(self) -> str | None:
        """Evaluates on the dev set and keeps the best weights; returns a line to print."""
        self._fit()
        with self.task.target_scale.folded(self.model):
            deciding, line = self.task.deciding_set, None
            scores: dict[str, float] = {}
            if deciding is not None:
                self.callbacks.hooks.on_test_begin()
                line = self._evaluate(deciding)
                scores = _defined(self.state.evaluations[-1]["scores"])
                self.callbacks.hooks.on_test_end(scores)
            else:
                self._keep_weights()
            if self.is_epochs_end() or self.callbacks.stops:
                self.callbacks.end_epoch(scores)
            return line

    def _evaluate(self, deciding: str) -> str:
        state = self.state
        self._outputs.clear()
        evaluation = evaluate(self.task, self.inference, deciding)
        scores = json_scores(evaluation.scores)
        headline = self.task.headline
        best = [e["scores"] for e in state.evaluations if e["step"] == state.best_step]
        ranks = [rank(headline, candidate) for candidate in (scores, *best)]
        # If the score and the loss are undefined, the last weights are kept.
        is_equal = scores[headline] is None and len({*ranks}) == 1
        is_best = not best or ranks[0] > ranks[1] or is_equal
        state.evaluations.append(
            {"step": state.step, "scores": scores, "constant": bool(evaluation.constant)}
        )
        if is_best:
            self._keep_weights()
            self._best_outputs = dict(self._outputs)
        self.summaries.write("eval", state.step, _defined(scores))
        epoch, best_so_far = state.step / self.steps_per_epoch, " (best so far)" if is_best else ""
        return f"Epoch {epoch:.3g}: {deciding} {scores_line(headline, scores)}{best_so_far}"

    def _keep_weights(self) -> None:
        self.state.best_step = self.state.step
        values = saved_states.copy_values(self._weights)
        self.background.save(self.directory.best_weights, self.state.step, values, {}, keep=1)

    def take(
        self, results: StepResults, seconds: float | None
    ) -> tuple[dict[str, float], int, int]:
        """Records the losses, and the time of all steps except the first one of each process."""
        state = self.state
        losses = [loss * self._unit for loss in results.losses]
        for step, loss in enumerate(losses, start=state.step):
            state.curve.add(step, loss)
        self._recent.extend(losses)
        examples = sum(map(self._examples_of, range(state.step + 1, results.step + 1)))
        state.step = results.step
        if seconds is not None:
            state.seconds += seconds
            state.examples += examples
        return {"loss": sum(losses) / len(losses)}, int(results.sums[1]), examples

    def labels(self, figures: Mapping[str, float]) -> dict[str, str]:
        """Returns the mean loss of the last steps, and the speed of all steps."""
        labels = {"loss": f"{sum(self._recent) / len(self._recent):#.4g}"}
        if self.state.seconds:
            labels["examples/s"] = f"{self.state.examples / self.state.seconds:,.0f}"
        return labels

    def _examples_of(self, step: int) -> int:
        """Returns the number of examples in a step; the first step is step 1."""
        size, total = self.settings.train_batch_size, len(self.examples)
        batch_index = (step - 1) % self.steps_per_epoch
        return min(size, total - batch_index * size)


# === Training and evaluation ===


@dataclasses.dataclass(frozen=True)
class TrainingOutcome:
    """Task, inference with the best weights, evaluations by split, and the results."""

    task: Task
    inference: Inference
    evaluations: Mapping[str, Evaluation]
    results: dict[str, Any]


def train(inputs: FineTuningInputs) -> TrainingOutcome:
    """Trains, evaluates the best weights on each dev set, and writes the model description."""
    settings, task = inputs.settings, inputs.task
    describe(inputs, {})
    with inputs.devices.strategy.scope():
        model, messages = build_model(settings, task, inputs.start)
    for message in messages:
        print_progress(message, flush=True)
    length, batch_size = settings.max_seq_length, settings.eval_batch_size
    inference = Inference(model, inputs.start.tokenizer, length, batch_size, cache={})
    few_shot = None
    if settings.option("few_shot"):
        pairs = settings.option("few_shot_pairs")
        few_shot = few_shot_training(task, inference, pairs, settings.seed)
    training = FineTuningTrainer(inputs, inference, few_shot)
    training.finish()
    state = training.state
    evaluations = evaluate_all(task, inference)
    deciding = evaluations.get(task.deciding_set or "")
    decided = deciding.thresholds if deciding else task.default_thresholds
    thresholds = {name: float(value) for name, value in decided.items()}
    # Without a dev set, other evaluations show whether a run has collapsed.
    scored_sets = [task.deciding_set] if deciding else evaluations
    constant = next((name for name in scored_sets if name and evaluations[name].constant), None)
    describe(inputs, thresholds)
    results = {
        "task": task.name,
        "headline": task.headline,
        "scores": {name: json_scores(e.scores) for name, e in evaluations.items()},
        "calibration": {
            name: e.calibrate().to_dict() for name, e in evaluations.items() if e.calibrate
        },
        "classes": {
            name: {label: score.to_dict() for label, score in e.comparison.classes.items()}
            for name, e in evaluations.items()
            if e.comparison.classes
        },
        "rows": {
            "train": len(task.training_items()),
            **{name: len(examples.items) for name, examples in task.sets.items()},
        },
        "thresholds": thresholds,
        "collapsed": describe_collapse(
            state.curve,
            constant=evaluations[constant].constant_description if constant else None,
            set_name=constant,
        ),
        "best": {"step": state.best_step, "epoch": state.best_step / training.steps_per_epoch},
        "steps": state.step,
        "evaluations": state.evaluations,
        "seconds": state.seconds,
        "examples_per_second": state.examples / state.seconds if state.seconds else None,
    }
    return TrainingOutcome(task, inference, evaluations, results)


def evaluate_all(task: Task, inference: Inference) -> dict[str, Evaluation]:
    """Evaluates a model on each dev set, with the thresholds of the deciding set."""
    by_set: dict[str, Evaluation] = {}
    thresholds: Mapping[str, float] | None = None if task.deciding_set else {}
    for name in sorted(task.dev_sets, key=lambda name: name != task.deciding_set):
        by_set[name] = evaluate(task, inference, name, thresholds)
        thresholds = by_set[name].thresholds if thresholds is None else thresholds
    return {name: by_set[name] for name in task.dev_sets}


def describe(inputs: FineTuningInputs, thresholds: Mapping[str, float]) -> None:
    """Writes the files of the model directory except the weights."""
    task, start, path = inputs.task, inputs.start, inputs.directory.path
    options, length = task.saved_options(task.options), inputs.settings.max_seq_length
    task_file = TaskFile(task.kind, task.name, length, inputs.columns, options)
    described = Checkpoint(
        path=path,
        format="bert_tf",
        config=start.config,
        model=model_spec(task, start),
        tokenization=start.tokenization,
        labels=task.labels,
        multi_label=task.multi_label,
        thresholds=thresholds,
        task=to_json(task_file),
        sentence_embedding=start.embedding,
    )
    model_directory.write_description(described, path)


# === Training state ===


@dataclasses.dataclass
class TrainingState:
    """State of a training run, saved as JSON together with the variables.

    Attributes:
        step: Number of finished steps.
        curve: Training loss.
        evaluations: Evaluations on the deciding set.
        best_step: Step of the best evaluation; without evaluations, the end of the last epoch.
        seconds: Training time, excluding the first step of each process.
        examples: Number of examples that were trained on during ``seconds``.
        stopped: Whether a callback ended training.
    """

    step: int
    curve: "LossCurve"
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_step: int = 0
    seconds: float = 0.0
    examples: int = 0
    stopped: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the state as a JSON value."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> "TrainingState":
        """Creates the state from the result of ``to_json``."""
        return cls(**{**state, "curve": LossCurve(**state["curve"])})


class DivergedError(ValueError):
    """Raised if the loss, the gradient or the weights are not finite."""


def _divergence(bad: BadStep, settings: FineTuningSettings) -> str:
    problem = str(bad._replace(cursors=()))
    if not bad.corrupts_weights and not math.isfinite(bad.loss):
        problem = f"The loss of step {bad.step + 1:,} is {bad.loss}"
    precision = " (or --precision=float32)" if settings.precision != "float32" else ""
    return (
        f"{problem}. Rerun with a lower --learning_rate{precision} and another --model_dir; saved "
        "checkpoints are kept."
    )


@dataclasses.dataclass
class LossCurve:
    """Mean training loss of each tenth of the planned steps."""

    num_steps: int
    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0] * _TENTHS)
    counts: list[int] = dataclasses.field(default_factory=lambda: [0] * _TENTHS)

    def add(self, step: int, loss: float) -> None:
        """Adds the finite loss of a step; the first step is step 0."""
        tenth = step * _TENTHS // self.num_steps
        self.sums[tenth] += loss
        self.counts[tenth] += 1

    def _means(self) -> list[float]:
        return [total / count for total, count in zip(self.sums, self.counts, strict=True) if count]

    def fall(self) -> str:
        """Formats the mean losses of the first and the last tenth of the steps."""
        means = self._means()
        return f"from {means[0]:#.4g} to {means[-1]:#.4g}"

    def is_flat(self) -> bool:
        """Returns whether the loss decreased by less than 2% in at least 50 steps."""
        means = self._means()
        if sum(self.counts) < _FEWEST_STEPS or len(means) < 2:
            return False
        return means[-1] > (1 - _MIN_FALL) * means[0]


def describe_collapse(curve: LossCurve, constant: str | None, set_name: str | None) -> str | None:
    """Returns the reasons why a run has collapsed; ``None`` if it has not."""
    reasons = []
    if constant:
        reasons.append(f"on {set_name} {constant}")
    if curve.is_flat():
        reasons.append(f"the training loss did not fall ({curve.fall()})")
    return " and ".join(reasons) or None


def _defined(scores: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if value is not None}


def scores_line(headline: str, scores: Mapping[str, float | None]) -> str:
    """Formats scores on one line, the main metric first."""
    names = sorted(scores, key=lambda name: name != headline)
    return ", ".join(f"{one_line(name)} {score_text(name, scores[name], scores)}" for name in names)
