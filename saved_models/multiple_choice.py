"""Which of several texts fits a context."""

import tensorflow as tf

from bert_tf.pipelines.packing import join_segments

from .rows import beginnings, check_equally_many, fitted_rows, on_rows
from .served import Outputs, Served


def choose(served: Served, context: tf.Tensor, choices: tf.Tensor) -> Outputs:
    """Finds the choice that fits each context.

    Each choice is a row, [CLS] context [SEP] choice [SEP], of which the longer text is cut where it
    is too long. SWAG's choices are its beginning and an ending each, with a blank between.

    Source: Devlin et al. 2019, section 4.4.

    Args:
        served: a ``BertMultipleChoice``.
        context: (B,) string.
        choices: (B, K) string; every context has as many.

    Returns:
        ``choice`` (B,) int32, the most probable one's place, counted from 0, and -1 where K is 0;
        ``probabilities`` (B, K) float32, whose sum is 1; ``truncated`` (B,) bool, whether a row of
        the context's lost tokens.

    Raises:
        tf.errors.InvalidArgumentError: when it runs: there are not as many rows of choices as
            contexts.
    """
    context, choices = check_equally_many(context, choices)
    shape = tf.shape(choices)
    segments = [
        served.tokenizer.tokenize(beginnings(served, texts, served.max_seq_length))
        for texts in (context, tf.reshape(choices, [-1]))
    ]
    ids, (contexts, choice_ranges) = join_segments(segments)
    # The rows of a context share its tokens.
    repeated = (tf.repeat(contexts[0], shape[1]), tf.repeat(contexts[1], shape[1]))
    rows, truncated = fitted_rows(served, ids, [repeated, choice_ranges])

    def head(inputs: Outputs) -> tf.Tensor:
        # Each choice by itself, (N, S) -> (N, 1, S): a logit does not depend on the others.
        return served.call({key: value[:, None] for key, value in inputs.items()})[:, 0]

    # (B * K,) -> (B, K)
    logits = tf.reshape(tf.cast(on_rows(rows, head), tf.float32), shape)
    # A column more, which is the greatest only where there is no other.
    with_none = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
    best = tf.argmax(with_none, 1, output_type=tf.int32)
    return {
        "choice": tf.where(best < shape[1], best, -1),
        "probabilities": tf.nn.softmax(logits),
        "truncated": tf.reduce_any(tf.reshape(truncated, shape), 1),
    }
