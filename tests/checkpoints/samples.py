"""Checkpoints of every format: generated, or recorded with the outputs of their library."""

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from bert_tf import features
from bert_tf.checkpoints import conversion
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.config import BertConfig
from bert_tf.modeling import BertClassifier, BertEncoder, BertPretrainer
from bert_tf.modeling.pooling import SentenceEmbedding
from tests.checkpoints import hugging_face_files as hf
from tests.checkpoints.make_tf_model_data import CLASSES, FORMS
from tests.checkpoints.small_checkpoints import CASED, CONFIG, MODELS, UNCASED, make_checkpoint

DATA = pathlib.Path(__file__).parent / "data"
EMBEDDING = SentenceEmbedding("mean", normalize=True, max_seq_length=10)


class Sample(NamedTuple):
    """A checkpoint to load.

    ``make`` writes it to a path. ``outputs`` maps recorded output names to names in bert_tf.
    """

    format: str
    spec: ModelSpec
    make: Callable
    config: BertConfig | None = None
    recorded: pathlib.Path | None = None
    outputs: Mapping[str, str] = {}


# === Generated ===


def written(form, spec, config=CONFIG, *, read_as="", **fields):
    def make(path):
        path.mkdir()
        checkpoint = make_checkpoint(spec, config, **{"tokenization": UNCASED, **fields})
        conversion.write(checkpoint, str(path), form)

    return Sample(read_as or form, spec, make, config)


def with_literal_names(spec, shapes, **config):
    """Returns a sample with the literal names of ``hugging_face_files``."""

    def make(path):
        hf.write_directory(path, hf.random_tensors(shapes), **config)

    return Sample("huggingface", spec, make)


def sharded(path):
    hf.write_directory(path, {})
    (path / "model.safetensors").unlink()
    hf.write_shards(path, hf.random_tensors(hf.ENCODER))


# === Recorded: the KerasHub and Model Garden models were created with RECORDED_CONFIG ===

RECORDED_CONFIG = BertConfig(
    vocab_size=25,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.2,
    max_position_embeddings=16,
    type_vocab_size=3,
)
_HUB_NAMES = {
    "token_ids": "input_word_ids",
    "padding_mask": "input_mask",
    "segment_ids": "input_type_ids",
    "mask_positions": "masked_lm_positions",
}
_HUB_MASKED_LM = {
    **{"mlm": True, "nsp": False, "pooler": True},
    **{"mlm_activation": "gelu", "mlm_layer_norm_eps": 1e-5},
}
_TRANSFORMERS_NAMES = {
    "input_ids": "input_word_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "input_type_ids",
    "last_hidden_state": "sequence_output",
    "hidden_states": "encoder_outputs",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
}
# Dropout rates are omitted, because the recorded classes take them from their config.
_TRANSFORMERS_SPECS = {
    "model": MODELS["encoder"],
    "pre_training": MODELS["pretrainer"],
    "masked_lm": MODELS["masked lm"],
    "next_sentence": MODELS["next sentence"],
    "sequence_classification": ModelSpec(BertClassifier, {"num_classes": 3}),
    "token_classification": MODELS["token classifier"],
    "question_answering": MODELS["span predictor"],
    "multiple_choice": dataclasses.replace(MODELS["multiple choice"], arguments={}),
}


def recorded(form, folder, spec, outputs, config=None):
    source = DATA / folder
    return Sample(form, spec, lambda path: shutil.copytree(source, path), config, source, outputs)


def from_keras_hub(name, spec, layers=2, **outputs):
    config = dataclasses.replace(RECORDED_CONFIG, num_hidden_layers=layers)
    return recorded("keras_hub", f"keras_hub/{name}", spec, _HUB_NAMES | outputs, config)


def from_model_garden(name, spec, **rates):
    config = dataclasses.replace(
        RECORDED_CONFIG,
        **{"attention_probs_dropout_prob": 0.15, "initializer_range": 0.03, **rates},
    )
    return recorded("model_garden", f"model_garden/{name}", spec, {}, config)


