"""Rows of tokens equal literals."""

import dataclasses

import pytest
import tensorflow as tf

from bert_tf.answering import rows as rows_module
from bert_tf.answering.rows import fit_rows, run_rows
from bert_tf.modeling import BertEncoder

from .conftest import VOCAB, make, serve

PAD, UNK, CLS, SEP, MASK, THE, A, CAT, DOG, SAT, ON, MAT = range(12)
STOP, BANG = VOCAB.index("."), VOCAB.index("!")


@pytest.fixture(scope="module")
def encoder():
    return make(BertEncoder)


def packed(rows, width):
    """Returns the inputs of the heads in the original order, and the shapes of the blocks."""
    sizes = []

    def head(served, inputs):
        sizes.append(tuple(inputs["input_mask"].shape))
        return {
            key: tf.pad(value, [[0, 0], [0, width - sizes[-1][1]]]) for key, value in inputs.items()
        }

    return run_rows(serve(make(BertEncoder)), rows, head), sizes


def test_single_segment_rows(encoder):
    ids = tf.ragged.constant([[CAT, SAT], [], [THE, CAT, SAT, ON, THE, MAT]], dtype=tf.int32)
    rows, truncated = fit_rows(serve(encoder, 7), ids)
    rows, sizes = packed(rows, 7)
    assert sizes == [(3, 7)]
    assert rows["input_word_ids"].numpy().tolist() == [
        [CLS, CAT, SAT, SEP, PAD, PAD, PAD],
        [CLS, SEP, PAD, PAD, PAD, PAD, PAD],
        [CLS, THE, CAT, SAT, ON, THE, SEP],
    ]
    assert rows["input_mask"].numpy().sum(1).tolist() == [4, 2, 7]
    assert not rows["input_type_ids"].numpy().any()
    assert truncated.numpy().tolist() == [False, False, True]
    # The width is that of the longest row.
    assert packed(fit_rows(serve(encoder, 24), ids)[0], 24)[1] == [(3, 8)]


def test_blocks_group_rows_of_similar_length(encoder, monkeypatch):
    monkeypatch.setattr(rows_module, "_TOKENS_CHUNK_SIZE", 30)
    monkeypatch.setattr(rows_module, "_FREE_PADDING", 6)
    lengths = [2, 8, 0, 1, 8, 3, 1, 2, 8, 2, 7]
    ids = tf.RaggedTensor.from_row_lengths(tf.range(5, 5 + sum(lengths)) % 10 + 5, lengths)
    rows, _ = fit_rows(serve(encoder, 12), ids)
    rows, sizes = packed(rows, 12)
    # Three rows of ten tokens fill a block. The row of nine tokens can share a block with only two
    # others, because of the limit on padding.
    assert sizes == [(3, 10), (3, 9), (5, 4)]
    for number, row in enumerate(ids.to_list()):
        expected = [CLS, *row, SEP]
        assert rows["input_word_ids"][number].numpy().tolist() == expected + [PAD] * (
            12 - len(expected)
        )
        assert rows["input_mask"][number].numpy().sum() == len(expected)


@pytest.mark.parametrize(
    "lengths, chunk_size, unmasked",
    [
        ([3], 30, True),
        ([3], 4, True),  # a single row cannot be split
        ([4, 4, 4], 18, True),
        ([4, 4, 4], 17, False),
        ([4, 4, 3], 30, False),
        ([], 30, False),
    ],
)
def test_rows_of_equal_length_use_the_unmasked_model(
    encoder, monkeypatch, lengths, chunk_size, unmasked
):
    monkeypatch.setattr(rows_module, "_TOKENS_CHUNK_SIZE", chunk_size)
    blocks, without_mask = serve(encoder, 12), serve(encoder, 12)
    ids = tf.RaggedTensor.from_row_lengths(tf.range(5, 5 + sum(lengths), dtype=tf.int32), lengths)
    rows, _ = fit_rows(blocks, ids)
    calls = []

    def head(served, inputs):
        calls.append(served)
        return tf.reduce_sum(inputs["input_word_ids"] * inputs["input_mask"], 1)

    sums = run_rows(dataclasses.replace(blocks, unmasked=without_mask), rows, head)
    assert {one is without_mask for one in calls} == {unmasked}
    assert sums.numpy().tolist() == [sum(row) + CLS + SEP for row in ids.to_list()]


LONG_TEXTS = [
    "the cat sat on the mat . " * 40,
    "the\u0301" * 3 + " " + "cat" * 300,
    " " * 900 + "cat sat",
    "\x00" * 900 + " the cat",
    b"\xff\xc3" * 300 + b" the \xff cat sat" * 40,
    b"\xff the cat " + b"unable" * 300 + b"\xffs the cat",
    "大" * 300 + " cat",
    "ΟΔΟΣ cat ΟΔΟΣ" * 60,
    "".join(f"{'a' * count} " for count in range(190, 210)) * 2,
    "a\tcat\nsat\ron" * 90,
    "cat",
    "",
]


@pytest.mark.parametrize("bytes_per_token", [1, 3, 20])
def test_text_truncation_loses_no_token(encoder, monkeypatch, bytes_per_token):
    monkeypatch.setattr(rows_module, "_BYTES_PER_TOKEN", bytes_per_token)
    served = serve(encoder, 12)
    texts = tf.constant(LONG_TEXTS)
    truncated_texts = rows_module.truncate_texts(served, texts, 12)
    sizes, full_sizes = tf.strings.length(truncated_texts).numpy(), tf.strings.length(texts).numpy()
    assert (sizes[[0, 7]] < full_sizes[[0, 7]]).all() == (bytes_per_token == 20)
    before, after = (
        served.tokenizer.tokenize(strings).to_list() for strings in (texts, truncated_texts)
    )
    for number, (row, found) in enumerate(zip(before, after, strict=True)):
        assert found == row[: len(found)], number
        assert len(found) == len(row) or len(found) > 12, number


def test_columns_of_different_lengths_raise_error_in_graphs():
    strings = tf.TensorSpec([None], tf.string)
    pairs = tf.function(rows_module.check_equally_many, [strings] * 2, autograph=False)
    assert pairs(tf.constant(["a"]), tf.constant(["b"]))[1].numpy() == [b"b"]
    message = "Expected the same number of rows in both inputs of the request"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        pairs(tf.constant(["a", "a"]), tf.constant(["a"]))
