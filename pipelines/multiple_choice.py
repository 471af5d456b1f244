"""Contexts with some answers each, one of them right: rows of rows and labels.

Letters: N examples, B batch, K choices, S sequence length.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from .columns import check_rows, class_column, packed_examples, tokenize_column
from .length_buckets import Examples
from .packing import join_segments
from .pools import check_at_least
from .wordpiece import BertTokenizer


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
    an example. Where some have fewer, the rows behind theirs are ``[CLS] [SEP] [SEP]`` and have
    logits that mean nothing; labels are (B, 2) int32 then, the right choice's place and the number
    of choices, as ``tasks.losses.ChoiceCrossEntropy`` takes them.

    Args:
        tokenizer: the vocabulary's.
        contexts: (N,) string: a list, an array or a tensor.
        choices: (N, K) string: a list of lists, an array or a tensor. Lists may differ in length.
        labels: (N,) integers, the right choice's place, from 0 to below the number of choices.
        max_seq_length: the most tokens of a row, at least 5.

    Returns:
        The examples; see ``length_buckets.Examples`` for their batches.

    Raises:
        ValueError: a column is not of its form, or is empty; columns differ in length; an example
            has no choices; a label is out of its range; ``max_seq_length`` is too short.

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
    flat_choices, counts = _flatten(choices, count)
    choice_ids = tokenize_column(tokenizer, flat_choices, "choices")
    most = int(counts.max())
    targets = [] if labels is None else [class_column(labels, count, counts)]
    if targets and (counts < most).any():
        targets = [np.stack([targets[0], counts], 1)]
    with tf.device("CPU:0"):
        ids, (context, choice) = join_segments([context_ids, choice_ids])
        # (N, K): the rows of an example share its context's tokens; 0 of them where there is none.
        is_choice = tf.sequence_mask(counts, most, tf.int32)
        segments = [
            tuple(part[:, None] * is_choice for part in context),
            tuple(tf.RaggedTensor.from_row_lengths(part, counts).to_tensor() for part in choice),
        ]
    examples = packed_examples(tokenizer, ids, segments, max_seq_length, targets)
    # One example of many choices makes all batches as wide: evaluations take fewer at once.
    is_ragged = bool((counts < most).any())
    return dataclasses.replace(examples, rows_each=most) if is_ragged else examples


def _flatten(choices: Any, num_examples: int) -> tuple[Any, np.ndarray]:
    """The choices as one vector of strings, and how many each example has, (N,) int32."""
    if isinstance(choices, tf.Tensor):
        choices = choices.numpy()
    rows = [list(row) if not isinstance(row, (str, bytes)) else row for row in choices]
    check_rows("choices", len(rows), num_examples)
    for index, row in enumerate(rows):
        if isinstance(row, (str, bytes)):
            raise ValueError(f"choices[{index}] is {row!r:.40}: expected a list of strings.")
        if not row:
            raise ValueError(f"choices[{index}] has 0 choices: expected some.")
    return [choice for row in rows for choice in row], np.array([*map(len, rows)], np.int32)
