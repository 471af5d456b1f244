"""Every model in every format: written, recognised, read, loaded and saved again as it was."""

import pathlib

import ml_dtypes
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import conversion
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.load import load_with_report, open_checkpoint
from bert_tf.checkpoints.weights import expected_shapes
from bert_tf.io.checkpoint_formats import WRITTEN
from bert_tf.modeling import MODEL_CLASSES, BertPretrainer, BertSpanPredictor, BertTokenClassifier
from tests.checkpoints import hugging_face_files
from tests.checkpoints.samples import SAMPLES, assert_as_recorded
from tests.checkpoints.small_checkpoints import (
    CASED,
    CONFIG,
    MODELS,
    OURS_ALONE,
    SMALL,
    UNCASED,
    assert_bit_equal,
    fused,
    make_checkpoint,
    read_all,
    stored,
    variables_of,
    write,
)

# What Hugging Face has no place for.
OTHERS = {
    "masked lm with a pooler": ModelSpec(
        BertPretrainer, {"mlm": True, "nsp": False, "pooler": True}
    ),
    "token classifier with a pooler": ModelSpec(
        BertTokenClassifier, {"num_classes": 2, "dropout": 0.9, "pooler": True}
    ),
    "span predictor with a pooler": ModelSpec(BertSpanPredictor, {"pooler": True}),
    "masked lm of KerasHub": ModelSpec(
        BertPretrainer,
        {**MODELS["pretrainer"].arguments, "mlm_activation": "relu", "mlm_layer_norm_eps": 1e-3},
    ),
}
EVERY = {**MODELS, **OTHERS, **OURS_ALONE}
assert {spec.model_class for spec in EVERY.values()} == set(MODEL_CLASSES.values())


def make(name, form, config=CONFIG):
    """A checkpoint with all that a format can say of it."""
    spec = EVERY[name]
    return make_checkpoint(
        spec,
        config,
        tokenization=CASED if len(name) % 2 else UNCASED,
        labels=tuple(f"class {number}" for number in range(spec.arguments.get("num_classes", 0))),
        multi_label=spec.class_name == "BertClassifier",
        thresholds={} if form == "huggingface" else {"null": 0.5},
    )


def assert_same(read, checkpoint, form):
    """All that is said of a model, and every weight."""
    assert (read.config, read.unused, read.notes) == (checkpoint.config, (), ())
    spec, expected = read.model, checkpoint.model
    assert (spec.model_class, spec.has_pooler) == (expected.model_class, expected.has_pooler)
    arguments = dict(expected.arguments)
    if form == "saved" and "num_classes" in arguments:
        # Keras keeps the rate that the config gave.
        arguments = {"dropout": CONFIG.hidden_dropout_prob, **arguments}
    for key in ("mlm", "nsp", "num_classes", "mlm_activation", "mlm_layer_norm_eps", "dropout"):
        assert key not in arguments or spec.arguments[key] == arguments[key]
    for field in ("labels", "multi_label", "thresholds"):
        assert getattr(read, field) == getattr(checkpoint, field), field
    # Hugging Face's rules of text are its own.
    for field in ("vocabulary", "do_lower_case", *(["rules"] if form != "huggingface" else [])):
        assert getattr(read.tokenization, field) == getattr(checkpoint.tokenization, field), field
    assert_bit_equal(read_all(read), read_all(checkpoint))


def hugging_face_names(name):
    """As transformers spells them."""
    files = hugging_face_files
    heads = {
        "pretrainer": {**files.MASKED_LM, **files.NEXT_SENTENCE},
        "masked lm": files.MASKED_LM,
        "next sentence": files.NEXT_SENTENCE,
        "span predictor": files.span(),
        "encoder": {},
        "encoder without pooler": {},
    }.get(name, files.classifier(1))
    prefix = "" if name.startswith("encoder") else "bert."
    encoder = {**files.ENCODER, **(files.POOLER if EVERY[name].has_pooler else {})}
    return {prefix + there for there in encoder} | set(heads)


def _cases():
    for form in WRITTEN:
        for name in EVERY:
            if form == "huggingface" and name in OTHERS:
                continue
            if form in ("huggingface", "google_tf1") and name in OURS_ALONE:
                continue
            yield name, form


@pytest.mark.parametrize("name, form", _cases())
def test_there_and_back(tmp_path, name, form):
    # What a layer's number becomes shows in some.
    config = CONFIG if form == "huggingface" or name in ("encoder", "classifier") else SMALL
    checkpoint = make(name, form, config)
    path = write(checkpoint, form, tmp_path)
    read = open_checkpoint(pathlib.Path(path) if len(name) % 2 else f"{path}/")
    assert (read.format, read.path) == (form, path)
    assert_same(read, checkpoint, form)
    there = {tensor.name for tensor in read.tensors.values()}
    if form == "huggingface":
        assert there == hugging_face_names(name)


