"""Class probabilities in the graph, shared by evaluation, prediction and exports.

They are float64, because the float32 sigmoid of every logit above 17 is 1. Dividing the logits by a
temperature calibrates the probabilities.

Dimensions: B batch, K choices, C classes.
"""

import tensorflow as tf


def probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Returns single-label probabilities, shape (..., C) float64."""
    return tf.nn.softmax(_calibrated(logits, temperature))


def log_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Returns the logarithms of ``probabilities``, finite even if a probability is 0.

    >>> log_probabilities(tf.constant([[0.0, 0.0], [1e4, 0.0]])).numpy().round(2)
    array([[-6.9e-01, -6.9e-01],
           [ 0.0e+00, -1.0e+04]])
    """
    return tf.nn.log_softmax(_calibrated(logits, temperature))


def most_likely(logits: tf.Tensor, temperature: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the most likely class and its probability, shape (...,) int64 and float64."""
    return tf.argmax(logits, -1), tf.reduce_max(probabilities(logits, temperature), -1)


def multilabel_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Returns multi-label probabilities, shape (..., C) float64."""
    return tf.sigmoid(_calibrated(logits, temperature))


def choose(
    logits: tf.Tensor, is_choice: tf.Tensor, temperature: float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the most likely choice of each row, (B,) int32, and probabilities, (B, K) float64.

    ``logits`` and ``is_choice`` have the shape (B, K). Entries that are not choices have
    probability 0. Rows without choices have the index -1.

    >>> logits, is_choice = tf.constant([[0.0, 0.0, 9.0]]), tf.constant([[True, True, False]])
    >>> best, probabilities = choose(logits, is_choice)
    >>> best.numpy(), probabilities.numpy()
    (array([0], dtype=int32), array([[0.5, 0.5, 0. ]]))
    """
    logits = tf.where(is_choice, _calibrated(logits, temperature), float("-inf"))
    # The extra column keeps argmax defined if K is 0.
    padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
    best = tf.argmax(padded, 1, output_type=tf.int32)
    probabilities = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
    return tf.where(tf.reduce_any(is_choice, 1), best, -1), probabilities


def _calibrated(logits: tf.Tensor, temperature: float) -> tf.Tensor:
    return tf.cast(logits, tf.float64) / temperature
