"""A causal model: no token sees one on its other side, however attention is computed."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import BertEncoder, BertPretrainer
from bert_tf.training import attention
from tests.modeling.conftest import TINY, encoder_batch, made

CAUSAL = dataclasses.replace(
    TINY, is_decoder=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)
RTL = dataclasses.replace(CAUSAL, right_to_left=True)
ONE_BLOCK = dataclasses.replace(RTL, num_hidden_layers=1)
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
    return tf.function(encoder, jit_compile=True)


WAYS = [at_inference, without_padding, in_training, recomputed]


def made_encoder(config=CAUSAL, dtype="float32"):
    encoder = made(BertEncoder, config, dtype=dtype)
    encoder.infers_without_padding = encoder.trains_without_padding = False
    encoder.recomputes_blocks, encoder.training_attention = False, None
    return encoder


@pytest.fixture(autouse=True)
def one_text_a_group(monkeypatch):
    monkeypatch.setattr(attention, "_MOST_SCORES", CAUSAL.num_attention_heads * SEQUENCE**2)


@pytest.mark.parametrize(
    ("way", "dtype"),
    [
        *((way, "float32") for way in (at_inference, in_training)),
        *((at_inference, f"mixed_{x}float16") for x in ("b", "")),
    ],
)
def test_a_later_token_changes_no_earlier_output(way, dtype):
    encode = way(made_encoder(dtype=dtype))
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
    [*((way, config) for way in WAYS for config in (CAUSAL, RTL)), (compiled, ONE_BLOCK)],
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


def test_the_loss_has_no_gradient_of_what_is_later():
    """Of the loss at a position, which predicts the next token, by what enters the first block."""
    model = made(BertPretrainer, CAUSAL, nsp=False)
    model.encoder.trains_without_padding = True
    model.encoder.training_attention = attention.attend_in_groups
    batch = encoder_batch(sequence=SEQUENCE)
    ids, mask = batch["input_word_ids"], tf.constant(batch["input_mask"])
    for place in (0, 3):
        entering = model.encoder.embeddings(ids, batch["input_type_ids"])
        with tf.GradientTape() as tape:
            tape.watch(entering)
            hidden = entering
            for block in model.encoder.blocks:
                hidden = block(hidden, mask, training=True)
            logits = model.masked_lm(hidden, tf.fill([2, 1], place), training=True)[:, 0]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, place + 1], logits)
            loss = losses[0]  # whose text has no padding
        gradient = tape.gradient(loss, entering).numpy()
        assert (gradient[0, place + 1 :] == 0).all() and (gradient[1] == 0).all()
        assert np.abs(gradient[0, : place + 1]).max(-1).min() > 1e-6
    assert features.POOLED_OUTPUT not in model.encoder.output
