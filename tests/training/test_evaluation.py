"""Evaluation, against NumPy over the unpadded rows."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.training import batches
from bert_tf.training.evaluation import Evaluator

from .conftest import batches_dataset, random_batch, small_model


def _twin(model, rows):
    """Every measure from the model's logits, row by row in float64."""
    outputs = model.predict_on_batch(batches.model_inputs(rows))
    logits = outputs[features.MASKED_LM_LOGITS].astype(np.float64)
    weights = rows[features.MASKED_LM_WEIGHTS] > 0
    ids = rows[features.MASKED_LM_IDS]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_p, ids[..., None], -1)[..., 0]
    pair = outputs[features.NEXT_SENTENCE_LOGITS].astype(np.float64)
    labels = rows[features.NEXT_SENTENCE_LABELS]
    pair_log_p = pair - np.log(np.exp(pair).sum(-1, keepdims=True))
    return {
        "masked_lm_loss": nll[weights].mean(),
        "masked_lm_perplexity": np.exp(nll[weights].mean()),
        "masked_lm_accuracy": (logits.argmax(-1) == ids)[weights].mean(),
        "masked_lm_baseline": np.bincount(ids[weights]).max() / weights.sum(),
        "masked_lm_predictions": weights.sum(),
        "next_sentence_loss": -pair_log_p[np.arange(len(labels)), labels].mean(),
        "next_sentence_accuracy": (pair.argmax(-1) == labels).mean(),
        "next_sentence_baseline": max(labels.mean(), 1 - labels.mean()),
        "next_sentence_rows": len(labels),
    }


def test_rows_of_padding_weigh_nothing_and_dropout_is_off():
    model = small_model(dropout=0.5)
    rows = random_batch(7, rows=11)
    padded = {key: np.concatenate([value, value[:1] * 0]) for key, value in rows.items()}
    dataset = tf.data.Dataset.from_tensor_slices(padded).batch(4, drop_remainder=True)
    result = Evaluator(model, tf.distribute.get_strategy()).evaluate(dataset)
    assert result._asdict() == pytest.approx(_twin(model, rows), rel=1e-5)


def test_max_steps_stops_early():
    model = small_model()
    result = Evaluator(model, tf.distribute.get_strategy()).evaluate(batches_dataset(3), 1)
    assert result._asdict() == pytest.approx(_twin(model, random_batch(0)), rel=1e-5)


def test_without_a_next_sentence_head_its_measures_are_zero():
    evaluator = Evaluator(small_model(nsp=False), tf.distribute.get_strategy())
    result = evaluator.evaluate(batches_dataset(1))
    assert result[5:] == (0.0, 0.0, 0.0, 0)
    assert result.masked_lm_predictions > 0


def test_nothing_to_predict_is_told():
    evaluator = Evaluator(small_model(), tf.distribute.get_strategy())
    with pytest.raises(ValueError, match="The evaluation data holds no masked position: give docu"):
        evaluator.evaluate(batches_dataset(1), 0)