def from_transformers(name, form=""):
    names = dict(_TRANSFORMERS_NAMES)
    if name in ("masked_lm", "next_sentence"):
        names["logits"] = f"{name}_logits"
    return recorded("huggingface", f"tf_model/{form or name}", _TRANSFORMERS_SPECS[name], names)


# Without a config file, the dropout rates are Model Garden's defaults.
DEFAULT_RATES = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)
DEFAULT_RATES["initializer_range"] = 0.02
CLASSIFIER = {**hf.ENCODER, **hf.POOLER, **hf.classifier(3)}
PRETRAINED = {**hf.ENCODER, **hf.POOLER, **hf.MASKED_LM, **hf.NEXT_SENTENCE}
DENSE = ModelSpec(BertEncoder, {"pooler": False, "dense_size": 5, "dense_activation": "linear"})
SAMPLES = {
    "bert_tf": written("bert_tf", MODELS["pretrainer"], sentence_embedding=EMBEDDING),
    "google": written("google_tf1", MODELS["classifier"]),
    "hf": with_literal_names(
        ModelSpec(BertClassifier, {"num_classes": 3}),
        CLASSIFIER,
        architectures=["BertForSequenceClassification"],
    ),
    "pretrained": with_literal_names(MODELS["pretrainer"], PRETRAINED),
    "sharded": Sample("huggingface", MODELS["encoder without pooler"], sharded),
    "distilbert": written(
        "huggingface",
        MODELS["token classifier"],
        dataclasses.replace(CONFIG, type_vocab_size=0, layer_norm_eps=1e-12),
    ),
    "st": written(
        "huggingface",
        MODELS["encoder"],
        read_as="sentence_transformers",
        **{"tokenization": CASED, "sentence_embedding": EMBEDDING},
    ),
    "dense": written(
        "huggingface", DENSE, read_as="sentence_transformers", sentence_embedding=EMBEDDING
    ),
    "hub shards": from_keras_hub("sharded", MODELS["encoder"], layers=1),
    "hub masked_lm": from_keras_hub(
        "masked_lm", ModelSpec(BertPretrainer, _HUB_MASKED_LM), logits="masked_lm_logits"
    ),
    "hub": from_keras_hub(
        "classifier", ModelSpec(BertClassifier, {"num_classes": 3, "dropout": 0.3})
    ),
    "garden": from_model_garden("encoder", MODELS["encoder"]),
    "garden pretrainer": from_model_garden("pretrainer", MODELS["pretrainer"], **DEFAULT_RATES),
    "garden old": from_model_garden("old_pretrainer", MODELS["pretrainer"], **DEFAULT_RATES),
    **{name: from_transformers(name) for name in CLASSES},
    **{f"tf {form}": from_transformers(name, form) for form, (name, _) in FORMS.items()},
}


def assert_outputs_equal_recorded(model, sample):
    """Compares the outputs of a model with those recorded in ``outputs.npz``."""
    with np.load(sample.recorded / "outputs.npz") as file:
        arrays = {sample.outputs.get(name, name): file[name] for name in file.files}
    shape = arrays["input_word_ids"].shape
    positions = np.broadcast_to(np.arange(shape[-1], dtype="int32"), shape)
    inputs = {"masked_lm_positions": positions, **arrays}
    outputs = model({name: inputs[name] for name in model.input})
    found = dict(outputs) if isinstance(outputs, dict) else {"logits": outputs}
    encoder = getattr(model, "encoder", model)
    if len(shape) == 2:
        found.update(encoder({name: arrays[name] for name in encoder.input}))
    compared = set(arrays) - set(features.ENCODER_FEATURES) - {features.MASKED_LM_POSITIONS}
    assert compared
    for name in compared:
        value, expected = np.array(found[name]), arrays[name]
        if name == "encoder_outputs":
            expected = expected[1:]  # transformers includes the embeddings
        expected = expected.reshape(value.shape)
        np.testing.assert_allclose(value, expected, rtol=0, atol=2e-5, err_msg=name)
