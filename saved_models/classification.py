"""Texts, or pairs of texts, to classes or numbers; the choice, of several, that fits a context."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf import class_probabilities, features
from bert_tf.choices import LONG_TEXTS
from bert_tf.modeling.base import PROBABILITY_THRESHOLD
from bert_tf.pipelines.long_texts import cut_windows, head_and_tail, mean_of_windows, most_tokens
from bert_tf.pipelines.packing import fit_segments, join_segments

from . import samples
from .rows import Rows, beginnings, check_equally_many, fitted_rows, on_rows, text_rows
from .served import Outputs, Served
from .signature import (
    ROWS_OF_STRINGS,
    STRINGS,
    Signature,
    Signatures,
    id_signature,
    model_outputs,
    text_signature,
)

_SPECIAL_TOKENS = 2  # [CLS] text [SEP]


def classifier_signatures(served: Served) -> Signatures:
    """Signatures of a ``BertClassifier``."""
    answer = "the classes that hold" if served.model.multi_label else "the class"
    tokens = id_signature(served)
    return _signatures(served, answer, classify, tokens, "Classify", classify_examples)


def regressor_signatures(served: Served) -> Signatures:
    """Signatures of a ``BertRegressor``."""
    tokens = id_signature(served, function=_number_of_ids)
    return _signatures(served, "the number", regress, tokens, "Regress", regress_examples)


def _signatures(
    served: Served,
    answer: str,
    function: Callable[..., Outputs],
    tokens: Signature,
    api: str,
    on_examples: Callable[..., Outputs],
) -> Signatures:
    """Signatures of texts, pairs and ids, and of an interface of TensorFlow Serving's own."""
    text = text_signature(served, function, f"Finds {answer} of a text.")
    summary = f"Finds {answer} of a pair of texts."
    pair = text_signature(served, function, summary, "text", "text_pair")
    names = _example_features(served)
    requests = samples.requests_of_texts(served, names)
    examples = Signature(
        on_examples,
        {"inputs": STRINGS},
        [{"inputs": _serialized(columns)} for columns in requests],
        f"For TensorFlow Serving's {api}: finds {answer} of serialized tf.Examples with the "
        f"feature{'s' if len(names) > 1 else ''} {' and '.join(names)}.",
        reports_invalid_bytes=False,
    )
    default = pair if served.options.pair else text
    by_input = {"text": text, "pair": pair, "tokens": tokens, api.lower(): examples}
    return {"serving_default": default, **by_input}


