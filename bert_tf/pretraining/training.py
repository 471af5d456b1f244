"""The training of a run: its phases, evaluated and saved, resumed exactly; its best weights."""

import dataclasses
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint, Tokenization
from bert_tf.config import BertConfig
from bert_tf.files import read_json_object, write_json
from bert_tf.pipelines.pretraining.pools import Cursor, Reached
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.training import saved_states
from bert_tf.training.distribution import Distribution
from bert_tf.training.loop import BadStepError, StepResults, model_state
from bert_tf.training.progress import Progress, Summaries, print_progress
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.trainer import Callbacks, Trainer

from .data import Batches, PretrainingData
from .model import build_loop, initialise_pretrainer, pretrainer_spec
from .objective import EvaluationResult, PretrainingLoop, PretrainingSums, means
from .phases import Phase
from .settings import PretrainingSettings, phases_of

# A checkpoint is saved after ten minutes, whatever the steps.
SAVE_SECONDS = 600.0
_SHOWN_WAIT = 0.05
_EVAL_STEPS_WHILE_TRAINING = 20


class PretrainingInputs(NamedTuple):
    """Inputs of a run: its data, and the checkpoint that it starts from, if any."""

    data: PretrainingData
    tokenizer: BertTokenizer
    config: BertConfig
    start: Checkpoint | None = None

    def describe_model(self, path: str, nsp: bool) -> None:
        """Writes to a directory what makes a model of weights: sizes, class, vocabulary."""
        tokenization = Tokenization.of(self.tokenizer)
        spec = pretrainer_spec(nsp)
        described = Checkpoint(path, "bert_tf", self.config, spec, tokenization=tokenization)
        model_directory.write_description(described, path)


@dataclasses.dataclass(frozen=True)
class Position:
    """Where the data of a phase goes on."""

    phase: int = 0
    # The cursors behind what each host has read; where their number changed, those of each number.
    reached: Reached = (((0, 0, 0),),)

    def behind(self, cursors: Sequence[Cursor]) -> "Position":
        """The position behind the last row of each host."""
        now = [(epoch, pool, row + 1) for epoch, pool, row in cursors]
        before = [
            hosts for hosts in self.reached if len(hosts) != len(now) and max(hosts) > min(now)
        ]
        return Position(self.phase, [*before, now])

    def to_json(self) -> dict[str, Any]:
        """Form that ``from_json`` reads, whatever the number of hosts."""
        return {"phase": self.phase, "start": self.reached}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Position":
        """Reads what ``to_json`` gave."""
        return cls(kept["phase"], [[(e, p, r) for e, p, r in hosts] for hosts in kept["start"]])


