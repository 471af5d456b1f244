import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.targets import check_rows, class_column, label_column, weight_column


@pytest.mark.parametrize(
    "labels, dtype, expected",
    [
        ([2, 0, 1], np.int32, [2, 0, 1]),
        (np.array([True, False, True]), np.int32, [1, 0, 1]),
        (tf.constant([2, 0, 1], tf.int64), np.int32, [2, 0, 1]),
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
    np.testing.assert_array_equal(class_column([3, 0], 2, num_classes=4), [3, 0])
    with pytest.raises(ValueError, match=r"labels\[0\] is 3: expected 0 to 2"):
        class_column([3, 0], 2, num_classes=3)
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


def test_rows():
    check_rows("tags", 2, 2)
    with pytest.raises(ValueError, match="tags: expected one row for each of the 2 .* got 3"):
        check_rows("tags", 3, 2)
