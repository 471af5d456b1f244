"""The two pre-training losses, as sums that are reduced first and divided last.

A mean per replica, or per micro-batch, is not the mean of the batch where rows hold different
numbers of predictions. So each function returns sums; sums add up exactly across micro-batches,
replicas and hosts, and `masked_lm_mean` and `next_sentence_mean` divide once, at the end.

Dimension letters: B batch, P masked-LM predictions, V vocabulary.
Source: the BERT paper, appendix A.2, and ``run_pretraining.py`` (``get_masked_lm_output`` and
``get_next_sentence_output``) in Google's repository, whose 1e-5 in the denominator is kept.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf import features

WEIGHT_EPSILON = 1e-5


class LossSums(NamedTuple):
    """Float32 scalars over the weighted positions (or rows) of a batch."""

    loss: tf.Tensor  # the sum of weight * negative log likelihood, in nats
    weight: tf.Tensor
    correct: tf.Tensor  # the sum of the weights where the arg-max is the label


def _likelihood(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The softmax cross-entropy (N,) of float32 logits (N, V) with labels (N,) int32.

    As ``tf.nn.sparse_softmax_cross_entropy_with_logits`` has it, forward and backward. Its kernel
    runs on one core of a CPU and took a quarter of a small model's step; softmax runs on all.
    """

    @tf.custom_gradient
    def likelihood(logits: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        # (N, V): the probabilities serve both directions.
        probabilities = tf.nn.softmax(logits)
        at_labels = tf.stack([tf.range(tf.size(labels)), labels], axis=1)
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
    """The same of operations that XLA joins; none scatters.

    Scattering copies the logits on a TPU, and with ``--deterministic`` from a GPU to the CPU.

    Nothing as large as they are is kept for the backward pass but they.
    """

    def is_label() -> tf.Tensor:
        return tf.range(logits.shape[-1]) == labels[:, None]

    @tf.custom_gradient
    def likelihood(logits: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        log_sum = tf.reduce_logsumexp(logits, axis=-1)
        at_labels = tf.reduce_sum(tf.where(is_label(), logits, 0.0), axis=-1)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            probabilities = tf.exp(logits - log_sum[:, None])
            return upstream[:, None] * (probabilities - tf.cast(is_label(), tf.float32))

        return log_sum - at_labels, gradient

    return likelihood(logits)


_LIKELIHOODS = {
    "CPU": _likelihood,
    "GPU": _likelihood_without_scatter,
    "TPU": _likelihood_without_scatter,
}


def weighted_sums(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, device_type: str = "CPU"
) -> LossSums:
    """Softmax cross-entropy over the last axis, summed with weights; computed in float32.

    ``device_type`` ("CPU", "GPU" or "TPU") changes how fast it is, and roundings.

    Of the masked LM: logits (B, P, V), the original ids (B, P) int32 and weights (B, P) float32,
    1 = real. Of the next sentence: logits (B, 2), index 0 "B follows A"; labels and weights (B,).

    >>> import tensorflow as tf
    >>> sums = weighted_sums(tf.zeros((1, 2, 4)), tf.constant([[0, 3]]), tf.constant([[1.0, 0.0]]))
    >>> round(float(sums.loss), 4), float(sums.weight), float(sums.correct)
    (1.3863, 1.0, 1.0)
    """
    # (N, V) and (N,): so the logits were computed, and another shape of them may be a copy.
    logits = tf.cast(tf.reshape(logits, [-1, logits.shape[-1]]), tf.float32)
    labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)
    weights = tf.cast(tf.reshape(weights, [-1]), tf.float32)
    hits = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
    return LossSums(
        loss=tf.reduce_sum(weights * _LIKELIHOODS[device_type](logits, labels)),
        weight=tf.reduce_sum(weights),
        correct=tf.reduce_sum(weights * tf.cast(hits, tf.float32)),
    )


def predicted_sums(
    states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> LossSums:
    """Result of ``weighted_sums`` for logits that are ``states`` x ``table`` + ``bias``.

    On a CPU it takes fewer passes over arrays as large as the logits, which are most of a small
    model's step: the gradient's products take the probabilities as they are, and the weights and
    the labels come in where arrays are smaller.

    States (N, H) and ``table`` (V, H) in the compute dtype, float32 ``bias`` (V,), labels (N,)
    int32 and weights (N,) float32; N may be 0.
    """

    @tf.custom_gradient
    def sums(states: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tuple[Any, Any]:
        # (N, V)
        logits = tf.cast(tf.matmul(states, table, transpose_b=True), tf.float32) + bias
        probabilities = tf.nn.softmax(logits)
        rows = tf.range(tf.size(labels))
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        at_best, at_labels = (tf.stack([rows, column], axis=1) for column in (best, labels))
        # The largest probability is 1 / sum(exp(logits - top)), at least 1 / V: no underflow.
        log_sum = tf.gather_nd(logits, at_best) - tf.math.log(tf.gather_nd(probabilities, at_best))
        likelihood = log_sum - tf.gather_nd(logits, at_labels)
        hits = tf.cast(tf.equal(best, labels), tf.float32)

        def gradient(upstream: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            # With p the probabilities, of the logits: scale * (p - 1 at the label).
            scale = upstream * weights
            narrow, at = tf.cast(scale, states.dtype)[:, None], labels[:, None]
            factor, scaled = tf.cast(probabilities, states.dtype), states * narrow
            of_states = (tf.matmul(factor, table) - tf.gather(table, labels)) * narrow
            of_table = tf.matmul(factor, scaled, transpose_a=True)
            of_bias = tf.linalg.matvec(probabilities, scale, transpose_a=True)
            return (
                of_states,
                tf.tensor_scatter_nd_sub(of_table, at, scaled),
                tf.tensor_scatter_nd_sub(of_bias, at, scale),
            )

        return (tf.reduce_sum(weights * likelihood), tf.reduce_sum(weights * hits)), gradient

    loss, correct = sums(states, table, bias)
    return LossSums(loss=loss, weight=tf.reduce_sum(weights), correct=correct)


def row_weights(input_mask: tf.Tensor) -> tf.Tensor:
    """(B,) float32: 1 for every row of a mask (B, S) with a real token, 0 for a row of padding.

    >>> import tensorflow as tf
    >>> row_weights(tf.constant([[1, 1, 0], [0, 0, 0]])).numpy().tolist()
    [1.0, 0.0]
    """
    return tf.cast(tf.reduce_max(input_mask, axis=1), tf.float32)


def masked_lm_mean(total: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """A masked-LM sum divided by the weights of the *whole* batch plus 1e-5, as Google's code does.

    >>> import tensorflow as tf
    >>> round(float(masked_lm_mean(tf.constant(6.0), tf.constant(3.0))), 4)
    2.0
    >>> float(masked_lm_mean(tf.constant(0.0), tf.constant(0.0)))
    0.0
    """
    return total / (weight + WEIGHT_EPSILON)


def next_sentence_mean(total: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """A next-sentence sum divided by the number of real rows of the *whole* batch (0 if none).

    >>> import tensorflow as tf
    >>> float(next_sentence_mean(tf.constant(6.0), tf.constant(4.0)))
    1.5
    """
    return tf.math.divide_no_nan(total, rows)


class PretrainingSums(NamedTuple):
    """Float32 scalars of one batch, or of several: both losses' `LossSums`, real tokens.

    Those of the next sentence are 0 without that head.
    """

    masked_lm_loss: Any
    masked_lm_weight: Any
    masked_lm_correct: Any
    next_sentence_loss: Any
    next_sentence_rows: Any
    next_sentence_correct: Any
    tokens: Any


def batch_sums(
    outputs: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
    device_type: str = "CPU",
    masked_lm: LossSums | None = None,
) -> PretrainingSums:
    """Both losses' sums over one batch; 0 for the next sentence without that head.

    ``masked_lm`` are the masked LM's, where they have been computed without logits in ``outputs``.
    """
    masked_lm = masked_lm or weighted_sums(
        outputs[features.MASKED_LM_LOGITS],
        batch[features.MASKED_LM_IDS],
        batch[features.MASKED_LM_WEIGHTS],
        device_type,
    )
    next_sentence = LossSums(tf.zeros(()), tf.zeros(()), tf.zeros(()))
    if features.NEXT_SENTENCE_LOGITS in outputs:
        next_sentence = weighted_sums(
            outputs[features.NEXT_SENTENCE_LOGITS],
            batch[features.NEXT_SENTENCE_LABELS],
            row_weights(batch[features.INPUT_MASK]),
            device_type,
        )
    tokens = tf.reduce_sum(tf.cast(batch[features.INPUT_MASK], tf.float32))
    return PretrainingSums(*masked_lm, *next_sentence, tokens)


def loss(sums: PretrainingSums) -> tf.Tensor:
    """The sum of both mean losses, of the sums over the *whole* batch."""
    masked_lm = masked_lm_mean(sums.masked_lm_loss, sums.masked_lm_weight)
    return masked_lm + next_sentence_mean(sums.next_sentence_loss, sums.next_sentence_rows)


def means(sums: PretrainingSums) -> dict[str, float]:
    """Losses and accuracies as Python floats, 0 where nothing was counted.

    >>> means(PretrainingSums(4.0, 2.0, 1.0, 0.0, 0.0, 0.0, 9.0))["masked_lm_accuracy"]
    0.5
    """
    masked_lm_weight = max(float(sums.masked_lm_weight), WEIGHT_EPSILON)
    rows = max(float(sums.next_sentence_rows), 1.0)
    return {
        "masked_lm_loss": float(sums.masked_lm_loss) / masked_lm_weight,
        "masked_lm_accuracy": float(sums.masked_lm_correct) / masked_lm_weight,
        "next_sentence_loss": float(sums.next_sentence_loss) / rows,
        "next_sentence_accuracy": float(sums.next_sentence_correct) / rows,
    }
