"""Softmax cross-entropy as sums with weights, each of the forms that a device computes fastest.

Dimension letters: B batch, P masked-LM predictions, V vocabulary, N positions, H hidden.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.graph_gradients import custom_gradient


class LossSums(NamedTuple):
    """Float32 scalars over the weighted positions (or rows) of a batch."""

    loss: tf.Tensor  # the sum of weight * negative log likelihood, in nats
    weight: tf.Tensor
    correct: tf.Tensor  # the sum of the weights where the arg-max is the label


def _likelihood(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The softmax cross-entropy (N,) of float32 logits (N, V) with labels (N,) int64.

    The kernel of ``tf.nn.sparse_softmax_cross_entropy_with_logits`` runs on one core of a CPU and
    took a quarter of a small model's step; softmax runs on all.
    """

    @custom_gradient
    def likelihood(logits: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        # (N, V): the probabilities serve both directions.
        probabilities = tf.nn.softmax(logits)
        at_labels = tf.stack([tf.range(tf.size(labels, tf.int64)), labels], axis=1)
        # The largest probability is 1 / sum(exp(logits - top)), at least 1 / V: no underflow.
        log_sum = tf.reduce_max(logits, axis=-1) - tf.math.log(
            tf.reduce_max(probabilities, axis=-1)
        )

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            scaled = probabilities * upstream[:, None]
            return tf.tensor_scatter_nd_sub(scaled, at_labels, upstream)

        return log_sum - tf.gather_nd(logits, at_labels), gradient

    return likelihood(logits)


def _likelihood_without_scatter(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The same of operations that XLA joins, and keeps nothing of for the backward pass.

    None scatters, which copies the logits on a TPU, and with ``--deterministic`` on a GPU.
    """

    def is_label() -> tf.Tensor:
        # Not compared with a range, which TensorFlow would make on the host.
        return tf.one_hot(labels, logits.shape[-1], on_value=True, off_value=False, dtype=tf.bool)

    @custom_gradient
    def likelihood(logits: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        log_sum = tf.reduce_logsumexp(logits, axis=-1)
        at_labels = tf.reduce_sum(tf.where(is_label(), logits, 0.0), axis=-1)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            probabilities = tf.exp(logits - log_sum[:, None])
            return upstream[:, None] * (probabilities - tf.cast(is_label(), tf.float32))

        return log_sum - at_labels, gradient

    return likelihood(logits)


def weighted_sums(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, device_type: str = "CPU"
) -> LossSums:
    """Softmax cross-entropy over the last axis, summed with weights; computed in float32.

    ``device_type`` ("CPU", "GPU" or "TPU") changes how fast it is, and roundings. Of the masked LM:
    logits (B, P, V), the original ids (B, P) int32 and weights (B, P) float32, 1 = real. Of the
    next sentence: logits (B, 2), index 0 "B follows A"; labels and weights (B,).

    >>> import tensorflow as tf
    >>> sums = weighted_sums(tf.zeros((1, 2, 4)), tf.constant([[0, 3]]), tf.constant([[1.0, 0.0]]))
    >>> round(float(sums.loss), 4), float(sums.weight), float(sums.correct)
    (1.3863, 1.0, 1.0)
    """
    # (N, V) and (N,): so the logits were computed, and another shape of them may be a copy.
    logits = tf.cast(tf.reshape(logits, [-1, logits.shape[-1]]), tf.float32)
    # As in ``embedding_lookup``: TensorFlow computes with int32 on the host, also for a GPU.
    labels = tf.reshape(tf.cast(tf.bitcast(tf.cast(labels, tf.int32), tf.uint32), tf.int64), [-1])
    weights = tf.cast(tf.reshape(weights, [-1]), tf.float32)
    hits = tf.equal(tf.argmax(logits, axis=-1), labels)
    likelihood = _likelihood if device_type == "CPU" else _likelihood_without_scatter
    return LossSums(
        loss=tf.reduce_sum(weights * likelihood(logits, labels)),
        weight=tf.reduce_sum(weights),
        correct=tf.reduce_sum(weights * tf.cast(hits, tf.float32)),
    )


def predicted_sums(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> LossSums:
    """Result of ``weighted_sums`` for logits that are ``states`` x ``table`` + ``bias``.

    States (N, H) and ``table`` (V, H) in the compute dtype, float32 ``bias`` (V,), labels (N,)
    int32 and weights (N,) float32; N may be 0. On a CPU it takes fewer passes over arrays as large
    as the logits, which are most of a small model's step: the gradient's products take the
    probabilities as they are, and weights and labels come in where arrays are smaller.
    """

    @custom_gradient
    def sums(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tuple[Any, Any]:
        # (N, V)
        logits = tf.cast(tf.matmul(states, table, transpose_b=True), tf.float32) + bias
        probabilities = tf.nn.softmax(logits)
        rows = tf.range(tf.size(labels))
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        at_best, at_labels = (tf.stack([rows, column], axis=1) for column in (best, labels))
        log_sum = tf.gather_nd(logits, at_best) - tf.math.log(tf.gather_nd(probabilities, at_best))
        likelihood = log_sum - tf.gather_nd(logits, at_labels)
        hits = tf.cast(tf.equal(best, labels), tf.float32)

        def gradient(upstream: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # With p the probabilities, of the logits: scale * (p - 1 at the label).
            scale = upstream * weights
            narrow, at = tf.cast(scale, states.dtype)[:, None], labels[:, None]
            factor, scaled = tf.cast(probabilities, states.dtype), states * narrow
            states_grad = (tf.matmul(factor, table) - tf.gather(table, labels)) * narrow
            # In float32: a frequent label's row would otherwise stop to change after 256 of them.
            table_grad = tf.cast(tf.matmul(factor, scaled, transpose_a=True), tf.float32)
            table_grad = tf.tensor_scatter_nd_sub(table_grad, at, tf.cast(scaled, tf.float32))
            bias_grad = tf.linalg.matvec(probabilities, scale, transpose_a=True)
            return (
                states_grad,
                tf.cast(table_grad, table.dtype),
                tf.tensor_scatter_nd_sub(bias_grad, at, scale),
            )

        return (tf.reduce_sum(weights * likelihood), tf.reduce_sum(weights * hits)), gradient

    loss, correct = sums(states, table, bias)
    return LossSums(loss=loss, weight=tf.reduce_sum(weights), correct=correct)
