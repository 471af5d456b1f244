"""Keras' own exporter to ONNX writes the library's models, for any batch and length."""

import keras
import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.modeling import (
    BertClassifier,
    BertMultipleChoice,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")
CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_class", "arguments", "shapes"),
    [
        (BertClassifier, {"num_classes": 3}, [(2, 7), (3, 5)]),
        (BertRegressor, {}, [(2, 7), (3, 5)]),
        (BertTokenClassifier, {"num_classes": 3}, [(2, 7), (3, 5)]),
        (BertSpanPredictor, {}, [(2, 7), (3, 5)]),
        (BertMultipleChoice, {}, [(2, 3, 7), (1, 4, 5)]),
    ],
)
def test_onnx_runtime_answers_as_keras_does(model_class, arguments, shapes, tmp_path):
    model = model_class(CONFIG, **arguments)
    # Weights large enough that answers differ from row to row.
    random = np.random.default_rng(1)
    model.set_weights([random.normal(0, 0.7, weight.shape) for weight in model.weights])
    path = str(tmp_path / "model.onnx")
    model(inputs_of(shapes[0]))  # without a call Keras refuses
    model.export(path, format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for shape in shapes:
        inputs = inputs_of(shape)
        expected = keras.tree.flatten(model(inputs))  # a dict's outputs by their sorted names
        answers = session.run(None, inputs)
        assert len(answers) == len(expected)
        for answer, output in zip(answers, expected, strict=True):
            assert np.ptp(output) > 0.05
            np.testing.assert_allclose(answer, output, atol=1e-5)


def inputs_of(shape):
    random = np.random.default_rng(shape[-1])
    mask = np.ones(shape, np.int32)
    mask[-1, ..., 4:] = 0
    return {
        "input_word_ids": mask * random.integers(1, CONFIG.vocab_size, shape, np.int32),
        "input_mask": mask,
        "input_type_ids": mask * random.integers(0, 2, shape, np.int32),
    }
