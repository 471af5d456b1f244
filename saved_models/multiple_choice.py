"""The choice, of several, that fits a context."""

import tensorflow as tf

from bert_tf import decoding, features
from bert_tf.pipelines.packing import fit_segments, join_segments

from . import samples
from .rows import Rows, beginnings, check_equally_many, on_rows
from .samples import Signature, Signatures
from .served import Outputs, Served

_CONTEXTS = ["She put the kettle on.", "The dog heard the bell."]
# No two of a context's are of one length: a vocabulary without their words would make them equal,
# and rounding would choose.
_CHOICES = [
    [
        "She poured the tea.",
        "She closed the old umbrella.",
        "She ate the kettle and the cup.",
        "She sang.",
    ],
    ["It began to swim.", "It ran home.", "It swam.", "It was painted red again."],
]


def signatures(served: Served) -> Signatures:
    """Signatures of a ``BertMultipleChoice``."""
    odd = samples.odd_texts(served)
    choices = Signature(
        choose,
        {"context": samples.STRINGS, "choices": samples.ROWS_OF_STRINGS},
        (
            {"context": _CONTEXTS, "choices": _CHOICES},
            {"context": odd, "choices": [[text, "It ran home."] for text in odd[::-1]]},
        ),
        'Finds which of several texts fits a context; "" is none of them.',
    )
    tokens = samples.id_signature(served, features.CHOICE_FEATURES)
    return {"serving_default": choices, "tokens": tokens}


def choose(served: Served, context: tf.Tensor, choices: tf.Tensor) -> Outputs:
    """Finds the choice, of (B, K) string, that fits each context, (B,) string; "" is no choice.

    Returns ``choice`` (B,), its place from 0 or -1, ``probabilities`` (B, K) and ``truncated``
    (B,). Source: Devlin et al. 2019, section 4.4.
    """
    context, choices = check_equally_many(context, choices)
    shape = tf.shape(choices)
    ids, (contexts, choice_ranges) = join_segments(
        [
            served.tokenizer.tokenize(beginnings(served, texts, served.max_seq_length))
            for texts in (context, tf.reshape(choices, [-1]))
        ]
    )
    # The rows of a context share its tokens.
    starts, lengths = contexts
    repeated = (tf.repeat(starts, shape[1]), tf.repeat(lengths, shape[1]))
    fitted = fit_segments([repeated, choice_ranges], served.max_seq_length)

    def head(inputs: Outputs) -> tf.Tensor:
        # Each choice by itself, (N, S) -> (N, 1, S): a logit does not depend on the others.
        return served.call({key: value[:, None] for key, value in inputs.items()})[:, 0]

    # (B * K,) -> (B, K)
    logits = tf.reshape(on_rows(served, Rows(ids, fitted.ranges), head), shape)
    is_choice = tf.not_equal(choices, "")
    best, probabilities = decoding.choose(logits, is_choice, served.temperature)
    return {
        "choice": best,
        "probabilities": tf.cast(probabilities, tf.float32),
        "truncated": tf.reduce_any(tf.reshape(fitted.truncated, shape) & is_choice, 1),
    }
