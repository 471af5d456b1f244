"""The training loop round ``step.ReplicaStep``: the same code for every training and strategy."""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features, modeling

from .compilation import Compilation
from .step import Objective, ReplicaStep

_CALL_SECONDS = 2.0
_MAX_STEPS = 500


class StepResults(NamedTuple):
    """Results of some steps, as NumPy arrays and Python numbers."""

    step: int  # the updates of all calls
    sums: np.ndarray  # the objective's, over the updates of this call
    losses: list[float]  # one by one
    gradient_norm: float  # the mean of the global norms before clipping
    learning_rate: float  # the last step's
    cursors: tuple[tuple[int, int, int], ...]  # (epoch, pool, row): each input pipeline's last
    waited: float | None  # seconds without a batch after a step's end, where they are measured

    def speed(
        self, *, seconds: float, tokens: int, examples: int, devices: int
    ) -> dict[str, float]:
        """The steps' figures, in all and for each of several devices, for TensorBoard."""
        figures = {"tokens_per_second": tokens / seconds, "examples_per_second": examples / seconds}
        if devices > 1:
            rates = figures.items()
            figures |= {f"device_{name}": rate / devices for name, rate in rates}
        if self.waited is not None:
            figures["input_wait_share"] = min(self.waited / seconds, 1.0)
        return figures


class BadStep(NamedTuple):
    """A step that is not finite: its number, each host's (epoch, pool, row) there, its measures.

    ``corrupts_weights``: the loss and the gradient are finite, and the norm of the new weights is
    not.
    """

    step: int
    cursors: tuple[tuple[int, int, int], ...]
    loss: float
    gradient_norm: float
    corrupts_weights: bool = False

    def __str__(self) -> str:
        what = "The norm of the weights" if self.corrupts_weights else "The loss or its gradient"
        rows = " and ".join(
            f"row {row:,} of pool {pool:,} in epoch {epoch:,}" for epoch, pool, row in self.cursors
        )
        where = f", on the batch that ends with {rows}" if rows else ""
        return (
            f"{what} became infinite or not a number at step {self.step:,} "
            f"(loss {self.loss:.4g}, gradient norm {self.gradient_norm:.4g}){where}"
        )


class BadStepError(ValueError):
    """The weights are unusable after ``bad``; ``remedy`` says what to do, where more is known."""

    def __init__(
        self,
        bad: BadStep,
        remedy: str = "lower the learning rate or lengthen the warm-up, and go on from the "
        "checkpoint before",
    ) -> None:
        super().__init__(f"{bad}: {remedy}.")
        self.bad = bad


class Pace:
    """Number of steps in a call: as many as take about two seconds."""

    def __init__(self) -> None:
        self.steps = 1

    def note(self, steps: int, seconds: float) -> None:
        """Takes what some steps took that were compiled before."""
        target = max(1, round(steps * _CALL_SECONDS / seconds))
        self.steps = min(target, 2 * self.steps, _MAX_STEPS)


