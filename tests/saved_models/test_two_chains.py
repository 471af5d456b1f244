"""Two chains of operations equal the encoder for all variants of blocks."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.answering.served import Columns, TwoChains, encode
from bert_tf.modeling import BertEncoder

CONFIG = BertConfig.from_preset("bert-tiny", vocab_size=40, hidden_size=24, num_attention_heads=2)
CONFIGS = {
    "an even number of heads": {},
    "an odd one": {"num_attention_heads": 3, "intermediate_size": 37},
    "one head": {"num_attention_heads": 1, "intermediate_size": 1},
    "from left to right": {"is_decoder": True},
    "the tanh": {"hidden_act": "gelu_new"},
}


@pytest.fixture(params=CONFIGS, ids=str)
def encoder(request):
    keras.utils.set_random_seed(3)
    encoder = BertEncoder(dataclasses.replace(CONFIG, **CONFIGS[request.param]))
    rng = np.random.default_rng(3)
    for weight in encoder.weights:  # including biases, which are otherwise 0
        if weight.dtype == "float32":
            weight.assign(rng.normal(0.2, 0.3, weight.shape))
    return encoder


def inputs(mask):
    ids = np.random.default_rng(4).integers(0, 40, np.shape(mask))
    tensors = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": ids % 2}
    return {name: tf.constant(values, tf.int32) for name, values in tensors.items()}


def encode_in_chains(encoder, features, unpadded):
    plan = TwoChains(lambda one, columns: columns.select(one.value))
    return encode(encoder, plan, unpadded, features)


def assert_close(outputs, expected, selected=...):
    outputs, expected = tf.nest.flatten(outputs), tf.nest.flatten(expected)
    for one, other in zip(outputs, expected, strict=True):
        one, other = one.numpy(), other.numpy()
        if one.ndim == 3:
            one, other = one[selected], other[selected]
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_padded_rows_equal_the_encoder(encoder):
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    features = inputs(mask)
    outputs = encode_in_chains(encoder, features, unpadded=False)
    assert_close(outputs, encoder(features), selected=mask == 1)
    assert not outputs["sequence_output"].numpy()[mask == 0].any()


def test_rows_of_equal_length_equal_the_encoder(encoder):
    features = inputs(np.ones((2, 5)))
    assert_close(encode_in_chains(encoder, features, unpadded=True), encoder(features))


def test_columns_are_selected_per_group():
    values = tf.constant([[0, 1, 2, 3, 4, 5, 6, 7, 8]])
    assert Columns(3, 1, 3).select(values).numpy().tolist() == [[1, 2, 4, 5, 7, 8]]
    assert Columns(1, 0, 2).select(values[0]).numpy().tolist() == [0, 1]
