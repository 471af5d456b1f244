"""Optimizers: Google's Adam with weight decay, AdamW and LAMB."""

import re
import types
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.choices import OPTIMIZERS
from bert_tf.modeling.keras_hooks import (
    check_decays_by_hook,
    check_variable_indices,
    is_decayed,
    variable_index,
)

# Paths of the variables of LayerNormalization and of biases.
_UNDECAYED = re.compile(r"(.*/)?(gamma|beta|[^/]*bias)")


def weight_decay_exclusions(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    """Returns the variables without weight decay: those of LayerNorm, and all biases.

    The last component of an excluded variable's path is ``gamma`` or ``beta``, or ends in ``bias``.
    Source: ``exclude_from_weight_decay`` in Google's ``optimization.py``.

    Args:
        variables: Trainable variables.

    Returns:
        The excluded variables.

    >>> import keras
    >>> layers = [keras.layers.Dense(2, name="dense"), keras.layers.LayerNormalization(name="norm")]
    >>> for layer in layers:
    ...     layer.build((None, 2))
    >>> variables = [v for layer in layers for v in layer.trainable_variables]
    >>> [v.path for v in weight_decay_exclusions(variables)]
    ['dense/bias', 'norm/gamma', 'norm/beta']
    """
    return [variable for variable in variables if _UNDECAYED.fullmatch(variable.path)]


def variable_path(variable: Any) -> str:
    """Returns the path of a Keras variable, or the name of a TensorFlow variable."""
    return str(getattr(variable, "path", None) or variable.name)


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, updated by TensorFlow's fused kernel.

    The update of a variable ``w`` with gradient ``g`` and learning rate ``rate`` is::

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g * g
        w = w - rate * weight_decay * w - rate * (m / c_1) / (sqrt(v / c_2) + epsilon)

    With ``bias_correction=False``, ``c_1`` and ``c_2`` are 1, as in BERT's pre-training
    (``AdamWeightDecayOptimizer`` in Google's ``optimization.py``). With ``bias_correction=True``
    (AdamW), they are ``1 - beta_1^t`` and ``1 - beta_2^t`` at update t, as in algorithm 1 of Kingma
    and Ba 2015; Keras' AdamW adds epsilon to the uncorrected root, which slows the first updates.
    On a CPU, the fused kernel takes a third of the time of separate operations. Sparse gradients
    are converted to dense ones. Requires the TensorFlow backend.

    Args:
        learning_rate: A float or a ``LearningRateSchedule``.
        weight_decay: Weight decay, multiplied by the learning rate; ``None`` for none.
        beta_1: Decay rate of the first moment.
        beta_2: Decay rate of the second moment.
        epsilon: Constant added to the root of the second moment.
        bias_correction: Whether to correct the bias of the moments.
        undecayed: Paths of variables without weight decay, in addition to those passed to
            `exclude_from_weight_decay` before the optimizer is built.
        name: Name of the optimizer, the first component of the paths of its variables.
        **kwargs: Other arguments of ``keras.optimizers.Optimizer``.

    Raises:
        ValueError: In `build`, if a variable is not float32 or float64.

    >>> import keras
    >>> optimizer = AdamWeightDecay(0.5, weight_decay=0.0, epsilon=0.0)
    >>> weight = keras.Variable([1.0], name="weight")
    >>> optimizer.apply([keras.ops.array([2.0])], [weight])
    >>> round(float(weight[0]), 4)  # 1 - 0.5 * (0.1 * 2) / sqrt(0.001 * 4)
    -0.5811
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-4,
        *,
        weight_decay: float | None = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        undecayed: Sequence[str] = (),
        name: str = "adam_weight_decay",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate, weight_decay=weight_decay or 0.0, name=name, **kwargs
        )
        check_decays_by_hook()
        self._undecayed = list(undecayed)
        self._scalars: Any = None  # a namespace, because Keras would track a tuple
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction

    def build(self, var_list: Sequence[keras.Variable]) -> None:
        """Creates the moments of each variable, initialized with zeros."""
        if self.built:
            return
        dtypes = {keras.backend.standardize_dtype(variable.dtype) for variable in var_list}
        narrow = dtypes - {"float32", "float64"}
        if narrow:
            raise ValueError(
                f"{self.name}: expected float32 or float64 variables, got {min(narrow)}, in which "
                "beta_2 is rounded to 1. Use dtype='mixed_bfloat16' for the model."
            )
        excluded = [
            v for v in var_list if variable_path(v) in self._undecayed or not is_decayed(self, v)
        ]
        self.exclude_from_weight_decay(var_list=excluded)
        self._undecayed = [variable_path(variable) for variable in excluded]
        super().build(var_list)
        check_variable_indices(self, var_list)
        self._momentums, self._velocities = self.add_optimizer_variables(
            var_list, ["momentum", "velocity"]
        )

    def _apply_weight_decay(self, variables: Any) -> None:
        """Does nothing, because ``update_step`` applies the weight decay."""

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Applies gradients; makes sparse ones dense, because Keras computes their norm wrongly."""
        dense = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in grads]
        try:
            super().apply(dense, trainable_variables)
        finally:
            self._scalars = None  # The scalars may be tensors of a graph.

    def _scalars_of(self, dtype: tf.DType) -> Any:
        """Returns scalars that all updates of a step share, because each takes a GPU kernel."""
        if self._scalars is None or self._scalars.epsilon.dtype != dtype:
            # The kernel multiplies the learning rate by
            # sqrt(1 - beta_2_power) / (1 - beta_1_power).
            beta_1_power = beta_2_power = tf.zeros((), dtype)
            epsilon = tf.cast(self.epsilon, dtype)
            if self.bias_correction:
                updates = tf.cast(self.iterations + 1, dtype)
                beta_1_power = tf.pow(tf.cast(self.beta_1, dtype), updates)
                beta_2_power = tf.pow(tf.cast(self.beta_2, dtype), updates)
                # The kernel adds epsilon to the uncorrected root of v.
                epsilon = epsilon * tf.sqrt(1 - beta_2_power)
            self._scalars = types.SimpleNamespace(
                beta_1_power=beta_1_power, beta_2_power=beta_2_power, epsilon=epsilon
            )
        return self._scalars

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: Any) -> None:
        """Updates a variable and its moments in place."""
        dtype = variable.dtype
        index = variable_index(self, variable)
        rate = tf.cast(learning_rate, dtype)
        if self.weight_decay and is_decayed(self, variable):
            variable.assign_sub(variable * self.weight_decay * rate)
        scalars = self._scalars_of(dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=scalars.beta_1_power,
            beta2_power=scalars.beta_2_power,
            lr=rate,
            beta1=tf.cast(self.beta_1, dtype),
            beta2=tf.cast(self.beta_2, dtype),
            epsilon=scalars.epsilon,
            grad=tf.cast(gradient, dtype),
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        config: dict[str, Any] = super().get_config()
        config.update(
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            bias_correction=self.bias_correction,
            undecayed=list(self._undecayed),
        )
        return config


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(AdamWeightDecay):
    """LAMB, for batches of thousands of examples.

    Scales the AdamW update of each variable, including the weight decay, by a trust ratio: the norm
    of the variable divided by the norm of the update, or 1 if either is 0. Variables without weight
    decay are not scaled. Keras' ``Lamb`` excludes the weight decay from the ratio and scales all
    variables. The arguments are those of `AdamWeightDecay`. The paper uses a learning rate of
    0.000625 for batches of 512, and scales it by the square root of the batch size: 0.005 for
    batches of 32,768.

    Source: You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes", algorithm 2, with the identity for its function phi.

    >>> import keras
    >>> optimizer = Lamb(0.5, weight_decay=0.0)
    >>> weight = keras.Variable([3.0, 4.0], name="weight")
    >>> optimizer.apply([keras.ops.array([1.0, -1.0])], [weight])
    >>> [round(float(value), 4) for value in weight.numpy()]  # by 0.5 * 5 / sqrt(2)
    [1.2322, 5.7678]
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        *,
        bias_correction: bool = True,
        name: str = "lamb",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, bias_correction=bias_correction, name=name, **kwargs)

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: Any) -> None:
        """Updates a variable and its moments in place."""
        index = variable_index(self, variable)
        m, v = self._momentums[index], self._velocities[index]
        gradient = tf.cast(gradient, variable.dtype)
        m.assign(self.beta_1 * m + (1 - self.beta_1) * gradient)
        v.assign(self.beta_2 * v + (1 - self.beta_2) * tf.square(gradient))
        scalars = self._scalars_of(variable.dtype)
        mean, square = m / (1 - scalars.beta_1_power), v / (1 - scalars.beta_2_power)
        update = mean / (tf.sqrt(square) + self.epsilon)
        rate = tf.cast(learning_rate, variable.dtype)
        if is_decayed(self, variable):
            value = tf.convert_to_tensor(variable)
            update += (self.weight_decay or 0.0) * value
            norms = tf.norm(value), tf.norm(update)
            ratio = tf.math.divide_no_nan(*norms)
            rate *= tf.where(ratio > 0, ratio, 1.0)
        variable.assign_sub(rate * update)


