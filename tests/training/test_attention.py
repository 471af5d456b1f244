"""Attention in groups of texts, compared with ungrouped attention: outputs, gradients, dropout."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.layers import Dropout
from bert_tf.modeling.transformer import TokenRows, attend_full_batch
from bert_tf.training import attention
from bert_tf.training.compilation import Compilation
from tests.training.test_bfloat16 import needs_bfloat16

HEADS, SIZE = 2, 3
# Lengths: full, short, one token, with gaps, without the first token, padding only.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 1, 0, 0],
        [0, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ],
    np.int32,
)
RANDOM = np.random.default_rng(0)
PROJECTED = RANDOM.normal(size=(*MASK.shape, 3 * HEADS * SIZE))
# Outputs at padding do not affect the loss.
WEIGHTS = RANDOM.normal(size=(*MASK.shape, HEADS * SIZE)) * MASK[:, :, None]


@pytest.fixture(params=[1, 4], ids="groups of {}".format)
def texts(request, monkeypatch):
    scores = HEADS * MASK.shape[1] ** 2
    monkeypatch.setattr(attention, "_MAX_SCORES", request.param * scores)
    return request.param


def contexts_and_gradient(attend, without_padding, projected=PROJECTED, shape=MASK.shape):
    """Returns the contexts of real tokens, their weighted sum, and its gradient.

    ``shape`` is the static shape of the mask in a graph; if it is fully known, no graph is built.
    """

    def compute(projected, mask):
        rows = TokenRows(mask, without_padding)
        with tf.GradientTape() as tape:
            tape.watch(projected)
            contexts = rows.to_batch(attend(rows.from_batch(projected), rows))
            total = tf.reduce_sum(contexts * WEIGHTS)
        return contexts * MASK[:, :, None], total, tape.gradient(total, projected)

    if None in shape:
        specs = [tf.TensorSpec([*shape, PROJECTED.shape[-1]], tf.float64)]
        specs += [tf.TensorSpec(shape, tf.int32)]
        compute = tf.function(compute, input_signature=specs, autograph=False)
    return compute(tf.constant(projected), tf.constant(MASK))


def grouped_attention(rate=0.0, seed=0, causal=False):
    """Returns attention in groups that draws the same dropout mask on each call."""
    dropout = Dropout(rate, keras.random.SeedGenerator(0, name="seed"))
    state = dropout.seed_generator.state

    def attend(projected, rows):
        with keras.StatelessScope(state_mapping=[(state, tf.constant([seed, 0], tf.int64))]):
            return attention.attend_in_groups(projected, rows, HEADS, dropout, causal)

    return attend


def ungrouped_attention(causal):
    return lambda *given: attend_full_batch(*given, HEADS, lambda weights: weights, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("without_padding", [True, False])
def test_grouped_attention_equals_ungrouped_attention(texts, without_padding, causal):
    ours = contexts_and_gradient(grouped_attention(causal=causal), without_padding)
    theirs = contexts_and_gradient(ungrouped_attention(causal), without_padding)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("texts", "shape"), [(1, (None, None)), (4, (len(MASK), None))], indirect=["texts"]
)
def test_dynamic_shapes_equal_static_shapes(texts, shape):
    """In fine-tuning, the texts of each batch have other lengths."""
    attend = grouped_attention(rate=0.5, seed=3)
    ours = contexts_and_gradient(attend, True, shape=shape)
    theirs = contexts_and_gradient(attend, True)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_loop_is_used_only_for_many_scores():
    # The longest of three texts is expected to have 400 tokens; a quarter are longer.
    lengths = np.array([500, 100, 400, 300, 200])
    assert 3 * 9 * 400**2 > attention._MAX_SCORES > 3 * 8 * 400**2
    assert attention.choose_attention(lengths, 3, 9) is attention.attend_in_groups
    assert attention.choose_attention(lengths, 3, 8) is None
    assert Compilation("CPU").groups_attention
    assert not Compilation("GPU").groups_attention and not Compilation("CPU", True).groups_attention


def test_gradient_with_dropout_equals_derivative(texts):
    attend = grouped_attention(rate=0.5)
    direction = np.random.default_rng(1).normal(size=PROJECTED.shape) * MASK[:, :, None]
    _, _, gradient = contexts_and_gradient(attend, True)
    ahead, behind = (
        float(contexts_and_gradient(attend, True, PROJECTED + step * direction)[1])
        for step in (1e-5, -1e-5)
    )
    assert np.sum(gradient * direction) == pytest.approx((ahead - behind) / 2e-5, rel=1e-7)


def test_masks_are_independent_and_match_dropout_rate(texts, monkeypatch):
    """With equal scores and values of 1, a context is the scaled fraction of kept weights."""
    length = 65  # odd: two elements share a word
    monkeypatch.setattr(attention, "_MAX_SCORES", texts * HEADS * length**2)
    mask = tf.ones((6, length), tf.int32)
    rows = TokenRows(mask, without_padding=True)
    projected = np.concatenate([np.zeros((6 * length, 12)), np.ones((6 * length, 6))], axis=1)

    def kept_counts(seed):
        contexts = grouped_attention(0.25, seed)(tf.constant(projected), rows)
        shares = contexts.numpy().reshape(6, length, HEADS, SIZE) * length * 0.75
        np.testing.assert_allclose(shares, np.round(shares), atol=1e-9)
        np.testing.assert_allclose(shares, shares[..., :1].repeat(SIZE, axis=-1), atol=1e-9)
        return np.round(shares[..., 0])

    counts = kept_counts(seed=1)
    # Within five standard deviations for all draws, and for the variance of the counts per query.
    draws = counts.size * length
    assert abs(counts.sum() / draws - 0.75) < 5 * np.sqrt(0.1875 / draws)
    assert abs(counts.var() / (length * 0.1875) - 1.0) < 5 * np.sqrt(2 / counts.size)
    for axis in (0, 2):  # between texts of the same and of different groups, and between heads
        pairs = np.corrcoef(np.moveaxis(counts, axis, 0).reshape(counts.shape[axis], -1))
        others = pairs[~np.eye(len(pairs), dtype=bool)]
        assert np.abs(others).max() < 5 / np.sqrt(counts.size / counts.shape[axis])
    np.testing.assert_array_equal(kept_counts(seed=1), counts)
    assert (kept_counts(seed=2) != counts).any()


@needs_bfloat16
def test_bfloat16_contexts_are_unbiased(texts, monkeypatch):
    """With the same masks, a rounded scale changes the mean by 0.16%."""
    length = 64
    monkeypatch.setattr(attention, "_MAX_SCORES", texts * HEADS * length**2)
    mask = tf.ones((6, length), tf.int32)
    rows = TokenRows(mask, without_padding=True)
    values = np.random.default_rng(0).uniform(1, 2, size=(6 * length, 6))
    projected = tf.constant(np.concatenate([np.zeros((6 * length, 12)), values], axis=1))
    contexts = [
        grouped_attention(0.1, seed)(tf.cast(projected, dtype), rows)
        for seed in range(4)
        for dtype in ("float64", "bfloat16")
    ]
    means = [float(tf.reduce_mean(tf.cast(each, "float64"))) for each in contexts]
    assert np.mean(means[1::2]) == pytest.approx(np.mean(means[::2]), rel=5e-4)


def test_few_scores_are_computed_without_groups():
    rows = TokenRows(tf.constant(MASK), without_padding=True)
    projected = rows.from_batch(tf.constant(PROJECTED))
    dropout = Dropout(0.5, keras.random.SeedGenerator(0, name="seed"))
    state = dropout.seed_generator.state
    outputs = []
    for attend, layer in (
        (attention.attend_in_groups, dropout),
        (attend_full_batch, lambda weights: dropout(weights, training=True)),
    ):
        with keras.StatelessScope(state_mapping=[(state, tf.constant([5, 0], tf.int64))]):
            outputs.append(attend(projected, rows, HEADS, layer))
    np.testing.assert_array_equal(*outputs)
