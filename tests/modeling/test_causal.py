"""A causal model: no token sees a later one, however attention is computed."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertEncoder
from bert_tf.training import attention
from tests.modeling.conftest import TINY, encoder_batch, made

CAUSAL = dataclasses.replace(
    TINY, is_decoder=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)
ONE_BLOCK = dataclasses.replace(CAUSAL, num_hidden_layers=1)
SEQUENCE = 6


def at_inference(encoder):
    return encoder


def without_padding(encoder):
    encoder.infers_without_padding = True
    return encoder


def in_training(encoder):
    encoder.trains_without_padding = True
    encoder.training_attention = attention.attend_in_groups
    return functools.partial(encoder, training=True)


def recomputed(encoder):
    encoder.recomputes_blocks = True
    return lambda batch: encoder(batch, training=True)


def compiled(encoder):
    return tf.function(encoder, jit_compile=True, autograph=False)


WAYS = [at_inference, without_padding, in_training, recomputed]


def made_encoder(config=CAUSAL, dtype="float32"):
    encoder = made(BertEncoder, config, dtype=dtype)
    encoder.infers_without_padding = encoder.trains_without_padding = False
    encoder.recomputes_blocks, encoder.training_attention = False, None
    return encoder


@pytest.fixture(autouse=True)
def one_text_a_group(monkeypatch):
    monkeypatch.setattr(attention, "_MOST_SCORES", CAUSAL.num_attention_heads * SEQUENCE**2)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_later_token_changes_no_earlier_output(dtype):
    """In float32 the outputs are those of plain loops."""
    encode = made_encoder(dtype=dtype)
    batch = encoder_batch(sequence=SEQUENCE)
    expected = np.array(encode(batch)["sequence_output"])
    for place in (2, 5):
        changed = {key: value.copy() for key, value in batch.items()}
        changed["input_word_ids"][:, place] = (batch["input_word_ids"][:, place] + 1) % 15
        states = np.array(encode(changed)["sequence_output"])
        np.testing.assert_array_equal(states[:, :place], expected[:, :place])
        assert (states[0, place:] != expected[0, place:]).any(-1).all()  # what is later sees it


@pytest.mark.parametrize(
    ("way", "config"),
    [*((way, CAUSAL) for way in WAYS), pytest.param(compiled, ONE_BLOCK, marks=pytest.mark.slow)],
)
def test_the_ways_agree_and_padding_changes_nothing(way, config):
    encoder = made_encoder(config)
    batch = encoder_batch()
    expected, encode = encoder(batch), way(encoder)
    real = batch["input_mask"].astype(bool)
    without = {**batch, "input_word_ids": batch["input_word_ids"] * real}
    for outputs in (encode(batch), encode(without)):
        states = np.array(outputs["sequence_output"])[real]
        np.testing.assert_allclose(states, expected["sequence_output"][real], atol=1e-5)
        np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-5)
