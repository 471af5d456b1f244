"""The entities in texts, and a tag for each word.

A label is ``O``, no entity; ``B-TYPE``, which begins one; ``I-TYPE``, which continues one, and
begins one after anything but that type: so both IOB1 and IOB2 are read, and any order of them, as
CoNLL's evaluation does. Where all labels are those of BIOES or BILOU, ``E-TYPE`` and ``L-TYPE`` end
one, and ``S-TYPE`` and ``U-TYPE`` are one alone. Any other label is a type, and neighbours that
have it are one entity; in a model without the label ``O`` every word is part of one.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.pipelines.answers import span_texts
from bert_tf.pipelines.bounded_memory import value_rows
from bert_tf.pipelines.tagging import tag_windows

from .classification import calibrated, label_names
from .rows import Rows, dense, on_rows, range_rows
from .served import Outputs, Served

_OUTSIDE = "O"
_ENTITY_TAG = re.compile("([BI])-(.+)", re.DOTALL)
_ANY_SCHEMES_TAG = re.compile("([BIESLU])-(.+)", re.DOTALL)


def find_entities(served: Served, text: tf.Tensor) -> Outputs:
    """Finds the entities in texts, (B,) string.

    Words are the tokenizer's: runs of letters and digits, and each punctuation mark. Each is tagged
    at its first piece, as in training. A text that does not fit into a row is read in windows, as
    in training and by ``predict``, so that nothing of it is lost.

    With E the most entities of a text, at least 1, it returns ``entities`` (B, E) string, without
    bytes that are not UTF-8, and ``types`` (B, E) string, "" where padded; ``byte_starts`` and
    ``byte_ends`` (B, E) int64, the first byte of each in the request's text and the byte after its
    last, -1 where padded; ``scores`` (B, E) float32, the mean probability of its words' labels, 0
    where padded; ``counts`` (B,) int32; ``truncated`` (B,) bool, false.
    """
    names = label_names(served)
    ids, byte_starts, byte_ends = served.tokenizer.tokenize_with_offsets(text)

    # === Words: (W,) vectors ===
    is_first = ~tf.gather(tf.constant(served.tokenizer.continuation), ids.values)
    first = tf.where(is_first)[:, 0]
    # A word ends where the next begins: no text begins within a word.
    last = tf.concat([first, [tf.size(ids.values, tf.int64)]], 0)[1:] - 1
    row = tf.gather(value_rows(ids.row_splits), first)
    label, probability = _likeliest(served, ids, first, row)

    # === Entities: (E,) vectors of those of all texts ===
    found = _join_words(label, row, _read_labels(names))
    first_word, last_word = tf.where(found.begins)[:, 0], tf.where(found.ends)[:, 0]
    texts, byte_starts, byte_ends = span_texts(
        text,
        tf.gather(row, first_word),
        tf.gather(byte_starts.values, tf.gather(first, first_word)),
        tf.gather(byte_ends.values, tf.gather(last, last_word)),
    )
    scores = tf.math.unsorted_segment_mean(
        tf.boolean_mask(probability, found.inside),
        tf.boolean_mask(tf.cumsum(tf.cast(found.begins, tf.int32)) - 1, found.inside),
        tf.size(first_word),
    )
    by_text = tf.RaggedTensor.from_value_rowids(
        first_word, tf.gather(row, first_word), nrows=tf.size(text, tf.int64), validate=False
    )
    return {
        "entities": dense(by_text, texts, ""),
        "types": dense(by_text, tf.gather(found.types, first_word), ""),
        "byte_starts": dense(by_text, byte_starts, -1),
        "byte_ends": dense(by_text, byte_ends, -1),
        "scores": dense(by_text, scores, 0.0),
        "counts": tf.cast(by_text.row_lengths(), tf.int32),
        "truncated": tf.zeros_like(text, tf.bool),
    }


def tag_words(served: Served, words: tf.Tensor) -> Outputs:
    """Tags the words, (B, W) string, of texts that are split already, as those of CoNLL are.

    Each word is tokenised alone and tagged at its first piece, as in training; one that has no
    piece, a control character for example, is [UNK]; "" is no word, wherever it is. Long texts are
    read in windows. Returns ``tags`` (B, W) string, each word's most probable label, "" where it is
    none; ``scores`` (B, W) float32, its probability, 0 likewise; ``counts`` (B,) int32, how many
    words have a tag; ``truncated`` (B,) bool, false.
    """
    tokenizer = served.tokenizer
    shape = tf.shape(words)
    is_word = words != ""
    pieces = tokenizer.tokenize(tf.reshape(words, [-1]))
    stands_as_unknown = tf.reshape(is_word, [-1]) & (pieces.row_lengths() == 0)
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.repeat(tokenizer.unk_id, tf.math.count_nonzero(stands_as_unknown)),
        tf.cast(stands_as_unknown, tf.int64),
    )
    pieces = tf.concat([pieces, unknown], 1)
    # (B, W)
    lengths = tf.reshape(pieces.row_lengths(), shape)
    ids = tf.RaggedTensor.from_row_lengths(pieces.values, tf.reduce_sum(lengths, 1))
    # (W, 2)
    places = tf.where(is_word)
    first = tf.boolean_mask(pieces.row_starts(), tf.reshape(is_word, [-1]))
    label, probability = _likeliest(served, ids, first, places[:, 0])
    names = tf.gather(tf.constant(label_names(served)), label)
    return {
        "tags": tf.tensor_scatter_nd_update(tf.zeros_like(words), places, names),
        "scores": tf.tensor_scatter_nd_update(tf.zeros(shape), places, probability),
        "counts": tf.math.count_nonzero(is_word, 1, dtype=tf.int32),
        "truncated": tf.zeros(shape[:1], tf.bool),
    }


def _likeliest(
    served: Served, ids: tf.RaggedTensor, first: tf.Tensor, text: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable label of each word, (W,), and its probability.

    ``ids`` are the texts' tokens, [B, (tokens)]; a word's first is ``first``, counted over all
    texts, and its text ``text``, (W,) each.
    """
    first, text, bounds = (tf.cast(v, tf.int32) for v in (first, text, ids.row_splits))
    windows = tag_windows(first, text, bounds, served.max_seq_length - 2)
    segment = windows.starts, windows.lengths
    rows = range_rows(served, ids.values, [segment], windows.lengths + 2)
    labels, probabilities = _on_tokens(served, rows)
    place = first - tf.gather(windows.starts, windows.rows) + 1
    columns = tf.stack([windows.rows, place], 1)
    return tf.gather_nd(labels, columns), tf.gather_nd(probabilities, columns)


