"""Exported functions compute the model's outputs with the requested precision."""

import collections
import dataclasses
import functools
import os
import random
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.eager import context

from bert_tf.answering import embeddings
from bert_tf.answering import served as served_module
from bert_tf.answering.served import Weights, copy_model, max_seq_length, serve
from bert_tf.io import runtime
from bert_tf.modeling import BertClassifier, BertEncoder, BertMultipleChoice, BertPretrainer
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models import ExportOptions, exporting
from bert_tf.tasks.signatures import model_signatures

from .conftest import INPUTS, SMALL, VOCAB, make, trace
from .conftest import copied as served

WITH_MASKS = {**INPUTS, "masked_lm_positions": tf.constant([[1, 2], [3, 0]])}
# Initialized similarly to released models; larger weights increase rounding errors.
NARROW = dataclasses.replace(SMALL, initializer_range=0.1)
# The kernels of attention (2), feed-forward network (2) and pooler (1).
MATRICES = sorted([(16, 48), (16, 16), (16, 32), (32, 16), (16, 16)])


def largest_difference(first, second):
    pairs = zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True)
    return max(float(tf.reduce_max(tf.abs(tf.cast(a, tf.float32) - b))) for a, b in pairs)


def saved(folder, model, functions):
    """Saves signatures without endpoints, and returns the graph."""
    os.makedirs(folder)
    exporting.save(str(folder), functions, {}, model.weights, model.resources)
    content = (folder / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def


@pytest.fixture(scope="module")
def encoder():
    random.seed(5)
    return BertEncoder(NARROW)


@pytest.fixture(scope="module")
def served_once(encoder):
    """Function that returns the encoder as served by ``export``, cached by precision."""
    return functools.cache(lambda arithmetic: served(encoder, precision=arithmetic))


@pytest.fixture(
    scope="module",
    params=[
        # Minimum and maximum difference from float32; bfloat16 must round.
        ("float32", 0, 1e-6),
        ("bfloat16", 1e-3, 0.05),
    ],
    ids=lambda given: given[0],
)
def case(request, served_once, tmp_path_factory):
    """A model as served by ``export``, and a SavedModel of its encoder."""
    arithmetic, min_difference, max_difference = request.param
    copied = served_once(arithmetic)
    folder = tmp_path_factory.mktemp("case") / "1"
    tokens, quick = (
        trace(functools.partial(embeddings.encode_tokens, one), INPUTS)
        for one in (copied, copied.quick)
    )
    saved(folder, copied, {"tokens": tokens, "quick": quick})
    return types.SimpleNamespace(**locals())


def test_outputs_are_close_to_float32(case, encoder):
    difference = largest_difference(case.copied.encode(WITH_MASKS), encoder(INPUTS))
    assert case.min_difference <= difference < case.max_difference


def test_quick_model_is_equal_except_for_padding(case):
    copied, max_difference = case.copied, 0.1 if case.arithmetic == "bfloat16" else 1e-5
    expected, outputs = copied.encode(INPUTS), copied.quick.encode(INPUTS)
    not_padding = INPUTS["input_mask"].numpy() == 1
    pairs = zip(expected["encoder_outputs"], outputs["encoder_outputs"], strict=True)
    for wanted, got in pairs:
        wanted, got = (tf.cast(states, tf.float32).numpy() for states in (wanted, got))
        np.testing.assert_allclose(got[not_padding], wanted[not_padding], atol=max_difference)
        assert np.abs(wanted[~not_padding]).max() > 0.1 and not got[~not_padding].any()
    assert not copied.model.encoder.infers_without_padding and copied.quick.quick is None


def test_unmasked_model_is_equal_without_padding(served_once):
    copied = served_once("float32")
    inputs = {**INPUTS, "input_mask": tf.ones_like(INPUTS["input_mask"])}
    expected, outputs = copied.encode(inputs), copied.quick.unmasked.encode(inputs)
    for wanted, got in zip(expected["encoder_outputs"], outputs["encoder_outputs"], strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-6)
    # The mask is ignored, so this model is only for rows without padding.
    np.testing.assert_array_equal(
        copied.quick.unmasked.encode(INPUTS)["sequence_output"], outputs["sequence_output"]
    )
    assert served_once("bfloat16").quick.unmasked is None


def test_pretraining_heads_are_close_to_float32():
    random.seed(5)
    model = BertPretrainer(NARROW)
    copied = served(model, precision="bfloat16")
    expected = model(WITH_MASKS)
    for one in (copied, copied.quick):
        assert 1e-3 < largest_difference(one.call(WITH_MASKS), expected) < 0.05
        # The encoder ignores other features of the batch.
        states = one.encode(WITH_MASKS)["sequence_output"]
        logits = one.guess(tf.gather(states[0], WITH_MASKS["masked_lm_positions"][0]))
        assert largest_difference(logits, expected["masked_lm_logits"][0]) < 0.05


def constant_matrices(graph):
    """Returns shapes and dtypes of constant matrices in a graph's functions."""
    tensors = [
        node.attr["value"].tensor
        for function in graph.library.function
        for node in function.node_def
        if node.op == "Const"
    ]
    return sorted(
        (*(size.size for size in tensor.tensor_shape.dim), tf.as_dtype(tensor.dtype).name)
        for tensor in tensors
        if len(tensor.tensor_shape.dim) == 2 and min(d.size for d in tensor.tensor_shape.dim) > 8
    )


def test_bfloat16_matrices_are_constants(case):
    """In float32 they are variables, because constants save only 10% of the time."""
    traced = trace(lambda **inputs: case.copied.quick.encode(inputs), INPUTS)
    graph = traced.graph.as_graph_def()
    expected = [(*shape, "bfloat16") for shape in MATRICES]
    assert constant_matrices(graph) == (expected if case.arithmetic == "bfloat16" else [])


def test_matrices_above_the_size_limit_are_variables(served_once, monkeypatch):
    size = 2 * sum(rows * columns for rows, columns in MATRICES)
    weights = Weights(served_once("bfloat16").model)
    for max_bytes, are_constant in ((size, True), (size - 1, False)):
        monkeypatch.setattr(served_module, "_MAX_CONSTANT_BYTES", max_bytes)
        read_matrix = tf.function(
            lambda: weights.read_quickly(weights.matrices[0]), autograph=False
        )
        operations = {
            node.op for node in read_matrix.get_concrete_function().graph.as_graph_def().node
        }
        assert ("ReadVariableOp" not in operations) == are_constant


def test_only_serving_default_is_quick_and_graphs_are_shared(served_once, tmp_path):
    copied = served_once("bfloat16")
    traced = exporting.trace(model_signatures(copied))
    found = {
        name: constant_matrices(function.graph.as_graph_def()) for name, function in traced.items()
    }
    assert found.pop("serving_default") == [(*shape, "bfloat16") for shape in MATRICES]
    assert found == {"tokens": []}
    graph = saved(tmp_path / "1", copied, traced)
    functions = [{node.op for node in one.node_def} for one in graph.library.function]
    # Attention's products occur once per model, the tokenizer's first operation once.
    assert sum("BatchMatMulV2" in one for one in functions) == 2
    assert sum("FastBertNormalize" in one for one in functions) == 1


def test_weights_are_stored_once_in_float32(case):
    reader = tf.train.load_checkpoint(str(case.folder / "variables" / "variables"))
    dtypes = reader.get_variable_to_dtype_map()
    stored = collections.Counter(
        (tuple(shape), dtypes[name].name)
        for name, shape in reader.get_variable_to_shape_map().items()
        if shape  # except counters
    )
    weights = [tuple(one.shape) for one in case.copied.model.weights]
    assert stored == collections.Counter((shape, "float32") for shape in weights)


def test_converted_weights_are_recomputed_on_load(case):
    functions = {"tokens": case.tokens, "quick": case.quick}
    before = {name: function(**INPUTS) for name, function in functions.items()}
    # Loading again in the same process must recompute the converted copies.
    for resource in case.copied.resources:
        tf.raw_ops.AssignVariableOp(
            resource=resource.resource_handle, value=tf.zeros_like(resource.read())
        )
    changed = [n for n, f in functions.items() if largest_difference(f(**INPUTS), before[n]) > 0.1]
    # Weights in another dtype, which are constants in the quick model, or columns of chains.
    assert changed == ["tokens" if case.arithmetic == "bfloat16" else "quick"]
    loaded = tf.saved_model.load(str(case.folder))
    for name in functions:
        assert largest_difference(loaded.signatures[name](**INPUTS), before[name]) == 0
    for resource in case.copied.resources:  # restore the state for other tests
        resource._initialize()


@pytest.mark.skipif(os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "1", reason="oneDNN is disabled")
def test_matrix_products_are_fused(case):
    if case.arithmetic == "bfloat16" and not runtime.supports_bfloat16():
        pytest.skip("oneDNN does not support bfloat16 on this processor")
    # TensorFlow exports the graph of a function when it is optimized, at the first call.
    tokens = trace(lambda **inputs: embeddings.encode_tokens(case.copied, **inputs), INPUTS)
    context.context().enable_graph_collection()
    try:
        tokens(**INPUTS)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_graph_collection()
    nodes = [node for graph in graphs for node in graph.post_optimization_graph.node]
    fused = collections.Counter(
        "+".join(name.decode() for name in node.attr["fused_ops"].list.s) for node in nodes
    )
    assert fused["BiasAdd+GeluExact"] == 1
    # The outputs of attention and feed-forward network with the residual; scores with mask.
    assert fused["BiasAdd+Add"] == 2 and fused["Mul+Add"] == 1
    # Requests do not cast matrices.
    assert "Cast" not in {
        nodes_input.op
        for node in nodes
        if node.op == "_FusedMatMul"
        for nodes_input in nodes
        if nodes_input.name == node.input[1]
    }


# === The copy ===


def test_copied_model_has_no_strategy_and_the_requested_precision():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = BertClassifier(NARROW, 3, dtype="mixed_bfloat16")
    model.labels, model.multi_label = ("a", "b", "c"), True
    model.thresholds = {"probability": 0.3}
    for policy, dtype in (("float32", "float32"), ("mixed_bfloat16", "bfloat16")):
        copied = copy_model(model, policy)
        assert copied.compute_dtype == dtype and copied.variable_dtype == "float32"
        assert copied.labels == ("a", "b", "c") and copied.multi_label
        assert copied.thresholds == {"probability": 0.3}
        for new, old in zip(copied.weights, model.weights, strict=True):
            assert not isinstance(new.value, tf.distribute.DistributedValues)
            np.testing.assert_array_equal(new.numpy(), old.numpy())


def test_copied_multiple_choice_model_equals_original_and_trains():
    random.seed(5)
    model = BertMultipleChoice(NARROW)
    copied = served(model)
    rows = {key: tf.stack([value, value[::-1], value]) for key, value in INPUTS.items()}
    assert largest_difference(copied.call(rows), model(rows)) < 1e-6
    # If it used the traced call, which is for inference, the encoder would have no dropout.
    outputs = [copied.model(rows, training=True) for _ in range(2)]
    assert largest_difference(*outputs) > 1e-3
    assert "call" not in vars(copied.model.encoder)


def test_max_seq_length_of_exports():
    model = make(BertEncoder)
    # The length of the preprocessor is not a limit of the model.
    model.preprocessor = BertPreprocessor(VOCAB, max_seq_length=8)
    for given, expected in ((None, 24), (8, 8)):
        found = max_seq_length(model, ExportOptions(max_seq_length=given))
        assert found == expected
    for length in (4, 25):
        message = f"max_seq_length={length}: expected 5 to 24, the model's max_position_embeddings"
        with pytest.raises(ValueError, match=message):
            served(model, max_seq_length=length)
    # The vocabulary must not exceed that of the model.
    tokenizer = BertTokenizer([*VOCAB, *"bcdef"])
    message = "of the tokenizer has 26 pieces, more than the model.s vocab_size=25"
    with pytest.raises(ValueError, match=message):
        serve(model, tokenizer, ExportOptions())
