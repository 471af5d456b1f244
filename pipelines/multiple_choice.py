"""Contexts with some answers each, one of them right: rows of rows and labels.

Letters: N examples, B batch, K choices, S sequence length.
"""

from typing import Any

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
    (B, K, S) int32, and ``example_index`` (B,) int32; labels (B,) int32.

    Args:
        tokenizer: the vocabulary's.
        contexts: (N,) string: a list, an array or a tensor.
        choices: (N, K) string: a list of lists, an array or a tensor.
        labels: (N,) integers from 0 to K - 1, the right choice's place.
        max_seq_length: the most tokens of a row, at least 5.

    Returns:
        The examples; see ``length_buckets.Examples`` for their batches.

    Raises:
        ValueError: a column is not of its form, or is empty; columns differ in length; an example
            has not K choices; a label is out of its range; ``max_seq_length`` is too short.

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
    flat_choices, num_choices = _flatten(choices, count)
    choice_ids = tokenize_column(tokenizer, flat_choices, "choices")
    targets = [] if labels is None else [class_column(labels, count, num_choices)]
    with tf.device("CPU:0"):
        ids, (context, choice) = join_segments([context_ids, choice_ids])
        # (N, K): the rows of an example share its context's tokens.
        segments = [
            tuple(tf.repeat(part[:, None], num_choices, 1) for part in context),
            tuple(tf.reshape(part, [count, num_choices]) for part in choice),
        ]
    return packed_examples(tokenizer, ids, segments, max_seq_length, targets)


def _flatten(choices: Any, num_examples: int) -> tuple[Any, int]:
    """The choices as one vector of strings, and K."""
    if isinstance(choices, tf.Tensor):
        choices = choices.numpy()
    rows = [list(row) if not isinstance(row, (str, bytes)) else row for row in choices]
    check_rows("choices", len(rows), num_examples)
    num_choices = len(rows[0])
    for index, row in enumerate(rows):
        if isinstance(row, (str, bytes)):
            raise ValueError(f"choices[{index}] is {row!r:.40}: expected a list of strings.")
        if len(row) != num_choices or not row:
            raise ValueError(
                f"choices[{index}] has {len(row)} choices: expected {num_choices or 'some'}, as "
                "many in every example."
            )
    return [choice for row in rows for choice in row], num_choices
