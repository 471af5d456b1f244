"""Training loop of pre-training and fine-tuning, for all distribution strategies."""

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
    """Results of the steps of one call of ``make``, as NumPy arrays and Python numbers."""

    step: int  # number of updates so far
    sums: np.ndarray  # sums of the objective over the call
    losses: list[float]  # loss of each step
    gradient_norm: float  # mean global norm before clipping
    learning_rate: float  # learning rate of the last step
    cursors: tuple[tuple[int, int, int], ...]  # last (epoch, pool, row) of each input pipeline
    waited: float | None  # seconds of waiting for batches, if measured

    def speed(
        self, *, seconds: float, tokens: int, examples: int, devices: int
    ) -> dict[str, float]:
        """Returns the speed, in total and per device, for TensorBoard."""
        figures = {"tokens_per_second": tokens / seconds, "examples_per_second": examples / seconds}
        if devices > 1:
            rates = figures.items()
            figures |= {f"device_{name}": rate / devices for name, rate in rates}
        if self.waited is not None:
            figures["input_wait_share"] = min(self.waited / seconds, 1.0)
        return figures


class BadStep(NamedTuple):
    """Step whose loss, gradient or weights are not finite.

    Attributes:
        step: Index of the step.
        cursors: Last (epoch, pool, row) of each input pipeline.
        loss: Loss.
        gradient_norm: Global norm of the gradient.
        corrupts_weights: Whether the loss and the gradient are finite, but the new weights are not.
    """

    step: int
    cursors: tuple[tuple[int, int, int], ...]
    loss: float
    gradient_norm: float
    corrupts_weights: bool = False

    def __str__(self) -> str:
        name = "The norm of the weights" if self.corrupts_weights else "The loss or its gradient"
        rows = " and ".join(
            f"row {row:,} of pool {pool:,} in epoch {epoch:,}" for epoch, pool, row in self.cursors
        )
        where = f", in the batch that ends with {rows}" if rows else ""
        return (
            f"{name} is not finite at step {self.step:,} "
            f"(loss {self.loss:.4g}, gradient norm {self.gradient_norm:.4g}){where}"
        )


class BadStepError(ValueError):
    """Raised if the step ``bad`` made the weights unusable; the message ends with ``remedy``."""

    def __init__(
        self,
        bad: BadStep,
        remedy: str = "resume from an earlier checkpoint with a lower learning rate or a longer "
        "warm-up",
    ) -> None:
        super().__init__(f"{bad}: {remedy}.")
        self.bad = bad


class Pace:
    """Number of steps per call, adapted so that a call takes about two seconds."""

    def __init__(self) -> None:
        self.steps = 1

    def note(self, steps: int, seconds: float) -> None:
        """Adapts the number to the measured duration of some steps."""
        target = max(1, round(steps * _CALL_SECONDS / seconds))
        self.steps = min(target, 2 * self.steps, _MAX_STEPS)


class TrainingLoop:
    """Trains a model.

    Args:
        model: Model created in the scope of the strategy.
        optimizer: Optimizer built for ``model.trainable_variables`` in the scope of the strategy.
            The loop disables the optimizer's own reduction of gradients over replicas.
        strategy: A ``tf.distribute`` strategy.
        objective: Objective to minimize.
        seed: Random seed of the dropout masks.
        gradient_accumulation_steps: Number of micro-batches per replica.
        clip_norm: Maximum global norm of the summed gradients.
        device_type: Type of the strategy's devices: "CPU", "GPU" or "TPU".
        jit_compile: Whether to compile the step with XLA; on TPUs, XLA always compiles it.
        measures_waits: Whether to measure the time spent waiting for batches; not supported with
            ``enable_op_determinism``.

    Raises:
        ValueError: If an argument is out of range, or the optimizer is not built.
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
                "The optimizer is not built. Call optimizer.build(model.trainable_variables) in "
                "the scope of the strategy."
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
        # AutoGraph would take seconds for its first conversion. TensorFlow would warn of retracing
        # if five objects traced the same method, but does not warn for partials.
        self._make = tf.function(functools.partial(self._make_steps), autograph=False)

    @property
    def step(self) -> int:
        """Number of updates, including those before the run was resumed."""
        return int(self.optimizer.iterations.numpy())

    def state(self) -> dict[str, keras.Variable]:
        """Returns the variables to save, named ``model/PATH`` and ``optimizer/PATH``."""
        return {**model_state(self.model), **_named("optimizer", self.optimizer.variables)}

    def make(self, iterator: Iterator[Any], num_steps: int) -> StepResults:
        """Performs ``num_steps`` updates in one call of a compiled function.

        Raises:
            BadStepError: If the loss or the gradients of a step are not finite, or if the weights
                after the last step are not.
            ValueError: If the iterator ends before the last step.
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
                f"The data ended before {num_steps} updates from step {first_step} were made. Pass "
                "a dataset that repeats."
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
        """Performs the updates; returns the tensors from which ``make`` creates the results."""

        def make_one(
            index: tf.Tensor,
            sums: tf.Tensor,
            _: tf.Tensor,
            measures: tf.TensorArray,
            cursors: tf.TensorArray,
            ended: tf.Tensor,
            waited: tf.Tensor,
        ) -> tuple[Any, ...]:
            # On a CPU, the previous iteration has ended; on other devices, it may still run.
            ended = tf.maximum(ended, self._time_after([]))
            batch, came = self._timed(iterator.get_next())  # type: ignore[attr-defined]
            waited += tf.maximum(came - ended, 0.0)
            outcome = self.strategy.run(self.replica_step.run, args=(batch,))
            # The results are the same on all replicas.
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
        """Returns a batch and the time of its arrival, measured before the step starts."""
        came = self._time_after(batch[features.CURSOR])
        if not self._measures_waits:
            return batch, came

        def wait_for_batch(value: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([came]), tf.device(value.device):
                return tf.identity(value)

        return tf.nest.map_structure(wait_for_batch, batch, expand_composites=True), came

    def _time_after(self, values: Any) -> tf.Tensor:
        """Returns the time at which all tensors have been computed; 0 if waits are not measured."""
        if not self._measures_waits:
            return tf.zeros((), tf.float64)
        with tf.device("CPU:0"):
            computed = [tf.identity(v) for v in tf.nest.flatten(values, expand_composites=True)]
            with tf.control_dependencies(computed):
                return tf.timestamp()


def last_cursors(replica_cursors: Iterable[Sequence[int]]) -> tuple[tuple[int, int, int], ...]:
    """Returns the last cursor of each input pipeline from the cursors of the replicas.

    >>> last_cursors([(0, 0, 2, 3), (0, 0, 2, 7), (1, 0, 1, 4), (1, 0, 3, 0)])
    ((0, 2, 7), (0, 3, 0))
    """
    last: dict[int, tuple[int, int, int]] = {}
    for pipeline, epoch, pool, row in replica_cursors:
        last[pipeline] = max(last.get(pipeline, (0, 0, 0)), (epoch, pool, row))
    return tuple(cursor for _, cursor in sorted(last.items()))


def model_state(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the variables, named ``model/PATH``, except seeds, which the loop does not use."""
    generators = {id(variable) for variable in modeling.seed_variables(model)}
    return _named("model", [v for v in model.variables if id(v) not in generators])


def _named(owner: str, variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    by_name: dict[str, keras.Variable] = {}
    for variable in variables:
        name = f"{owner}/{variable.path}"
        if name in by_name:
            raise ValueError(
                f"Two variables have the name {name!r}. Use different names for the layers of the "
                "model."
            )
        by_name[name] = variable
    return by_name
