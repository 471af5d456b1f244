"""Answers and signatures for tagging: entities in texts, or a tag per word."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from bert_tf import features
from bert_tf.answering.classes import name_labels, probabilities, to_float32
from bert_tf.answering.rows import Rows, dense, run_rows
from bert_tf.answering.served import Outputs, Served
from bert_tf.answering.signatures import (
    ROWS_OF_STRINGS,
    Requests,
    Signature,
    Signatures,
    id_signature,
    odd_texts,
    text_signature,
)
from bert_tf.modeling import BertFeatureTagger
from bert_tf.pipelines.answers import decode_characters, span_texts
from bert_tf.pipelines.bounded_memory import value_rows
from bert_tf.pipelines.long_texts import tag_windows

if TYPE_CHECKING:
    from bert_tf.evaluation.evaluation import Thresholds
    from bert_tf.tasks.task import Task

# === Entities from the labels of words, in the graph ===

# The label O marks words outside of entities. B-TYPE begins an entity. I-TYPE continues a directly
# preceding entity of the same type, or begins an entity. As in CoNLL's evaluation, this covers IOB1
# and IOB2. If all labels are BIOES or BILOU, E-TYPE and L-TYPE end an entity, and S-TYPE and U-TYPE
# are entities of one word. Any other label is a type; adjacent words with the same type are one
# entity. Without the label O, every word belongs to an entity.
# Dimensions: C labels, W words of all texts, E entities.

OUTSIDE = "O"
_ENTITY_TAG = re.compile("([BI])-(.+)", re.DOTALL)
_ANY_SCHEMES_TAG = re.compile("([BIESLU])-(.+)", re.DOTALL)


class Labels(NamedTuple):
    """Properties of each label, by label id, (C,).

    Attributes:
        types: Entity types, "" for the label O.
        numbers: Ids of the entity types, -1 for the label O.
        begins: Whether the label always begins an entity.
        ends: Whether the label ends an entity.
    """

    types: list[str]
    numbers: list[int]
    begins: list[bool]
    ends: list[bool]


class Entities(NamedTuple):
    """Entities, (E,): text index, first word, last word, type and mean score of each entity."""

    text: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    types: tf.Tensor
    scores: tf.Tensor


def read_labels(names: Sequence[str]) -> Labels:
    """Parses the labels of a model."""
    matches = [_ANY_SCHEMES_TAG.fullmatch(name) for name in names]
    if not all(match or name == OUTSIDE for match, name in zip(matches, names, strict=True)):
        matches = [_ENTITY_TAG.fullmatch(name) for name in names]
    types = []
    for name, match in zip(names, matches, strict=True):
        type_name = "" if name == OUTSIDE else name
        types.append(match[2] if match else type_name)
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
    """Joins adjacent words to entities.

    ``label``, ``text`` and ``scores`` contain the label id, text index and score of each word, (W,)
    each. The text indices must be in ascending order.
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


def answer_tags(logits: tf.Tensor, thresholds: Thresholds) -> Outputs:
    """Converts logits of words, (..., C), to tag ids (``tags``) and probabilities (``scores``)."""
    by_label = probabilities(logits, thresholds.get(features.TEMPERATURE, 1.0))
    return {"tags": tf.argmax(logits, -1), "scores": tf.reduce_max(by_label, -1)}


def signatures(served: Served, task: Task) -> Signatures:
    """Returns the signatures of a ``BertTokenClassifier`` or a ``BertFeatureTagger``."""
    find = functools.partial(_find_entities, task)
    entities = text_signature(served, find, "Predicts the entities in a text.")
    words = Signature(
        functools.partial(_tag_words, task),
        {"words": ROWS_OF_STRINGS},
        _word_requests(served),
        'Predicts a tag for each word of a split text; "" is padding.',
    )
    has_features = isinstance(served.model, BertFeatureTagger)
    contract = features.TAGGING_FEATURES if has_features else features.ENCODER_FEATURES
    tokens = id_signature(served, contract)
    return {"serving_default": entities, "words": words, "tokens": tokens}


def _word_requests(served: Served) -> Requests:
    ordinary = [
        ["Ada", "Brandt", "moved", "from", "Lisbon", "to", "Oslo", "."],
        ["The", "U.N.", "met", "in", "Geneva", "", "", ""],
    ]
    odd: list[list[Any]] = [text.split() for text in odd_texts(served)]
    width = max(map(len, odd))
    return {"words": ordinary}, {"words": [[*row, *[""] * (width - len(row))] for row in odd]}


