"""The weights that a model has, by name, are those of the model that is built."""

import dataclasses
import inspect

import ml_dtypes
import numpy as np
import pytest

from bert_tf.interchange.checkpoint import ModelSpec
from bert_tf.interchange.weights import (
    assign,
    build_model,
    check_fused,
    expected_shapes,
    heads,
)
from bert_tf.modeling import (
    MODEL_CLASSES,
    BertEncoder,
    BertFeatureTagger,
    BertPretrainer,
    BertSpanPredictor,
    BertTokenClassifier,
)
from tests.interchange.small_checkpoints import (
    CONFIG,
    MODELS,
    OURS_ALONE,
    assert_bit_equal,
    fused,
    make_checkpoint,
    read_all,
    stored,
    variables_of,
)

EVERY = {**MODELS, **OURS_ALONE}
EVERY_MODEL = pytest.mark.parametrize("spec", EVERY.values(), ids=EVERY.keys())
LEFT_TO_DEFAULTS = [
    ModelSpec(BertEncoder, {}),
    ModelSpec(BertPretrainer, {}),
    ModelSpec(BertPretrainer, {"nsp": False}),
    ModelSpec(BertPretrainer, {"nsp": False, "pooler": True}),
    ModelSpec(BertTokenClassifier, {"num_classes": 2}),
    ModelSpec(BertTokenClassifier, {"num_classes": 2, "pooler": True}),
    ModelSpec(BertSpanPredictor, {}),
    ModelSpec(BertFeatureTagger, {"num_classes": 2, "variant": "last", "lstm_units": 3}),
]


@EVERY_MODEL
def test_every_weight_goes_to_its_variable(spec):
    checkpoint = make_checkpoint(spec)
    model = build_model(CONFIG, spec)
    assert type(model).__name__ == spec.class_name
    assign(model, checkpoint.tensors)
    assert_bit_equal(variables_of(model), fused(read_all(checkpoint)))


@pytest.mark.parametrize("spec", LEFT_TO_DEFAULTS, ids=str)
def test_defaults_are_the_constructors(spec):
    model = build_model(dataclasses.replace(CONFIG, num_hidden_layers=1), spec)
    tensors = make_checkpoint(spec, model.config).tensors
    arrays = {name: tensor.read() for name, tensor in tensors.items()}
    shapes = {name: array.shape for name, array in fused(arrays).items()}
    assert shapes == {name: array.shape for name, array in variables_of(model).items()}
    assert spec.has_pooler == any(name.startswith("pooler/") for name in shapes)
    assert {name.split("/")[0] for name in shapes} >= set(heads(model.config, spec))


def test_a_feature_taggers_defaults_are_the_papers():
    config = dataclasses.replace(CONFIG, num_hidden_layers=4)
    shapes = expected_shapes(config, ModelSpec(BertFeatureTagger, {"num_classes": 2}))
    assert shapes["bilstm_0/forward_lstm/lstm_cell/kernel"] == (4 * 8, 4 * 768)
    assert shapes["tags/kernel"] == (2 * 768, 2)
    parameters = inspect.signature(BertFeatureTagger).parameters
    defaults = [parameters[name].default for name in ("variant", "lstm_units", "dropout")]
    assert defaults == ["concat_last_four", 768, None]


def test_a_variable_without_a_tensor_keeps_its_value():
    spec = MODELS["classifier"]
    model = build_model(CONFIG, spec)
    before = variables_of(model)
    head = stored("b", np.float32([1, 2, 3]))
    assign(model, {"classifier/bias": head})
    assert_bit_equal(variables_of(model), {**before, "classifier/bias": head.read()})


def test_other_dtypes_are_cast():
    spec = MODELS["encoder"]
    checkpoint = make_checkpoint(spec, dtype=ml_dtypes.bfloat16)
    model = build_model(CONFIG, spec, dtype="mixed_bfloat16")
    assign(model, checkpoint.tensors)
    expected = {name: array.astype("float32") for name, array in read_all(checkpoint).items()}
    assert_bit_equal(variables_of(model), fused(expected))


def test_every_class_is_a_model_of_the_library():
    assert MODEL_CLASSES.keys() == {spec.class_name for spec in EVERY.values()}


@pytest.mark.parametrize("shape", [(8, 23), (8, 8), (25,), ()])
def test_a_fused_weight_of_another_width(shape):
    with pytest.raises(
        ValueError, match=r"^there is \(.*\): expected 24 columns, those of query, key and value .*"
        " hidden_size of 8"
    ):  # fmt: skip
        check_fused(shape, 8, "there")
    check_fused((8, 24), 8, "there")
    check_fused((24,), 8, "there")
