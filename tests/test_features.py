import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features


def _batch():
    rows = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), (2, 12))
    masked = dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), (2, 3))
    shapes = {**rows, **masked, "next_sentence_labels": (2,)}
    batch = {key: np.zeros(shape, np.int32) for key, shape in shapes.items()}
    return {**batch, "masked_lm_weights": np.zeros((2, 3), np.float32)}


def test_valid_batches_and_specs_are_accepted():
    features.check_batch(_batch(), features.PRETRAINING_FEATURES)
    specs = {
        key: tf.TensorSpec((None, *value.shape[1:]), value.dtype) for key, value in _batch().items()
    }
    features.check_batch(specs, features.PRETRAINING_FEATURES)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"input_mask": np.zeros((2, 12), np.int64)},
         r"'input_mask': expected dtype int32 and shape \(B, S\), got dtype int64 and shape "
         r"\(2, 12\)"),
        ({"masked_lm_ids": np.zeros((2,), np.int32)},
         r"'masked_lm_ids': expected dtype int32 and shape \(B, P\), got dtype int32 and shape "),
        ({"input_type_ids": np.zeros((2, 11), np.int32)},
         "'input_type_ids' has S=11, but 'input_word_ids' has S=12"),
        ({"next_sentence_labels": np.zeros((3,), np.int32)},
         "'next_sentence_labels' has B=3, but 'input_word_ids' has B=2"),
        ({"masked_lm_weights": None}, "The batch has no key 'masked_lm_weights'"),
    ],
)  # fmt: skip
def test_invalid_batches_raise_errors(change, message):
    batch = {key: value for key, value in {**_batch(), **change}.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        features.check_batch(batch, features.PRETRAINING_FEATURES)