class TrainingLoop:
    """Trains a model.

    Args:
        model: built in the strategy's scope.
        optimizer: built for ``model.trainable_variables`` in the strategy's scope. It is the
            loop's from then on: its own reduction of gradients over the replicas is switched off.
        strategy: any ``tf.distribute`` strategy.
        objective: what is minimised.
        seed: seeds the dropout masks.
        gradient_accumulation_steps: K, the micro-batches of a replica's share of a batch.
        clip_norm: the global norm that the summed gradients are clipped to.
        device_type: the strategy's, "CPU", "GPU" or "TPU".
        jit_compile: compile the step with XLA. (On a TPU everything is, regardless.)
        measures_waits: TensorFlow's clock runs only without ``enable_op_determinism``.

    Raises:
        ValueError: an argument is out of range, or the optimizer is not built.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        objective: Objective,
        *,
        seed: int,
        gradient_accumulation_steps: int = 1,
        clip_norm: float = 1.0,
        device_type: str = "CPU",
        jit_compile: bool = False,
        measures_waits: bool = True,
    ) -> None:
        if gradient_accumulation_steps < 1:
            raise ValueError(
                "gradient_accumulation_steps must be at least 1, "
                f"got {gradient_accumulation_steps}."
            )
        if not optimizer.built:
            raise ValueError(
                "The optimizer is not built: call optimizer.build(model.trainable_variables) in "
                "the strategy's scope first."
            )
        self.model = model
        self.optimizer = optimizer
        self.strategy = strategy
        self.compilation = Compilation(device_type, jit_compile)
        self.replica_step = ReplicaStep(
            model,
            optimizer,
            objective,
            seed=seed,
            micro_batches=gradient_accumulation_steps,
            clip_norm=clip_norm,
            num_replicas=strategy.num_replicas_in_sync,
            compilation=self.compilation,
        )
        self._num_sums = objective.num_sums
        self._micro_batches = gradient_accumulation_steps
        self._measures_waits = measures_waits
        # Nothing here or below needs AutoGraph, whose first conversion takes seconds. TensorFlow
        # counts the traces of a method over all objects, and warns at the fifth; not of a partial.
        self._make = tf.function(functools.partial(self._make_steps), autograph=False)

    @property
    def step(self) -> int:
        """The number of updates made, across restarts."""
        return int(self.optimizer.iterations.numpy())

    def state(self) -> dict[str, keras.Variable]:
        """Everything that a checkpoint has to keep: ``model_state``, and ``optimizer/PATH``."""
        return {**model_state(self.model), **_named("optimizer", self.optimizer.variables)}

    def make(self, iterator: Iterator[Any], num_steps: int) -> StepResults:
        """Makes updates, all in one call of a compiled function, the same for any number.

        Raises:
            BadStepError: the loss or the gradients of a step, or the weights after the last one,
                are not finite: an earlier checkpoint has to be restored.
            ValueError: the data ended before the last step.
        """
        if num_steps < 1:
            raise ValueError(f"num_steps must be at least 1, got {num_steps}.")
        first_step = self.step
        try:
            sums, rate, measures, cursors, waited, weights_norm = self._make(
                iterator, tf.constant(num_steps)
            )
        except tf.errors.OutOfRangeError as error:
            raise ValueError(
                f"The data ended before the {num_steps} updates that were asked for at step "
                f"{first_step}: give a dataset that repeats."
            ) from error
        measured = measures.numpy().tolist()
        for step, ((loss, norm), replica_cursors) in enumerate(
            zip(measured, cursors.numpy().tolist(), strict=True), first_step
        ):
            last = last_cursors(replica_cursors)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise BadStepError(BadStep(step, last, loss, norm))
        if not math.isfinite(weights_norm):
            raise BadStepError(BadStep(step, last, loss, norm, corrupts_weights=True))
        return StepResults(
            step=self.step,
            sums=sums.numpy(),
            losses=[loss for loss, _ in measured],
            gradient_norm=float(np.mean([norm for _, norm in measured])),
            learning_rate=float(rate),
            cursors=last,
            waited=float(waited) if self._measures_waits else None,
        )

    def _make_steps(self, iterator: Iterator[Any], num_steps: tf.Tensor) -> tuple[Any, ...]:
        """Sums, the last rate, each step's (loss, norm) and cursors, waits, the weights' norm."""

        def make_one(
            index: tf.Tensor,
            sums: tf.Tensor,
            _: tf.Tensor,
            measures: tf.TensorArray,
            cursors: tf.TensorArray,
            ended: tf.Tensor,
            waited: tf.Tensor,
        ) -> tuple[Any, ...]:
            # A turn begins when the one before has ended on a CPU, and earlier on other devices.
            ended = tf.maximum(ended, self._time_after([]))
            batch, came = self._timed(iterator.get_next())  # type: ignore[attr-defined]
            waited += tf.maximum(came - ended, 0.0)
            outcome = self.strategy.run(self.replica_step.run, args=(batch,))
            # They are the same on every replica.
            step_sums, measured, rate, step_cursors = (
                self.strategy.experimental_local_results(value)[0] for value in outcome
            )
            sums += step_sums
            measures = measures.write(index, measured)
            cursors = cursors.write(index, step_cursors)
            ended = self._time_after(measured)
            return index + 1, sums, rate, measures, cursors, ended, waited

        replicas = self.strategy.num_replicas_in_sync
        _, sums, rate, measures, cursors, _, waited = tf.while_loop(
            lambda index, *_: index < num_steps,
            make_one,
            (
                tf.constant(0),
                tf.zeros([self._num_sums]),
                tf.zeros(()),
                tf.TensorArray(tf.float32, num_steps, element_shape=(2,)),
                tf.TensorArray(tf.int32, num_steps, element_shape=(replicas, 4)),
                self._time_after([]),
                tf.zeros((), tf.float64),
            ),
            parallel_iterations=1,
        )
        weights_norm = self.strategy.run(self.replica_step.weights_norm)
        weights_norm = self.strategy.experimental_local_results(weights_norm)[0]
        return sums, rate, measures.stack(), cursors.stack(), waited, weights_norm

    def _timed(self, batch: Any) -> tuple[Any, tf.Tensor]:
        """A batch, and the time at which it came: read before the step, even on one core."""
        came = self._time_after(batch[features.CURSOR])
        if not self._measures_waits:
            return batch, came

        def wait_for_batch(value: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([came]), tf.device(value.device):
                return tf.identity(value)

        return tf.nest.map_structure(wait_for_batch, batch, expand_composites=True), came

    def _time_after(self, values: Any) -> tf.Tensor:
        """The seconds at which tensors, of any device, have been computed; 0 without a clock."""
        if not self._measures_waits:
            return tf.zeros((), tf.float64)
        with tf.device("CPU:0"):
            computed = [tf.identity(v) for v in tf.nest.flatten(values, expand_composites=True)]
            with tf.control_dependencies(computed):
                return tf.timestamp()


def last_cursors(replica_cursors: Iterable[Sequence[int]]) -> tuple[tuple[int, int, int], ...]:
    """The last cursor of each input pipeline, from those of the replicas.

    >>> last_cursors([(0, 0, 2, 3), (0, 0, 2, 7), (1, 0, 1, 4), (1, 0, 3, 0)])
    ((0, 2, 7), (0, 3, 0))
    """
    last: dict[int, tuple[int, int, int]] = {}
    for pipeline, epoch, pool, row in replica_cursors:
        last[pipeline] = max(last.get(pipeline, (0, 0, 0)), (epoch, pool, row))
    return tuple(cursor for _, cursor in sorted(last.items()))


def model_state(model: keras.Model) -> dict[str, keras.Variable]:
    """A model's variables by ``model/PATH``, but for seeds' states, which the loop never reads."""
    generators = {id(variable) for variable in modeling.seed_variables(model)}
    return _named("model", [v for v in model.variables if id(v) not in generators])


def _named(owner: str, variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    by_name: dict[str, keras.Variable] = {}
    for variable in variables:
        name = f"{owner}/{variable.path}"
        if name in by_name:
            raise ValueError(
                f"Two variables are called {name!r}, and a checkpoint could keep only one: give "
                "the model's layers different names."
            )
        by_name[name] = variable
    return by_name
