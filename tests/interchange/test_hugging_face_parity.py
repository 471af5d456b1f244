"""Hugging Face's own models and ours: the same outputs; and back, nothing missing, bit for bit."""

import os

import numpy as np
import pytest

from bert_tf.interchange import hugging_face, model_directory
from bert_tf.interchange.load import load
from bert_tf.interchange.recognition import open_checkpoint

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# What transformers computed with these classes is recorded beside TensorFlow's files.
pytestmark = [pytest.mark.parity, pytest.mark.slow]

TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "type_vocab_size": 3,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-6,
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3,
}
# Each with the class that AutoModel... finds for it, and its config's further entries.
CLASSES = {
    "BertModel": ("AutoModel", {}),
    "BertForPreTraining": ("AutoModelForPreTraining", {}),
    "BertForMaskedLM": ("AutoModelForMaskedLM", {}),
    "BertLMHeadModel": ("AutoModelForCausalLM", {"is_decoder": True, "use_cache": False}),
    "BertForNextSentencePrediction": ("AutoModelForNextSentencePrediction", {}),
    "BertForSequenceClassification": (
        "AutoModelForSequenceClassification",
        {
            "id2label": {0: "no", 1: "yes", 2: "so so"},
            "label2id": {"no": 0, "yes": 1, "so so": 2},
            "classifier_dropout": 0.25,
        },
    ),
    "BertForTokenClassification": ("AutoModelForTokenClassification", {"num_labels": 5}),
    "BertForQuestionAnswering": ("AutoModelForQuestionAnswering", {}),
    "BertForMultipleChoice": ("AutoModelForMultipleChoice", {"classifier_dropout": 0.5}),
}


def make(name, seed=0, **config):
    """A model in which no weight has the value that it starts from."""
    model = getattr(transformers, name)(transformers.BertConfig(**config))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            deviation = 0.02 if parameter.ndim == 2 else 0.1
            noise = torch.randn(parameter.shape, generator=generator) * deviation
            parameter.copy_(noise + ("LayerNorm.weight" in path))
    return model.eval()


def batch(config, choices=0):
    random = np.random.default_rng(0)
    shape = (2, choices, 24) if choices else (3, 24)
    mask = np.ones(shape, "int32")
    mask[-1, ..., 17:] = 0
    return {
        "input_word_ids": random.integers(config.vocab_size, size=shape).astype("int32"),
        "input_mask": mask,
        "input_type_ids": mask * random.integers(config.type_vocab_size, size=shape, dtype="int32"),
    }  # fmt: skip


def their_outputs(model, inputs):
    names = {"input_word_ids": "input_ids", "input_mask": "attention_mask",
             "input_type_ids": "token_type_ids"}  # fmt: skip
    given = {names[key]: torch.from_numpy(value).long() for key, value in inputs.items()}
    with torch.no_grad():
        outputs = dict(model(**given, output_hidden_states=True))
    hidden = outputs.pop("hidden_states")
    arrays = {key: value.numpy() for key, value in outputs.items()}
    return {**arrays, **{f"hidden {i}": state.numpy() for i, state in enumerate(hidden)}}


def our_outputs(model, inputs):
    """By their names."""
    length = inputs["input_word_ids"].shape[-1]
    positions = np.broadcast_to(np.arange(length, dtype="int32"), inputs["input_word_ids"].shape)
    outputs = model({**inputs, "masked_lm_positions": positions})
    if not isinstance(outputs, dict):
        outputs = {"logits": outputs}
    states = outputs
    if "sequence_output" not in outputs:
        states = model.encoder({key: value.reshape(-1, length) for key, value in inputs.items()})
    hidden = [states["embedding_output"], *states["encoder_outputs"]]
    names = {
        "masked_lm_logits": "prediction_logits",
        "next_sentence_logits": "seq_relationship_logits",
        "sequence_output": "last_hidden_state",
        "pooled_output": "pooler_output",
    }
    if len(outputs) == 1:
        names = dict.fromkeys(outputs, "logits")
    arrays = {names.get(key, key): np.array(value) for key, value in outputs.items()
              if key not in ("encoder_outputs", "embedding_output")}  # fmt: skip
    return arrays | {f"hidden {i}": np.array(state) for i, state in enumerate(hidden)}


def largest_difference(model, path, **arguments):
    """Between all outputs of Hugging Face's model, and of ours that is loaded from a path."""
    ours = load(path, **arguments)
    inputs = batch(model.config, choices=3 if "MultipleChoice" in type(model).__name__ else 0)
    theirs = their_outputs(model, inputs)
    got = our_outputs(ours, inputs)
    assert got.keys() == theirs.keys()
    shapes = {key: value.shape for key, value in theirs.items()}
    assert {key: value.shape for key, value in got.items()} == shapes
    return max(np.max(np.abs(value - got[key])) for key, value in theirs.items())


def assert_back_again(model, folder, path):
    """To this library and back: nothing missing, nothing unexpected, every weight bit for bit."""
    model_directory.write(open_checkpoint(path), f"{folder}/ours")
    os.mkdir(f"{folder}/back")
    hugging_face.write(open_checkpoint(f"{folder}/ours"), f"{folder}/back")
    name = type(model).__name__
    again, report = getattr(transformers, CLASSES[name][0]).from_pretrained(
        f"{folder}/back", output_loading_info=True
    )
    assert type(again).__name__ == name
    # Sets, lists or dicts, by the version.
    assert not any(len(value) for value in report.values()), report
    state, expected = again.state_dict(), model.state_dict()
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(state[key], value.to(state[key].dtype)), key
    return again


@pytest.mark.parametrize(
    ("name", "activation"),
    [*((name, "gelu_new") for name in CLASSES), ("BertForPreTraining", "relu")],
)
def test_tiny(tmp_path, name, activation):
    model = make(name, **{**TINY, "hidden_act": activation}, **CLASSES[name][1])
    path = str(tmp_path / "theirs")
    model.save_pretrained(path)
    assert largest_difference(model, path) <= 5e-6
    again = assert_back_again(model, tmp_path, path)
    for key in (*TINY, "id2label", "label2id", "classifier_dropout", "num_labels"):
        assert getattr(again.config, key) == getattr(model.config, key), key
