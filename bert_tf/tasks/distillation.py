"""Distillation: a student learns what a teacher says of its examples beside their labels.

Source: Hinton, Vinyals and Dean 2015, "Distilling the Knowledge in a Neural Network", section 2.

Letters: N examples, B batch, C classes, K numbers of a label (1, or C where several classes may
hold), O outputs of the teacher for an example (C, or 1).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.pipelines.length_buckets import Examples

# Student's and teacher's outputs, both (B, O), and the temperature -> (B,).
SoftLoss = Callable[..., Any]


def class_divergence(student: Any, teacher: Any, temperature: float) -> Any:
    """T^2 * KL(teacher || student) of the classes' probabilities at a temperature, in nats.

    Gradients of softened probabilities shrink as 1 / T^2, hence the factor.
    """
    ours = ops.log_softmax(student / temperature)
    theirs = ops.log_softmax(teacher / temperature)
    divergence = ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)
    return temperature**2 * divergence


def classes_divergence(student: Any, teacher: Any, temperature: float) -> Any:
    """The same where each class holds or not by itself: the mean of the classes' divergences."""
    ours, theirs = student / temperature, teacher / temperature
    holds = ops.sigmoid(theirs)
    # log sigmoid(x) = -softplus(-x), log (1 - sigmoid(x)) = -softplus(x)
    if_holds = ops.softplus(-ours) - ops.softplus(-theirs)
    if_not = ops.softplus(ours) - ops.softplus(theirs)
    divergence = ops.mean(holds * if_holds + (1 - holds) * if_not, axis=-1)
    return temperature**2 * divergence


def number_difference(student: Any, teacher: Any, temperature: float) -> Any:
    """The squared difference of the numbers; they have no temperature."""
    return ops.sum(ops.square(student - teacher), axis=-1)


class DistillationLoss(keras.losses.Loss):
    """``(1 - weight) * the labels' loss + weight * the soft loss`` of each example.

    Of one without a label it is ``weight * the soft loss``. The targets are those of ``taught``.
    """

    def __init__(
        self,
        label_loss: Any,
        soft_loss: SoftLoss,
        num_outputs: int,
        temperature: float,
        weight: float,
    ) -> None:
        super().__init__(name="distillation")
        # A loss' ``call`` gives a number for each example.
        self._label_loss = getattr(label_loss, "call", label_loss)
        self._soft_loss = soft_loss
        self._num_outputs = num_outputs
        self._temperature, self._weight = temperature, weight

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """(B, K + O) and the student's outputs, (B, C) or (B,) -> (B,)."""
        labels, teacher = y_true[:, : -self._num_outputs], y_true[:, -self._num_outputs :]
        is_labelled = ops.logical_not(ops.isnan(labels[:, 0]))
        labels = ops.where(is_labelled[:, None], labels, 0.0)
        if labels.shape[1] == 1:
            labels = labels[:, 0]
        student = ops.cast(ops.reshape(y_pred, [-1, self._num_outputs]), teacher.dtype)
        soft = self._soft_loss(student, teacher, self._temperature)
        hard = ops.where(is_labelled, self._label_loss(labels, y_pred), 0.0)
        return (1 - self._weight) * hard + self._weight * soft


def taught(examples: Examples, outputs: np.ndarray, num_labelled: int) -> Examples:
    """Training examples whose labels have the teacher's outputs, (N, O) float32, behind them.

    The targets of a batch are (B, K + O) float32. Labels are NaN, and weights 1, where an example's
    number is ``num_labelled`` or more.
    """
    with tf.device("CPU:0"):
        kept = tf.constant(outputs, tf.float32)

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> Any:
        rows, labels, *weights = examples.make_batch(indices, width)
        labels = tf.cast(labels, tf.float32)
        labels = labels[:, None] if labels.shape.rank == 1 else labels
        is_labelled = indices < num_labelled
        labels = tf.where(is_labelled[:, None], labels, np.nan)
        weights = [tf.where(is_labelled, weight, 1.0) for weight in weights]
        return (rows, tf.concat([labels, tf.gather(kept, indices)], 1), *weights)

    return dataclasses.replace(examples, make_batch=make_batch)
