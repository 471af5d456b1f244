"""Conversion keeps the model; changed weights or outputs raise an error."""

import dataclasses
import json
import os
import warnings

import numpy as np
import pytest

from bert_tf.checkpoints import conversion, model_card
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.checkpoints.tokenizer_files import OTHER_TABLES
from bert_tf.io.checkpoint_formats import WRITTEN
from bert_tf.modeling import BertPretrainer, BertSpanPredictor
from tests.checkpoints.small_checkpoints import (
    BERT_TF_ONLY,
    MODELS,
    SMALL,
    UNCASED,
    assert_bit_equal,
    make_checkpoint,
    read_all,
    stored,
    write,
)

CAUSAL_LM = ModelSpec(BertPretrainer, {"nsp": False, "pooler": False})
CAUSAL = dataclasses.replace(SMALL, is_decoder=True)


def _source(folder, form="huggingface", spec=MODELS["classifier"], config=SMALL, **fields):
    checkpoint = make_checkpoint(spec, config, tokenization=UNCASED, **fields)
    return write(checkpoint, form, folder, "source")


@pytest.mark.parametrize("form", WRITTEN)
def test_conversion_keeps_weights_and_tokenization(tmp_path, form):
    source, target = _source(tmp_path), str(tmp_path / "target")
    done = conversion.convert(source, target, form)
    assert sorted(os.listdir(tmp_path)) == sorted(["source", os.path.basename(target)])
    written = open_checkpoint(target)
    assert written.format == form
    assert written.tokenization == open_checkpoint(source).tokenization
    assert written.tokenization.vocabulary == UNCASED.vocabulary
    assert_bit_equal(read_all(written), read_all(done.checkpoint))
    has_note = form == "google_tf1"  # Google's scripts ignore tokenization rules
    assert (done.left_out, done.differences, len(done.notes)) == ((), {"logits": 0.0}, has_note)


def test_task_options_are_only_stored_in_bert_tf_format(tmp_path):
    source = _source(tmp_path, "bert_tf", task={"max_seq_length": 9})
    assert conversion.convert(source, str(tmp_path / "one"), "bert_tf").notes == ()
    _, note = conversion.convert(source, str(tmp_path / "two"), "huggingface").notes
    assert note.startswith("huggingface cannot store the lengths and options in task.json of ")
    # The maximum length is stored in the tokenizer config.
    config = json.loads((tmp_path / "two" / "tokenizer_config.json").read_text())
    assert config["model_max_length"] == 9


