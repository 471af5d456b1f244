"""The training loop round ``step.ReplicaStep``: the same code for every training and strategy."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features, modeling

from .bad_steps import BadStep, BadStepError, Trend
from .input_pipelines import last_cursors
from .step import Objective, ReplicaStep

_CALL_SECONDS = 2.0
_MOST_STEPS = 500


class Made(NamedTuple):
    """Some steps that were made, as NumPy arrays and Python numbers.

    ``step`` counts the updates of all calls, ``steps`` those of this one and the steps that were
    skipped. ``sums`` are the objective's over the updates, and ``losses`` theirs, one by one;
    ``gradient_norm`` is the mean over the updates of the global norm before clipping,
    ``learning_rate`` the last step's. ``cursors`` are the (epoch, pool, row) of the last row of
    each input pipeline; ``skipped`` are the steps that were bad, in their order; ``waited`` are the
    seconds in which a step had ended and the next batch was not there, where they are measured.
    """

    step: int
    steps: int
    sums: np.ndarray
    losses: list[float]
    gradient_norm: float
    learning_rate: float
    cursors: tuple[tuple[int, int, int], ...]
    skipped: tuple[BadStep, ...]
    waited: float | None


class Pace:
    """How many steps are made in a call: as many as take about two seconds.

    ``fixed`` is another number. The first call is mostly compilation, and says nothing of the next.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self.steps = fixed or 1
        self._is_fixed = bool(fixed)

    def note(self, steps: int, seconds: float) -> None:
        """Takes what some steps took that were compiled before."""
        if not self._is_fixed:
            wanted = max(1, round(steps * _CALL_SECONDS / seconds))
            self.steps = min(wanted, 2 * self.steps, _MOST_STEPS)