# Each head, and each way in which an encoder ends.
LOADED_ATTRIBUTES = (
    *("encoder without pooler", "pretrainer", "masked lm of KerasHub", "next sentence"),
    *("classifier", "regressor", "token classifier with a pooler", "span predictor"),
    *("multiple choice by the mean", "feature tagger of a sum"),
)


@pytest.mark.parametrize("name", LOADED_ATTRIBUTES)
def test_loaded_and_saved(tmp_path, name):
    """By the variables' own names."""
    config = CONFIG if name.endswith("sum") else SMALL
    checkpoint = make(name, "bert_tf", config)
    path = write(checkpoint, "bert_tf", tmp_path)
    model, report = load_with_report(path)
    assert type(model) is EVERY[name].model_class and model.config == config
    assert_bit_equal(variables_of(model), fused(read_all(checkpoint)))
    assert set(report.loaded) == set(checkpoint.tensors) and report.messages(path) == []
    assert (report.format, report.new, report.unused) == ("bert_tf", (), ())
    stored = {tensor.name for tensor in open_checkpoint(path).tensors.values()}
    assert stored == {f"model/{variable.path}" for variable in model.weights}
    model.task = {"kind": "mine"}
    bert_tf.save(model, tmp_path / "again")
    saved = open_checkpoint(tmp_path / "again")
    assert saved.task == {"kind": "mine"}
    assert_same(saved, checkpoint, "saved")


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(tmp_path, form, dtype):
    checkpoint = make_checkpoint(MODELS["encoder"], SMALL, dtype=getattr(ml_dtypes, dtype, dtype))
    read = open_checkpoint(write(checkpoint, form, tmp_path))
    kept = dtype if form == "huggingface" else "float32"
    assert {tensor.dtype for tensor in read.tensors.values()} == {kept}
    assert_bit_equal(read_all(read), read_all(checkpoint))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_what_it_says_and_computes_what_its_library_did(tmp_path, name):
    sample = SAMPLES[name]
    sample.make(tmp_path / "m")
    checkpoint = open_checkpoint(tmp_path / "m")
    assert (checkpoint.format, checkpoint.model) == (sample.format, sample.spec)
    assert sample.config in (None, checkpoint.config)
    arrays = read_all(checkpoint)
    shapes = {name: array.shape for name, array in arrays.items()}
    assert shapes == expected_shapes(checkpoint.config, sample.spec)
    used = {tensor.name for tensor in checkpoint.tensors.values()}
    assert not used & {*checkpoint.unused}
    model, report = load_with_report(checkpoint)
    assert type(model) is sample.spec.model_class and report.new == ()
    assert_bit_equal(variables_of(model), fused(arrays))
    if sample.recorded:
        assert_as_recorded(model, sample)


@pytest.mark.parametrize("form", WRITTEN)
def test_a_value_that_is_no_number_is_refused_by_its_name(tmp_path, form):
    """Such a model gives NaN for every text."""
    checkpoint = make_checkpoint(MODELS["encoder"], tokenization=UNCASED)
    kernel = checkpoint.tensors["layer_1/intermediate/kernel"].read().copy()
    kernel[-1, -1] = np.nan
    checkpoint.tensors["layer_1/intermediate/kernel"] = stored("x", kernel)
    path = write(checkpoint, form, tmp_path)
    sentence = rf"^{path}: \S*intermediate\S* contains NaN or infinity"
    for read in (lambda: read_all(open_checkpoint(path)), lambda: bert_tf.load(path)):
        with pytest.raises(ValueError, match=sentence):
            read()
    with pytest.raises(ValueError, match=sentence):
        conversion.convert(path, str(tmp_path / "converted"), "bert_tf")
    assert not (tmp_path / "converted").exists()


def test_what_cannot_be_saved(tmp_path):
    model = load_with_report(write(make("classifier", "bert_tf"), "bert_tf", tmp_path))[0]
    mine = tmp_path / "saved" / "mine.txt"

    def refused(sentence, given=model):
        with pytest.raises(ValueError, match=sentence):
            bert_tf.save(given, tmp_path / "saved")

    refused(
        "model: expected one of BertEncoder, BertPretrainer, BertClassifier, BertRegressor, "
        "BertTokenClassifier, BertFeatureTagger, BertSpanPredictor, BertMultipleChoice, got obj",
        object(),
    )
    model.labels = ("a", "b")
    refused(r"model\.labels: expected 3 names, got 2: a, b\.")
    model.labels = ()
    mine.parent.mkdir()
    mine.write_text("mine")
    refused("saved already exists and is not overwritten")
    assert mine.read_text() == "mine"
    mine.unlink()
    model.encoder.blocks[0].intermediate.enable_lora(2)
    refused(r"intermediate/lora_kernel_a.* Merge adapters \(LoRA\) first, or use model\.save")
