"""Trains a run phase by phase, evaluates it, and saves checkpoints and the best weights."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint, Tokenization
from bert_tf.config import BertConfig
from bert_tf.io.files import read_json_object, write_json
from bert_tf.pipelines.pretraining.pools import Cursor, ReadCursors
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training import saved_states
from bert_tf.training.loop import BadStepError, StepResults, model_state
from bert_tf.training.progress import Progress, print_progress
from bert_tf.training.trainer import Callbacks, Inputs, Trainer

from .data import Batches, PretrainingData
from .model import initialize_pretrainer, pretrainer_spec
from .objective import EvaluationResult, PretrainingLoop, PretrainingSums, means
from .settings import Phase, make_phases

# Maximum number of seconds between checkpoints.
_SAVE_SECONDS = 600.0
_MIN_REPORTED_WAIT = 0.05
_EVAL_STEPS_WHILE_TRAINING = 20


@dataclasses.dataclass(frozen=True)
class PretrainingInputs(Inputs):
    """Data, tokenizer, config and optional initial checkpoint of a run."""

    data: PretrainingData
    tokenizer: BertTokenizer
    config: BertConfig
    start: Checkpoint | None = None

    def describe_model(self, path: str) -> None:
        """Writes config, model class and tokenizer to ``path``, next to the weights."""
        tokenization = Tokenization.from_tokenizer(self.tokenizer)
        spec = pretrainer_spec(self.settings.nsp)
        described = Checkpoint(path, "bert_tf", self.config, spec, tokenization=tokenization)
        model_directory.write_description(described, path)


@dataclasses.dataclass(frozen=True)
class Position:
    """Position in the data of a phase.

    Attributes:
        phase: Index of the phase.
        reached: List of cursors, one per host, after the last row that the host has read. If the
            number of hosts has changed, there is one list for each number.
    """

    phase: int = 0
    reached: ReadCursors = (((0, 0, 0),),)

    def advance(self, cursors: Sequence[Cursor]) -> "Position":
        """Returns the position after the last row of each host."""
        new = [(epoch, pool, row + 1) for epoch, pool, row in cursors]
        old = [hosts for hosts in self.reached if len(hosts) != len(new) and max(hosts) > min(new)]
        return Position(self.phase, [*old, new])

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON value from which ``from_json`` creates the position."""
        return {"phase": self.phase, "start": self.reached}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Position":
        """Creates a position from a result of ``to_json``."""
        return cls(saved["phase"], [[(e, p, r) for e, p, r in hosts] for hosts in saved["start"]])


