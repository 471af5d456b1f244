"""Answers and signatures for classification, regression and multiple choice.

``answer_class``, ``answer_classes`` and ``answer_choice`` convert the model's outputs to answers;
the signatures compute the outputs from strings.

Dimensions: B examples, C classes, K choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from bert_tf import features
from bert_tf.answering import classes
from bert_tf.answering.rows import (
    Rows,
    check_equally_many,
    fit_rows,
    run_rows,
    text_rows,
    truncate_texts,
)
from bert_tf.answering.served import Outputs, Served
from bert_tf.answering.signatures import (
    ROWS_OF_STRINGS,
    STRINGS,
    Signature,
    Signatures,
    id_signature,
    model_outputs,
    odd_texts,
    text_requests,
    text_signature,
)
from bert_tf.choices import LONG_TEXTS
from bert_tf.modeling import BertRegressor
from bert_tf.pipelines.long_texts import (
    cut_windows,
    head_and_tail,
    max_window_tokens,
    mean_of_windows,
)
from bert_tf.pipelines.packing import fit_segments, join_segments
from bert_tf.tasks.losses import NO_CHOICE

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Thresholds
    from bert_tf.tasks.task import Task

_SPECIAL_TOKENS = 2  # [CLS] text [SEP]


# === Answers ===


def answer_class(logits: tf.Tensor, thresholds: Thresholds) -> Outputs:
    """Converts single-label logits, (B, C), to answers.

    Returns:
        ``label``, class ids of shape (B,); ``score``, their probabilities, (B,); ``probabilities``,
        (B, C).
    """
    probabilities = classes.probabilities(logits, _temperature(thresholds))
    return {
        "label": tf.argmax(logits, 1),
        "score": tf.reduce_max(probabilities, 1),
        "probabilities": probabilities,
    }


def answer_classes(logits: tf.Tensor, thresholds: Thresholds) -> Outputs:
    """Converts multi-label logits, (B, C), to answers.

    Returns:
        ``chosen_labels``, class ids of shape (B, C), the most likely first, padded with -1;
        ``counts``, the number of chosen classes, (B,); ``probabilities``, (B, C).
    """
    probabilities = classes.multilabel_probabilities(logits, _temperature(thresholds))
    threshold = thresholds.get(features.PROBABILITY_THRESHOLD, features.DEFAULT_THRESHOLD)
    counts = tf.math.count_nonzero(probabilities >= threshold, 1, dtype=tf.int32)
    num_classes = logits.shape[1]
    best_first = tf.math.top_k(probabilities, num_classes).indices
    return {
        "chosen_labels": tf.where(tf.sequence_mask(counts, num_classes), best_first, -1),
        "counts": counts,
        "probabilities": probabilities,
    }


def answer_choice(logits: tf.Tensor, thresholds: Thresholds) -> Outputs:
    """Converts logits of choices, (B, K), to answers; padding has the logit ``NO_CHOICE``.

    Returns:
        ``choice``, the index of the most likely choice or -1, shape (B,); ``probabilities``, (B,
        K).
    """
    best, probabilities = classes.choose(logits, logits > NO_CHOICE, _temperature(thresholds))
    return {"choice": best, "probabilities": probabilities}


def _temperature(thresholds: Thresholds) -> float:
    return thresholds.get(features.TEMPERATURE, 1.0)


# === Signatures of texts and pairs ===


def text_signatures(served: Served, task: Task) -> Signatures:
    """Returns the signatures of a ``BertClassifier`` or ``BertRegressor``."""
    if isinstance(served.model, BertRegressor):
        result, api, tokens = "a number", "Regress", id_signature(served, function=_regress_ids)
    else:
        result = "the classes" if served.model.multi_label else "the class"
        api, tokens = "Classify", id_signature(served)

    def answer(served: Served, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
        outputs, truncated = _outputs(served, text, text_pair)
        outputs = served.model.activated(tf.cast(outputs, tf.float32))
        answers = classes.name_labels(task.answer(outputs, served.model.thresholds), task.labels)
        if task.labels:
            answers["labels"] = tf.tile(tf.constant([task.labels]), [tf.size(text), 1])
        return {**answers, "truncated": truncated}

    text = text_signature(served, answer, f"Predicts {result} for a text.")
    pair = text_signature(
        served, answer, f"Predicts {result} for a text pair.", "text", "text_pair"
    )
    examples = _example_signature(served, answer, result, api)
    default = pair if served.options.pair else text
    by_input = {"text": text, "pair": pair, "tokens": tokens, api.lower(): examples}
    return {"serving_default": default, **by_input}


def _outputs(
    served: Served, text: tf.Tensor, text_pair: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns outputs for texts or pairs, (B, ...), and whether texts were truncated, (B,)."""
    form = served.options.long_text
    if form == LONG_TEXTS[0] or text_pair is not None:
        texts = [text] if text_pair is None else [text, text_pair]
        rows, truncated = text_rows(served, *texts)
        return run_rows(served, rows, Served.outputs), truncated
    max_tokens = served.max_seq_length - _SPECIAL_TOKENS
    ids = served.tokenizer.tokenize(text)
    if form == "head_tail":
        rows, _ = fit_rows(served, head_and_tail(ids, max_tokens))
        return run_rows(served, rows, Served.outputs), ids.row_lengths() > max_tokens
    begins, sizes = cut_windows(tf.cast(ids.row_lengths(), tf.int32), max_tokens)
    counts = begins.row_lengths()
    starts = begins.values + tf.repeat(tf.cast(ids.row_starts(), tf.int32), counts)
    windows = run_rows(served, Rows(ids.values, [(starts, sizes.values)]), Served.outputs)
    return mean_of_windows(windows, counts), ids.row_lengths() > max_window_tokens(max_tokens)


