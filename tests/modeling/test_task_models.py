"""Models for fine-tuning."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import (
    BertClassifier,
    BertMultipleChoice,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.modeling.layers import Dropout
from tests.modeling.conftest import TINY, encoder_batch, made, weights_by_path
from tests.modeling.numpy_bert import encode, head

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
CLASSES = np.array([2, 0, 1, 1], "int32")


class Case(NamedTuple):
    make: Callable[..., Any]
    path: str  # paths of the dense layer, relative to the model
    targets: Any
    loss: Any
    arguments: dict[str, Any]


CASES = {
    "classifier": Case(BertClassifier, "classifier", CLASSES, CROSS_ENTROPY, {"num_classes": 3}),
    "regressor": Case(
        BertRegressor, "regressor", np.array([1.0, 5.0, 0.2, 3.0]), "mean_squared_error", {}
    ),
    "token classifier": Case(
        BertTokenClassifier,
        "token_classifier",
        np.tile(CLASSES[:, None], (1, 6)),
        CROSS_ENTROPY,
        {"num_classes": 3},
    ),
    "span predictor": Case(
        BertSpanPredictor,
        "span",
        {"start_logits": CLASSES, "end_logits": CLASSES + 1},
        {"start_logits": CROSS_ENTROPY, "end_logits": CROSS_ENTROPY},
        {},
    ),
    "multiple choice": Case(BertMultipleChoice, "choice", CLASSES, CROSS_ENTROPY, {}),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request):
    return request.param


def inputs(case):
    if case.make is not BertMultipleChoice:
        return encoder_batch(batch=4)
    return {key: value.reshape(4, 3, -1) for key, value in encoder_batch(batch=12).items()}


def flat(outputs):
    return [tf.cast(x, "float32").numpy() for x in keras.tree.flatten(outputs)]


def test_head_has_two_variables(case):
    model = made(case.make, **case.arguments)
    own = model.weights[len(model.encoder.weights) :]
    assert [v.path for v in own] == [
        f"{model.name}/{case.path}/{leaf}" for leaf in ("kernel", "bias")
    ]
    # The config's rate is the default.
    assert model.dropout.rate == (0.0 if case.make is BertSpanPredictor else 0.1)
    pooled = any("pooler" in v.path for v in model.weights)
    assert pooled is (case.make not in (BertTokenClassifier, BertSpanPredictor))


def test_initializer_range():
    # A truncated normal has 0.774 of the variance, and no values beyond two deviations.
    sizes = {"hidden_size": 256, "num_hidden_layers": 1}
    config = dataclasses.replace(TINY, **sizes, initializer_range=0.5)
    dense = BertClassifier(config, num_classes=64).classifier
    kernel = dense.kernel.numpy()
    assert 0.4 < kernel.std() < 0.48 and np.abs(kernel).max() <= 1.0
    assert not dense.bias.numpy().any()


def without_dropout(model, monkeypatch):
    for layer in model._flatten_layers():
        if isinstance(layer, Dropout):
            monkeypatch.setattr(layer, "rate", 0.0)
    return model


def test_fit(case, monkeypatch):
    model = without_dropout(made(case.make, **case.arguments), monkeypatch)
    before = weights_by_path(model)
    model.compile(keras.optimizers.SGD(0.01), case.loss, run_eagerly=True)
    # In training mode, in which the span predictor ignores padding.
    expected = float(model.compute_loss(y=case.targets, y_pred=model(inputs(case), training=True)))
    first, second = model.fit(inputs(case), case.targets, epochs=2, verbose=0).history["loss"]
    assert first == pytest.approx(expected, rel=1e-5) and second < first
    # A bias that is added to all inputs of a softmax has no effect, and neither has the last beta
    # before a pooling: their gradients are 0 except for rounding.
    without_gradient = {"bert_span_predictor/span/bias", "bert_multiple_choice/choice/bias"}
    if case.make is BertSpanPredictor:
        without_gradient.add("bert_encoder/layer_1/output_layer_norm/beta")
    now = weights_by_path(model)
    assert {path for path in now if np.array_equal(before[path], now[path])} <= without_gradient


def test_logits_are_not_rounded_to_the_compute_dtype(case):
    exact = made(case.make, **case.arguments)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = case.make(TINY, **case.arguments)
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(exact.get_weights())
    assert {str(v.dtype) for v in mixed.weights} == {"float32"}
    assert mixed.encoder.compute_dtype == "bfloat16"
    symbolic = keras.tree.flatten(mixed.output)
    outputs = keras.tree.flatten(mixed(inputs(case)))
    for tensor, spec, reference in zip(outputs, symbolic, flat(exact(inputs(case))), strict=True):
        assert (tensor.dtype.name, spec.dtype) == ("float32", "float32")
        assert np.any(tf.cast(tf.cast(tensor, "bfloat16"), "float32") != tensor)
        assert 0.0 < np.abs(tensor - reference).max() < 0.5


SHAPES = {
    "bert_regressor": (4,),
    "bert_span_predictor": (4, 6, 2),
    "bert_token_classifier": (4, 6, 3),
}


def test_equals_plain_loops(case):
    model = made(case.make, **case.arguments)
    batch = inputs(case)
    weights = weights_by_path(model)
    columns = (batch[key].reshape(-1, 6) for key in features.ENCODER_FEATURES)
    expected = []
    for row in zip(*columns, strict=True):
        states, pooled = encode(weights, TINY, *row)
        read = states[-1] if case.make in (BertTokenClassifier, BertSpanPredictor) else [pooled]
        expected += [head(weights, f"{model.name}/{case.path}", state) for state in read]
    outputs = model(batch)
    if case.make is BertSpanPredictor:  # in the order of the dense layer's columns
        outputs = np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    outputs = np.array(outputs)
    assert outputs.shape == SHAPES.get(model.name, (4, 3))
    np.testing.assert_allclose(outputs.ravel(), np.ravel(expected), atol=1e-4)


@pytest.mark.parametrize("make", [BertClassifier, BertTokenClassifier])
def test_zero_classes_are_rejected(make):
    with pytest.raises(ValueError, match="num_classes=0: expected 1 or more"):
        make(TINY, num_classes=0)


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.binary_crossentropy,
        keras.losses.CategoricalCrossentropy(),
        {"a": "mse", "b": "categorical_crossentropy"},
    ],
)
def test_loss_of_probabilities_is_rejected(loss, monkeypatch):
    model = made(BertClassifier, num_classes=2)
    message = "BertClassifier outputs logits, but the loss expects probabilities"
    with pytest.raises(ValueError, match=message):
        model.compile("sgd", loss)
    for other in ("mse", keras.losses.MeanSquaredError(), lambda y, logits: logits[:, 0], None):
        model.compile("sgd", other)
    monkeypatch.setattr(model.classifier, "activation", keras.activations.softmax)
    model.compile("sgd", loss)


def test_training_loss_ignores_padding(monkeypatch):
    model = without_dropout(made(BertSpanPredictor), monkeypatch)
    model.compile(loss=CROSS_ENTROPY)
    batch = encoder_batch()
    batch["input_mask"][:, 4:] = 0
    answers = {"start_logits": np.array([1, 0]), "end_logits": np.array([3, 2])}
    full, cut = (
        model({key: ids[:, :width] for key, ids in batch.items()}, training=True)
        for width in (6, 4)
    )
    loss = float(model.compute_loss(y=answers, y_pred=cut))
    assert loss == pytest.approx(float(model.compute_loss(y=answers, y_pred=full)), rel=1e-6)
    np.testing.assert_array_equal(model(batch, training=True)["end_logits"][:, 4:], -30000.0)


def test_static_number_of_choices():
    model = made(BertMultipleChoice)
    batch = {key: tf.constant(value) for key, value in inputs(CASES["multiple choice"]).items()}
    run = tf.function(model, autograph=False)
    assert run.get_concrete_function(batch).structured_outputs.shape == (4, 3)
    np.testing.assert_allclose(run(batch), model(batch), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_head_pools_all_tokens(pooling):
    config = dataclasses.replace(TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = made(BertClassifier, config, num_classes=3, pooling=pooling)
    weights, batch = weights_by_path(model), encoder_batch(batch=4)
    logits = np.asarray(model(batch))
    for row, mask in enumerate(batch["input_mask"] > 0):
        ids, real, types = (
            batch[key][row, mask] for key in ("input_word_ids", "input_mask", "input_type_ids")
        )
        last = np.array(encode(weights, TINY, ids, real, types)[0][-1])
        read = last.mean(0) if pooling == "mean" else last.max(0)
        kernel, bias = (
            weights[f"bert_classifier/classifier/{leaf}"] for leaf in ("kernel", "bias")
        )
        np.testing.assert_allclose(logits[row], read @ kernel + bias, atol=2e-5)
    # Training without padding pools the same tokens.
    model.encoder.trains_without_padding = True
    np.testing.assert_allclose(model(batch, training=True), logits, atol=1e-5)
