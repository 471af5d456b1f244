"""A model small enough for plain loops, with weights that leave no term at its initial value."""

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


def randomise(model, seed=0):
    """Sets every weight: kernels of deviation 0.5, gammas about 1, biases about 0."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        values = rng.normal(size=variable.shape) * 0.5
        variable.assign(values + 1.0 if variable.path.endswith("gamma") else values)
    return model


@functools.cache
def _built(model_class, config, **arguments):
    return model_class(config, **arguments)


def made(model_class, config=TINY, seed=0, **arguments):
    """A random model, built once for all who ask for the same: they may change weights alone."""
    return randomise(_built(model_class, config, **arguments), seed)


def make_batch(seed=0, batch=2, sequence=6, predictions=3, vocab_size=15):
    """A batch of ``ENCODER_FEATURES`` and ``MASKED_LM_POSITIONS``; all but row 0 are padded."""
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
    random.seed(0)  # what Keras draws seeds from; its own function clears TensorFlow's kernels
