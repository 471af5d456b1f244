"""Comparison with transformers' PyTorch classes, with random weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf.transformers as successor

pytestmark = pytest.mark.parity
IDS = np.random.default_rng(0).integers(5, 50, (2, 3, 7))
MASK = np.ones_like(IDS)
MASK[1, :, 5:] = 0
_BOTH = (
    *("Model", "ForMaskedLM", "ForMultipleChoice", "ForQuestionAnswering"),
    *("ForSequenceClassification", "ForTokenClassification"),
)
CASES = [
    *(("Bert", head) for head in (*_BOTH, "ForPreTraining", "ForNextSentencePrediction")),
    *(("DistilBert", head) for head in _BOTH),
    ("Bert", "LMHeadModel"),
]


def _peer(family, head, **settings):
    """Creates a tiny PyTorch model with large random weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    shared = {"vocab_size": 50, "max_position_embeddings": 32, "num_labels": 2}
    if head == "ForTokenClassification":
        shared["num_labels"] = 3
    if head == "LMHeadModel":
        shared["is_decoder"] = True
    sizes = {
        "Bert": {
            **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
            "intermediate_size": 32,
        },
        "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    }[family]
    config = getattr(transformers, f"{family}Config")(**sizes, **shared, **settings)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, family + head)(config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model


def _outputs(model, ids, mask, **options):
    import torch

    with torch.no_grad():
        return model(torch.tensor(ids), attention_mask=torch.tensor(mask), **options)


@pytest.mark.parametrize(("family", "head"), CASES)
def test_outputs_and_round_trip(tmp_path, family, head):
    peer = _peer(family, head)
    peer.save_pretrained(tmp_path / "theirs")
    model = getattr(successor, f"TF{family}{head}").from_pretrained(tmp_path / "theirs")
    rows = np.s_[:] if head == "ForMultipleChoice" else np.s_[:, 0]
    ids, mask = IDS[rows], MASK[rows]
    wants = {"output_hidden_states": True, "output_attentions": True}
    expected, found = _outputs(peer, ids, mask, **wants), model(ids, attention_mask=mask, **wants)
    for name, tensors in found.items():
        several = isinstance(tensors, tuple)
        others = expected[name] if several else [expected[name]]
        for one, other in zip(tensors if several else [tensors], others, strict=True):
            np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=0, atol=2e-6)
    model.save_pretrained(tmp_path / "ours")
    again, report = type(peer).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    kept, expected = again.config.to_dict(), peer.config.to_dict()
    odd = {key for key, value in expected.items() if kept.get(key) != value}
    assert odd <= {"_name_or_path", "dtype"}
    back = _outputs(again.eval(), ids, mask)[0]
    np.testing.assert_allclose(back.numpy(), _outputs(peer, ids, mask)[0].numpy(), atol=2e-6)


_WORDS = {"labels": np.where(IDS[:, 0] % 2, IDS[:, 0], -100)}
# Labels of each head, some of which are ignored.
LABELS = {
    "ForMaskedLM": _WORDS,
    "ForPreTraining": _WORDS | {"next_sentence_label": np.array([1, -100])},
    "LMHeadModel": _WORDS,
    "ForTokenClassification": {"labels": np.where(IDS[:, 0] % 2, IDS[:, 0] % 3, -100)},
    "ForSequenceClassification": {"labels": np.array([-100, 1])},
    "ForMultipleChoice": {"labels": np.array([2, -100])},
    # A position after the row means that the answer was truncated.
    "ForQuestionAnswering": {
        "start_positions": np.array([1, 7]),
        "end_positions": np.array([2, 9]),
    },
    # The TensorFlow loss was the mean over all rows; PyTorch's excludes ignored labels.
    "ForNextSentencePrediction": {"next_sentence_label": np.array([1, 0])},
}


@pytest.mark.parametrize("head", LABELS)
def test_training_step_equals_pytorch(tmp_path, head):
    torch = pytest.importorskip("torch")
    peer = _peer("Bert", head, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    peer.save_pretrained(tmp_path / "theirs")
    rows = np.s_[:] if head == "ForMultipleChoice" else np.s_[:, 0]
    batch = {"input_ids": IDS[rows], "attention_mask": MASK[rows], **LABELS[head]}
    theirs = {"next_sentence_label": "labels"} if "NextSentence" in head else {}
    loss = peer(**{theirs.get(key, key): torch.tensor(batch[key]) for key in batch}).loss
    loss.backward()
    torch.optim.SGD(peer.parameters(), 0.1).step()
    for policy, way, tolerance in (("float32", "tape", 1e-6), ("mixed_float16", "fit", 2e-3)):
        keras.config.set_dtype_policy(policy)
        try:
            model = getattr(successor, f"TFBert{head}").from_pretrained(tmp_path / "theirs")
        finally:
            keras.config.set_dtype_policy("float32")
        optimizer = keras.optimizers.SGD(0.1)
        if way == "fit":
            model.compile(optimizer, run_eagerly=True)
            found = model.fit(batch, verbose=0).history["loss"][0]
        else:
            with tf.GradientTape() as tape:
                found = tf.reduce_mean(model(batch, training=True).loss)
            gradients = tape.gradient(found, model.trainable_weights)
            optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
        np.testing.assert_allclose(found, loss.item(), atol=tolerance)
        model.save_pretrained(tmp_path / "ours")
        again = type(peer).from_pretrained(tmp_path / "ours").state_dict()
        for name, value in peer.state_dict().items():
            np.testing.assert_allclose(again[name], value, rtol=0, atol=tolerance, err_msg=name)


def test_inputs_embeds_and_position_ids(tmp_path):
    torch = pytest.importorskip("torch")
    peer = _peer("Bert", "ForSequenceClassification")
    peer.save_pretrained(tmp_path)
    model = successor.TFBertForSequenceClassification.from_pretrained(tmp_path)
    vectors = np.random.default_rng(1).normal(size=(2, 5, 16)).astype("float32")
    positions = np.array([[4, 3, 2, 1, 0]])
    types = np.array([[0, 0, 1, 1, 1]] * 2)
    with torch.no_grad():
        expected = peer(
            inputs_embeds=torch.tensor(vectors),
            position_ids=torch.tensor(positions),
            token_type_ids=torch.tensor(types),
        ).logits
    found = model(inputs_embeds=vectors, position_ids=positions, token_type_ids=types).logits
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=2e-6)