def regressor_logits(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Returns a ``BertRegressor``'s logits for ids, (B, S) int32, in transformers' shape (B, 1)."""
    return {"logits": model_outputs(served, **inputs)["logits"][:, None]}


def _regress_ids(served: Served, **inputs: tf.Tensor) -> Outputs:
    """Returns ``value``, (B,), the number predicted for each row of ids, (B, S) int32."""
    return {"value": served.model.activated(model_outputs(served, **inputs)["logits"])}


# === TensorFlow Serving's Classify and Regress ===


def _example_signature(
    served: Served, answer: Callable[..., Outputs], result: str, api: str
) -> Signature:
    """Returns a signature for serialized ``tf.Example`` strings, (B,), with texts as features."""
    names = ["text", "text_pair"] if served.options.pair else ["text"]
    outputs = {"Classify": {"classes": "labels", "scores": "probabilities"}}
    returned = outputs.get(api, {"outputs": "value"})

    def on_examples(served: Served, inputs: tf.Tensor) -> Outputs:
        strings = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
        parsed = tf.io.parse_example(inputs, strings)
        answers = answer(served, *(parsed[name] for name in names))
        return {name: answers[key] for name, key in returned.items()}

    return Signature(
        on_examples,
        {"inputs": STRINGS},
        [{"inputs": _serialized(columns)} for columns in text_requests(served, names)],
        f"For TensorFlow Serving's {api}: predicts {result} for serialized tf.Examples with the "
        f"feature{'s' if len(names) > 1 else ''} {' and '.join(names)}.",
        reports_invalid_bytes=False,
    )


def _serialized(columns: Mapping[str, list[Any]]) -> list[Any]:
    """Converts a request of texts to serialized ``tf.Example`` strings."""
    examples = []
    for row in zip(*columns.values(), strict=True):
        example = tf.train.Example()
        for name, text in zip(columns, row, strict=True):
            value = text if isinstance(text, bytes) else text.encode()
            example.features.feature[name].bytes_list.value.append(value)
        examples.append(example.SerializeToString(deterministic=True))
    return examples


# === Signatures of choices ===

_CONTEXTS = ["She put the kettle on.", "The dog heard the bell."]
# The choices of a context have different lengths, so their token ids differ even if the vocabulary
# has none of their words.
_CHOICES = [
    [
        "She poured the tea.",
        "She closed the old umbrella.",
        "She ate the kettle and the cup.",
        "She sang.",
    ],
    ["It began to swim.", "It ran home.", "It swam.", "It was painted red again."],
]


def choice_signatures(served: Served, task: Task) -> Signatures:
    """Returns the signatures of a ``BertMultipleChoice``."""

    def choose(served: Served, context: tf.Tensor, choices: tf.Tensor) -> Outputs:
        """Chooses among (B, K) texts for (B,) contexts (paper, section 4.4); "" is padding."""
        context, choices = check_equally_many(context, choices)
        logits, truncated = _choice_logits(served, context, choices)
        answers = classes.name_labels(task.answer(logits, served.model.thresholds), task.labels)
        return {**answers, "truncated": truncated}

    odd = odd_texts(served)
    choices = Signature(
        choose,
        {"context": STRINGS, "choices": ROWS_OF_STRINGS},
        (
            {"context": _CONTEXTS, "choices": _CHOICES},
            {"context": odd, "choices": [[text, "It ran home."] for text in odd[::-1]]},
        ),
        'Predicts which of several texts follows a context; "" is padding.',
    )
    tokens = id_signature(served, features.CHOICE_FEATURES)
    return {"serving_default": choices, "tokens": tokens}


def _choice_logits(
    served: Served, context: tf.Tensor, choices: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns logits, (B, K), with ``NO_CHOICE`` for padding, and whether texts were cut, (B,)."""
    shape = tf.shape(choices)
    ids, (contexts, choice_ranges) = join_segments(
        [
            served.tokenizer.tokenize(truncate_texts(served, texts, served.max_seq_length))
            for texts in (context, tf.reshape(choices, [-1]))
        ]
    )
    # All rows of a context share the context's tokens.
    starts, lengths = contexts
    repeated = (tf.repeat(starts, shape[1]), tf.repeat(lengths, shape[1]))
    segments = [repeated, choice_ranges]
    fitted = fit_segments(segments, served.max_seq_length, served.tokenizer)

    def head(served: Served, inputs: Outputs) -> tf.Tensor:
        # Each choice is a separate example, (N, S) -> (N, 1, S), as the logits are independent.
        return served.call({key: value[:, None] for key, value in inputs.items()})[:, 0]

    # (B * K,) -> (B, K)
    logits = tf.cast(
        tf.reshape(run_rows(served, Rows(ids, fitted.ranges), head), shape), tf.float32
    )
    is_choice = tf.not_equal(choices, "")
    truncated = tf.reduce_any(tf.reshape(fitted.truncated, shape) & is_choice, 1)
    return tf.where(is_choice, logits, NO_CHOICE), truncated
