"""Probabilities of classes, in-graph, shared by evaluation, predictions and exports.

They are float64, since a float32 is 1 for every logit from 17 on. A temperature, by which logits
are divided, calibrates them. Letters: B batch, K choices, C classes or labels.
"""

import tensorflow as tf


def probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Probabilities of classes of which one holds, (..., C) float64."""
    return tf.nn.softmax(_calibrated(logits, temperature))


def log_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """The logarithms of ``probabilities``, finite where those are 0.

    >>> log_probabilities(tf.constant([[0.0, 0.0], [1e4, 0.0]])).numpy().round(2)
    array([[-6.9e-01, -6.9e-01],
           [ 0.0e+00, -1.0e+04]])
    """
    return tf.nn.log_softmax(_calibrated(logits, temperature))


def most_likely(logits: tf.Tensor, temperature: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable class, (...,) int64, and its probability, (...,) float64."""
    return tf.argmax(logits, -1), tf.reduce_max(probabilities(logits, temperature), -1)


def multilabel_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Probabilities of classes of which any number holds, (..., C) float64."""
    return tf.sigmoid(_calibrated(logits, temperature))


def choose(
    logits: tf.Tensor, is_choice: tf.Tensor, temperature: float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable of each row's choices, (B,) int32, and the probabilities, (B, K) float64.

    ``logits`` and ``is_choice`` are (B, K). What is no choice has probability 0; of a row without
    choices the place is -1.

    >>> best, shares = choose(tf.constant([[0.0, 0.0, 9.0]]), tf.constant([[True, True, False]]))
    >>> best.numpy(), shares.numpy()
    (array([0], dtype=int32), array([[0.5, 0.5, 0. ]]))
    """
    logits = tf.where(is_choice, _calibrated(logits, temperature), float("-inf"))
    # A column more: there is a greatest one where K is 0, too.
    with_one = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
    best = tf.argmax(with_one, 1, output_type=tf.int32)
    shares = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
    return tf.where(tf.reduce_any(is_choice, 1), best, -1), shares


def _calibrated(logits: tf.Tensor, temperature: float) -> tf.Tensor:
    return tf.cast(logits, tf.float64) / temperature
