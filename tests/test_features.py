import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features


def _batch(batch=2, length=12, predictions=3):
    ids = np.zeros((batch, length), np.int32)
    masked = np.zeros((batch, predictions), np.int32)
    return {
        "input_word_ids": ids,
        "input_mask": ids,
        "input_type_ids": ids,
        "masked_lm_positions": masked,
        "masked_lm_ids": masked,
        "masked_lm_weights": masked.astype(np.float32),
        "next_sentence_labels": np.zeros((batch,), np.int32),
    }


def test_a_batch_as_the_table_has_it():
    features.check_batch(_batch(), features.PRETRAINING_FEATURES)
    specs = {
        key: tf.TensorSpec((None, *value.shape[1:]), value.dtype) for key, value in _batch().items()
    }
    features.check_batch(specs, features.PRETRAINING_FEATURES)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"input_mask": np.zeros((2, 12), np.int64)},
         r"'input_mask': expected dtype int32 and shape \(B, S\), got dtype int64"),
        ({"masked_lm_ids": np.zeros((2,), np.int32)},
         r"'masked_lm_ids': expected dtype int32 and shape \(B, P\), got dtype int32 and shape "),
        ({"input_type_ids": np.zeros((2, 11), np.int32)},
         "'input_type_ids' has S = 11, but 'input_word_ids' has S = 12"),
        ({"next_sentence_labels": np.zeros((3,), np.int32)},
         "'next_sentence_labels' has B = 3, but 'input_word_ids' has B = 2"),
    ],
)  # fmt: skip
def test_errors(change, message):
    with pytest.raises(ValueError, match=message):
        features.check_batch({**_batch(), **change}, features.PRETRAINING_FEATURES)


def test_a_missing_key():
    batch = _batch()
    del batch["masked_lm_weights"]
    with pytest.raises(ValueError, match="The batch has no 'masked_lm_weights'"):
        features.check_batch(batch, features.PRETRAINING_FEATURES)
