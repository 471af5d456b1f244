"""What labels of words mean, and the entities that they spell, in-graph.

A label is O, no entity; B-TYPE, which begins one; I-TYPE, which continues one, and begins one
after anything but that type: so both IOB1 and IOB2 are read, and any order of them, as CoNLL's
evaluation does. Where all labels are those of BIOES or BILOU, E-TYPE and L-TYPE end one, and
S-TYPE and U-TYPE are one alone. Any other label is a type, and neighbours that have it are one
entity; in a model without the label O every word is part of one.

Letters: C labels, W words of all texts, E entities.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

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
