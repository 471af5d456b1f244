import numpy as np
import pytest

from bert_tf import features
from bert_tf.modeling import BertTokenClassifier
from tests.modeling.conftest import TINY, encoder_batch, randomise, weights_by_path
from tests.modeling.numpy_bert import encode, head


def test_equals_plain_loops():
    model = randomise(BertTokenClassifier(TINY, num_classes=3, dtype="float64"))
    batch = encoder_batch()
    outputs = model(batch)
    weights = weights_by_path(model)
    for b in range(2):
        states, _ = encode(weights, TINY, *(batch[key][b] for key in features.ENCODER_FEATURES))
        expected = [
            head(weights, "bert_token_classifier/token_classifier", state) for state in states[-1]
        ]
        np.testing.assert_allclose(outputs[b], expected, atol=1e-10)


def test_padding_has_no_influence():
    model = randomise(BertTokenClassifier(TINY, num_classes=3))
    batch = encoder_batch()
    outputs = model(batch)
    batch["input_word_ids"][1, 4:] = [1, 2]
    batch["input_type_ids"][1, 4:] = 1
    others = model(batch)
    np.testing.assert_array_equal(others[1, :4], outputs[1, :4])
    assert np.abs(others[1, 4:] - outputs[1, 4:]).max() > 0.01


def test_no_class():
    with pytest.raises(ValueError, match="num_classes is -1: expected 1 or more"):
        BertTokenClassifier(TINY, num_classes=-1)
