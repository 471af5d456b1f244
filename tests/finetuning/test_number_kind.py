"""Scores and mistakes of numbers, and the squared error, with the weights that ``fit`` gives it."""

import keras
import numpy as np
import pytest

from bert_tf.finetuning.text import squared_error
from bert_tf.modeling import BertRegressor

from .small_tasks import by_first_word, examples_of, inference, items_of, text_task


def weighted_loss(loss):
    """What ``fit`` reports for predictions of 0, labels 1 and 3, weights 10 and 1."""
    inputs = keras.Input((1,))
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros")(inputs)[:, 0])
    model.compile(loss=loss)
    labels, weights = np.float32([1, 3]), np.float32([10, 1])
    return model.evaluate(np.ones([2, 1], np.float32), labels, sample_weight=weights, verbose=0)


def test_each_example_has_its_own_weight():
    assert weighted_loss(squared_error) == pytest.approx((10 * 1 + 1 * 9) / 2)
    # Why it is not Keras' own: the mean error of both, 5, times the mean weight.
    assert weighted_loss("mean_squared_error") == pytest.approx(5 * 11 / 2)


def test_one_number_for_each_example():
    found = squared_error(np.array([1, 3]), keras.ops.convert_to_tensor(np.float32([0.5, 4])))
    np.testing.assert_array_equal(found, np.float32([0.25, 1]))


def test_a_model_compiled_with_it_is_saved_and_loaded(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss=squared_error)
    path = tmp_path / "model.keras"
    model.save(path)
    assert keras.saving.load_model(path).loss is squared_error


def test_numbers_are_scored_by_hand(tmp_path):
    data = examples_of(items_of({"a0": 1.0, "a1": 2.0, "a2": 3.5}))
    task = text_task("own", None, {"dev": data}, {"test": data}, kind="regression")
    assert task.labels == () and task.model_class is BertRegressor
    model = by_first_word({"a0": 1.0, "a1": 4.0, "a2": 3.0})
    found = task.evaluate(inference(model), "dev")
    assert list(found.scores) == [
        "pearson", "spearman", "mean_squared_error", "root_mean_squared_error",
        "mean_absolute_error", "r2",
    ]  # fmt: skip
    assert found.scores["pearson"] == pytest.approx(np.corrcoef([1, 2, 3.5], [1, 4, 3])[0, 1])
    assert found.scores["spearman"] == pytest.approx(0.5)
    assert found.scores["mean_squared_error"] == pytest.approx((0 + 4 + 0.25) / 3)
    assert found.scores["root_mean_squared_error"] == pytest.approx(4.25**0.5 / 3**0.5)
    assert found.scores["mean_absolute_error"] == pytest.approx(2.5 / 3)
    assert found.scores["r2"] == pytest.approx(1 - 4.25 / np.var([1, 2, 3.5]) / 3)
    assert [(m.id, m.expected, m.predicted, m.loss) for m in found.mistakes] == [
        ("id1", "2", "4", 4.0),
        ("id2", "3.5", "3", 0.25),
    ]
    assert not found.constant
    task.write_predictions(inference(model), "test", str(tmp_path), {})
    assert (tmp_path / "test.tsv").read_text() == "id\tprediction\nid0\t1\nid1\t4\nid2\t3\n"
