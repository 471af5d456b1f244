"""What a signature is: what a server takes and gives, and samples of it.

A head's file makes its signatures of these; ``heads`` says which model has which.
"""

import dataclasses
from collections.abc import Callable, Mapping

import tensorflow as tf

from bert_tf import features

from .samples import Requests, requests_of_texts
from .served import Outputs, Served

STRINGS = tf.TensorSpec([None], tf.string)
ROWS_OF_STRINGS = tf.TensorSpec([None, None], tf.string)


@dataclasses.dataclass(frozen=True)
class Signature:
    """Signature of a server: ``summary`` says in a sentence what it answers.

    The function takes what is served, and the inputs by name; its outputs are dense, the request's
    batch first. ``samples`` are requests: an ordinary and an odd one.
    """

    function: Callable[..., Outputs]
    inputs: Mapping[str, tf.TensorSpec]
    samples: Requests
    summary: str
    # TensorFlow Serving's Classify and Regress take signatures without other outputs.
    reports_invalid_bytes: bool = True


Signatures = dict[str, Signature]


def text_signature(
    served: Served, function: Callable[..., Outputs], summary: str, *names: str
) -> Signature:
    """Signature that takes ``text``, or a text or pair by other names."""
    names = names or ("text",)
    requests = requests_of_texts(served, names)
    return Signature(function, dict.fromkeys(names, STRINGS), requests, summary)


def id_signature(
    served: Served,
    contract: Mapping[str, features.Feature] = features.ENCODER_FEATURES,
    function: Callable[..., Outputs] | None = None,
    returned: str = "the model's outputs.",
) -> Signature:
    """Signature that takes the features of a contract, (B, S) or (B, K, S) int32 each.

    Its samples are a row and a shorter one, and a pair.
    """
    tokenizer = served.tokenizer
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    # Anything from the vocabulary.
    a, b = tokenizer.vocab_size // 2, tokenizer.vocab_size - 1
    ordinary = {
        features.INPUT_WORD_IDS: [[cls, a, b, sep], [cls, b, sep, pad]],
        features.INPUT_MASK: [[1, 1, 1, 1], [1, 1, 1, 0]],
        features.INPUT_TYPE_IDS: [[0] * 4] * 2,
        features.WORD_INDEX: [[-1, 0, 1, -1], [-1, 0, -1, -1]],
    }
    pair = {
        features.INPUT_WORD_IDS: [[cls, a, sep, b, sep]],
        features.INPUT_MASK: [[1] * 5],
        features.INPUT_TYPE_IDS: [[0, 0, 0, 1, 1]],
        features.WORD_INDEX: [[-1, 0, -1, 1, -1]],
    }
    of_choices = len(contract[features.INPUT_WORD_IDS].dimensions) > 2
    requests = [
        {key: [rows[key]] if of_choices else rows[key] for key in contract}
        for rows in (ordinary, pair)
    ]
    inputs = {
        key: tf.TensorSpec([None] * len(feature.dimensions), feature.dtype)
        for key, feature in contract.items()
    }
    summary = f"Takes ids from the client's own tokenizer, and returns {returned}"
    return Signature(function or model_outputs, inputs, requests, summary)


def model_outputs(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Runs a task's model on its features, (B, S) or (B, K, S) int32: its outputs in float32."""
    outputs = served.call(inputs)
    by_name = outputs if isinstance(outputs, Mapping) else {"logits": outputs}
    return {key: tf.cast(value, tf.float32) for key, value in by_name.items()}
