"""Checkpoints of google-research/bert: released names and the outputs of a real file."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import load
from bert_tf.checkpoints import google
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.modeling import BertClassifier, BertPretrainer, BertSpanPredictor
from tests.checkpoints.small_checkpoints import MODELS, PIECES, make_checkpoint
from tests.modeling import numpy_bert

# === Real checkpoint ===


@pytest.fixture
def toy(data_dir):
    return data_dir / "checkpoints" / "toy_tf1"


def test_toy_checkpoint_is_read(toy):
    checkpoint = google.read_checkpoint(str(toy))
    assert checkpoint.model == ModelSpec(BertPretrainer, {"mlm": True, "nsp": True, "pooler": True})
    reader = tf.train.load_checkpoint(str(toy / "bert_model.ckpt"))
    names = {tensor.name for tensor in checkpoint.tensors.values()}
    slots = {name for name in checkpoint.unused if "adam" in name}
    assert len(slots) >= 90 and {*checkpoint.unused} == slots | {"global_step"}
    assert names | {*checkpoint.unused} == reader.get_variable_to_shape_map().keys()
    assert checkpoint.tokenization.vocabulary[-1] == "boy"


def _variables(reader):
    """Returns the tensors under the names of numpy_bert, with fused query, key and value."""
    weights = {}
    for name in reader.get_variable_to_shape_map():
        value = np.float64(reader.get_tensor(name))
        for old, new in (
            ("bert/encoder/", "bert/"),
            ("bert/", "bert_encoder/"),
            ("predictions/transform/", "predictions/"),
            ("attention/self/", "attention/"),
            ("attention/output/LayerNorm", "attention_layer_norm"),
            ("output/LayerNorm", "output_layer_norm"),
            ("LayerNorm", "layer_norm"),
            ("intermediate/dense", "intermediate"),
            ("output/dense", "output"),
        ):
            name = name.replace(old, new)
        weights[name] = value
    for layer in range(2):
        prefix = f"bert_encoder/layer_{layer}/attention/"
        for leaf in ("kernel", "bias"):
            parts = [weights[f"{prefix}{part}/{leaf}"] for part in ("query", "key", "value")]
            weights[f"{prefix}query_key_value/{leaf}"] = np.concatenate(parts, -1)
    return weights


def test_toy_outputs_equal_numpy_implementation(toy):
    reader = tf.train.load_checkpoint(str(toy / "bert_model.ckpt"))
    weights = _variables(reader)
    model = load(str(toy))
    batch = model.preprocessor((["all work and no play"], ["makes jack a dull boy"]))
    # 15 of 16 positions; the last two are padding.
    batch = {key: np.array(value)[:, :15] for key, value in batch.items()}
    assert batch["input_mask"].sum() == 13 and batch["input_type_ids"].sum() == 6
    outputs = model({**batch, "masked_lm_positions": np.arange(13)[None]})
    names = ("input_word_ids", "input_mask", "input_type_ids")
    states, pooled = numpy_bert.encode(weights, model.config, *(batch[name][0] for name in names))
    hidden = model.encoder(batch)["sequence_output"]
    np.testing.assert_allclose(hidden[0][:13], states[-1][:13], atol=1e-5)
    logits = [
        numpy_bert.masked_lm_logits(weights, model.config, state, "cls/predictions/")
        for state in states[-1][:13]
    ]
    np.testing.assert_allclose(outputs["masked_lm_logits"][0], logits, atol=1e-5)
    follows = pooled @ weights["cls/seq_relationship/output_weights"].T
    follows = follows + weights["cls/seq_relationship/output_bias"]
    np.testing.assert_allclose(outputs["next_sentence_logits"][0], follows, atol=1e-5)


def test_all_names_of_a_released_checkpoint_are_used(data_dir):
    folder = data_dir / "checkpoints" / "chinese_L-12_H-768_A-12_names_only"
    checkpoint = google.read_checkpoint(str(folder))
    assert checkpoint.unused == () and len(checkpoint.tensors) == 206


# === Model and casing ===


def _write(folder, spec):
    folder.mkdir()
    google.write(make_checkpoint(spec), str(folder))
    path = folder / "bert_config.json"
    values = json.loads(path.read_text())
    del values["bert_tf"]  # Google's scripts do not write it
    path.write_text(json.dumps(values))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    return str(folder)


@pytest.mark.parametrize(
    "spec",
    [
        *map(MODELS.get, ("pretrainer", "encoder", "encoder without pooler", "masked lm")),
        MODELS["next sentence"],
        ModelSpec(BertClassifier, {"num_classes": 3}),
        ModelSpec(BertSpanPredictor, {"pooler": True}),
    ],
    ids=str,
)
def test_model_is_inferred_from_tensor_names(tmp_path, spec):
    checkpoint = google.read_checkpoint(_write(tmp_path / "m", spec))
    assert (checkpoint.model, checkpoint.unused) == (spec, ())
    if spec.model_class is BertSpanPredictor:
        assert checkpoint.tensors["span/kernel"].name == "cls/squad/output_weights"


@pytest.mark.parametrize(
    "folder, lower",
    [
        ("uncased_L-12_H-768_A-12", True),
        ("cased_L-12_H-768_A-12", False),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("wwm_Uncased_L-24", True),
    ],
)
def test_casing_is_inferred_from_directory_name(tmp_path, folder, lower):
    path = _write(tmp_path / folder, MODELS["encoder"])
    for named in (path, f"{path}/bert_model.ckpt"):
        checkpoint = google.read_checkpoint(named)
        assert checkpoint.tokenization.do_lower_case is lower and checkpoint.notes == ()
