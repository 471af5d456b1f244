"""What is read of texts that are longer than a row, beside plain loops."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.classification import classification_examples
from bert_tf.pipelines.long_texts import (
    MOST_WINDOWS,
    cut_windows,
    head_and_tail,
    mean_of_windows,
    most_tokens,
)

from .small_vocabulary import TOKENIZER

CLS, SEP, PAD = 2, 3, 0


def windows_of(tokens, room):
    """One after the other until the text ends, or there are as many as may be."""
    stride, found, start = room * 3 // 4, [], 0
    while len(found) < MOST_WINDOWS:
        if start + room >= len(tokens):
            found.append(tokens[max(len(tokens) - room, 0) :])
            break
        found.append(tokens[start : start + room])
        start += stride
    return found


@pytest.mark.parametrize("room", [3, 6, 126, 510])
def test_ends_and_windows_equal_plain_loops(room):
    rng = np.random.default_rng(room)
    last = most_tokens(room)
    lengths = [0, 1, room - 1, room, room + 1, last - 1, last, last + 1, last + 3 * room]
    lengths += rng.integers(0, 5 * room, 20).tolist()
    texts = [rng.integers(0, 1000, length).tolist() for length in lengths]
    ids = tf.ragged.constant(texts, tf.int32, row_splits_dtype=tf.int64)
    head = max(room * 128 // 510, 1)
    assert head_and_tail(ids, room).to_list() == [
        text if len(text) <= room else text[:head] + text[len(text) - room + head :]
        for text in texts
    ]
    for dtype in (tf.int32, tf.int64):
        begins, sizes = cut_windows(tf.constant(lengths, dtype), room)
        for text, starts, counts in zip(texts, begins.to_list(), sizes.to_list(), strict=True):
            found = [text[a : a + n] for a, n in zip(starts, counts, strict=True)]
            assert found == windows_of(text, room)
            assert (len(text) > last) == (starts[-1] + counts[-1] < len(text))


def test_of_510_tokens_128_are_the_beginning():
    ids = tf.ragged.range([1000])
    assert head_and_tail(ids, 510).to_list() == [[*range(128), *range(1000 - 382, 1000)]]


def test_a_mean_has_the_gradient_of_each_window():
    outputs = tf.Variable([[1.0, 2.0], [3.0, 4.0], [7.0, 9.0]])
    with tf.GradientTape() as tape:
        means = mean_of_windows(outputs, tf.constant([2, 1]))
        loss = tf.reduce_sum(means * [[1.0, 1.0], [5.0, 1.0]])
    assert means.numpy().tolist() == [[2.0, 3.0], [7.0, 9.0]]
    assert tape.gradient(loss, outputs).numpy().tolist() == [[0.5, 0.5], [0.5, 0.5], [5.0, 1.0]]


TEXTS = ["a b c d e f g", "", "a b", "a b c d e f g a b c d"]


def test_rows_of_windows():
    examples = classification_examples(
        TOKENIZER, TEXTS, labels=[0, 1, 2, 0], max_seq_length=8, long_text="windows"
    )
    assert (len(examples), examples.rows_each, examples.num_too_long) == (4, 3, 2)
    assert examples.lengths.tolist() == [8, 2, 4, 8]
    ((rows, labels),) = examples.evaluation_batches(4)
    assert rows["num_windows"].numpy().tolist() == [2, 1, 1, 3]
    assert labels.numpy().tolist() == [0, 1, 2, 0]
    tokens = [TOKENIZER.tokenize([text])[0].numpy().tolist() for text in TEXTS]
    for ids, mask, text in zip(rows["input_word_ids"], rows["input_mask"], tokens, strict=True):
        windows = [[CLS, *part, SEP] for part in windows_of(text, 6)]
        expected = [[*row, *[PAD] * (8 - len(row))] for row in windows]
        assert ids.numpy().tolist()[: len(windows)] == expected
        assert mask.numpy().sum(1).tolist()[: len(windows)] == list(map(len, windows))


def test_rows_of_ends():
    examples = classification_examples(TOKENIZER, TEXTS, max_seq_length=8, long_text="head_tail")
    (rows,) = examples.evaluation_batches(4)
    found = [row[row != PAD].tolist() for row in rows["input_word_ids"].numpy()]
    tokens = [TOKENIZER.tokenize([text])[0].numpy().tolist() for text in TEXTS]
    kept = [text if len(text) <= 6 else [text[0], *text[-5:]] for text in tokens]
    assert found == [[CLS, *text, SEP] for text in kept] and examples.num_too_long == 2


@pytest.mark.parametrize(
    "more", [{"long_text": "tail"}, {"long_text": "windows", "second_texts": TEXTS}]
)
def test_what_cannot_be_read(more):
    with pytest.raises(
        ValueError, match="long_text is '.*': expected one of head, head_tail, wind"
    ):
        classification_examples(TOKENIZER, TEXTS, **more)
