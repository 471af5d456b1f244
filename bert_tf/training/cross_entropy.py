"""Weighted sums of softmax cross-entropy, computed in the fastest way for each device.

Dimensions: B batch, P masked-LM predictions, V vocabulary, N positions, H hidden.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.graph_gradients import custom_gradient


class LossSums(NamedTuple):
    """Float32 sums over the weighted positions or examples of a batch."""

    loss: tf.Tensor  # sum of weight * negative log-likelihood, in nats
    weight: tf.Tensor  # sum of the weights
    correct: tf.Tensor  # sum of the weights of correct predictions


def _likelihood(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the softmax cross-entropy (N,) of float32 logits (N, V) and int64 labels (N,).

    ``tf.nn.sparse_softmax_cross_entropy_with_logits`` uses one CPU core; ``softmax`` uses all.
    """

    @custom_gradient
    def likelihood(logits: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        # (N, V); used in the forward and the backward pass
        probabilities = tf.nn.softmax(logits)
        at_labels = tf.stack([tf.range(tf.size(labels, tf.int64)), labels], axis=1)
        # The maximum probability, 1 / sum(exp(logits - max)), is at least 1 / V: no underflow.
        log_sum = tf.reduce_max(logits, axis=-1) - tf.math.log(
            tf.reduce_max(probabilities, axis=-1)
        )

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            scaled = probabilities * upstream[:, None]
            return tf.tensor_scatter_nd_sub(scaled, at_labels, upstream)

        return log_sum - tf.gather_nd(logits, at_labels), gradient

    return likelihood(logits)


def _likelihood_without_scatter(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the same loss as ``_likelihood``, computed by operations that XLA fuses.

    Intermediate results are not stored. Scattering would copy the logits on TPUs, and on GPUs with
    ``--deterministic``.
    """

    def is_label() -> tf.Tensor:
        # Unlike ``tf.one_hot``, ``tf.range`` would run on the host.
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
    """Computes weighted sums of softmax cross-entropy over the last axis, in float32.

    Args:
        logits: Logits. Masked LM: (B, P, V). Next sentence: (B, 2), index 0 for "B follows A".
        labels: int32 labels, (B, P) or (B,).
        weights: float32 weights, (B, P) or (B,); 1 for real predictions, 0 for padding.
        device_type: "CPU", "GPU" or "TPU", which selects the fastest computation.

    Returns:
        The sums.

    >>> import tensorflow as tf
    >>> sums = weighted_sums(tf.zeros((1, 2, 4)), tf.constant([[0, 3]]), tf.constant([[1.0, 0.0]]))
    >>> round(float(sums.loss), 4), float(sums.weight), float(sums.correct)
    (1.3863, 1.0, 1.0)
    """
    # (N, V) is the shape in which the logits were computed; another shape may require a copy.
    logits = tf.cast(tf.reshape(logits, [-1, logits.shape[-1]]), tf.float32)
    # TensorFlow would place int32 operations on the host (see ``embedding_lookup``).
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
    """Computes ``weighted_sums`` for the logits ``states`` x ``table`` + ``bias``.

    For small models on CPUs, this is faster, because it makes fewer passes over arrays as large as
    the logits.

    Args:
        states: Hidden states (N, H) in the compute dtype; N may be 0.
        table: Embedding table (V, H) in the compute dtype.
        bias: float32 bias (V,).
        labels: int32 labels (N,).
        weights: float32 weights (N,).

    Returns:
        The sums.
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
            # The gradient of the logits is scale * (probabilities - one_hot(labels)).
            scale = upstream * weights
            narrow, at = tf.cast(scale, states.dtype)[:, None], labels[:, None]
            factor, scaled = tf.cast(probabilities, states.dtype), states * narrow
            states_grad = (tf.matmul(factor, table) - tf.gather(table, labels)) * narrow
            # In bfloat16, the sum for a frequent label would stop changing after 256 additions.
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
