"""Texts, or pairs of texts, with a class, several classes or a number each: rows and labels.

Letters: N examples, B batch, S sequence length, C classes.
"""

from typing import Any

import tensorflow as tf

from .columns import check_rows, label_column, packed_examples, tokenize_column, weight_column
from .length_buckets import Examples
from .packing import join_segments
from .pools import check_at_least
from .wordpiece import BertTokenizer


def classification_examples(
    tokenizer: BertTokenizer,
    texts: Any,
    second_texts: Any = None,
    *,
    labels: Any = None,
    sample_weights: Any = None,
    max_seq_length: int = 128,
) -> Examples:
    """Tokenises texts once, to be put into batches for ``BertClassifier`` or ``BertRegressor``.

    A row is [CLS] A [SEP], or [CLS] A [SEP] B [SEP]. What is too long is cut at its end, of a pair
    the longer text first (``packing.longest_first``), and counted in ``num_too_long``.

    A batch is ``features``, ``(features, labels)`` or ``(features, labels, sample_weights)``, for
    whichever was given. The features are ``features.ENCODER_FEATURES`` and ``example_index`` (B,)
    int32, the example's number in ``texts``. Labels are of the form given:

    - class ids, integers: (B,) int32;
    - numbers to predict, floats: (B,) float32;
    - a number from 0 to 1 for each class, (N, C): (B, C) float32.

    Args:
        tokenizer: the vocabulary's.
        texts: (N,) string, A of each example: a list, an array or a tensor.
        second_texts: (N,) string, B of each example; ``None`` for single texts.
        labels: (N,) integers or floats, or (N, C).
        sample_weights: (N,) floats, what each example counts in the loss and in weighted metrics.
        max_seq_length: the most tokens of a row, at least 5.

    Returns:
        The examples; see ``length_buckets.Examples`` for their batches.

    Raises:
        ValueError: a column is no vector of strings, or is empty; columns differ in length; labels
            or weights are of none of these forms; ``max_seq_length`` is too short.

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

    with tf.device("CPU:0"):
        ids, ranges = join_segments(columns)
    return packed_examples(tokenizer, ids, ranges, max_seq_length, targets)
