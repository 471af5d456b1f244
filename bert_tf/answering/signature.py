"""A signature: what a server takes and returns, with sample requests."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features

from .served import Outputs, Served

# Requests: of each its columns, by the inputs' names.
Requests = Sequence[Mapping[str, list[Any]]]

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


# === Sample texts ===

TEXTS = [
    "The harbour was quiet when the last boat came in.",
    "I would not see this film again, even for free.",
    "Ada Brandt moved from Lisbon to Oslo in 1931.",
]
SECOND_TEXTS = [
    "Nobody was waiting on the pier.",
    "It was a waste of time.",
    "She never left Portugal.",
]
BEYOND_ASCII = "Señor Núñez zahlt 5 € in Zürich: 東京の天気 👍"
NOT_UTF8 = b"The caf\xe9 in \xffOslo is \xc3 open."


def long_text(served: Served) -> str:
    """A text of more tokens than a row has."""
    return " ".join(["The boat came in ."] * (served.max_seq_length // 5 + 1))


def odd_texts(served: Served) -> list[Any]:
    """Texts that a server must take, four."""
    return ["", BEYOND_ASCII, NOT_UTF8, long_text(served)]


def requests_of_texts(served: Served, names: Sequence[str]) -> Requests:
    """Requests of texts or pairs, by the names of the inputs."""
    odd = odd_texts(served)
    ordinary = dict(zip(names, (TEXTS, SECOND_TEXTS), strict=False))
    return ordinary, dict(zip(names, (odd, odd[::-1]), strict=False))
