"""Texts, or pairs of texts, with a class, several classes or a number each: rows and labels.

Letters: N examples, B batch, S sequence length, C classes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.choices import LONG_TEXTS

from .columns import check_rows, label_column, packed_examples, tokenize_column, weight_column
from .length_buckets import Examples
from .long_texts import cut_windows, head_and_tail
from .packing import join_segments
from .pools import check_at_least
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
    int32, the example's number in ``texts``. Labels are of the form given:

    - class ids, integers: (B,) int32;
    - numbers to predict, floats: (B,) float32;
    - a number from 0 to 1 for each class, (N, C): (B, C) float32.

    ``long_text`` says what is read of single texts that are too long: "head_tail" leaves out their
    middle (``long_texts.head_and_tail``). With "windows" the encoder's features are (B, W, S), a
    row for each window over a text (``long_texts.cut_windows``), W the most of any example, and
    ``num_windows`` (B,) int32 says how many of them there are; the rest are empty rows.
    ``num_too_long`` counts the same texts as with "head".

    Args:
        tokenizer: the vocabulary's.
        texts: (N,) string, A of each example: a list, an array or a tensor.
        second_texts: (N,) string, B of each example; ``None`` for single texts.
        labels: (N,) integers or floats, or (N, C).
        sample_weights: (N,) floats, what each example counts in the loss and in weighted metrics.
        max_seq_length: the most tokens of a row, at least 5.
        long_text: "head", "head_tail" or "windows".

    Returns:
        The examples; see ``length_buckets.Examples`` for their batches.

    Raises:
        ValueError: a column is no vector of strings, or is empty; columns differ in length; labels
            or weights are of none of these forms; ``max_seq_length`` is too short; ``long_text``
            is none of the three, or not "head" for pairs.

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
    if long_text == "windows":
        return _windows(tokenizer, columns[0], room, targets)
    with tf.device("CPU:0"):
        num_too_long = None
        if long_text == "head_tail":
            num_too_long = _count_longer(columns[0], room)
            columns = [head_and_tail(columns[0], room)]
        ids, ranges = join_segments(columns)
    return packed_examples(tokenizer, ids, ranges, max_seq_length, targets, num_too_long)


def _count_longer(ids: tf.RaggedTensor, room: int) -> int:
    return int(tf.math.count_nonzero(ids.row_lengths() > room))


def _windows(
    tokenizer: BertTokenizer, ids: tf.RaggedTensor, room: int, targets: Sequence[Any]
) -> Examples:
    """Examples of as many rows as the text of most windows has."""
    with tf.device("CPU:0"):
        begins, sizes = cut_windows(tf.cast(ids.row_lengths(), tf.int32), room)
        counts = tf.cast(begins.row_lengths(), tf.int32)
        begins = begins.to_tensor() + tf.cast(ids.row_starts(), tf.int32)[:, None]
    segment = (begins, sizes.to_tensor())
    max_seq_length, num_too_long = room + _SPECIAL_TOKENS, _count_longer(ids, room)
    examples = packed_examples(
        tokenizer, ids.values, [segment], max_seq_length, targets, num_too_long
    )

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> Any:
        made = examples.make_batch(indices, width)
        rows, *others = made if isinstance(made, tuple) else (made,)
        rows = {**rows, features.NUM_WINDOWS: tf.gather(counts, indices)}
        return (rows, *others) if others else rows

    return dataclasses.replace(examples, make_batch=make_batch, rows_each=int(begins.shape[1]))
