"""Texts, or pairs of texts, to classes, numbers, whether one follows the other, and choices."""

import tensorflow as tf

from bert_tf import decoding, features
from bert_tf.choices import LONG_TEXTS
from bert_tf.modeling.base import PROBABILITY_THRESHOLD
from bert_tf.pipelines.long_texts import cut_windows, head_and_tail, mean_of_windows, most_tokens
from bert_tf.pipelines.packing import join_segments

from .rows import (
    beginnings,
    check_equally_many,
    fitted_rows,
    on_rows,
    range_rows,
    segment_rows,
    text_rows,
)
from .served import Outputs, Served

_SPECIAL_TOKENS = 2  # [CLS] text [SEP]


def classify(served: Served, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
    """Finds the class of each text or pair, (B,) string, or its classes where several may hold.

    Returns ``labels`` (B, C) string, all names, ``probabilities`` (B, C) and ``truncated`` (B,);
    of one class ``label`` and ``score`` (B,), its probability; of several ``chosen_labels`` (B, C),
    the most probable first, and ``counts`` (B,).
    """
    # (B, C)
    logits, truncated = _outputs(served, text, text_pair)
    names = tf.constant(label_names(served))
    outputs = (_classes if served.model.multi_label else _class)(served, logits, names)
    return {
        **outputs,
        "labels": tf.tile(names[None, :], [tf.shape(text)[0], 1]),
        "truncated": truncated,
    }


def regress(served: Served, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> Outputs:
    """Finds the number of each text or pair, (B,) string: ``value`` and ``truncated`` (B,)."""
    values, truncated = _outputs(served, text, text_pair)
    return {"value": tf.cast(values, tf.float32), "truncated": truncated}


def classify_examples(served: Served, inputs: tf.Tensor) -> Outputs:
    """Answers TensorFlow Serving's Classify: (B,) serialized ``tf.Example`` -> (B, C) each."""
    outputs = classify(served, *_of_examples(served, inputs))
    return {"classes": outputs["labels"], "scores": outputs["probabilities"]}


def regress_examples(served: Served, inputs: tf.Tensor) -> Outputs:
    """Answers TensorFlow Serving's Regress: (B,) serialized ``tf.Example`` -> (B,)."""
    return {"outputs": regress(served, *_of_examples(served, inputs))["value"]}


def text_features(served: Served) -> list[str]:
    """The features of a ``tf.Example`` that a model reads."""
    return ["text", "text_pair"] if served.options.pair else ["text"]


def _of_examples(served: Served, inputs: tf.Tensor) -> list[tf.Tensor]:
    names = text_features(served)
    parsed = tf.io.parse_example(inputs, {n: tf.io.FixedLenFeature([], tf.string) for n in names})
    return [parsed[name] for name in names]


def next_sentence(served: Served, first: tf.Tensor, second: tf.Tensor) -> Outputs:
    """Judges whether the second text follows the first: ``probability``, ``truncated`` (B,)."""
    rows, truncated = text_rows(served, first, second)

    def head(inputs: Outputs) -> tf.Tensor:
        # This head reads the pooled output alone; the masked-LM head gets nothing to do.
        positions = tf.zeros([tf.shape(inputs[features.INPUT_MASK])[0], 0], tf.int32)
        outputs = served.call({**inputs, features.MASKED_LM_POSITIONS: positions})
        return outputs[features.NEXT_SENTENCE_LOGITS]

    logits = tf.cast(on_rows(rows, head), tf.float32)
    return {"probability": tf.nn.softmax(logits)[:, 0], "truncated": truncated}


def choose(served: Served, context: tf.Tensor, choices: tf.Tensor) -> Outputs:
    """Finds the choice, of (B, K) string, that fits each context, (B,) string; "" is no choice.

    Returns ``choice`` (B,), its place from 0 or -1, ``probabilities`` (B, K) and ``truncated``
    (B,). Source: Devlin et al. 2019, section 4.4.
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
    logits, is_choice = tf.reshape(on_rows(rows, head), shape), tf.not_equal(choices, "")
    best, probabilities = decoding.choose(logits, is_choice, served.temperature)
    return {
        "choice": best,
        "probabilities": tf.cast(probabilities, tf.float32),
        "truncated": tf.reduce_any(tf.reshape(truncated, shape) & is_choice, 1),
    }


def label_names(served: Served) -> list[str]:
    """The classes' names in the order of their ids: "0", "1" and so on where they have none."""
    labels = served.model.labels
    if not labels:
        return [str(number) for number in range(served.model.num_classes)]
    for number, label in enumerate(labels):
        try:
            label.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"The name of class {number} is {label!r}, which cannot be written as UTF-8: "
                "rename it in model.labels."
            ) from error
    return list(labels)


def _outputs(
    served: Served, text: tf.Tensor, text_pair: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The model's outputs for texts or pairs, (B, ...), and whether they were cut, (B,)."""
    form = served.options.long_text
    if form == LONG_TEXTS[0] or text_pair is not None:
        texts = [text] if text_pair is None else [text, text_pair]
        rows, truncated = text_rows(served, *texts)
        return on_rows(rows, served.call), truncated
    room = served.max_seq_length - _SPECIAL_TOKENS
    ids = served.tokenizer.tokenize(text)
    if form == "head_tail":
        rows, _ = segment_rows(served, [head_and_tail(ids, room)])
        return on_rows(rows, served.call), ids.row_lengths() > room
    begins, sizes = cut_windows(tf.cast(ids.row_lengths(), tf.int32), room)
    counts = begins.row_lengths()
    starts = begins.values + tf.repeat(tf.cast(ids.row_starts(), tf.int32), counts)
    segments = [(starts, sizes.values)]
    rows = range_rows(served, ids.values, segments, sizes.values + _SPECIAL_TOKENS)
    outputs = mean_of_windows(on_rows(rows, served.call), counts)
    return outputs, ids.row_lengths() > most_tokens(room)


def _class(served: Served, logits: tf.Tensor, names: tf.Tensor) -> Outputs:
    """One class for each row."""
    probabilities = tf.cast(decoding.probabilities(logits, served.temperature), tf.float32)
    return {
        "label": tf.gather(names, tf.argmax(logits, 1)),
        "score": tf.reduce_max(probabilities, 1),
        "probabilities": probabilities,
    }


def _classes(served: Served, logits: tf.Tensor, names: tf.Tensor) -> Outputs:
    """Any number of classes for each row."""
    probabilities = decoding.probabilities_of_several(logits, served.temperature)
    threshold = served.model.thresholds.get(PROBABILITY_THRESHOLD, decoding.HALF)
    counts = tf.math.count_nonzero(probabilities >= threshold, 1, dtype=tf.int32)
    count = names.shape[0]
    best_first = tf.gather(names, tf.math.top_k(probabilities, count).indices)
    return {
        "chosen_labels": tf.where(tf.sequence_mask(counts, count), best_first, ""),
        "counts": counts,
        "probabilities": tf.cast(probabilities, tf.float32),
    }
