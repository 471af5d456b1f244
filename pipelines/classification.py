"""Texts, pairs of texts, choices, and texts to compare: rows, and what they are labelled with.

Letters: N examples, B batch, K rows of an example, S sequence length, C classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import LONG_TEXTS

from .columns import (
    check_rows,
    class_column,
    flat_column,
    label_column,
    tokenize_column,
    weight_column,
)
from .long_texts import cut_windows, head_and_tail
from .packing import check_at_least, join_segments
from .tokenized_examples import Examples, packed_examples
from .wordpiece import BertTokenizer

_SPECIAL_TOKENS = 2  # [CLS] text [SEP]


def classification_examples(
    tokenizer: BertTokenizer,
    texts: Any,
    second_texts: Any = None,
    *,
    labels: Any = None,
    sample_weights: Any = None,
    max_seq_length: int = 128,
    long_text: str = "head",
) -> Examples:
    """Tokenises texts once, to be put into batches for ``BertClassifier`` or ``BertRegressor``.

    A row is [CLS] A [SEP], or [CLS] A [SEP] B [SEP]. What is too long is cut at its end, of a pair
    the longer text first (``packing.longest_first``), and counted in ``num_too_long``.

    A batch is ``features``, ``(features, labels)`` or ``(features, labels, sample_weights)``, for
    whichever was given. The features are ``features.ENCODER_FEATURES`` and ``example_index`` (B,)
    int32, the example's number in ``texts``. Labels are of the form given: class ids, (B,) int32;
    numbers to predict, (B,) float32; a number from 0 to 1 for each class, (B, C) float32.

    Args:
        tokenizer: the vocabulary's.
        texts: (N,) string, A of each example: a list, an array or a tensor.
        second_texts: (N,) string, B of each example; ``None`` for single texts.
        labels: (N,) integers or floats, or (N, C).
        sample_weights: (N,) floats, what each example counts in the loss and in weighted metrics.
        max_seq_length: the most tokens of a row, at least 5.
        long_text: what is read of single texts that are too long: their "head"; "head_tail",
            without their middle (``long_texts.head_and_tail``); or "windows". With these the
            encoder's features are (B, K, S), a row for each window over a text
            (``long_texts.cut_windows``), K the most of any example, and ``num_windows`` (B,) int32
            says how many of them there are; the rest are empty rows.

    Raises:
        ValueError: a column is no vector of strings, or is empty; columns differ in length; labels
            or weights are of none of these forms; another argument is none of these.

    >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"])
    >>> examples = classification_examples(tokenizer, ["good", "bad bad", "good bad"],
    ...                                    labels=[1, 0, 0], max_seq_length=8)
    >>> batch, labels = next(iter(examples.evaluation_batches(2)))
    >>> batch["input_word_ids"].numpy()
    array([[2, 5, 3, 0, 0, 0, 0, 0],
           [2, 6, 6, 3, 0, 0, 0, 0]], dtype=int32)
    >>> batch["example_index"].numpy(), labels.numpy()
    (array([0, 1], dtype=int32), array([1, 0], dtype=int32))
    """
    check_at_least("max_seq_length", max_seq_length, 5)
    if long_text not in LONG_TEXTS or (long_text != LONG_TEXTS[0] and second_texts is not None):
        raise ValueError(
            f"long_text is {long_text!r}: expected one of {', '.join(LONG_TEXTS)}; of pairs "
            f"{LONG_TEXTS[0]}."
        )
    columns = [tokenize_column(tokenizer, texts, "texts")]
    count = int(columns[0].nrows())
    if second_texts is not None:
        columns.append(tokenize_column(tokenizer, second_texts, "second_texts"))
        check_rows("second_texts", int(columns[1].nrows()), count)
    targets = []
    if labels is not None:
        targets.append(label_column(labels, count))
    if sample_weights is not None:
        if labels is None:
            raise ValueError("sample_weights: expected labels beside them; got none.")
        targets.append(weight_column(sample_weights, count))

    room = max_seq_length - _SPECIAL_TOKENS
    extra_features: dict[str, tf.Tensor] = {}
    attributes: dict[str, int] = {}
    with tf.device("CPU:0"):
        if long_text != LONG_TEXTS[0]:
            is_longer = columns[0].row_lengths() > room
            attributes["num_too_long"] = int(tf.math.count_nonzero(is_longer))
        if long_text == "head_tail":
            columns = [head_and_tail(columns[0], room)]
        ids, ranges = join_segments(columns)
        if long_text == "windows":
            ((starts, lengths),) = ranges
            begins, sizes = cut_windows(lengths, room)
            extra_features[features.NUM_WINDOWS] = tf.cast(begins.row_lengths(), tf.int32)
            # (N, K), K the windows of the text that has most.
            begins = begins.to_tensor() + starts[:, None]
            attributes["rows_per_example"] = int(begins.shape[1])
            ranges = [(begins, sizes.to_tensor())]
    return packed_examples(
        tokenizer, ids, ranges, max_seq_length, targets, extra_features, **attributes
    )


def multiple_choice_examples(
    tokenizer: BertTokenizer,
    contexts: Any,
    choices: Any,
    *,
    labels: Any = None,
    max_seq_length: int = 128,
) -> Examples:
    """Tokenises contexts and choices once, to be put into batches for ``BertMultipleChoice``.

    Each choice is a row, [CLS] context [SEP] choice [SEP] (the paper's section 4.4). Of a row that
    is too long the longer of the two is cut at its end; ``num_too_long`` counts the examples with
    such a row.

    A batch is ``features`` or, with labels, ``(features, labels)``: ``features.CHOICE_FEATURES``,
    (B, K, S) int32, and ``example_index`` (B,) int32; labels (B,) int32. K is the most choices of
    an example. Where some have fewer, the rows behind those are ``[CLS] [SEP] [SEP]`` and have
    logits that mean nothing; labels are (B, 2) int32 then, the right choice's place and the number
    of choices.

    Args:
        tokenizer: the vocabulary's.
        contexts: (N,) string: a list, an array or a tensor.
        choices: (N, K) string: a list of lists, an array or a tensor. Lists may differ in length.
        labels: (N,) integers, the right choice's place, from 0 to below the number of choices.
        max_seq_length: the most tokens of a row, at least 5.

    Raises:
        ValueError: a column is not of its form, or is empty; columns differ in length; an example
            has no choices; a label or ``max_seq_length`` is out of its range.

    >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "it", "is", "not"])
    >>> examples = multiple_choice_examples(
    ...     tokenizer, ["it is"], [["not", "not not"]], labels=[0], max_seq_length=8)
    >>> batch, labels = next(iter(examples.evaluation_batches(32)))
    >>> batch["input_word_ids"].numpy()
    array([[[2, 5, 6, 3, 7, 3, 0, 0],
            [2, 5, 6, 3, 7, 7, 3, 0]]], dtype=int32)
    """
    check_at_least("max_seq_length", max_seq_length, 5)
    context_ids = tokenize_column(tokenizer, contexts, "contexts")
    count = int(context_ids.nrows())
    flat_choices, counts = flat_column(choices, "choices")
    check_rows("choices", len(counts), count)
    if not counts.all():
        raise ValueError(f"choices[{np.argmin(counts)}] has 0 choices: expected some.")
    choice_ids = tokenize_column(tokenizer, flat_choices, "choices")
    max_choices = int(counts.max())
    is_ragged = bool((counts < max_choices).any())
    targets = [] if labels is None else [class_column(labels, count, counts)]
    if targets and is_ragged:
        targets = [np.stack([targets[0], counts], 1)]
    with tf.device("CPU:0"):
        ids, (context, choice) = join_segments([context_ids, choice_ids])
        # (N, K): the rows of an example share its context's tokens; 0 of them where there is none.
        is_choice = tf.sequence_mask(counts, max_choices, tf.int32)
        segments = [
            tuple(part[:, None] * is_choice for part in context),
            tuple(tf.RaggedTensor.from_row_lengths(part, counts).to_tensor() for part in choice),
        ]
    # One example of many choices makes all batches as wide: evaluations take fewer at once.
    rows_per_example = max_choices if is_ragged else 1
    return packed_examples(
        tokenizer, ids, segments, max_seq_length, targets, rows_per_example=rows_per_example
    )


def similarity_examples(
    tokenizer: BertTokenizer,
    columns: Sequence[Any],
    *,
    labels: Any = None,
    max_seq_length: int = 128,
) -> Examples:
    """Tokenises K columns of texts once, to be put into batches for a model of embeddings.

    Each text is a row, [CLS] text [SEP]; what is too long is cut at its end, and ``num_too_long``
    counts the examples with such a text. A batch is ``features`` or, with labels, ``(features,
    labels)``: ``features.CHOICE_FEATURES``, (B, K, S) int32, with ``example_index`` (B,) int32.

    ``columns`` are K of (N,) string each: lists, arrays or tensors. ``labels``, (N, ...) numbers,
    are given to the batches as they are: scores (N,), or a number (N, K) for each text, which says
    which texts are the same. A row has ``max_seq_length`` tokens at most, 3 at least. A
    ``ValueError``: a column is no vector of strings, or is empty; columns or labels differ in
    length; ``max_seq_length`` is too short.

    >>> tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"])
    >>> examples = similarity_examples(tokenizer, [["a cat"], ["cat"]], max_seq_length=8)
    >>> next(iter(examples.evaluation_batches(32)))["input_word_ids"].numpy()[..., :4]
    array([[[2, 5, 6, 3],
            [2, 6, 3, 0]]], dtype=int32)
    """
    check_at_least("max_seq_length", max_seq_length, 3)
    tokens = [tokenize_column(tokenizer, column, "columns") for column in columns]
    count = int(tokens[0].nrows())
    for column in tokens[1:]:
        check_rows("columns", int(column.nrows()), count)
    targets = [] if labels is None else [np.asarray(labels)]
    if targets:
        check_rows("labels", len(targets[0]), count)
    with tf.device("CPU:0"):
        ids, ranges = join_segments(tokens)
        # (N, K): the first token of each text, and how many there are.
        segment = tuple(tf.stack(parts, 1) for parts in zip(*ranges, strict=True))
    return packed_examples(tokenizer, ids, [segment], max_seq_length, targets)
