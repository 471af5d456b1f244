"""A BiLSTM between encoder and head, against a plain loop over the real tokens of each text."""

import dataclasses

import numpy as np
import pytest

from bert_tf.modeling import (
    BertClassifier,
    BertMultipleChoice,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from tests.modeling.conftest import TINY, encoder_batch, made, weights_by_path
from tests.modeling.numpy_bert import bilstm, dense

CLASSES = {"num_classes": 3}
CASES = [
    (BertClassifier, CLASSES),
    (BertRegressor, {}),
    (BertTokenClassifier, CLASSES),
    (BertSpanPredictor, {}),
    (BertMultipleChoice, {}),
]


def make(model_class, arguments, config=TINY):
    return made(model_class, config, **arguments, bilstm=True)


def logits_of(model, batch):
    """(B, units) of texts, (B, S, units) of tokens, whatever the model makes of them."""
    by_choice = {key: value[:, None] for key, value in batch.items()}
    found = model(by_choice if isinstance(model, BertMultipleChoice) else batch)
    if isinstance(found, dict):
        return np.stack([found["start_logits"], found["end_logits"]], axis=-1)
    return np.reshape(found, (*found.shape, 1)) if len(found.shape) == 1 else np.array(found)


@pytest.mark.parametrize(
    ("model_class", "arguments", "causal"),
    [*((*case, False) for case in CASES), (BertClassifier, CLASSES, True)],
)
def test_equals_a_plain_loop(model_class, arguments, causal):
    model = make(model_class, arguments, dataclasses.replace(TINY, is_decoder=causal))
    assert model.encoder.pooler is None
    batch = encoder_batch()
    weights = {path.split("/", 1)[1]: values for path, values in weights_by_path(model).items()}
    kernel, bias = weights[f"{model.head}/kernel"], weights[f"{model.head}/bias"]
    states = model.encoder(batch)["sequence_output"].numpy().astype("float64")
    logits = logits_of(model, batch)
    for row, mask in enumerate(batch["input_mask"].astype(bool)):
        read = bilstm(states[row, mask], weights, "bilstm/directions")
        if logits.ndim == 3:
            expected = [dense(state, kernel, bias) for state in read]
            np.testing.assert_allclose(logits[row, mask], expected, atol=1e-5)
        else:
            width = TINY.hidden_size
            ends = np.concatenate([read[-1, :width], read[0, width:]])
            np.testing.assert_allclose(logits[row], dense(ends, kernel, bias), atol=1e-5)
