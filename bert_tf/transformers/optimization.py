"""Optimizers and learning rate schedules, with weight decay by variable name."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.training.optimizers import variable_path


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate schedule with a warm-up before another schedule.

    Args:
        initial_learning_rate: Learning rate at the end of the warm-up.
        decay_schedule_fn: Schedule after the warm-up.
        warmup_steps: Number of warm-up steps.
        power: Exponent of the warm-up; 1.0 is linear.
        name: Name of the schedule.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_schedule_fn: Callable[[Any], Any],
        warmup_steps: int,
        power: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.initial_learning_rate = initial_learning_rate
        self.decay_schedule_fn = decay_schedule_fn
        self.warmup_steps = warmup_steps
        self.power = power
        self.name = name

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate for a step, numbered from 0."""
        step = ops.cast(step, "float32")
        steps = float(self.warmup_steps)
        rising = self.initial_learning_rate * ops.power(step / max(steps, 1.0), self.power)
        return ops.where(step < steps, rising, self.decay_schedule_fn(step - steps))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        names = ("initial_learning_rate", "warmup_steps", "power", "name")
        decay = keras.saving.serialize_keras_object(self.decay_schedule_fn)
        return {**{name: getattr(self, name) for name in names}, "decay_schedule_fn": decay}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WarmUp":
        """Creates the schedule from the result of ``get_config``."""
        decay = keras.saving.deserialize_keras_object(config["decay_schedule_fn"])
        return cls(**{**config, "decay_schedule_fn": decay})


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class AdamWeightDecay(keras.optimizers.AdamW):
    """AdamW that selects the variables for weight decay by regular expressions.

    Weight decay applies to all variables, except those that match ``exclude_from_weight_decay`` and
    do not match ``include_in_weight_decay``. All other arguments are those of Keras' AdamW.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        weight_decay_rate: float = 0.0,
        include_in_weight_decay: Sequence[str] | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None,
        name: str = "AdamWeightDecay",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            *(learning_rate, weight_decay_rate, beta_1, beta_2, epsilon, amsgrad),
            name=name,
            **kwargs,
        )
        self._included = tuple(include_in_weight_decay or ())
        self._excluded = tuple(exclude_from_weight_decay or ())

    def _use_weight_decay(self, variable: Any) -> bool:
        """Returns whether weight decay applies to a variable; Keras calls this method."""
        name = variable_path(variable)
        name = f"{name} {name.replace('layer_norm', 'LayerNorm')}"  # also the name in transformers
        if any(re.search(pattern, name) for pattern in self._included):
            return True
        return not any(re.search(pattern, name) for pattern in self._excluded)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        values = super().get_config()
        values["weight_decay_rate"] = values.pop("weight_decay")
        values["include_in_weight_decay"] = list(self._included)
        values["exclude_from_weight_decay"] = list(self._excluded)
        return values


def create_optimizer(
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int,
    min_lr_ratio: float = 0.0,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-8,
    adam_clipnorm: float | None = None,
    adam_global_clipnorm: float | None = None,
    weight_decay_rate: float = 0.0,
    power: float = 1.0,
    include_in_weight_decay: Sequence[str] | None = None,
) -> tuple[keras.optimizers.Optimizer, Any]:
    """Creates an optimizer with a warm-up and a decay to ``init_lr * min_lr_ratio``.

    If ``weight_decay_rate`` is above 0, the optimizer is ``AdamWeightDecay``, and weight decay does
    not apply to layer normalizations and biases. Otherwise, the optimizer is Keras' Adam.

    Returns:
        The optimizer and its learning rate schedule.

    >>> optimizer, rate = create_optimizer(0.1, num_train_steps=30, num_warmup_steps=10)
    >>> [round(float(rate(step)), 3) for step in (0, 5, 10, 20, 30)]
    [0.0, 0.05, 0.1, 0.05, 0.0]
    """
    rate: Any = keras.optimizers.schedules.PolynomialDecay(
        initial_learning_rate=init_lr,
        decay_steps=num_train_steps - num_warmup_steps,
        end_learning_rate=init_lr * min_lr_ratio,
        power=power,
    )
    if num_warmup_steps:
        rate = WarmUp(init_lr, rate, num_warmup_steps)
    shared = {
        "learning_rate": rate,
        "beta_1": adam_beta1,
        "beta_2": adam_beta2,
        "epsilon": adam_epsilon,
        "clipnorm": adam_clipnorm,
        "global_clipnorm": adam_global_clipnorm,
    }
    if not weight_decay_rate:
        return keras.optimizers.Adam(**shared), rate
    optimizer = AdamWeightDecay(
        **shared,
        weight_decay_rate=weight_decay_rate,
        include_in_weight_decay=include_in_weight_decay,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
    )
    return optimizer, rate


class GradientAccumulator:
    """Accumulator of gradients over several training steps, which works in a ``tf.function``.

    >>> accumulator = GradientAccumulator()
    >>> for _ in range(3):
    ...     accumulator([ops.ones(2)])
    >>> int(accumulator.step), ops.convert_to_numpy(accumulator.gradients[0]).tolist()
    (3, [3.0, 3.0])
    """

    def __init__(self) -> None:
        self._step = tf.Variable(0, trainable=False, dtype="int64")
        self._sums: list[Any] = []

    @property
    def step(self) -> Any:
        """Number of steps whose gradients were added."""
        return self._step.value()

    @property
    def gradients(self) -> list[Any]:
        """Sums of the gradients; ``None`` for variables without a gradient."""
        return [None if total is None else total.value() for total in self._sums]

    def reset(self) -> None:
        """Sets the sums and the number of steps to 0."""
        for variable in (self._step, *self._sums):
            if variable is not None:
                variable.assign(tf.zeros_like(variable))

    def __call__(self, gradients: Sequence[Any]) -> None:
        """Adds the gradients of a step; ``None`` stands for no gradient."""
        if not self._sums:
            with tf.init_scope():  # outside the graph, so that all calls share the variables
                self._sums = [
                    None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False)
                    for g in gradients
                ]
        if len(gradients) != len(self._sums):
            raise ValueError(f"gradients: expected {len(self._sums)}, got {len(gradients)}.")
        for total, gradient in zip(self._sums, gradients, strict=True):
            if total is not None and gradient is not None:
                total.assign_add(tf.convert_to_tensor(gradient))
        self._step.assign_add(1)


# === Seeds ===


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seeds the random numbers of Python, NumPy and TensorFlow."""
    keras.utils.set_random_seed(seed)
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def enable_full_determinism(seed: int, warn_only: bool = False) -> None:
    """Sets the seed and enables deterministic operations."""
    set_seed(seed, deterministic=True)
