import keras
import numpy as np
import pytest

from bert_tf import features
from bert_tf.modeling import BertClassifier, BertRegressor
from tests.modeling.conftest import TINY, encoder_batch, randomise, weights_by_path
from tests.modeling.numpy_bert import encode, head


def pooled_states(weights, batch):
    rows = zip(*(batch[key] for key in features.ENCODER_FEATURES), strict=True)
    return [encode(weights, TINY, *row)[1] for row in rows]


def test_classes_equal_plain_loops():
    model = randomise(BertClassifier(TINY, num_classes=3, dtype="float64"))
    batch = encoder_batch()
    weights = weights_by_path(model)
    expected = [
        head(weights, "bert_classifier/classifier", pooled)
        for pooled in pooled_states(weights, batch)
    ]
    np.testing.assert_allclose(model(batch), expected, atol=1e-10)


def test_numbers_equal_plain_loops():
    model = randomise(BertRegressor(TINY, dtype="float64"))
    batch = encoder_batch(batch=3)
    weights = weights_by_path(model)
    expected = [
        head(weights, "bert_regressor/regressor", pooled)[0]
        for pooled in pooled_states(weights, batch)
    ]
    np.testing.assert_allclose(model(batch), expected, atol=1e-10)


def test_no_class():
    with pytest.raises(ValueError, match="num_classes is 0: expected 1 or more"):
        BertClassifier(TINY, num_classes=0)


def test_regression_loss_pairs_each_row_with_its_number():
    # Were the outputs (B, 1), the difference with (B,) would be (B, B).
    model = randomise(BertRegressor(TINY))
    batch, targets = encoder_batch(batch=4), np.array([3.0, -1.0, 0.5, 2.0], "float32")
    expected = np.mean((model(batch) - targets) ** 2)
    model.compile(loss=keras.losses.MeanSquaredError())
    assert model.evaluate(batch, targets, verbose=0) == pytest.approx(expected, rel=1e-5)