def _on_tokens(served: Served, rows: Rows) -> tuple[tf.Tensor, tf.Tensor]:
    """The most probable label of each token of R rows and its probability, (R, S); 0 if padded."""
    # As wide as the longest; of no rows the maximum is the least integer.
    width = tf.maximum(tf.reduce_max(rows.lengths), 2)

    def head(inputs: Outputs) -> tuple[tf.Tensor, tf.Tensor]:
        # (N, S, C)
        probabilities = tf.nn.softmax(calibrated(served, tf.cast(served.call(inputs), tf.float32)))
        missing = width - tf.shape(probabilities)[1]
        best = tf.argmax(probabilities, -1), tf.reduce_max(probabilities, -1)
        return tuple(tf.pad(values, [[0, 0], [0, missing]]) for values in best)

    return on_rows(rows, head)


class _Labels(NamedTuple):
    """By label id, (C,): the type, "" for none, its number, -1 for none; what it begins, ends."""

    types: list[str]
    numbers: list[int]
    begins: list[bool]
    ends: list[bool]


def _read_labels(names: Sequence[str]) -> _Labels:
    matches = [_ANY_SCHEMES_TAG.fullmatch(name) for name in names]
    if not all(match or name == _OUTSIDE for match, name in zip(matches, names, strict=True)):
        matches = [_ENTITY_TAG.fullmatch(name) for name in names]
    types = [
        match[2] if match else "" if name == _OUTSIDE else name
        for name, match in zip(names, matches, strict=True)
    ]
    return _Labels(
        types,
        [
            -1 if name == _OUTSIDE else types.index(kind)
            for name, kind in zip(names, types, strict=True)
        ],
        [match is not None and match[1] in "BSU" for match in matches],
        [match is not None and match[1] in "ESLU" for match in matches],
    )


class _JoinedWords(NamedTuple):
    """Of each word, (W,): its type, whether it is in an entity, begins one, ends one."""

    types: tf.Tensor
    inside: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor


def _join_words(label: tf.Tensor, row: tf.Tensor, labels: _Labels) -> _JoinedWords:
    """Joins neighbouring words of all texts, in their order, to entities."""
    kind = tf.gather(tf.constant(labels.numbers), label)
    inside = kind >= 0
    same_kind, same_row = (
        tf.concat([values[:1] != values[:1], values[1:] == values[:-1]], 0)
        for values in (kind, row)
    )
    ended = tf.concat([[False], tf.gather(tf.constant(labels.ends), label)[:-1]], 0)[: tf.size(row)]
    joins = inside & same_kind & same_row & ~tf.gather(tf.constant(labels.begins), label) & ~ended
    next_joins = tf.concat([joins, [False]], 0)[1:]
    return _JoinedWords(
        tf.gather(tf.constant(labels.types), label), inside, inside & ~joins, inside & ~next_joins
    )
