"""Saving during a training: the newest checkpoints, and the best weights."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints import model_directory
from bert_tf.pipelines.pools import Cursor, Reached
from bert_tf.training import saved_states
from bert_tf.training.distribution import Workers
from bert_tf.training.loop import model_state
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.saved_states import BackgroundSaving

from .objective import PretrainingLoop
from .recipes import Phase
from .settings import PretrainingSettings

# A checkpoint is saved after ten minutes, whatever the steps.
SAVE_SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Position:
    """Where the data of a phase goes on.

    ``reached`` are the cursors behind what each host has read; where the number of hosts changed
    in the phase, those of each number.
    """

    phase: int = 0
    reached: Reached = (((0, 0, 0),),)

    def behind(self, cursors: Sequence[Cursor]) -> "Position":
        """The position behind the last row of each host."""
        now = [(epoch, pool, row + 1) for epoch, pool, row in cursors]
        before = [
            hosts for hosts in self.reached if len(hosts) != len(now) and max(hosts) > min(now)
        ]
        return Position(self.phase, [*before, now])

    def to_json(self) -> dict[str, Any]:
        """JSON form, which ``from_json`` reads."""
        return {"phase": self.phase, "start": self.reached}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Position":
        """Reads what ``to_json`` gave, whatever the number of hosts."""
        return cls(kept["phase"], [[(e, p, r) for e, p, r in hosts] for hosts in kept["start"]])


class Saving:
    """Saves and restores a run: its loop's state, and where its data goes on. The chief writes.

    ``best`` has the step, phase and loss of the best evaluation, if any.
    """

    def __init__(
        self,
        settings: PretrainingSettings,
        directory: RunDirectory,
        loop: PretrainingLoop,
        workers: Workers,
        background: BackgroundSaving,
        describe: Callable[[str], None],
    ) -> None:
        """``describe`` writes to a directory what the model is."""
        self.position = Position()
        self.best: dict[str, Any] = {}
        self.background = background
        self._settings = settings
        self._directory = directory
        self._loop = loop
        self._workers = workers
        self._describe = describe
        self._best_weights = os.path.join(directory.best, model_directory.CHECKPOINTS)
        self._saved_step = -1
        self._saved_at = time.monotonic()

    def next_due(self, behind: int = 0) -> int:
        """The next step with a checkpoint, whatever the time; of this step, or ``behind`` it."""
        every = self._settings.save_checkpoints_steps
        return ((self._loop.step + behind) // every + 1) * every

    def is_due(self, phase: Phase) -> bool:
        """True if it is time for a checkpoint."""
        return (
            self._loop.step % self._settings.save_checkpoints_steps == 0
            or self._loop.step == phase.last_step
            or time.monotonic() - self._saved_at >= SAVE_SECONDS
        )

    def save(self) -> bool:
        """Saves a checkpoint; returns whether there was none of this step."""
        if self._loop.step == self._saved_step:
            return False
        if self._workers.is_chief:
            self.background.save(
                self._directory.checkpoints,
                self._loop.step,
                self._loop.state(),
                self.position.to_json(),
                keep=self._settings.keep_checkpoints,
            )
        self._saved_step = self._loop.step
        self._saved_at = time.monotonic()
        return True

    def restore(self) -> bool:
        """Restores the newest checkpoint and says so; returns whether there is one."""
        restored = saved_states.restore_latest(self._directory.checkpoints, self._loop.state())
        self._workers.check_same(self._loop.step, "newest checkpoint in --model_dir")
        self._restore_best()  # where the user deleted the checkpoints, theirs goes
        if restored is None:
            return False
        for warning in restored.warnings:
            print(warning)
        self.position = Position.from_json(restored.extra)
        self._saved_step = self._loop.step
        print(f"Continuing from the checkpoint at step {self._loop.step:,}.", flush=True)
        return True

    def keep_best(self, loss: float) -> None:
        """Keeps the weights if this is the best evaluation of its phase: lengths differ in theirs.

        They are in a model directory of their own, so that they load as the run's newest do.
        """
        phase, step = self.position.phase, self._loop.step
        if not self._workers.is_chief or not math.isfinite(loss):
            return
        if self.best and self.best["phase"] == phase and self.best["loss"] <= loss:
            return
        self.best = {"step": step, "phase": phase, "loss": loss}
        tf.io.gfile.makedirs(self._directory.best)
        self._describe(self._directory.best)
        weights = model_state(self._loop.model)
        self.background.save(
            self._best_weights, step, weights, self.best, keep=1, at_same_step=True
        )

    def _restore_best(self) -> None:
        if not self._workers.is_chief:
            return
        try:
            found = saved_states.find_latest(self._best_weights)
        except ValueError:
            print(f"{self._directory.best} is damaged: the next evaluation is the best so far.")
            found = None
        if found is not None and found.extra.keys() != {"step", "phase", "loss"}:
            raise ValueError(
                f"{self._best_weights} holds a checkpoint that is no run's best: move it away, as "
                "the best weights are to be kept there."
            )
        if found is not None and found.step > self._loop.step:
            saved_states.delete_all(self._best_weights)  # it comes again
            found = None
        self.best = found.extra if found is not None else {}
