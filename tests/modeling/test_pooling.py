import dataclasses

import numpy as np
import pytest

from bert_tf.choices import POOLINGS
from bert_tf.modeling import BertClassifier
from bert_tf.modeling.layers import Pooling, normalize, pool
from tests.modeling.conftest import TINY, encoder_batch, made, weights_by_path
from tests.modeling.numpy_bert import encode


def make(dtype="float32"):
    states = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(dtype)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "int32")
    return states, mask


@pytest.mark.parametrize("pooling", POOLINGS)
def test_equals_plain_loops(pooling):
    states, mask = make()
    pooled = np.asarray(pool(states, mask, pooling))
    if pooling == "none":
        np.testing.assert_array_equal(pooled, states)
        return
    for row in range(3):
        real = [state for state, is_real in zip(states[row], mask[row], strict=True) if is_real]
        for number in range(4):
            column = [float(state[number]) for state in real]
            expected = {"cls": column[0], "mean": sum(column) / len(column), "max": max(column)}
            expected["last"] = column[-1]
            assert pooled[row, number] == pytest.approx(expected[pooling], abs=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "last"])
@pytest.mark.parametrize("padding", [np.inf, np.nan, -1e30])
def test_what_padding_has_does_not_matter(pooling, padding):
    states, mask = make()
    expected = pool(states, mask, pooling)
    states[mask == 0] = padding
    np.testing.assert_array_equal(pool(states, mask, pooling), expected)


def test_normalized():
    vectors = np.random.default_rng(0).normal(size=(3, 2, 4)).astype("float32") * 50
    vectors[0, 1] = 0
    scaled = np.asarray(normalize(vectors))
    for index in np.ndindex(3, 2):
        length = sum(float(x) ** 2 for x in vectors[index]) ** 0.5
        np.testing.assert_allclose(scaled[index], vectors[index] / (length or 1), atol=1e-6)


# === Of a task's head ===


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_head_reads_all_real_tokens(pooling):
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
    # Training leaves padding out, and reads the same.
    model.encoder.trains_without_padding = True
    np.testing.assert_allclose(model(batch, training=True), logits, atol=1e-5)


def test_a_row_of_padding_gives_numbers():
    states, mask = make()
    mask[2] = 0
    for pooling in ("mean", "max"):
        read = np.asarray(Pooling(pooling)(states, mask))
        np.testing.assert_array_equal(read[2], states[2, 0])
        np.testing.assert_allclose(read[:2], pool(states[:2], mask[:2], pooling), atol=1e-6)


def test_half_precision_is_summed_in_float32():
    states = np.full((1, 4095, 1), 1.001, "float16")  # their sum is none of float16's numbers
    read = Pooling("mean", dtype="mixed_float16")(states, np.ones((1, 4095), "int32"))
    assert np.asarray(read).item() == pytest.approx(float(np.float16(1.001)), abs=1e-5)


def test_a_pooling_that_is_refused():
    with pytest.raises(ValueError, match="pooling is 'last', expected one of cls, mean, max"):
        BertClassifier(TINY, num_classes=3, pooling="last")
    with pytest.raises(ValueError, match="pooling is 'sum', expected one of none, cls, mean, max"):
        pool(*make(), "sum")