class PretrainingTrainer(Trainer):
    """The training of a run: stopped and resumed it ends as one that was not, bit for bit.

    Of several workers the chief writes. ``position`` is where the data goes on; ``best`` has the
    step, phase and loss of the best evaluation, if any.
    """

    loop: PretrainingLoop

    def __init__(
        self,
        settings: PretrainingSettings,
        directory: RunDirectory,
        devices: Distribution,
        inputs: PretrainingInputs,
    ) -> None:
        super().__init__(devices.workers, is_temporary=directory.is_temporary)
        self.settings = settings
        self.directory = directory
        self.devices = devices
        self.inputs = inputs
        self.phases = phases_of(settings)
        self.position = Position()
        self.best: dict[str, Any] = {}
        self._best_weights = os.path.join(directory.best, model_directory.CHECKPOINTS)
        replicas = devices.strategy.num_replicas_in_sync
        self._batches = Batches(settings, inputs.data, inputs.tokenizer, replicas)
        self._summaries = Summaries(directory.logs if self.workers.is_chief else None)
        self._saved_step = -1
        self._saved_at = time.monotonic()

    def finish(self, callbacks: Sequence[Any]) -> EvaluationResult | None:
        """Trains what is left of all phases; returns the final evaluation, if there is any."""
        self.loop = build_loop(self.settings, self.inputs.config, self.devices)
        restored = self.restore()
        self.directory.keep_masks(self.loop.compilation.masks.name, self.step)
        if not restored and self.inputs.start is not None:
            for sentence in initialise_pretrainer(self.loop.model, self.inputs.start):
                print_progress(sentence, flush=True)
        self._begin_callbacks(callbacks)
        done = self._done_at_this_step()
        with self.interruption, self.background:
            if restored and self._is_checkpoint_step() and "evaluated" not in done:
                self._evaluate_saved()
            if "ended" not in done:
                self._train_phases()
        return self.evaluate(self.settings.max_eval_steps, self.phases[-1])

    def _begin_callbacks(self, callbacks: Sequence[Any]) -> None:
        """Begins the callbacks' training; an epoch lasts from checkpoint to checkpoint."""
        every = self.settings.save_checkpoints_steps
        if callbacks:
            with self.devices.strategy.scope():
                # The optimizer is for callbacks to look at.
                self.loop.model.compile(self.loop.optimizer, jit_compile=False)
        epochs = -(-self.phases[-1].last_step // every)
        names = ("loss", *EvaluationResult._fields) if self.inputs.data.evaluated else ()
        self.callbacks = Callbacks(
            callbacks,
            self.loop.model,
            steps_per_epoch=every,
            epochs=epochs,
            scores={n: "min" if n.endswith(("loss", "perplexity")) else "max" for n in names},
        )
        self.callbacks.begin()

    def _train_phases(self) -> None:
        # A phase that has been left is not trained again, even if --num_train_steps has changed.
        for number in range(self.position.phase, len(self.phases)):
            phase = self.phases[number]
            if self.step >= phase.last_step:
                continue
            if self.position.phase != number:
                self.position = Position(number)
            label = f"Training at length {phase.max_seq_length}"
            callback_ended = self.train(label, phase.last_step)
            if callback_ended:
                print_progress(f"A callback ended the training at step {self.step:,}.")
                return

    # --- Steps ---------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The updates that are made."""
        return self.loop.step

    @property
    def phase(self) -> Phase:
        """The phase that the position is in."""
        return self.phases[self.position.phase]

    def batches(self) -> Iterator[Any]:
        """The batches of the phase from the position on."""
        position = self.position
        return self.loop.distribute(
            self._batches.training(self.phase, position.phase, position.reached)
        )

    def note(self, progress: Progress, results: StepResults, seconds: float | None) -> None:
        """Shows the results of some steps, and writes them for TensorBoard."""
        self.position = self.position.behind(results.cursors)
        steps, sums = len(results.losses), PretrainingSums(*results.sums)
        figures = means(sums)
        loss = figures["masked_lm_loss"] + figures["next_sentence_loss"]
        predicts = "MLM" if self.settings.objective == "mlm" else "next-token"
        accuracy = f"{figures['masked_lm_accuracy']:.3f}"
        shown = {"loss": f"{loss:.3f}", f"{predicts} accuracy": accuracy}
        if self.settings.nsp:
            shown["NSP accuracy"] = f"{figures['next_sentence_accuracy']:.3f}"
        figures |= {"gradient_norm": results.gradient_norm, "learning_rate": results.learning_rate}
        figures["loss"] = loss
        if seconds is not None:
            speed = results.speed(
                seconds=seconds,
                tokens=int(sums.tokens),
                examples=steps * self.phase.rows,
                devices=self.devices.strategy.num_replicas_in_sync,
            )
            figures |= speed
            shown["tokens/s"] = f"{speed['tokens_per_second']:,.0f}"
            if (share := speed.get("input_wait_share", 0.0)) >= _SHOWN_WAIT:
                shown["waiting for input"] = f"{share:.0%}"
        progress.update(results.step, shown)
        self._summaries.write("train", results.step, figures)
        self.callbacks.end_step(results.step - 1, loss, steps=steps, others=figures)

    def remedy(self, error: BadStepError) -> Exception:
        """Says what to do about a bad step."""
        self.background.wait()
        rate = f"--learning_rate={self.settings.learning_rate / 10:g}"
        remedy = f"go on from the checkpoint before it with {rate}"
        if not self.directory.has_progress():
            remedy = f"no checkpoint was saved before it, so begin anew with a lower rate, {rate}"
        return BadStepError(error.bad, remedy)

    # --- Checkpoints and evaluations -----------------------------------------------------------

    def next_pause(self) -> int:
        """The next step with a checkpoint, whatever the time."""
        every = self.settings.save_checkpoints_steps
        return (self.step // every + 1) * every

    def _is_checkpoint_step(self) -> bool:
        every = self.settings.save_checkpoints_steps
        return self.step % every == 0 or self.step == self.phase.last_step

    def is_pause_due(self) -> bool:
        """True if it is time for a checkpoint."""
        return self._is_checkpoint_step() or time.monotonic() - self._saved_at >= SAVE_SECONDS

    def pause(self, progress: Progress, stops: bool, ends: bool) -> None:
        """Saves, then evaluates what was saved."""
        if self.step == self._saved_step:
            return
        if self.workers.is_chief:
            self.background.save(
                self.directory.checkpoints,
                self.step,
                self.loop.state(),
                self.position.to_json(),
                keep=self.settings.keep_checkpoints,
            )
        self._saved_step = self.step
        self._saved_at = time.monotonic()
        self._summaries.flush()
        # Skip the evaluation when the user interrupted.
        if not stops:
            result = self._evaluate_saved()
            every, last = self.settings.save_checkpoints_steps, self.phases[-1].last_step
            ends = ends or self.callbacks.stops  # a callback may stop after the evaluation
            if ends or self.step % every == 0 or self.step == last:
                self.callbacks.end_epoch(_scores(result))

    def restore(self) -> bool:
        """Restores the newest checkpoint and says so; returns whether there is one."""
        restored = saved_states.restore_latest(self.directory.checkpoints, self.loop.state())
        self.workers.check_same(self.step, "newest checkpoint in --model_dir")
        self.restore_best()  # or removes the best of deleted checkpoints
        if restored is None:
            return False
        for warning in restored.warnings:
            print_progress(warning)
        self.position = Position.from_json(restored.extra)
        self._saved_step = self.step
        print_progress(f"Continuing from the checkpoint at step {self.step:,}.", flush=True)
        return True

    def _evaluate_saved(self) -> EvaluationResult | None:
        """Evaluates the weights that have been saved, and keeps them where they are the best."""
        result = self.evaluate(_EVAL_STEPS_WHILE_TRAINING, self.phase)
        if result is not None:
            self._summaries.write("eval", self.step, result._asdict())
            self.keep_best(result.loss)
        self._record(evaluated=self.step)
        return result

    def evaluate(self, max_steps: int, phase: Phase) -> EvaluationResult | None:
        """Evaluates on the batches of a phase; ``None`` where there is nothing to evaluate on."""
        if not self.inputs.data.evaluated:
            return None
        self.callbacks.begin_evaluation()
        result = self.loop.evaluate(self._batches.evaluation(phase), max_steps)
        if not self.inputs.data.evaluates_next_sentence:
            names = (name for name in result._fields if name.startswith("next_sentence"))
            result = result._replace(**dict.fromkeys(names, 0))
        self.callbacks.end_evaluation(_scores(result))
        return result

    def keep_best(self, loss: float) -> None:
        """Keeps the weights if this evaluation is its phase's best: another length, another loss.

        They are in a model directory of their own, so that they load as the run's newest do.
        """
        phase, step = self.position.phase, self.step
        if not self.workers.is_chief or not math.isfinite(loss):
            return
        if self.best and self.best["phase"] == phase and self.best["loss"] <= loss:
            return
        self.best = {"step": step, "phase": phase, "loss": loss}
        tf.io.gfile.makedirs(self.directory.best)
        self.inputs.describe_model(self.directory.best, self.settings.nsp)
        weights = model_state(self.loop.model)
        self.background.save(
            self._best_weights, step, weights, self.best, keep=1, at_same_step=True
        )

    def restore_best(self) -> None:
        """Finds the best evaluation that was kept, unless it is of a step that comes again."""
        if not self.workers.is_chief:
            return
        try:
            newest = saved_states.find_latest(self._best_weights)
        except ValueError:
            print_progress(
                f"{self.directory.best} is damaged: the next evaluation is the best so far."
            )
            newest = None
        if newest is not None and newest.extra.keys() != {"step", "phase", "loss"}:
            raise ValueError(
                f"{self._best_weights} holds a checkpoint that is no run's best: move it away, as "
                "the best weights are to be kept there."
            )
        if newest is not None and newest.step > self.step:
            saved_states.delete_all(self._best_weights)
            newest = None
        self.best = newest.extra if newest is not None else {}

    # --- progress.json -------------------------------------------------------------------------

    def note_end(self) -> None:
        """So that the same command goes on behind the training."""
        self._record(ended=self.step)

    def _done_at_this_step(self) -> set[str]:
        """The ones of "evaluated" and "ended" that the process before recorded of this step.

        It may have been killed or stopped between a checkpoint and its evaluation.
        """
        recorded = self._recorded()
        of_this_step = {name: step for name, step in recorded.items() if step == self.step}
        if self.workers.is_chief and of_this_step != recorded:
            write_json(self.directory.progress, of_this_step)  # others' checkpoints are gone
        names = ("evaluated", "ended")
        # The chief alone writes that file: another may read it before or after.
        of_chief = self.workers.gather([name in of_this_step for name in names])[0]
        return {name for name, is_done in zip(names, of_chief, strict=True) if is_done}

    def _recorded(self) -> dict[str, Any]:
        path = self.directory.progress
        return read_json_object(path) if tf.io.gfile.exists(path) else {}

    def _record(self, **done: int) -> None:
        if self.workers.is_chief:
            write_json(self.directory.progress, {**self._recorded(), **done})


def _scores(result: EvaluationResult | None) -> dict[str, float]:
    """An evaluation's figures for callbacks, with the loss by Keras' name; {} without one."""
    return {"loss": result.loss, **result._asdict()} if result is not None else {}