def logits_of_regressor(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Outputs of a ``BertRegressor`` on ids, (B, S) int32, as transformers has them: (B, 1)."""
    return {"logits": model_outputs(served, **inputs)["logits"][:, None]}


def _number_of_ids(served: Served, **inputs: tf.Tensor) -> Outputs:
    """The number of each row of ids, (B, S) int32: ``value`` (B,)."""
    return {"value": served.model.activated(model_outputs(served, **inputs)["logits"])}


def _example_features(served: Served) -> list[str]:
    """The features of a ``tf.Example`` that a model reads."""
    return ["text", "text_pair"] if served.options.pair else ["text"]


def _serialized(columns: Mapping[str, list[Any]]) -> list[Any]:
    """A request of texts as serialized ``tf.Example``s."""
    examples = []
    for row in zip(*columns.values(), strict=True):
        example = tf.train.Example()
        for name, text in zip(columns, row, strict=True):
            value = text if isinstance(text, bytes) else text.encode()
            example.features.feature[name].bytes_list.value.append(value)
        examples.append(example.SerializeToString(deterministic=True))
    return examples


def classify(served: Served, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
    """Finds the class of each text or pair, (B,) string, or its classes where several may hold.

    Returns ``labels`` (B, C) string, all names, ``probabilities`` (B, C) and ``truncated`` (B,);
    of one class ``label`` and ``score`` (B,), its probability; of several ``chosen_labels`` (B, C),
    the most probable first, and ``counts`` (B,).
    """
    # (B, C)
    logits, truncated = _outputs(served, text, text_pair)
    names = tf.constant(served.labels)
    outputs = (_classes if served.model.multi_label else _class)(served, logits, names)
    return {
        **outputs,
        "labels": tf.tile(names[None, :], [tf.shape(text)[0], 1]),
        "truncated": truncated,
    }


def regress(served: Served, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
    """Finds the number of each text or pair, (B,) string: ``value`` and ``truncated`` (B,)."""
    values, truncated = _outputs(served, text, text_pair)
    values = served.model.activated(tf.cast(values, tf.float32))
    return {"value": values, "truncated": truncated}


def classify_examples(served: Served, inputs: tf.Tensor) -> Outputs:
    """Answers TensorFlow Serving's Classify: (B,) serialized ``tf.Example`` -> (B, C) each."""
    outputs = classify(served, *_parsed(served, inputs))
    return {"classes": outputs["labels"], "scores": outputs["probabilities"]}


def regress_examples(served: Served, inputs: tf.Tensor) -> Outputs:
    """Answers TensorFlow Serving's Regress: (B,) serialized ``tf.Example`` -> (B,)."""
    return {"outputs": regress(served, *_parsed(served, inputs))["value"]}


def _parsed(served: Served, inputs: tf.Tensor) -> list[tf.Tensor]:
    names = _example_features(served)
    parsed = tf.io.parse_example(inputs, {n: tf.io.FixedLenFeature([], tf.string) for n in names})
    return [parsed[name] for name in names]


def _outputs(
    served: Served, text: tf.Tensor, text_pair: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The model's outputs for texts or pairs, (B, ...), and whether they were cut, (B,)."""
    form = served.options.long_text
    if form == LONG_TEXTS[0] or text_pair is not None:
        texts = [text] if text_pair is None else [text, text_pair]
        rows, truncated = text_rows(served, *texts)
        return on_rows(served, rows, Served.outputs), truncated
    room = served.max_seq_length - _SPECIAL_TOKENS
    ids = served.tokenizer.tokenize(text)
    if form == "head_tail":
        rows, _ = fitted_rows(served, head_and_tail(ids, room))
        return on_rows(served, rows, Served.outputs), ids.row_lengths() > room
    begins, sizes = cut_windows(tf.cast(ids.row_lengths(), tf.int32), room)
    counts = begins.row_lengths()
    starts = begins.values + tf.repeat(tf.cast(ids.row_starts(), tf.int32), counts)
    windows = on_rows(served, Rows(ids.values, [(starts, sizes.values)]), Served.outputs)
    return mean_of_windows(windows, counts), ids.row_lengths() > most_tokens(room)


def _class(served: Served, logits: tf.Tensor, names: tf.Tensor) -> Outputs:
    """One class for each row."""
    probabilities = tf.cast(
        class_probabilities.probabilities(logits, served.temperature), tf.float32
    )
    return {
        "label": tf.gather(names, tf.argmax(logits, 1)),
        "score": tf.reduce_max(probabilities, 1),
        "probabilities": probabilities,
    }


def _classes(served: Served, logits: tf.Tensor, names: tf.Tensor) -> Outputs:
    """Any number of classes for each row."""
    probabilities = class_probabilities.probabilities_of_several(logits, served.temperature)
    threshold = served.model.thresholds.get(PROBABILITY_THRESHOLD, features.USUAL_PROBABILITY)
    counts = tf.math.count_nonzero(probabilities >= threshold, 1, dtype=tf.int32)
    count = names.shape[0]
    best_first = tf.gather(names, tf.math.top_k(probabilities, count).indices)
    return {
        "chosen_labels": tf.where(tf.sequence_mask(counts, count), best_first, ""),
        "counts": counts,
        "probabilities": tf.cast(probabilities, tf.float32),
    }


# === Choices ===

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


def choice_signatures(served: Served) -> Signatures:
    """Signatures of a ``BertMultipleChoice``."""
    odd = samples.odd_texts(served)
    choices = Signature(
        choose,
        {"context": STRINGS, "choices": ROWS_OF_STRINGS},
        (
            {"context": _CONTEXTS, "choices": _CHOICES},
            {"context": odd, "choices": [[text, "It ran home."] for text in odd[::-1]]},
        ),
        'Finds which of several texts fits a context; "" is none of them.',
    )
    tokens = id_signature(served, features.CHOICE_FEATURES)
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
    segments = [repeated, choice_ranges]
    fitted = fit_segments(segments, served.max_seq_length, served.tokenizer)

    def head(served: Served, inputs: Outputs) -> tf.Tensor:
        # Each choice by itself, (N, S) -> (N, 1, S): a logit does not depend on the others.
        return served.call({key: value[:, None] for key, value in inputs.items()})[:, 0]

    # (B * K,) -> (B, K)
    logits = tf.reshape(on_rows(served, Rows(ids, fitted.ranges), head), shape)
    is_choice = tf.not_equal(choices, "")
    best, probabilities = class_probabilities.choose(logits, is_choice, served.temperature)
    return {
        "choice": best,
        "probabilities": tf.cast(probabilities, tf.float32),
        "truncated": tf.reduce_any(tf.reshape(fitted.truncated, shape) & is_choice, 1),
    }
