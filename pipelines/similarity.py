"""Texts of which several are compared: rows of rows, and what the comparison is to say.

Letters: N examples, B batch, K texts of an example, S sequence length.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .columns import check_rows, packed_examples, tokenize_column
from .length_buckets import Examples
from .packing import join_segments
from .pools import check_at_least
from .wordpiece import BertTokenizer


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

    Args:
        tokenizer: the vocabulary's.
        columns: K of them, (N,) string each: lists, arrays or tensors.
        labels: (N, ...) numbers, given to the batches as they are: scores (N,), or a number (N, K)
            for each text, which says which texts are the same.
        max_seq_length: the most tokens of a row, at least 3.

    Returns:
        The examples; see ``length_buckets.Examples`` for their batches.

    Raises:
        ValueError: a column is no vector of strings, or is empty; columns or labels differ in
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
    if labels is not None:
        labels = np.asarray(labels)
        check_rows("labels", len(labels), count)
    with tf.device("CPU:0"):
        ids, ranges = join_segments(tokens)
        # (N, K): the first token of each text, and how many there are.
        segment = tuple(tf.stack(parts, 1) for parts in zip(*ranges, strict=True))
    targets = [] if labels is None else [labels]
    return packed_examples(tokenizer, ids, [segment], max_seq_length, targets)
