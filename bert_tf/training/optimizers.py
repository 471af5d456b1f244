"""Google's Adam with decoupled weight decay and AdamW, as one fused Keras optimizer; LAMB."""

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

# Paths of LayerNormalization's variables, and of biases.
_UNDECAYED = re.compile(r"(.*/)?(gamma|beta|[^/]*bias)")


def weight_decay_exclusions(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    """The variables that the paper does not decay: LayerNorm's scale and shift, and every bias.

    The last part of a variable's path tells it: ``gamma``, ``beta``, or a name that ends in
    ``bias``. Source: ``exclude_from_weight_decay`` in Google's ``optimization.py``.

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
    """A variable's path; of one of TensorFlow's own, which its trainer gives, the name."""
    return str(getattr(variable, "path", None) or variable.name)


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, updated by TensorFlow's fused kernel.

    With ``rate`` the scheduled learning rate, for every variable ``w`` with gradient ``g``::

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g * g
        w = w - rate * weight_decay * w - rate * (m / c_1) / (sqrt(v / c_2) + epsilon)

    ``c_1`` and ``c_2`` are 1 with ``bias_correction=False``, as in the optimizer that BERT was
    pre-trained with (``AdamWeightDecayOptimizer`` in Google's ``optimization.py``), and
    ``1 - beta_1^t`` and ``1 - beta_2^t``, where t counts updates from 1, with
    ``bias_correction=True`` (AdamW; algorithm 1 of Kingma and Ba 2015, where Keras' own AdamW adds
    epsilon to the root of the uncorrected v, which slows the first updates). Variables passed to
    `exclude_from_weight_decay` before the optimizer is built are not decayed, nor those whose paths
    are in ``undecayed``. The kernel's one pass takes a third of the time of single operations on a
    CPU. Sparse gradients are made dense. It needs TensorFlow's backend.

    Args:
        learning_rate: a float or a ``LearningRateSchedule``.
        weight_decay: the decay per unit of learning rate; ``None`` for none.
        beta_1, beta_2: the decays of the moments.
        epsilon: added to the root of the second moment, corrected where that is.
        bias_correction: whether the moments are corrected for their start at 0.
        undecayed: paths of variables, as a saved optimizer keeps them.
        name: the optimizer's name, the first part of its variables' paths.
        **kwargs: further arguments of ``keras.optimizers.Optimizer``.

    Raises:
        ValueError: of `build`: a variable has less than 32 bits, which hold no ``1 - beta_2``.

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
        self._scalars: Any = None  # a namespace, as Keras would look into a tuple
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction

    def build(self, var_list: Sequence[keras.Variable]) -> None:
        """Creates both moments of every variable, zeros of the variable's shape and dtype."""
        if self.built:
            return
        dtypes = {keras.backend.standardize_dtype(variable.dtype) for variable in var_list}
        narrow = dtypes - {"float32", "float64"}
        if narrow:
            raise ValueError(
                f"{self.name} updates variables of float32 or float64, got {min(narrow)}, to which "
                "beta_2 is 1: build the model with dtype='mixed_bfloat16'."
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
        """Keras' hook: each update decays, as this would compute a scheduled rate every time."""

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Applies gradients, dense first: Keras clips by a norm that is wrong of sparse ones."""
        dense = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in grads]
        try:
            super().apply(dense, trainable_variables)
        finally:
            self._scalars = None  # of this update, and perhaps of a graph

    def _scalars_of(self, dtype: tf.DType) -> Any:
        """Tensors that all variables' updates share: made once, as each is a kernel on a GPU."""
        if self._scalars is None or self._scalars.epsilon.dtype != dtype:
            # The kernel multiplies the rate by sqrt(1 - beta_2_power) / (1 - beta_1_power).
            beta_1_power = beta_2_power = tf.zeros((), dtype)
            epsilon = tf.cast(self.epsilon, dtype)
            if self.bias_correction:
                updates = tf.cast(self.iterations + 1, dtype)
                beta_1_power = tf.pow(tf.cast(self.beta_1, dtype), updates)
                beta_2_power = tf.pow(tf.cast(self.beta_2, dtype), updates)
                # To the root of v as it is: the kernel corrects the quotient, not its terms.
                epsilon = epsilon * tf.sqrt(1 - beta_2_power)
            self._scalars = types.SimpleNamespace(
                beta_1_power=beta_1_power, beta_2_power=beta_2_power, epsilon=epsilon
            )
        return self._scalars

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: Any) -> None:
        """Decays one variable, and updates it and its moments in place."""
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
        """The constructor's arguments."""
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
    """LAMB, for batches of thousands of rows.

    AdamW's update of each variable, its decay included, is scaled by a trust ratio: the variable's
    norm over the update's, 1 where either is 0. Variables that are not decayed are not scaled
    either. Keras' own ``Lamb`` takes the ratio without the decay, and scales every variable.
    Arguments are as `AdamWeightDecay`'s; the paper's rate is 0.000625 for 512 rows, and grows with
    the root of the batch's size, to 0.005 for 32,768.

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
        """Updates one variable and its moments; the decay is within the ratio."""
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


# The class of each name, its epsilon, and whether its moments are corrected.
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
    """Creates the optimizer of a pre-training or a fine-tuning, built for a model's variables.

    ``adam`` is Google's, without bias correction and with an epsilon of 1e-6; ``adamw`` corrects,
    with 1e-8: a few hundred updates of fine-tuning are too few for the greater one, beside which
    many of their gradients are small. ``lamb`` is `Lamb`. All have a first beta of 0.9, and decay
    every variable but `weight_decay_exclusions`. Call it inside the strategy's scope.

    Args:
        name: one of `OPTIMIZERS`, else a ValueError; the paths of the optimizer's variables, which
            name them in checkpoints, begin with it.
        learning_rate: a float or a ``LearningRateSchedule``, for example `WarmupLinearDecay`.
        variables: the model's trainable variables.
        weight_decay: the decay per unit of learning rate; 0 for none.
        beta_2: the decay of the second moment.
        epsilon: added to the root of the second moment, if not the optimizer's own.
        **kwargs: further arguments of ``keras.optimizers.Optimizer``: ``global_clipnorm`` for
            ``fit`` on one device. The commands clip after the gradients are reduced.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
    >>> optimizer = create_optimizer("adam", 1e-4, model.trainable_variables)
    >>> optimizer.bias_correction, len(optimizer.variables)
    (False, 6)
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"Unknown optimizer {name!r}: expected one of {', '.join(OPTIMIZERS)}.")
    optimizer_class, own_epsilon, bias_correction = _KINDS[name]
    optimizer = optimizer_class(
        learning_rate,
        weight_decay=weight_decay or None,
        beta_2=beta_2,
        epsilon=own_epsilon if epsilon is None else epsilon,
        bias_correction=bias_correction,
        name=name,
        **kwargs,
    )
    optimizer.exclude_from_weight_decay(var_list=weight_decay_exclusions(variables))
    optimizer.build(list(variables))
    return optimizer
