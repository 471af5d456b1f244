"""Fixtures: a model for comparison with plain loops, with random values of all weights."""

import functools
import random

import keras
import numpy as np
import pytest

from bert_tf import features
from bert_tf.config import BertConfig

TINY = BertConfig(
    vocab_size=15, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=12,
)  # fmt: skip


def randomize(model, seed=0):
    """Randomizes all weights: kernels with deviation 0.5, gammas near 1, biases near 0."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        values = rng.normal(size=variable.shape) * 0.5
        variable.assign(values + 1.0 if variable.path.endswith("gamma") else values)
    return model


@functools.cache
def _built(model_class, config, **arguments):
    return model_class(config, **arguments)


def made(model_class, config=TINY, seed=0, **arguments):
    """Builds a random model, cached by its arguments; tests may only change its weights."""
    return randomize(_built(model_class, config, **arguments), seed)


def make_batch(seed=0, batch=2, sequence=6, predictions=3, vocab_size=15):
    """Builds a batch with ``MASKED_LM_POSITIONS``; all rows except the first are padded."""
    rng = np.random.default_rng(seed)
    mask = np.ones((batch, sequence), "int32")
    mask[1:, sequence - 2 :] = 0
    positions = np.sort(
        np.stack([rng.permutation(sequence)[:predictions] for _ in range(batch)]), axis=1
    )
    types = np.arange(sequence)[None] >= sequence // 2
    return {
        features.INPUT_WORD_IDS: rng.integers(0, vocab_size, (batch, sequence)).astype("int32"),
        features.INPUT_MASK: mask,
        features.INPUT_TYPE_IDS: np.broadcast_to(types, mask.shape).astype("int32") * mask,
        features.MASKED_LM_POSITIONS: positions.astype("int32"),
    }


def encoder_batch(**kwargs):
    batch = make_batch(**kwargs)
    return {key: batch[key] for key in features.ENCODER_FEATURES}


def weights_by_path(model):
    return {v.path: keras.ops.convert_to_numpy(v).astype("float64") for v in model.weights}


@pytest.fixture(autouse=True)
def _seed():
    random.seed(
        0
    )  # the source of Keras' seeds; keras.utils.set_random_seed would clear TensorFlow's kernels
