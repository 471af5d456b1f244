"""``BertPretrainer`` and its heads."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.pretrainer import MaskedLMHead, NextSentenceHead
from tests.modeling.conftest import TINY, made, make_batch, randomize, weights_by_path
from tests.modeling.numpy_bert import encode, head, masked_lm_logits


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", "float32"), ("mixed_bfloat16", "float32"), ("float64", "float64")],
)
def test_logits_are_float32(dtype, expected):
    table = keras.Variable(np.eye(15, 8), dtype=keras.DTypePolicy(dtype).variable_dtype)
    head = MaskedLMHead(TINY, table, dtype=dtype)
    hidden = keras.ops.ones((1, 2, 8), keras.DTypePolicy(dtype).compute_dtype)
    logits = head(hidden, np.zeros((1, 1), "int32"))
    assert keras.backend.standardize_dtype(logits.dtype) == expected
    pair = NextSentenceHead(TINY, dtype=dtype)(hidden[:, 0])
    assert keras.backend.standardize_dtype(pair.dtype) == expected
    symbolic = head(keras.KerasTensor((None, None, 8)), keras.KerasTensor((None, None), "int32"))
    assert (symbolic.shape, symbolic.dtype) == ((None, None, 15), expected)


def test_invalid_position_is_nan():
    head = MaskedLMHead(TINY, keras.Variable(np.ones((15, 8))))
    logits = head(np.ones((2, 2, 8), "float32"), np.array([[0, 2], [-1, 1]])).numpy()
    expected = [[False, True], [True, False]]
    np.testing.assert_array_equal(np.isnan(logits), np.repeat(np.array(expected)[..., None], 15, 2))


def test_output_bias_is_not_rounded():
    table = keras.Variable(np.zeros((15, 8)))
    head = MaskedLMHead(TINY, table, dtype="mixed_bfloat16")
    inputs = np.ones((1, 2, 8), "float32"), np.zeros((1, 1), "int32")
    head(*inputs)
    bias = np.linspace(1.0, 1.001, 15).astype("float32")  # equal in bfloat16
    head.output_bias.assign(bias)
    np.testing.assert_array_equal(head(*inputs)[0, 0], bias)


def test_equals_plain_loops():
    model = made(BertPretrainer, dtype="float64")
    batch = make_batch()
    outputs = model(batch)
    weights = weights_by_path(model)
    for b in range(2):
        row = (batch[key][b] for key in ("input_word_ids", "input_mask", "input_type_ids"))
        states, pooled = encode(weights, TINY, *row)
        for p, position in enumerate(batch["masked_lm_positions"][b]):
            expected = masked_lm_logits(weights, TINY, states[-1][position])
            np.testing.assert_allclose(outputs["masked_lm_logits"][b, p], expected, atol=1e-10)
        expected = head(weights, "bert_pretrainer/next_sentence/dense", pooled)
        np.testing.assert_allclose(outputs["next_sentence_logits"][b], expected, atol=1e-10)


def test_dynamic_length_gives_same_logits():
    model, batch = made(BertPretrainer, dtype="float64"), make_batch()
    shapes = {key: tf.TensorSpec((None, None), "int32") for key in model.input}
    graph = tf.function(lambda inputs: model(inputs), input_signature=[shapes])
    outputs = graph({key: tf.cast(batch[key], "int32") for key in shapes})
    for name, expected in model(batch).items():
        np.testing.assert_allclose(outputs[name], expected, atol=1e-10)


def test_without_next_sentence_prediction():
    model = BertPretrainer(TINY, nsp=False)
    assert list(model(make_batch())) == ["masked_lm_logits"]
    assert model.next_sentence is None and model.encoder.pooler is None
    assert not any("next_sentence" in v.path or "pooler" in v.path for v in model.weights)


def test_without_masked_lm():
    full = made(BertPretrainer)
    model = BertPretrainer(TINY, mlm=False)
    assert model.masked_lm is None and "masked_lm_positions" not in model.input
    weights = weights_by_path(full)
    for variable in model.weights:
        variable.assign(weights[variable.path])
    batch = make_batch()
    expected = full(batch)["next_sentence_logits"]
    del batch["masked_lm_positions"]
    outputs = model(batch)
    assert list(outputs) == ["next_sentence_logits"]
    np.testing.assert_array_equal(outputs["next_sentence_logits"], expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mlm": False, "nsp": False}, "mlm=False, nsp=False: expected at least one head"),
        ({"pooler": False}, "pooler=False: nsp=True requires the pooler"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        BertPretrainer(TINY, **arguments)


def test_embeddings_are_tied():
    model = made(BertPretrainer, dtype="float64")
    batch = make_batch()
    table = model.encoder.embeddings.word_embeddings
    used = np.unique(batch["input_word_ids"])
    unused = sorted(set(range(15)) - set(used))
    assert unused and sum(v is table for v in model.weights) == 1

    def gradient(loss):
        with tf.GradientTape() as tape:
            value = loss(model(batch))
        return tf.convert_to_tensor(tape.gradient(value, table.value)).numpy()

    # The head has gradients for all words, the lookup only for those of the input.
    head = gradient(lambda outputs: tf.reduce_sum(outputs["masked_lm_logits"] ** 2))
    embedding_lookup = gradient(lambda outputs: tf.reduce_sum(outputs["next_sentence_logits"] ** 2))
    assert np.abs(head[unused]).max() > 1e-3
    assert not embedding_lookup[unused].any() and np.abs(embedding_lookup[used]).max() > 1e-3

    before = model(batch)["masked_lm_logits"].numpy()
    table.assign(table.numpy() + np.eye(15, 8))
    assert np.abs(model(batch)["masked_lm_logits"] - before).max() > 1e-2


def test_further_features_are_ignored(recwarn):
    model = made(BertPretrainer)
    batch = make_batch()
    outputs = model({**batch, "cursor": np.zeros((2, 3), "int32")})
    np.testing.assert_array_equal(outputs["masked_lm_logits"], model(batch)["masked_lm_logits"])
    assert not [w for w in recwarn if "structure" in str(w.message)]


def test_masked_lm_head_with_custom_activation_and_epsilon():
    model = randomize(BertPretrainer(TINY, mlm_activation="relu", mlm_layer_norm_eps=0.5))
    same = randomize(BertPretrainer(dataclasses.replace(TINY, hidden_act="relu")))
    batch = make_batch()
    states = model.encoder(batch)["sequence_output"]
    hidden = np.take_along_axis(np.array(states), batch["masked_lm_positions"][:, :, None], axis=1)
    weights = {key.split("masked_lm/")[-1]: v for key, v in weights_by_path(model).items()}
    hidden = np.maximum(hidden @ weights["dense/kernel"] + weights["dense/bias"], 0.0)
    centered = hidden - hidden.mean(-1, keepdims=True)
    hidden = centered / np.sqrt(hidden.var(-1, keepdims=True) + 0.5)
    hidden = hidden * weights["layer_norm/gamma"] + weights["layer_norm/beta"]
    table = weights["bert_encoder/embeddings/word_embeddings"]
    expected = hidden @ table.T + weights["output_bias"]
    np.testing.assert_allclose(model(batch)["masked_lm_logits"], expected, atol=1e-4)
    assert np.abs(model(batch)["masked_lm_logits"] - same(batch)["masked_lm_logits"]).max() > 0.1
