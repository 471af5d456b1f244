"""Deleted models are released, with their graphs and registered gradients."""

import gc
import subprocess
import sys
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

import bert_tf
from bert_tf import api, graph_gradients
from bert_tf import transformers as dropin
from bert_tf.config import BertConfig
from bert_tf.features import INPUT_MASK, INPUT_TYPE_IDS, INPUT_WORD_IDS
from bert_tf.graph_gradients import custom_gradient, owned_by_graph, sum_over_replicas
from bert_tf.modeling import BertClassifier, BertEncoder
from bert_tf.modeling.layers import get_activation

SIZES = {
    "vocab_size": 15, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 8,
}  # fmt: skip
IDS = np.array([[2, 5, 6, 3], [2, 7, 3, 0]], "int32")
MASK = np.minimum(IDS, 1)
ROWS = {INPUT_WORD_IDS: IDS, INPUT_MASK: MASK, INPUT_TYPE_IDS: 0 * IDS}
LABELS = np.array([0, 1])


def _registered():
    """Returns the names of the registered custom gradients, after a garbage collection."""
    gc.collect()
    return {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient")}


def _classifier(**changes):
    model = BertClassifier(BertConfig(**{**SIZES, **changes}), num_classes=2)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _fitted(recomputes=False, **changes):
    model = _classifier(**changes)
    model.encoder.recomputes_blocks = recomputes
    model.fit(ROWS, LABELS, verbose=0)
    return model


def _abandoned():
    """Returns a model whose ``fit`` was stopped by an error in a callback."""

    def fail(*_, **__):
        raise RuntimeError("of the callback")

    model = _classifier()
    with pytest.raises(RuntimeError, match="of the callback"):
        callback = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
        model.fit(ROWS, LABELS, callbacks=[callback], verbose=0)
    return model


def _fine_tuned(**flags):
    tuned = api.fine_tune(
        [(f"good film {n}", "good") for n in range(9)] + [(f"bad {n}", "bad") for n in range(9)],
        task="classification", init="tiny", max_seq_length=8, max_steps=1, train_batch_size=4,
        verbose=False, **flags,
    )  # fmt: skip
    return tuned.model


def _dropin(fit):
    model = dropin.TFBertForSequenceClassification(dropin.BertConfig(**SIZES))
    inputs = {"input_ids": IDS, "attention_mask": MASK, "labels": LABELS}
    if fit:
        model.compile("adam")
        model.fit(inputs, verbose=0)
        return model

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = model(inputs, training=True).loss
        return tape.gradient(loss, model.trainable_variables)

    step()
    object.__setattr__(model, "step", step)  # a Keras attribute would be released before the model
    return model


@pytest.mark.parametrize(
    "trained",
    [
        _fitted,
        pytest.param(lambda: _fitted(recomputes=True), id="recomputed", marks=pytest.mark.slow),
        pytest.param(lambda: _fitted(hidden_act="silu"), id="silu", marks=pytest.mark.slow),
        pytest.param(_abandoned, marks=pytest.mark.slow),
        pytest.param(_fine_tuned, marks=pytest.mark.slow),
        pytest.param(lambda: _fine_tuned(remat=True), id="remat", marks=pytest.mark.slow),
        pytest.param(lambda: _dropin(fit=True), id="drop-in, fit"),
        pytest.param(lambda: _dropin(fit=False), id="drop-in, custom loop"),
    ],
)
def test_trained_model_is_released(trained, monkeypatch):
    before, make_owner, names = _registered(), graph_gradients._make_graph_owner, set()

    def record(operation):
        names.add(operation.name)
        make_owner(operation)

    monkeypatch.setattr(graph_gradients, "_make_graph_owner", record)
    model = trained()
    variables = [weakref.ref(variable) for variable in model.variables]
    assert len(variables) > 10 and len(names) > 10  # otherwise the test would prove nothing
    del model
    assert _registered() <= before
    assert [found for found in variables if found() is not None] == []


def _cube(x):
    return custom_gradient(lambda x: (x * x * x, lambda upstream: upstream * 100.0))(x)


# The release depends on private names of TensorFlow.
@pytest.mark.parametrize(
    "function",
    [
        _cube,
        lambda x: owned_by_graph(keras.remat(lambda x: x * x))(x),
        sum_over_replicas,
        lambda x: get_activation("silu")(x, True),
    ],
    ids=["own", "remat", "sum", "silu"],
)
def test_registry_has_weak_references(function):
    before = _registered()
    graph = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec([2]))
    (name,) = _registered() - before
    assert type(ops.gradient_registry.lookup(name)) in weakref.ProxyTypes
    assert float(graph(tf.ones(2))[0]) > 0
    del graph
    assert _registered() <= before


def test_gradient_exists_while_its_graph_is_used():
    # Gradients are computed after the inner traced functions are deleted.
    x = tf.constant(2.0)
    within = tf.function(lambda x: tf.function(lambda x: _cube(x))(x) + 1.0)
    looped = tf.function(
        lambda x: tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, _cube(x)), (0, x))[1]
    )
    for function, expected in ((within, 100.0), (looped, 1e4)):
        function(x)
        gc.collect()
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        assert float(tape.gradient(y, x)) == expected
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.function(lambda x: _cube(x))(x)
    gc.collect()  # and the function itself is deleted
    assert float(tape.gradient(y, x)) == 100.0


@pytest.mark.slow
def test_training_continues_after_another_model_is_deleted():
    def losses(others):
        keras.utils.set_random_seed(1)
        model, found = _classifier(), []
        other = _classifier() if others else None
        for turn in range(4):
            found += model.fit(ROWS, LABELS, verbose=0, shuffle=False).history["loss"]
            if turn == 1:
                other = None
                gc.collect()
            if other is not None:
                other.fit(ROWS, LABELS, verbose=0)
            if turn == 2:  # traced again
                model.make_train_function(force=True)
        return found

    assert losses(others=True) == losses(others=False)


_LOOP = """
import gc, pathlib, resource, sys
import bert_tf
from bert_tf import api, graph_gradients
for run in range(int(sys.argv[1])):
    rows = [(f"{name} film {n}", name) for n in range(9) for name in ("good", "bad")]
    api.fine_tune(rows, task="classification", init=sys.argv[2], max_seq_length=8, max_steps=1,
                  train_batch_size=4, verbose=False)
    if run in (1, int(sys.argv[1]) - 1):
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_peak_memory_of_repeated_fine_tuning(tmp_path):
    # With 16 million weights (64 MB), ten runs would add 2 GB.
    config = BertConfig(
        vocab_size=30000, hidden_size=512, num_hidden_layers=1, num_attention_heads=8,
        intermediate_size=512, max_position_embeddings=16,
    )  # fmt: skip
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    vocabulary += [f"word{index}" for index in range(config.vocab_size - len(vocabulary))]
    model = BertEncoder(config)
    model.preprocessor = bert_tf.BertPreprocessor(vocabulary, max_seq_length=16)
    bert_tf.save(model, tmp_path / "model")
    command = [sys.executable, "-c", _LOOP, "10", str(tmp_path / "model")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    second, tenth = map(int, printed.split())
    assert tenth < 1.05 * second