def _find_entities(task: Task, served: Served, text: tf.Tensor) -> Outputs:
    """Predicts the entities in texts, (B,) string, of any length.

    The tokenizer splits texts into words, which are tagged at their first token.

    Returns:
        ``entities``, ``types``, ``byte_starts`` and ``byte_ends`` in the text, and ``scores``, the
        mean probabilities of the words' labels, shape (B, E) each; ``counts``, shape (B,);
        ``truncated``, shape (B,), always false.
    """
    ids, byte_starts, byte_ends = served.tokenizer.tokenize_with_offsets(text)

    # === Words: vectors of shape (W,) ===
    is_first = ~tf.gather(tf.constant(served.tokenizer.continuation), ids.values)
    first = tf.where(is_first)[:, 0]
    # A word ends at the start of the next one, because texts start with a new word.
    last = tf.concat([first, [tf.size(ids.values, tf.int64)]], 0)[1:] - 1
    row = tf.gather(value_rows(ids.row_splits), first)
    answers = _answers(task, served, ids, first, row)

    # === Entities of all texts: vectors of shape (E,) ===
    entities = join_words(answers["tags"], row, answers["scores"], read_labels(task.labels))
    texts, byte_starts, byte_ends = span_texts(
        decode_characters(text),
        entities.text,
        tf.gather(byte_starts.values, tf.gather(first, entities.first)),
        tf.gather(byte_ends.values, tf.gather(last, entities.last)),
    )
    by_text = tf.RaggedTensor.from_value_rowids(
        entities.first, entities.text, nrows=tf.size(text, tf.int64), validate=False
    )
    return {
        "entities": dense(by_text, texts, ""),
        "types": dense(by_text, entities.types, ""),
        "byte_starts": dense(by_text, byte_starts, -1),
        "byte_ends": dense(by_text, byte_ends, -1),
        "scores": dense(by_text, entities.scores, 0.0),
        "counts": tf.cast(by_text.row_lengths(), tf.int32),
        "truncated": tf.zeros_like(text, tf.bool),
    }


def _tag_words(task: Task, served: Served, words: tf.Tensor) -> Outputs:
    """Predicts tags of split texts, (B, W) string, in which "" is padding.

    Words are tagged at their first token; words without tokens, such as control characters, are
    read as [UNK].

    Returns:
        ``tags`` and ``scores``, shape (B, W); ``counts``, shape (B,); ``truncated``, shape (B,),
        always false.
    """
    tokenizer = served.tokenizer
    shape = tf.shape(words)
    is_word = words != ""
    pieces = tokenizer.tokenize(tf.reshape(words, [-1]))
    becomes_unknown = tf.reshape(is_word, [-1]) & (pieces.row_lengths() == 0)
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.repeat(tokenizer.unk_id, tf.math.count_nonzero(becomes_unknown)),
        tf.cast(becomes_unknown, tf.int64),
    )
    pieces = tf.concat([pieces, unknown], 1)
    # (B, W)
    lengths = tf.reshape(pieces.row_lengths(), shape)
    ids = tf.RaggedTensor.from_row_lengths(pieces.values, tf.reduce_sum(lengths, 1))
    # (W, 2)
    positions = tf.where(is_word)
    first = tf.boolean_mask(pieces.row_starts(), tf.reshape(is_word, [-1]))
    answers = name_labels(_answers(task, served, ids, first, positions[:, 0]), task.labels)
    return {
        "tags": tf.tensor_scatter_nd_update(tf.zeros_like(words), positions, answers["tags"]),
        "scores": tf.tensor_scatter_nd_update(tf.zeros(shape), positions, answers["scores"]),
        "counts": tf.math.count_nonzero(is_word, 1, dtype=tf.int32),
        "truncated": tf.zeros(shape[:1], tf.bool),
    }


def _answers(
    task: Task, served: Served, ids: tf.RaggedTensor, first: tf.Tensor, text: tf.Tensor
) -> Outputs:
    """Returns a task's answers for each word, shape (W,), with float32 for floats.

    ``first`` (W,) contains the index of each word's first token in ``ids`` [B, (tokens)], and
    ``text`` (W,) contains the index of each word's row in ``ids``.
    """
    first, text, bounds = (tf.cast(v, tf.int32) for v in (first, text, ids.row_splits))
    windows = tag_windows(first, text, bounds, served.max_seq_length - 2)
    rows = Rows(ids.values, [(windows.starts, windows.lengths)])
    position = first - tf.gather(windows.starts, windows.rows) + 1
    columns = tf.stack([windows.rows, position], 1)
    # Without rows, the maximum is the smallest integer, which is not a valid width.
    width = tf.maximum(tf.reduce_max(rows.lengths), 2)
    extras = {}
    if isinstance(served.model, BertFeatureTagger):
        # (R, S): the model uses only the positions of words, not their indices.
        nowhere = tf.fill(tf.stack([tf.size(rows.lengths), width]), -1)
        number = tf.range(tf.shape(columns)[0])
        extras[features.WORD_INDEX] = tf.tensor_scatter_nd_update(nowhere, columns, number)

    def head(served: Served, inputs: Outputs) -> Outputs:
        # (N, S) each
        answers = task.answer(served.call(inputs), served.model.thresholds)
        missing = [[0, 0], [0, width - tf.shape(inputs[features.INPUT_MASK])[1]]]
        return {key: tf.pad(to_float32(value), missing) for key, value in answers.items()}

    answers = run_rows(served, rows, head, extras)
    return {key: tf.gather_nd(value, columns) for key, value in answers.items()}
