"""Examples of single texts, text pairs, multiple choice and similarity, with labels.

Letters: N examples, B batch, K rows of an example, S sequence length, C classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import LONG_TEXTS

from .long_texts import cut_windows, head_and_tail
from .packing import check_at_least, join_segments
from .tokenized_examples import (
    Examples,
    check_rows,
    class_column,
    flat_column,
    label_column,
    packed_examples,
    tokenize_column,
    weight_column,
)
from .wordpiece import BertTokenizer


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
    """Tokenizes texts for ``BertClassifier`` or ``BertRegressor``.

    A row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP]. Long rows are truncated at the end; in pairs,
    the longer text loses tokens first (``packing.longest_first``).

    Args:
        tokenizer: Tokenizer of the model.
        texts: Text A of each example.
            List, array or tensor of shape `(N,)`, string.
        second_texts: Text B of each example, or ``None`` for single texts.
            Shape `(N,)`, string.
        labels: Class ids, values to predict, or a value from 0 to 1 per class.
            Shape `(N,)`, integer; `(N,)`, float; or `(N, C)`.
        sample_weights: Weight of each example in the loss and in weighted metrics.
            Shape `(N,)`, float.
        max_seq_length: Maximum number of tokens per row, S; at least 5.
        long_text: Tokens to keep of long single texts: `"head"`; `"head_tail"`, without the middle
            (``long_texts.head_and_tail``); or `"windows"`, with one row per window
            (``long_texts.cut_windows``).

    Returns:
        The ``Examples``. A batch is ``features``, ``(features, labels)`` or ``(features, labels,
        sample_weights)``. The features are ``features.ENCODER_FEATURES``, `(B, S)`, and the index
        ``example_index``, `(B,)`; with windows, features have the shape `(B, K, S)`, padded with
        empty rows, and ``num_windows``, `(B,)`. Class ids are int32, and other labels are float32.

    Raises:
        ValueError: If a column is empty or has the wrong type or length, or an option is invalid.

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
            f"long_text={long_text!r}: expected one of {', '.join(LONG_TEXTS)}, or "
            f"{LONG_TEXTS[0]} for pairs."
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
            raise ValueError("sample_weights needs labels. Pass both.")
        targets.append(weight_column(sample_weights, count))

    room = max_seq_length - 2  # without [CLS] and [SEP]
    extra: dict[str, tf.Tensor] = {}
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
            extra[features.NUM_WINDOWS] = tf.cast(begins.row_lengths(), tf.int32)
            # (N, K), where K is the maximum number of windows.
            begins = begins.to_tensor() + starts[:, None]
            attributes["rows_per_example"] = int(begins.shape[1])
            ranges = [(begins, sizes.to_tensor())]
    return packed_examples(tokenizer, ids, ranges, max_seq_length, targets, extra, **attributes)


def multiple_choice_examples(
    tokenizer: BertTokenizer,
    contexts: Any,
    choices: Any,
    *,
    labels: Any = None,
    max_seq_length: int = 128,
) -> Examples:
    """Tokenizes contexts and choices for ``BertMultipleChoice``.

    Each choice is a row, [CLS] context [SEP] choice [SEP] (section 4.4 of the paper). If a row is
    too long, its longer text is truncated at the end.

    Args:
        tokenizer: Tokenizer of the model.
        contexts: Context of each example.
            List, array or tensor of shape `(N,)`, string.
        choices: Choices of each example; lists may differ in length.
            List of lists, array or tensor of shape `(N, K)`, string.
        labels: Index of the correct choice.
            Shape `(N,)`, integer.
        max_seq_length: Maximum number of tokens per row, S; at least 5.

    Returns:
        The ``Examples``. A batch is ``features`` or ``(features, labels)``, with
        ``features.CHOICE_FEATURES`` of shape `(B, K, S)`, ``example_index`` of shape `(B,)`, and
        labels of shape `(B,)`, all int32. If the number of choices differs, missing choices are
        rows ``[CLS] [SEP] [SEP]``, and the labels are pairs of the index and the number of choices,
        `(B, 2)`.

    Raises:
        ValueError: If a column is empty or invalid, or if an example has no choices.

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
        raise ValueError(f"choices[{np.argmin(counts)}]: expected at least one choice, got none.")
    choice_ids = tokenize_column(tokenizer, flat_choices, "choices")
    max_choices = int(counts.max())
    is_ragged = bool((counts < max_choices).any())
    targets = [] if labels is None else [class_column(labels, count, counts)]
    if targets and is_ragged:
        targets = [np.stack([targets[0], counts], 1)]
    with tf.device("CPU:0"):
        ids, (context, choice) = join_segments([context_ids, choice_ids])
        # (N, K): the rows of an example share the tokens of its context; missing rows are empty.
        is_choice = tf.sequence_mask(counts, max_choices, tf.int32)
        segments = [
            tuple(part[:, None] * is_choice for part in context),
            tuple(tf.RaggedTensor.from_row_lengths(part, counts).to_tensor() for part in choice),
        ]
    # An example with many choices widens all batches, so evaluations use smaller batches.
    rows = max_choices if is_ragged else 1
    return packed_examples(tokenizer, ids, segments, max_seq_length, targets, rows_per_example=rows)


def similarity_examples(
    tokenizer: BertTokenizer,
    columns: Sequence[Any],
    *,
    labels: Any = None,
    max_seq_length: int = 128,
) -> Examples:
    """Tokenizes K columns of texts for an embedding model.

    Each text is a row, [CLS] text [SEP]. Long texts are truncated at the end.

    Args:
        tokenizer: Tokenizer of the model.
        columns: K lists, arrays or tensors of texts.
            Shape `(N,)` each, string.
        labels: Labels to include unchanged, such as scores, `(N,)`, or ids of distinct texts,
            `(N, K)`.
        max_seq_length: Maximum number of tokens per row, S; at least 3.

    Returns:
        The ``Examples``. A batch is ``features`` or ``(features, labels)``, with
        ``features.CHOICE_FEATURES`` of shape `(B, K, S)` and ``example_index`` of shape `(B,)`,
        both int32.

    Raises:
        ValueError: If a column is empty or invalid, or if ``max_seq_length`` is too small.

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
        # (N, K): start and length of each text.
        segment = tuple(tf.stack(parts, 1) for parts in zip(*ranges, strict=True))
    return packed_examples(tokenizer, ids, [segment], max_seq_length, targets)