# Class, epsilon and bias correction of each optimizer.
_KINDS: dict[str, tuple[type[AdamWeightDecay], float, bool]] = {
    "adam": (AdamWeightDecay, 1e-6, False),
    "adamw": (AdamWeightDecay, 1e-8, True),
    "lamb": (Lamb, 1e-6, True),
}


def create_optimizer(
    name: str,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    variables: Sequence[keras.Variable],
    *,
    weight_decay: float = 0.01,
    beta_2: float = 0.999,
    epsilon: float | None = None,
    **kwargs: Any,
) -> AdamWeightDecay:
    """Creates an optimizer, built for the variables of a model.

    ``adam`` is Google's Adam without bias correction, with an epsilon of 1e-6. ``adamw`` has bias
    correction and an epsilon of 1e-8, because many gradients of short fine-tuning runs are small
    compared with 1e-6. ``lamb`` is `Lamb`. All use a beta_1 of 0.9, and no weight decay for the
    `weight_decay_exclusions`. Call this function in the scope of the strategy.

    Args:
        name: "adam", "adamw" or "lamb"; the first component of the paths of optimizer variables.
        learning_rate: A float or a ``LearningRateSchedule``, for example `WarmupLinearDecay`.
        variables: Trainable variables of the model.
        weight_decay: Weight decay, multiplied by the learning rate; 0 for none.
        beta_2: Decay rate of the second moment.
        epsilon: Epsilon; the default depends on the optimizer.
        **kwargs: Other arguments of ``keras.optimizers.Optimizer``, such as ``global_clipnorm`` for
            ``fit`` on one device.

    Returns:
        The optimizer.

    Raises:
        ValueError: If ``name`` is unknown.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
    >>> optimizer = create_optimizer("adam", 1e-4, model.trainable_variables)
    >>> optimizer.bias_correction, len(optimizer.variables)
    (False, 6)
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"Unknown optimizer {name!r}: expected one of {', '.join(OPTIMIZERS)}.")
    optimizer_class, default_epsilon, bias_correction = _KINDS[name]
    optimizer = optimizer_class(
        learning_rate,
        weight_decay=weight_decay or None,
        beta_2=beta_2,
        epsilon=default_epsilon if epsilon is None else epsilon,
        bias_correction=bias_correction,
        name=name,
        **kwargs,
    )
    optimizer.exclude_from_weight_decay(var_list=weight_decay_exclusions(variables))
    optimizer.build(list(variables))
    return optimizer