class PretrainingTrainer(Trainer):
    """Trains a run, phase by phase.

    Attributes:
        state: Position in the data.
        best: Step, phase and loss of the best evaluation; empty before the first one.
    """

    loop: PretrainingLoop
    state: Position
    saved = "checkpoint at"
    logs_figures = True

    def __init__(self, inputs: PretrainingInputs, loop: PretrainingLoop) -> None:
        keep = inputs.settings.keep_checkpoints
        super().__init__(inputs, save_seconds=_SAVE_SECONDS, num_states=keep)
        self.inputs, self.loop = inputs, loop
        self.phases = make_phases(self.settings)
        self.state = Position()
        self.best: dict[str, Any] = {}
        replicas = self.devices.strategy.num_replicas_in_sync
        self._batches = Batches(self.settings, inputs.data, inputs.tokenizer, replicas)
        # For callbacks, an epoch is the interval between checkpoints.
        self.steps_per_epoch = self.settings.save_checkpoints_steps

    def finish(self) -> EvaluationResult | None:
        """Trains the remaining steps; returns the final evaluation, if there are data for it."""
        restored = self.restore()
        self.directory.record_dropout_masks(self.loop.compilation.masks.name, self.step)
        if not restored and self.inputs.start is not None:
            for message in initialize_pretrainer(self.loop.model, self.inputs.start):
                print_progress(message, flush=True)
        self._begin_callbacks()
        done = self._done_at_this_step()
        with self.interruption, self.background:
            if restored and self.is_epochs_end() and "evaluated" not in done:
                self._evaluate_saved()
            if "ended" not in done:
                self._train_phases()
        return self.evaluate(self.settings.max_eval_steps, self.phases[-1])

    def _begin_callbacks(self) -> None:
        if self.inputs.callbacks:
            with self.devices.strategy.scope():
                # Compiled only so that callbacks can read the optimizer.
                self.loop.model.compile(self.loop.optimizer, jit_compile=False)
        names = ("loss", *EvaluationResult._fields) if self.inputs.data.evaluated else ()
        self.callbacks = Callbacks(
            self.inputs.callbacks,
            self.loop.model,
            steps_per_epoch=self.steps_per_epoch,
            epochs=-(-self.phases[-1].last_step // self.steps_per_epoch),
            scores={n: "min" if n.endswith(("loss", "perplexity")) else "max" for n in names},
        )
        self.callbacks.begin()

    def _train_phases(self) -> None:
        # A completed phase is not resumed, even if --num_train_steps has changed.
        for number in range(self.state.phase, len(self.phases)):
            phase = self.phases[number]
            if self.step >= phase.last_step:
                continue
            if self.state.phase != number:
                self.state = Position(number)
            label = f"Training at length {phase.max_seq_length}"
            if self.train(label):
                print_progress(f"A callback ended training at step {self.step:,}.")
                return

    # --- Steps ---------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Current phase."""
        return self.phases[self.state.phase]

    @property
    def last_step(self) -> int:
        """Last step of the phase."""
        return self.phase.last_step

    def batches(self) -> Iterator[Any]:
        """Returns the remaining batches of the phase."""
        position = self.state
        batches = self._batches.training(self.phase, position.phase, position.reached)
        return self.loop.distribute(batches)

    def take(
        self, results: StepResults, seconds: float | None
    ) -> tuple[dict[str, float], int, int]:
        """Advances the position; returns the metrics, tokens and rows of the finished steps."""
        self.state = self.state.advance(results.cursors)
        sums = PretrainingSums(*results.sums)
        figures = means(sums)
        figures["loss"] = figures["masked_lm_loss"] + figures["next_sentence_loss"]
        return figures, int(sums.tokens), len(results.losses) * self.phase.rows

    def labels(self, figures: Mapping[str, float]) -> dict[str, str]:
        """Returns the displayed loss, accuracies, speed and, if it is long, the wait for input."""
        predicts = "MLM" if self.settings.objective == "mlm" else "next-token"
        labels = {
            "loss": f"{figures['loss']:.3f}",
            f"{predicts} accuracy": f"{figures['masked_lm_accuracy']:.3f}",
        }
        if self.settings.nsp:
            labels["NSP accuracy"] = f"{figures['next_sentence_accuracy']:.3f}"
        if "tokens_per_second" in figures:
            labels["tokens/s"] = f"{figures['tokens_per_second']:,.0f}"
        if (share := figures.get("input_wait_share", 0.0)) >= _MIN_REPORTED_WAIT:
            labels["waiting for input"] = f"{share:.0%}"
        return labels

    def remedy(self, error: BadStepError) -> Exception:
        """Returns the error for a failed step; its message suggests a remedy."""
        self.background.wait()
        rate = f"--learning_rate={self.settings.learning_rate / 10:g}"
        remedy = f"resume from the last checkpoint with {rate}"
        if not self.directory.has_progress():
            remedy = f"no checkpoint was saved before this step; restart with {rate}"
        return BadStepError(error.bad, remedy)

    # --- Checkpoints and evaluations -----------------------------------------------------------

    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Saves a checkpoint and, unless the run is interrupted, evaluates it."""
        if self.step == self._saved_step:
            return
        self.save()
        # Skip the evaluation if the user interrupts the run.
        if not stops:
            result = self._evaluate_saved()
            ends = ends or self.callbacks.stops  # a callback may stop after the evaluation
            last = self.phases[-1].last_step
            if ends or self.step % self.steps_per_epoch == 0 or self.step == last:
                self.callbacks.end_epoch(_scores(result))

    def restore(self) -> bool:
        """Restores the newest checkpoint and the best result; returns whether there was one."""
        restored = super().restore()
        self.restore_best()
        return restored

    def _evaluate_saved(self) -> EvaluationResult | None:
        """Evaluates the weights of the checkpoint, and keeps them if they are the best so far."""
        result = self.evaluate(_EVAL_STEPS_WHILE_TRAINING, self.phase)
        if result is not None:
            self.summaries.write("eval", self.step, result._asdict())
            self.keep_best(result.loss)
        self._record(evaluated=self.step)
        return result

    def evaluate(self, max_steps: int, phase: Phase) -> EvaluationResult | None:
        """Evaluates on the batches of a phase; returns ``None`` without evaluation data."""
        if not self.inputs.data.evaluated:
            return None
        self.callbacks.hooks.on_test_begin()
        result = self.loop.evaluate(self._batches.evaluation(phase), max_steps)
        if not self.inputs.data.evaluates_next_sentence:
            names = (name for name in result._fields if name.startswith("next_sentence"))
            result = result._replace(**dict.fromkeys(names, 0))
        self.callbacks.hooks.on_test_end(_scores(result))
        return result

    def keep_best(self, loss: float) -> None:
        """Saves the weights if they are the best of the phase.

        Losses are comparable only within one sequence length. The weights are saved as a model
        directory, which can be loaded like the run itself.
        """
        phase, step = self.state.phase, self.step
        if not self.workers.is_chief or not math.isfinite(loss):
            return
        if self.best and self.best["phase"] == phase and self.best["loss"] <= loss:
            return
        self.best = {"step": step, "phase": phase, "loss": loss}
        tf.io.gfile.makedirs(self.directory.best)
        self.inputs.describe_model(self.directory.best)
        weights = model_state(self.loop.model)
        self.background.save(self.directory.best_weights, step, weights, self.best, keep=1)

    def restore_best(self) -> None:
        """Restores the best evaluation; deletes the best weights if they are of a later step."""
        if not self.workers.is_chief:
            return
        try:
            newest = saved_states.find_latest(self.directory.best_weights)
        except ValueError:
            print_progress(
                f"Cannot read {self.directory.best}: the next evaluation will be the best so far."
            )
            newest = None
        if newest is not None and newest.extra.keys() != {"step", "phase", "loss"}:
            raise ValueError(
                f"{self.directory.best_weights} contains a checkpoint that was not saved as the "
                "best of a run. Move it to another directory."
            )
        if newest is not None and newest.step > self.step:
            saved_states.delete_all(self.directory.best_weights)
            newest = None
        self.best = newest.extra if newest is not None else {}

    # --- progress.json -------------------------------------------------------------------------

    def note_end(self) -> None:
        """Records that training has ended, so that a resumed run skips it."""
        self._record(ended=self.step)

    def _done_at_this_step(self) -> set[str]:
        """Returns which of "evaluated" and "ended" are recorded for the current step.

        The previous process may have been stopped between a checkpoint and its evaluation.
        """
        recorded = self._recorded()
        current = {name: step for name, step in recorded.items() if step == self.step}
        if self.workers.is_chief and current != recorded:
            write_json(self.directory.progress, current)  # drops entries of deleted checkpoints
        names = ("evaluated", "ended")
        # Only the chief writes the file; other workers may read it before or after.
        chief_done = self.workers.gather([name in current for name in names])[0]
        return {name for name, is_done in zip(names, chief_done, strict=True) if is_done}

    def _recorded(self) -> dict[str, Any]:
        path = self.directory.progress
        return read_json_object(path) if tf.io.gfile.exists(path) else {}

    def _record(self, **done: int) -> None:
        if self.workers.is_chief:
            write_json(self.directory.progress, {**self._recorded(), **done})


def _scores(result: EvaluationResult | None) -> dict[str, float]:
    """Returns an evaluation's metrics for callbacks; {} without an evaluation."""
    return {"loss": result.loss, **result._asdict()} if result is not None else {}