@pytest.mark.parametrize("form", ["huggingface", "google_tf1"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_temperature_is_folded_into_the_converted_head(tmp_path, form, dtype):
    thresholds = {"temperature": 1.6, "probability": 0.3}
    source = _source(tmp_path, "bert_tf", thresholds=thresholds, dtype=dtype)
    with warnings.catch_warnings(record=True) as caught:
        conversion.convert(source, str(tmp_path / "other"), form)
    left = "Hugging Face directories cannot store the thresholds probability=0.3."
    assert [str(warning.message) for warning in caught] == [OTHER_TABLES, left] * (
        form == "huggingface"
    )
    before, after = read_all(open_checkpoint(source)), read_all(open_checkpoint(tmp_path / "other"))
    for name, array in after.items():
        is_head, digits = name.startswith("classifier/"), 1e-3 if dtype == "float16" else 1e-6
        np.testing.assert_allclose(array, before[name] / (1.6 if is_head else 1), rtol=digits)
    assert "temperature" not in open_checkpoint(tmp_path / "other").thresholds
    # The bert_tf format stores the temperature and leaves the weights unchanged.
    conversion.convert(source, str(tmp_path / "own"), "bert_tf")
    assert_bit_equal(read_all(open_checkpoint(tmp_path / "own")), before)
    assert open_checkpoint(tmp_path / "own").thresholds == thresholds


POOLER = ("pooler/dense/kernel", "pooler/dense/bias")
NO_POOLER = (
    "The encoder has no pooler. Load it with BertModel.from_pretrained(DIR, "
    "add_pooling_layer=False); otherwise the pooler is randomly initialized."
)


@pytest.mark.parametrize(
    "spec, thresholds, left_out, notes",
    [
        (ModelSpec(BertSpanPredictor, {"pooler": True}), {}, POOLER, (OTHER_TABLES,)),
        (MODELS["encoder without pooler"], {}, (), (OTHER_TABLES, NO_POOLER)),
        (MODELS["span predictor"], {"null": -1.5, "other": 2.0}, (),
         (OTHER_TABLES,
          "Hugging Face directories cannot store the thresholds null=-1.5, other=2.",)),
    ],
)  # fmt: skip
def test_hugging_face_limitations_cause_warnings(
    tmp_path, without_comparison, spec, thresholds, left_out, notes
):
    source = _source(tmp_path, "bert_tf", spec, thresholds=thresholds)
    with warnings.catch_warnings(record=True) as caught:
        done = conversion.convert(source, str(tmp_path / "huggingface"), "huggingface")
    assert (done.left_out, done.notes) == (left_out, notes)
    assert tuple(str(warning.message) for warning in caught) == notes
    card = (tmp_path / "huggingface" / "README.md").read_text()
    assert [line[2:] for line in card.splitlines() if line[2:] in notes] == [*notes]
    done = conversion.convert(source, str(tmp_path / "google_tf1"), "google_tf1")
    assert (done.left_out, done.notes) == ((), ())


@pytest.mark.parametrize(
    "spec, config, form, message",
    [
        (BERT_TF_ONLY["feature tagger"], SMALL, "google_tf1",
         "^--format=google_tf1: cannot store the BertFeatureTagger of .* Use --format=bert_tf"),
        (BERT_TF_ONLY["multiple choice by the mean"], SMALL, "huggingface",
         "^--format=huggingface: cannot store the BertMultipleChoice with mean pooling of "),
        (CAUSAL_LM, CAUSAL, "google_tf1",
         "^--format=google_tf1: cannot store the causal BertPretrainer of "),
        (MODELS["encoder"], dataclasses.replace(SMALL, type_vocab_size=0), "google_tf1",
         "^--format=google_tf1: cannot store the DistilBERT BertEncoder of .* Use bert_tf or "
         "huggingface"),
        (MODELS["classifier"], CAUSAL, "huggingface",
         "a causal BertClassifier with a pooler is not supported: bert_tf pools the last token, "
         "but transformers pools the first"),
    ],
)  # fmt: skip
def test_unsupported_target_format_raises_error(tmp_path, spec, config, form, message):
    source = _source(tmp_path, "bert_tf", spec, config=config)
    with pytest.raises(ValueError, match=message):
        conversion.convert(source, str(tmp_path / "target"), form)
    assert os.listdir(tmp_path) == ["source"]
    # The model card does not suggest the format either.
    assert "transformers" not in model_card.use(open_checkpoint(source)) or form == "google_tf1"


def test_causal_model_is_converted_to_a_decoder(tmp_path):
    source = _source(tmp_path, "bert_tf", CAUSAL_LM, config=CAUSAL)
    target = str(tmp_path / "huggingface" / "target")
    done = conversion.convert(source, target, "huggingface")
    assert (
        done.differences == {"masked_lm_logits": 0.0} and open_checkpoint(target).config == CAUSAL
    )
    described = json.loads((tmp_path / "huggingface/target/config.json").read_text())
    assert described["architectures"] == ["BertLMHeadModel"] and described["is_decoder"] is True
    assert "text-generation" in (tmp_path / "huggingface/target/README.md").read_text()


# === Existing targets ===

EXISTS = r"already exists and is not overwritten\. Use another path\.$"


def test_existing_target_is_not_overwritten(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine").touch()
    with pytest.raises(ValueError, match=EXISTS):
        conversion.convert("no matter", str(tmp_path / "target"), "bert_tf")
    assert os.listdir(tmp_path / "target") == ["mine"]


# === Failed conversions leave no files ===


def _change_weight(checkpoint, name, change):
    array = checkpoint.tensors[name].read().copy()
    change(array)
    tensors = {**checkpoint.tensors, name: stored(name, array)}
    return dataclasses.replace(checkpoint, tensors=tensors)


@pytest.mark.parametrize("form", WRITTEN)
def test_weights_changed_by_the_writer_raise_error(tmp_path, monkeypatch, form):
    source, write = _source(tmp_path), conversion.write
    name = "layer_0/attention/key/kernel"

    def write_changed(checkpoint, path, form):
        return write(_change_weight(checkpoint, name, lambda array: array.fill(0.01)), path, form)

    monkeypatch.setattr(conversion, "write", write_changed)
    with pytest.raises(ValueError, match=rf"source changed weights: {name}\.$"):
        conversion.convert(source, str(tmp_path / "target"), form)
    assert os.listdir(tmp_path) == ["source"]


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"classifier/bias": None, "layer_1/output/kernel": None},
         "source: missing weights of a BertClassifier: layer_1/output/kernel, classifier/bias"),
        ({"classifier/bias": np.zeros(4, "f")}, r"classifier\.bias: expected \(3,\), got \(4,\)"),
    ],
)  # fmt: skip
def test_missing_weight_or_wrong_shape_raises_error(tmp_path, changed, message):
    checkpoint = make_checkpoint(MODELS["classifier"])
    for name, array in changed.items():
        checkpoint.tensors.pop(name)
        if array is not None:
            checkpoint.tensors[name] = stored(name, array)
    source = write(checkpoint, "huggingface", tmp_path, "source")
    with pytest.raises(ValueError, match=message):
        conversion.convert(source, str(tmp_path / "target"), "bert_tf")
    assert os.listdir(tmp_path) == ["source"]


# === Comparison of outputs ===


def _drop(checkpoint, spec, *names):
    tensors = {name: t for name, t in checkpoint.tensors.items() if not name.startswith(names)}
    return dataclasses.replace(checkpoint, model=spec, tensors=tensors)


def _change_epsilon(checkpoint):
    config = dataclasses.replace(SMALL, layer_norm_eps=0.1)
    return dataclasses.replace(checkpoint, config=config)


CHANGED_OUTPUTS = r"^The conversion .* changed outputs: \w+ by \d.* \(expected at most 1e-05\)"


@pytest.mark.parametrize(
    "after, message",
    [
        (lambda checkpoint: _drop(checkpoint, MODELS["masked lm"], "pooler/", "next_sentence/"),
         r"changed outputs: next_sentence_logits by inf \(expected at most 1e-05\)"),
        (_change_epsilon, CHANGED_OUTPUTS),
    ],
    ids=["other outputs", "epsilon"],
)  # fmt: skip
def test_changed_outputs_raise_error(after, message):
    checkpoint = make_checkpoint(MODELS["pretrainer"], SMALL)
    with pytest.raises(ValueError, match=message):
        conversion.compare(checkpoint, after(checkpoint))
