import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.length_buckets import (
    class_column,
    label_column,
    string_column,
    tokenize_column,
    tokenize_with_offsets,
    weight_column,
)
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer

# 2,500 strings are three chunks, the last one smaller.
STRINGS = ["a b" * (i % 4) + "c" * (i % 3) for i in range(2500)]


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer([*SPECIAL_TOKENS, "a", "b", "c", "##c", "##a"])


@pytest.mark.parametrize("form", [list, np.array, tf.constant])
def test_every_form_of_a_column(form):
    column = string_column(form(["a b", "", "\u00e9"]), "texts")
    assert column.dtype == tf.string
    assert column.numpy().tolist() == [b"a b", b"", "\u00e9".encode()]


def test_a_column_is_tokenised_as_one_batch_would_be(tokenizer):
    columns = tokenize_with_offsets(tokenizer, string_column(STRINGS, "texts"))
    expected = tokenizer.tokenize_with_offsets(STRINGS)
    few = tokenize_column(tokenizer, np.array(STRINGS[:9]), "texts")
    assert few.dtype == tf.int32 and few.to_list() == expected[0][:9].to_list()
    for column, wanted in zip(columns, expected, strict=True):
        assert column.dtype == wanted.dtype
        np.testing.assert_array_equal(column.row_splits, wanted.row_splits)
        np.testing.assert_array_equal(column.values, wanted.values)


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        (["a", 3], r"texts\[1\] is 3: expected a string"),
        ([["a"]], r"texts\[0\] is \['a'\]: expected a string"),
        (tf.constant([["a"]]), "expected a vector .* got a tensor of string and shape"),
        (tf.constant([1, 2]), "expected a vector of strings, .* got a tensor of int32"),
        ("abc", "texts: expected a vector .* got 'abc'"),
        ([], "texts is empty: expected one string at least"),
    ],
)
def test_refuses_what_is_no_column_of_strings(strings, message):
    with pytest.raises(ValueError, match=message):
        string_column(strings, "texts")


@pytest.mark.parametrize(
    "labels, dtype, expected",
    [
        ([2, 0, 1], np.int32, [2, 0, 1]),
        (np.array([True, False, True]), np.int32, [1, 0, 1]),
        ([1, 0.5, -3], np.float32, [1, 0.5, -3]),
        ([[1, 0], [0, 0], [1, 1]], np.float32, [[1, 0], [0, 0], [1, 1]]),
        ([[0.25, 1.0]] * 3, np.float32, [[0.25, 1.0]] * 3),
    ],
)
def test_labels_of_every_form(labels, dtype, expected):
    column = label_column(labels, 3)
    assert column.dtype == dtype
    np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 1], "labels: expected one row for each of the 3 examples; got 2"),
        ([0, -1, 2], r"labels\[1\] is -1: expected 0 to 2147483647"),
        ([0, 2**31, 2], r"labels\[1\] is 2147483648: expected 0 to 2147483647"),
        ([0.5, float("nan"), 2], r"labels\[1\] is nan: expected a finite number, -inf to inf"),
        ([[0, 1], [0, 1], [1, 2]], r"labels\[2, 1\] is 2: expected 0 to 1"),
        (["a", "b", "c"], r"or numbers of shape \(N, C\); got dtype <U1 and shape \(3,\)"),
        (1, r"got dtype int64 and shape \(\)"),
        ([[0], [0, 1], [1]], "labels: expected rows of equal length; got"),
    ],
)
def test_refuses_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        label_column(labels, 3)


def test_class_ids():
    np.testing.assert_array_equal(class_column([3, 0], 2, np.int32([4, 1])), [3, 0])
    with pytest.raises(ValueError, match=r"labels\[0\] is 3: expected 0 to 2"):
        class_column([3, 0], 2, np.int32([3, 3]))
    with pytest.raises(ValueError, match=r"integers of shape \(N,\); got dtype float64 and shape"):
        class_column([3.0, 0.0], 2)


def test_weights():
    column = weight_column([1, 0, 2.5], 3)
    assert column.dtype == np.float32
    np.testing.assert_array_equal(column, [1, 0, 2.5])
    with pytest.raises(ValueError, match=r"sample_weights\[1\] is -1: expected a finite number, 0"):
        weight_column([1, -1], 2)
    with pytest.raises(ValueError, match=r"sample_weights: expected numbers of shape \(N,\); got"):
        weight_column([[1, 1]], 1)
    with pytest.raises(ValueError, match="sample_weights: expected one row for each of the 3"):
        weight_column([1, 1], 3)
