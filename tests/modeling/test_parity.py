"""The same weights in an independent implementation give the same outputs."""

import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from tests.modeling.conftest import make_batch


def copy_to_torch(model, other):
    """Copies a ``BertPretrainer``'s weights into a transformers ``BertForPreTraining``."""
    import torch

    weights = {v.path: v.numpy() for v in model.weights}
    used = {"bert_encoder/embeddings/word_embeddings"}

    def take(path):
        used.add(path)
        return weights[path]

    def put(parameter, values):
        assert tuple(parameter.shape) == values.shape
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values.copy()))

    def put_dense(linear, path):
        put(linear.weight, take(path + "/kernel").T)
        put(linear.bias, take(path + "/bias"))

    def put_norm(norm, path):
        put(norm.weight, take(path + "/gamma"))
        put(norm.bias, take(path + "/beta"))

    embeddings = other.bert.embeddings
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        put(getattr(embeddings, name).weight, take(f"bert_encoder/embeddings/{name}"))
    put_norm(embeddings.LayerNorm, "bert_encoder/embeddings/layer_norm")
    for index, layer in enumerate(other.bert.encoder.layer):
        path = f"bert_encoder/layer_{index}/"
        kernels = np.split(take(path + "attention/query_key_value/kernel"), 3, axis=1)
        biases = np.split(take(path + "attention/query_key_value/bias"), 3)
        for name, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True):
            put(getattr(layer.attention.self, name).weight, kernel.T)
            put(getattr(layer.attention.self, name).bias, bias)
        put_dense(layer.attention.output.dense, path + "attention/output")
        put_norm(layer.attention.output.LayerNorm, path + "attention_layer_norm")
        put_dense(layer.intermediate.dense, path + "intermediate")
        put_dense(layer.output.dense, path + "output")
        put_norm(layer.output.LayerNorm, path + "output_layer_norm")
    put_dense(other.bert.pooler.dense, "bert_encoder/pooler/dense")
    head = "bert_pretrainer/masked_lm/"
    put_dense(other.cls.predictions.transform.dense, head + "dense")
    put_norm(other.cls.predictions.transform.LayerNorm, head + "layer_norm")
    put(other.cls.predictions.bias, take(head + "output_bias"))
    put_dense(other.cls.seq_relationship, "bert_pretrainer/next_sentence/dense")
    assert used == set(weights)


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "activation"),
    [("bert-base", "gelu"), ("bert-tiny", "gelu_new"), ("bert-tiny", "relu")],
)
def test_equals_transformers(preset, activation):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = BertConfig.from_preset(preset, hidden_act=activation)
    model = BertPretrainer(config)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        # Every bias and scale away from its start, at the size that training gives them.
        if variable.path.endswith(("bias", "beta", "gamma")):
            noise = rng.normal(size=variable.shape) * 0.05
            variable.assign(variable.numpy() + noise)
    other = transformers.BertForPreTraining(transformers.BertConfig(**config.to_dict())).eval()
    copy_to_torch(model, other)

    batch = make_batch(sequence=64, predictions=10, vocab_size=config.vocab_size)
    outputs = model(batch)
    states = model.encoder(batch)
    with torch.no_grad():
        expected = other(
            input_ids=torch.from_numpy(batch["input_word_ids"]).long(),
            attention_mask=torch.from_numpy(batch["input_mask"]).long(),
            token_type_ids=torch.from_numpy(batch["input_type_ids"].copy()).long(),
            output_hidden_states=True,
        )
    real = batch["input_mask"].astype(bool)
    hidden = [states["embedding_output"], *states["encoder_outputs"]]
    assert len(hidden) == len(expected.hidden_states) == config.num_hidden_layers + 1
    for ours, theirs in zip(hidden, expected.hidden_states, strict=True):
        np.testing.assert_allclose(ours.numpy()[real], theirs.numpy()[real], atol=1e-5)
    rows = np.arange(2)[:, None]
    np.testing.assert_allclose(
        outputs["masked_lm_logits"],
        expected.prediction_logits.numpy()[rows, batch["masked_lm_positions"]],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        outputs["next_sentence_logits"], expected.seq_relationship_logits.numpy(), atol=1e-5
    )
