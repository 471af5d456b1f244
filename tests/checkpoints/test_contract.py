"""Writing, detecting, reading, loading and saving every model in every format."""

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
from tests.checkpoints.samples import SAMPLES, assert_outputs_equal_recorded
from tests.checkpoints.small_checkpoints import (
    BERT_TF_ONLY,
    CASED,
    CONFIG,
    MODELS,
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

# Models that Hugging Face directories cannot store.
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
ALL_MODELS = {**MODELS, **OTHERS, **BERT_TF_ONLY}
assert {spec.model_class for spec in ALL_MODELS.values()} == set(MODEL_CLASSES.values())


def make(name, form, config=CONFIG):
    """Creates a checkpoint with all fields that a format can store."""
    spec = ALL_MODELS[name]
    return make_checkpoint(
        spec,
        config,
        tokenization=CASED if len(name) % 2 else UNCASED,
        labels=tuple(f"class {number}" for number in range(spec.arguments.get("num_classes", 0))),
        multi_label=spec.class_name == "BertClassifier",
        thresholds={} if form == "huggingface" else {"null": 0.5},
    )


def assert_same(read, checkpoint, form):
    """Compares the descriptions and all weights."""
    assert (read.config, read.unused, read.notes) == (checkpoint.config, (), ())
    spec, expected = read.model, checkpoint.model
    assert (spec.model_class, spec.has_pooler) == (expected.model_class, expected.has_pooler)
    arguments = dict(expected.arguments)
    if form == "saved" and "num_classes" in arguments:
        # Keras stores the dropout rate of the config.
        arguments = {"dropout": CONFIG.hidden_dropout_prob, **arguments}
    for key in ("mlm", "nsp", "num_classes", "mlm_activation", "mlm_layer_norm_eps", "dropout"):
        assert key not in arguments or spec.arguments[key] == arguments[key]
    for field in ("labels", "multi_label", "thresholds"):
        assert getattr(read, field) == getattr(checkpoint, field), field
    # Hugging Face directories use their own tokenization rules.
    for field in ("vocabulary", "do_lower_case", *(["rules"] if form != "huggingface" else [])):
        assert getattr(read.tokenization, field) == getattr(checkpoint.tokenization, field), field
    assert_bit_equal(read_all(read), read_all(checkpoint))


def hugging_face_names(name):
    """Returns the names of all tensors in transformers."""
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
    encoder = {**files.ENCODER, **(files.POOLER if ALL_MODELS[name].has_pooler else {})}
    return {prefix + tensor for tensor in encoder} | set(heads)


def _cases():
    for form in WRITTEN:
        for name in ALL_MODELS:
            if form == "huggingface" and name in OTHERS:
                continue
            if form in ("huggingface", "google_tf1") and name in BERT_TF_ONLY:
                continue
            yield name, form


@pytest.mark.parametrize("name, form", _cases())
def test_written_checkpoint_is_read_unchanged(tmp_path, name, form):
    # Two layers, for some models, show how layer numbers are converted.
    config = CONFIG if form == "huggingface" or name in ("encoder", "classifier") else SMALL
    checkpoint = make(name, form, config)
    path = write(checkpoint, form, tmp_path)
    read = open_checkpoint(pathlib.Path(path) if len(name) % 2 else f"{path}/")
    assert (read.format, read.path) == (form, path)
    assert_same(read, checkpoint, form)
    names = {tensor.name for tensor in read.tensors.values()}
    if form == "huggingface":
        assert names == hugging_face_names(name)


# Each head and each output of the encoder.
LOADED_MODELS = (
    *("encoder without pooler", "pretrainer", "masked lm of KerasHub", "next sentence"),
    *("classifier", "regressor", "token classifier with a pooler", "span predictor"),
    *("multiple choice by the mean", "feature tagger of a sum"),
)


@pytest.mark.parametrize("name", LOADED_MODELS)
def test_loaded_model_is_saved_under_variable_paths(tmp_path, name):
    config = CONFIG if name.endswith("sum") else SMALL
    checkpoint = make(name, "bert_tf", config)
    path = write(checkpoint, "bert_tf", tmp_path)
    model, report = load_with_report(path)
    assert type(model) is ALL_MODELS[name].model_class and model.config == config
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
def test_half_precision_is_read_unchanged(tmp_path, form, dtype):
    checkpoint = make_checkpoint(MODELS["encoder"], SMALL, dtype=getattr(ml_dtypes, dtype, dtype))
    read = open_checkpoint(write(checkpoint, form, tmp_path))
    expected_dtype = dtype if form == "huggingface" else "float32"
    assert {tensor.dtype for tensor in read.tensors.values()} == {expected_dtype}
    assert_bit_equal(read_all(read), read_all(checkpoint))


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_has_expected_model_and_recorded_outputs(tmp_path, name):
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
        assert_outputs_equal_recorded(model, sample)


@pytest.mark.parametrize("form", WRITTEN)
def test_nan_weight_raises_error_with_its_name(tmp_path, form):
    checkpoint = make_checkpoint(MODELS["encoder"], tokenization=UNCASED)
    kernel = checkpoint.tensors["layer_1/intermediate/kernel"].read().copy()
    kernel[-1, -1] = np.nan
    checkpoint.tensors["layer_1/intermediate/kernel"] = stored("x", kernel)
    path = write(checkpoint, form, tmp_path)
    message = rf"^{path}: \S*intermediate\S* contains NaN or infinity"
    for read in (lambda: read_all(open_checkpoint(path)), lambda: bert_tf.load(path)):
        with pytest.raises(ValueError, match=message):
            read()
    with pytest.raises(ValueError, match=message):
        conversion.convert(path, str(tmp_path / "converted"), "bert_tf")
    assert not (tmp_path / "converted").exists()


def test_save_errors(tmp_path):
    model = load_with_report(write(make("classifier", "bert_tf"), "bert_tf", tmp_path))[0]
    mine = tmp_path / "saved" / "mine.txt"

    def assert_raises(message, model=model):
        with pytest.raises(ValueError, match=message):
            bert_tf.save(model, tmp_path / "saved")

    assert_raises(
        "model: expected one of BertEncoder, BertPretrainer, BertClassifier, BertRegressor, "
        "BertTokenClassifier, BertFeatureTagger, BertSpanPredictor, BertMultipleChoice, got obj",
        object(),
    )
    model.labels = ("a", "b")
    assert_raises(r"model\.labels: expected 3 names, got 2: a, b\.")
    model.labels = ()
    mine.parent.mkdir()
    mine.write_text("mine")
    assert_raises("saved already exists and is not overwritten")
    assert mine.read_text() == "mine"
    mine.unlink()
    model.encoder.blocks[0].intermediate.enable_lora(2)
    assert_raises(r"intermediate/lora_kernel_a.* Merge adapters \(LoRA\) first, or use model\.save")
