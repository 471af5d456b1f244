"""Signatures of an export: their form and sample requests, limits, reports of invalid bytes."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features

from .options import ExportOptions
from .served import Outputs, Served

# === A signature: what a server takes and returns, with sample requests ===

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
    requests = text_requests(served, names)
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
    has_choices = len(contract[features.INPUT_WORD_IDS].dimensions) > 2
    requests = [
        {key: [rows[key]] if has_choices else rows[key] for key in contract}
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


def text_requests(served: Served, names: Sequence[str]) -> Requests:
    """Requests of texts or pairs, by the names of the inputs."""
    odd = odd_texts(served)
    ordinary = dict(zip(names, (TEXTS, SECOND_TEXTS), strict=False))
    return ordinary, dict(zip(names, (odd, odd[::-1]), strict=False))


# === All signatures of a model ===

SERVING_DEFAULT = "serving_default"
INT64_SERVING = "int64_serving"  # transformers' signature of ids that are int64
TEXT_SERVING = "strings"  # what serving_default is where it has not transformers' signature


def bind_all(
    by_name: Signatures, served: Served, transformers: Callable[..., Outputs] | None
) -> Signatures:
    """Signatures, ``serving_default`` first, whose functions take the inputs alone.

    ``transformers`` takes a served model and features of ids by name, and returns the outputs that
    SavedModels of transformers' class had; ``None``: there was no such class.
    """
    if served.options.transformers_signature and transformers is not None:
        id_signatures = {
            name: _transformers_signature(served, transformers, by_name["tokens"], dtype)
            for name, dtype in ((SERVING_DEFAULT, tf.int32), (INT64_SERVING, tf.int64))
        }
        by_name = {
            **id_signatures,
            TEXT_SERVING: by_name[SERVING_DEFAULT],
            **by_name,
            **id_signatures,
        }
    bound = {id(signature): _bind(signature, served) for signature in by_name.values()}
    default = by_name[SERVING_DEFAULT]
    bound[id(default)] = _bind(default, served.quick or served)
    return {name: bound[id(signature)] for name, signature in by_name.items()}


_TRANSFORMERS_NAMES = {
    features.INPUT_WORD_IDS: "input_ids",
    features.INPUT_MASK: "attention_mask",
    features.INPUT_TYPE_IDS: "token_type_ids",
}


def _transformers_signature(
    served: Served, outputs: Callable[..., Outputs], tokens: Signature, dtype: tf.DType
) -> Signature:
    """The signature of ids that SavedModels of transformers had: ``tokens`` by other names."""
    names = dict(_TRANSFORMERS_NAMES)
    if served.model.config.is_distilbert:
        del names[features.INPUT_TYPE_IDS]

    def answer(served: Served, **rows: tf.Tensor) -> Outputs:
        inputs = {key: tf.cast(rows[name], tf.int32) for key, name in names.items()}
        no_types = tf.zeros_like(inputs[features.INPUT_WORD_IDS])
        return outputs(served, **{features.INPUT_TYPE_IDS: no_types, **inputs})

    return Signature(
        answer,
        {name: tf.TensorSpec(tokens.inputs[key].shape, dtype) for key, name in names.items()},
        [{name: request[key] for key, name in names.items()} for request in tokens.samples],
        "Takes the ids of a BERT tokenizer, and returns what transformers' TFBert classes did.",
    )


# === What every signature of strings reports, and what it refuses ===


def _bind(signature: Signature, served: Served) -> Signature:
    """A served model's signature, within limits; that of strings has ``invalid_utf8`` (B,) bool."""
    function, options = functools.partial(signature.function, served), served.options
    takes_strings = any(spec.dtype == tf.string for spec in signature.inputs.values())
    if takes_strings and signature.reports_invalid_bytes:
        function = functools.partial(_report_invalid_bytes, function)
    if options.max_rows is not None or (takes_strings and options.max_bytes is not None):
        function = functools.partial(_within_limits, options, function)
    requests = select_samples(options, signature.samples)
    return dataclasses.replace(signature, function=function, samples=requests)


def _report_invalid_bytes(function: Callable[..., Outputs], **inputs: tf.Tensor) -> Outputs:
    outputs = function(**inputs)
    # Behind the function, which refuses columns of different lengths.
    with tf.control_dependencies(list(outputs.values())):
        rows = []
        for values in inputs.values():
            valid = tf.strings.unicode_transcode(values, "UTF-8", "UTF-8", errors="ignore")
            lost = valid != values
            rows.append(tf.reduce_any(lost, 1) if values.shape.rank == 2 else lost)
        return {**outputs, "invalid_utf8": functools.reduce(tf.logical_or, rows)}


def _within_limits(
    options: ExportOptions, function: Callable[..., Outputs], **inputs: tf.Tensor
) -> Outputs:
    """Calls a signature's function, once the request's rows and bytes are found within limits.

    A refusal is an ``InvalidArgumentError``, INVALID_ARGUMENT of TensorFlow Serving, with a
    sentence. A server that joins requests into batches refuses the whole batch.
    """
    checks = []
    if options.max_rows is not None:
        rows = tf.shape(next(iter(inputs.values())))[0]
        checks.append(_check_limit(options.max_rows, rows, "The request has", "rows"))
    strings = [value for value in inputs.values() if value.dtype == tf.string]
    if options.max_bytes is not None:
        for value in strings:
            size = tf.strings.length(value)
            size = tf.reduce_sum(size, 1) if value.shape.rank == 2 else size
            longest = tf.reduce_max(tf.concat([size, [0]], 0))  # 0 for an empty request
            checks.append(_check_limit(options.max_bytes, longest, "A row has", "bytes"))
    with tf.control_dependencies(checks):
        return function(**{name: tf.identity(value) for name, value in inputs.items()})


def _check_limit(limit: int, count: tf.Tensor, subject: str, unit: str) -> Any:
    number = tf.strings.as_string(count)
    message = tf.strings.join([subject, " ", number, f" {unit}, and the most is {limit}."])
    return tf.debugging.Assert(count <= limit, [message])


def select_samples(options: ExportOptions, requests: Requests) -> Requests:
    """Sample requests without the rows that would be refused; a request of none is left out."""
    limit = options.max_bytes
    fits = []
    for columns in requests:
        rows = list(zip(*columns.values(), strict=True))
        if limit is not None:
            rows = [row for row in rows if max(map(_size, row)) <= limit]
        if rows:
            values = map(list, zip(*rows[: options.max_rows], strict=True))
            fits.append(dict(zip(columns, values, strict=True)))
    return tuple(fits)


def _size(value: Any) -> int:
    """Bytes of a string or of strings; 0 of ids."""
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 0
