"""Decoding of a model's outputs, in-graph, shared by evaluation, predictions and exports.

Answers to questions are ``bert_tf.pipelines.answers``'s; a regressor's output is the number itself.
Letters: B batch, K choices, C classes or labels, W words of all texts, E entities.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.features import USUAL_PROBABILITY as USUAL_PROBABILITY

# === Classes: probabilities in float64, since a float32 is 1 for every logit from 17 on ===
# A temperature, by which logits are divided, calibrates the probabilities.


def probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Probabilities of classes of which one holds, (..., C) float64."""
    return tf.nn.softmax(_calibrated(logits, temperature))


def log_probabilities(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """The logarithms of ``probabilities``, finite where those are 0.

    >>> log_probabilities(tf.constant([[0.0, 0.0], [1e4, 0.0]])).numpy().round(2)
    array([[-6.9e-01, -6.9e-01],
           [ 0.0e+00, -1.0e+04]])
    """
    return tf.nn.log_softmax(_calibrated(logits, temperature))


def likeliest(logits: tf.Tensor, temperature: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable class, (...,) int64, and its probability, (...,) float64."""
    return tf.argmax(logits, -1), tf.reduce_max(probabilities(logits, temperature), -1)


def probabilities_of_several(logits: tf.Tensor, temperature: float = 1.0) -> tf.Tensor:
    """Probabilities of classes of which any number holds, (..., C) float64."""
    return tf.sigmoid(_calibrated(logits, temperature))


def choose(
    logits: tf.Tensor, is_choice: tf.Tensor, temperature: float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable of each row's choices, (B,) int32, and the probabilities, (B, K) float64.

    ``logits`` and ``is_choice`` are (B, K). What is no choice has probability 0; of a row without
    choices the place is -1.

    >>> best, shares = choose(tf.constant([[0.0, 0.0, 9.0]]), tf.constant([[True, True, False]]))
    >>> best.numpy(), shares.numpy()
    (array([0], dtype=int32), array([[0.5, 0.5, 0. ]]))
    """
    logits = tf.where(is_choice, _calibrated(logits, temperature), float("-inf"))
    # A column more: there is a greatest one where K is 0, too.
    with_one = tf.pad(logits, [[0, 0], [0, 1]], constant_values=float("-inf"))
    best = tf.argmax(with_one, 1, output_type=tf.int32)
    shares = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
    return tf.where(tf.reduce_any(is_choice, 1), best, -1), shares


def _calibrated(logits: tf.Tensor, temperature: float) -> tf.Tensor:
    return tf.cast(logits, tf.float64) / temperature


# === Entities that words' labels spell ===
# A label is O, no entity; B-TYPE, which begins one; I-TYPE, which continues one, and begins one
# after anything but that type: so both IOB1 and IOB2 are read, and any order of them, as CoNLL's
# evaluation does. Where all labels are those of BIOES or BILOU, E-TYPE and L-TYPE end one, and
# S-TYPE and U-TYPE are one alone. Any other label is a type, and neighbours that have it are one
# entity; in a model without the label O every word is part of one.

OUTSIDE = "O"
_ENTITY_TAG = re.compile("([BI])-(.+)", re.DOTALL)
_ANY_SCHEMES_TAG = re.compile("([BIESLU])-(.+)", re.DOTALL)


class Labels(NamedTuple):
    """Tags by label id, (C,): the type or "", its number or -1; whether each begins, ends one."""

    types: list[str]
    numbers: list[int]
    begins: list[bool]
    ends: list[bool]


class Entities(NamedTuple):
    """Entities, (E,): the text of each, its first and its last word, type, and mean score."""

    text: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    types: tf.Tensor
    scores: tf.Tensor


def read_labels(names: Sequence[str]) -> Labels:
    """Meaning of a model's labels as tags."""
    matches = [_ANY_SCHEMES_TAG.fullmatch(name) for name in names]
    if not all(match or name == OUTSIDE for match, name in zip(matches, names, strict=True)):
        matches = [_ENTITY_TAG.fullmatch(name) for name in names]
    types = []
    for name, match in zip(names, matches, strict=True):
        other = "" if name == OUTSIDE else name
        types.append(match[2] if match else other)
    return Labels(
        types,
        [
            -1 if name == OUTSIDE else types.index(kind)
            for name, kind in zip(names, types, strict=True)
        ],
        [match is not None and match[1] in "BSU" for match in matches],
        [match is not None and match[1] in "ESLU" for match in matches],
    )


def join_words(label: tf.Tensor, text: tf.Tensor, scores: tf.Tensor, labels: Labels) -> Entities:
    """Joins neighbouring words of all texts, in their order, to entities.

    Of each word, (W,): the id of its label, the number of its text, ascending, and its score.
    """
    kind = tf.gather(tf.constant(labels.numbers), label)
    inside = kind >= 0
    same_kind, same_text = (
        tf.concat([values[:1] != values[:1], values[1:] == values[:-1]], 0)
        for values in (kind, text)
    )
    ended = tf.concat([[False], tf.gather(tf.constant(labels.ends), label)[:-1]], 0)
    ended = ended[: tf.size(text)]
    joins = inside & same_kind & same_text & ~tf.gather(tf.constant(labels.begins), label) & ~ended
    next_joins = tf.concat([joins, [False]], 0)[1:]
    begins = inside & ~joins
    first, last = tf.where(begins)[:, 0], tf.where(inside & ~next_joins)[:, 0]
    means = tf.math.unsorted_segment_mean(
        tf.boolean_mask(scores, inside),
        tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int32)) - 1, inside),
        tf.size(first),
    )
    types = tf.gather(tf.constant(labels.types), tf.gather(label, first))
    return Entities(tf.gather(text, first), first, last, types, means)