class TrainingLoop:
    """Trains a model.

    Args:
        model: built in the strategy's scope.
        optimizer: a Keras optimizer built for ``model.trainable_variables`` in the strategy's
            scope. It is the loop's from then on: its own reduction of gradients over the replicas
            is switched off, because the loop reduces them before it clips.
        strategy: any ``tf.distribute`` strategy.
        objective: what is minimised.
        seed: seeds the dropout masks.
        gradient_accumulation_steps: K, the number of micro-batches that a replica cuts its share
            of the batch into; one update for all of them.
        clip_norm: the global norm that the summed gradients are clipped to; ``None`` for none.
        jit_compile: compile the gradients with XLA. (On a TPU everything is, regardless.)
        spike_factor: a step is bad if its loss or its gradients are not finite, or, where this is
            above 0, if its loss or their norm before clipping is over so many times the running
            mean of the good steps (see `Trend`), of which there must be 100.
        skip_bad_steps: make no update in a bad step: all is as if its batch had not been there.
        most_bad_steps: how many are skipped in a row.
        measures_waits: TensorFlow's clock runs only without ``enable_op_determinism``.

    Attributes:
        trend: what a spike is measured by: Python floats, to be kept with a checkpoint.

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
        clip_norm: float | None = 1.0,
        jit_compile: bool = False,
        spike_factor: float = 0.0,
        skip_bad_steps: bool = False,
        most_bad_steps: int = 10,
        measures_waits: bool = True,
    ) -> None:
        if gradient_accumulation_steps < 1:
            raise ValueError(
                "gradient_accumulation_steps must be at least 1, "
                f"got {gradient_accumulation_steps}."
            )
        if clip_norm is not None and not clip_norm > 0.0:
            raise ValueError(f"clip_norm must be positive or None, got {clip_norm!r}.")
        if not optimizer.built:
            raise ValueError(
                "The optimizer is not built: call optimizer.build(model.trainable_variables) in "
                "the strategy's scope first."
            )
        self.model = model
        self.optimizer = optimizer
        self.strategy = strategy
        self.replica_step = ReplicaStep(
            model,
            optimizer,
            objective,
            seed=seed,
            micro_batches=gradient_accumulation_steps,
            clip_norm=clip_norm,
            jit_compile=jit_compile,
        )
        self.trend = Trend()
        self._objective = objective
        self._micro_batches = gradient_accumulation_steps
        self._spike_factor = spike_factor
        self._skips = skip_bad_steps
        self._most_bad_steps = most_bad_steps
        self._measures_waits = measures_waits
        self._bad_in_a_row = 0
        # Nothing here or below needs AutoGraph, whose first conversion takes seconds.
        self._make = tf.function(self._make_steps, autograph=False)

    @property
    def step(self) -> int:
        """The number of updates made, across restarts."""
        return int(self.optimizer.iterations.numpy())

    def state(self) -> dict[str, keras.Variable]:
        """Everything that a checkpoint has to keep, by unique name.

        What ``model_state`` gives, and ``optimizer/PATH`` for the optimizer's variables: its
        moments and the number of updates.
        """
        return {**model_state(self.model), **_named("optimizer", self.optimizer.variables)}

    def make(self, iterator: Iterator[Any], num_steps: int) -> Made:
        """Makes updates, all in one call of a compiled function, the same for any number.

        Of ``num_steps`` batches those of skipped steps make no update.

        Raises:
            BadStepError: a step was bad, or too many in a row were, or the weights have no finite
                norm after the last one; the weights are unusable then, and an earlier checkpoint
                has to be restored.
            ValueError: the data ended before the last step.
        """
        if num_steps < 1:
            raise ValueError(f"num_steps must be at least 1, got {num_steps}.")
        first_step = self.step
        try:
            sums, rate, trend, measures, cursors, waited, weights_norm = self._make(
                iterator, tf.constant(num_steps), Trend(*map(tf.constant, self.trend))
            )
        except tf.errors.OutOfRangeError as error:
            raise ValueError(
                f"The data ended before the {num_steps} updates that were asked for at step "
                f"{first_step}: give a dataset that repeats."
            ) from error
        step, skipped = first_step, []
        for (loss, norm, is_good), of_replicas in zip(
            measures.numpy().tolist(), cursors.numpy().tolist(), strict=True
        ):
            last = last_cursors(of_replicas)
            if is_good:
                step, self._bad_in_a_row = step + 1, 0
                continue
            bad = BadStep(step, last, loss, norm)
            self._bad_in_a_row += 1
            if not self._skips or self._bad_in_a_row > self._most_bad_steps:
                raise BadStepError(bad)
            skipped.append(bad)
        if not math.isfinite(weights_norm):
            raise BadStepError(BadStep(self.step - 1, last, loss, norm, ruins=True))
        self.trend = Trend(*map(float, trend))
        good = [(loss, norm) for loss, norm, is_good in measures.numpy().tolist() if is_good]
        return Made(
            step=self.step,
            steps=num_steps,
            sums=sums.numpy(),
            losses=[loss for loss, _ in good],
            gradient_norm=float(np.mean([norm for _, norm in good])) if good else 0.0,
            learning_rate=float(rate),
            cursors=last,
            skipped=tuple(skipped),
            waited=float(waited) if self._measures_waits else None,
        )

    def _make_steps(
        self, iterator: Iterator[Any], num_steps: tf.Tensor, trend: Trend
    ) -> tuple[Any, ...]:
        """Sums over the updates, the last rate, the trend, each step's measures and cursor, waits.

        Behind them is the norm of the weights after the last step.
        The measures are (steps, 3): loss, gradient norm, and 1 if the step is good.
        """

        def make_one(
            index: tf.Tensor,
            sums: tf.Tensor,
            _: tf.Tensor,
            trend: Trend,
            measures: tf.TensorArray,
            cursors: tf.TensorArray,
            ended: tf.Tensor,
            waited: tf.Tensor,
        ) -> tuple[Any, ...]:
            # A turn begins when the one before has ended on a CPU, and earlier on other devices.
            ended = tf.maximum(ended, self._time_after([]))
            batch, came = self._timed(iterator.get_next())  # type: ignore[attr-defined]
            waited += tf.maximum(came - ended, 0.0)
            rate = tf.cast(tf.convert_to_tensor(self.optimizer.learning_rate), tf.float32)
            loss, norm, own, step_cursors, is_good = self._make_one(batch, trend)
            sums += own
            if self._spike_factor:
                trend = trend.after(loss, norm, is_good)
            measures = measures.write(index, tf.stack([loss, norm, tf.cast(is_good, tf.float32)]))
            cursors = cursors.write(index, step_cursors)
            ended = self._time_after(norm)  # the loss is there before the gradients
            return index + 1, sums, rate, trend, measures, cursors, ended, waited

        replicas = self.strategy.num_replicas_in_sync
        _, sums, rate, trend, measures, cursors, _, waited = tf.while_loop(
            lambda index, *_: index < num_steps,
            make_one,
            (
                tf.constant(0),
                tf.zeros([self._objective.num_sums]),
                tf.zeros(()),
                trend,
                tf.TensorArray(tf.float32, num_steps, element_shape=(3,)),
                tf.TensorArray(tf.int32, num_steps, element_shape=(replicas, 4)),
                self._time_after([]),
                tf.zeros((), tf.float64),
            ),
            parallel_iterations=1,
        )
        weights_norm = self.strategy.run(self.replica_step.weights_norm)
        weights_norm = self.strategy.experimental_local_results(weights_norm)[0]
        return sums, rate, trend, measures.stack(), cursors.stack(), waited, weights_norm

    def _make_one(self, batch: Any, trend: Trend) -> tuple[tf.Tensor, ...]:
        """A step's loss, gradient norm, sums (0 where it is skipped) and cursors; if it is good."""
        gradients: Any = None
        if self._skips:
            gradients, outcome = self.strategy.run(self.replica_step.reduce, args=(batch,))
        else:
            outcome = self.strategy.run(self.replica_step, args=(batch,))
        # They are the same on every replica.
        sums, norm, cursors = (
            self.strategy.experimental_local_results(value)[0] for value in outcome
        )
        loss = self._objective.loss(sums)
        is_good = trend.is_good(loss, norm, self._spike_factor)
        if self._skips:

            def apply() -> tf.Tensor:
                self.strategy.run(self.replica_step.apply, args=(gradients,))
                return sums

            sums = tf.cond(is_good, apply, lambda: tf.zeros_like(sums))
        return loss, norm, sums, cursors, is_good

    def _timed(self, batch: Any) -> tuple[Any, tf.Tensor]:
        """A batch, and the time at which it came: one core would make the step before it asks."""
        came = self._time_after(batch[features.CURSOR])
        if not self._measures_waits:
            return batch, came

        def behind(value: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([came]), tf.device(value.device):
                return tf.identity(value)

        return tf.nest.map_structure(behind, batch, expand_composites=True), came

    def _time_after(self, values: Any) -> tf.Tensor:
        """The seconds at which tensors, of any device, have been computed; 0 without a clock."""
        if not self._measures_waits:
            return tf.zeros((), tf.float64)
        with tf.device("CPU:0"):
            there = [tf.identity(v) for v in tf.nest.flatten(values, expand_composites=True)]
            with tf.control_dependencies(there):
                return tf.timestamp()


def model_state(model: keras.Model) -> dict[str, keras.Variable]:
    """A model's variables by the names that checkpoints have for them, ``model/PATH``.

    The seed generators' states are left out: the loop never reads them.
    """
    generators = {id(variable) for variable in modeling.seed_variables(model)}
    return _named("model", [v for v in model.variables if id(v) not in generators])


def _named(owner: str, variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    named: dict[str, keras.Variable] = {}
    for variable in variables:
        name = f"{owner}/{variable.path}"
        if name in named:
            raise ValueError(
                f"Two variables are called {name!r}, and a checkpoint could keep only one: give "
                "the model's layers different names."
            )
        named[name] = variable
    return named
