"""Serving signatures: inputs, sample requests, limits and reports of invalid bytes."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features

from .export_options import ExportOptions
from .served import Outputs, Served

# === Signatures and sample requests ===

# Requests, each a mapping from input names to columns.
Requests = Sequence[Mapping[str, list[Any]]]

STRINGS = tf.TensorSpec([None], tf.string)
ROWS_OF_STRINGS = tf.TensorSpec([None, None], tf.string)


@dataclasses.dataclass(frozen=True)
class Signature:
    """Signature of an export.

    Attributes:
        function: Function that takes the served model and the inputs by name. Its outputs are
            dense, with the batch as the first dimension.
        inputs: Specs of the inputs by name.
        samples: Sample requests: a regular request and a request with edge cases.
        summary: One-sentence description.
        reports_invalid_bytes: Whether the output ``invalid_utf8`` is added.
    """

    function: Callable[..., Outputs]
    inputs: Mapping[str, tf.TensorSpec]
    samples: Requests
    summary: str
    # The Classify and Regress APIs of TensorFlow Serving do not allow further outputs.
    reports_invalid_bytes: bool = True


Signatures = dict[str, Signature]


def text_signature(
    served: Served, function: Callable[..., Outputs], summary: str, *names: str
) -> Signature:
    """Returns a signature with one text input per name; by default, the input is ``text``."""
    names = names or ("text",)
    requests = text_requests(served, names)
    return Signature(function, dict.fromkeys(names, STRINGS), requests, summary)


def id_signature(
    served: Served,
    contract: Mapping[str, features.Feature] = features.ENCODER_FEATURES,
    function: Callable[..., Outputs] | None = None,
    returned: str = "the model's outputs.",
) -> Signature:
    """Returns a signature that takes features, shape (B, S) or (B, K, S) int32.

    The sample requests contain two rows of different lengths, and a text pair.
    """
    tokenizer = served.tokenizer
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    # Two arbitrary tokens of the vocabulary.
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
    summary = f"Takes token ids and returns {returned}"
    return Signature(function or model_outputs, inputs, requests, summary)


def model_outputs(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Runs a model on features, (B, S) or (B, K, S) int32, and returns its outputs in float32."""
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
    """Returns a text with more tokens than fit into a row."""
    return " ".join(["The boat came in ."] * (served.max_seq_length // 5 + 1))


def odd_texts(served: Served) -> list[Any]:
    """Returns four texts that are edge cases."""
    return ["", BEYOND_ASCII, NOT_UTF8, long_text(served)]


def text_requests(served: Served, names: Sequence[str]) -> Requests:
    """Returns sample requests with texts or text pairs, for inputs with the given names."""
    odd = odd_texts(served)
    ordinary = dict(zip(names, (TEXTS, SECOND_TEXTS), strict=False))
    return ordinary, dict(zip(names, (odd, odd[::-1]), strict=False))


# === All signatures of a model ===

SERVING_DEFAULT = "serving_default"
INT64_SERVING = "int64_serving"  # transformers' signature for int64 ids
TEXT_SERVING = "strings"  # the signature for texts if serving_default takes ids


def bind_all(
    by_name: Signatures, served: Served, transformers: Callable[..., Outputs] | None
) -> Signatures:
    """Binds signatures to a served model, so that their functions take only the inputs.

    Args:
        by_name: Signatures by name.
        served: Served model.
        transformers: Function that takes the served model and the features, and returns the outputs
            of the corresponding transformers class; ``None`` if there is no such class.

    Returns:
        Signatures by name, ``serving_default`` first.
    """
    if served.options.transformers_signature and transformers is not None:
        from_ids = {
            name: _transformers_signature(served, transformers, by_name["tokens"], dtype)
            for name, dtype in ((SERVING_DEFAULT, tf.int32), (INT64_SERVING, tf.int64))
        }
        by_name = {**from_ids, TEXT_SERVING: by_name[SERVING_DEFAULT], **by_name, **from_ids}
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
    """Returns the ``tokens`` signature with the input names of transformers' SavedModels."""
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
        "Takes the ids of a BERT tokenizer and returns the outputs of transformers' classes.",
    )


# === Invalid bytes and limits ===


def _bind(signature: Signature, served: Served) -> Signature:
    """Binds a signature to a served model, adding limits and ``invalid_utf8``, shape (B,) bool."""
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
    # This runs after the function, which checks that the inputs have equal lengths.
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
    """Calls a signature's function after checking the size of the request.

    Requests above a limit fail with ``InvalidArgumentError``. On a server with batching, all
    requests in the batch fail.
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
    message = tf.strings.join([subject, " ", number, f" {unit}; expected at most {limit}."])
    return tf.debugging.Assert(count <= limit, [message])


def select_samples(options: ExportOptions, requests: Requests) -> Requests:
    """Removes rows that exceed the limits from sample requests, and drops empty requests."""
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
    """Returns the number of bytes of a string or list of strings; 0 for ids."""
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 0
