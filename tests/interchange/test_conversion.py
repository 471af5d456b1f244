"""A checkpoint in another format is the same model, and what is not is found out."""

import dataclasses
import json
import os

import keras
import numpy as np
import pytest

from bert_tf.interchange import conversion, model_card
from bert_tf.interchange.checkpoint import ModelSpec
from bert_tf.interchange.recognition import open_checkpoint
from bert_tf.interchange.weights import assign, build_model
from bert_tf.modeling import BertPretrainer, BertSpanPredictor
from tests.interchange.small_checkpoints import (
    CONFIG,
    MODELS,
    OURS_ALONE,
    UNCASED,
    assert_bit_equal,
    make_checkpoint,
    read_all,
    stored,
    variables_of,
    write,
)


def _source(folder, form="huggingface", spec=MODELS["classifier"], **fields):
    checkpoint = make_checkpoint(spec, tokenization=UNCASED, **fields)
    return write(checkpoint, form, folder, "source")


def _target(folder, form):
    return str(folder / ("target.keras" if form == "keras" else "target"))


@pytest.fixture
def unverified(monkeypatch):
    """Both models run in the other tests; here it is the files that count."""
    monkeypatch.setattr(conversion, "compare", lambda *samples: {"logits": 0.0})


@pytest.mark.parametrize("form", conversion.FORMATS)
def test_a_conversion(tmp_path, form):
    source, target = _source(tmp_path), _target(tmp_path, form)
    done = conversion.convert(source, target, form)
    assert sorted(os.listdir(tmp_path)) == sorted(["source", os.path.basename(target)])
    written = open_checkpoint(target)
    assert written.format == form and written.tokenization == UNCASED
    assert_bit_equal(read_all(written), read_all(done.checkpoint))
    assert done.went.keys() == done.checkpoint.tensors.keys()
    assert (done.left_out, done.differences, done.notes) == ((), {"logits": 0.0}, ())


def test_what_has_no_place_is_left_out_and_told(tmp_path):
    spec = ModelSpec(BertSpanPredictor, {"pooler": True})
    source = _source(tmp_path, "bert_tf", spec)
    done = conversion.convert(source, str(tmp_path / "target"), "huggingface")
    assert done.left_out == ("pooler/dense/kernel", "pooler/dense/bias")
    assert done.differences == {"start_logits": 0.0, "end_logits": 0.0}


def test_what_other_libraries_have_no_place_for(tmp_path):
    source = _source(tmp_path, "bert_tf", OURS_ALONE["feature tagger"])
    for form in ("huggingface", "google_tf1"):
        with pytest.raises(ValueError, match=f"holds a BertFeatureTagger, which {form} has no pl"):
            conversion.convert(source, str(tmp_path / "target"), form)
        assert not (tmp_path / "target").exists()
    done = conversion.convert(source, str(tmp_path / "target"), "bert_tf")
    assert done.differences == {"logits": 0.0} and done.left_out == ()
    (tmp_path / "other").mkdir()
    source = _source(tmp_path / "other", "bert_tf", OURS_ALONE["classifier with a BiLSTM"])
    with pytest.raises(ValueError, match="holds a BertClassifier with a BiLSTM, which huggingface"):
        conversion.convert(source, str(tmp_path / "again"), "huggingface")


def test_only_some_formats_say_that_a_model_is_causal(tmp_path):
    causal = dataclasses.replace(CONFIG, is_decoder=True)
    spec = ModelSpec(BertPretrainer, {"nsp": False, "pooler": False})
    source = _source(tmp_path, "bert_tf", spec, config=causal)
    for form in ("huggingface", "keras"):
        target = _target(tmp_path / form, form)
        assert conversion.convert(source, target, form).differences == {"masked_lm_logits": 0.0}
        assert open_checkpoint(target).config == causal
    described = json.loads((tmp_path / "huggingface/target/config.json").read_text())
    assert described["architectures"] == ["BertLMHeadModel"] and described["is_decoder"] is True
    assert "text-generation" in (tmp_path / "huggingface/target/README.md").read_text()
    with pytest.raises(
        ValueError, match="holds a causal BertPretrainer .*, and google_tf1 has no word for that: "
    ):
        conversion.convert(source, str(tmp_path / "google"), "google_tf1")
    (tmp_path / "other").mkdir()
    classifier = _source(tmp_path / "other", "bert_tf", config=causal)
    with pytest.raises(
        ValueError, match="holds a causal BertClassifier .* reads the last token in this library"
    ):
        conversion.convert(classifier, str(tmp_path / "classifier"), "huggingface")
    # Nor does a card promise it.
    assert "transformers" not in model_card.use(open_checkpoint(classifier))
    (tmp_path / "masked").mkdir()
    masked = _source(tmp_path / "masked", "bert_tf")
    assert "BertForSequenceClassification" in model_card.use(open_checkpoint(masked))


@pytest.mark.parametrize(
    "name, thresholds, note",
    [
        ("encoder without pooler", {},
         "The encoder has no pooler, and Hugging Face's BertModel starts one anew: load it with "
         "add_pooling_layer=False."),
        ("span predictor", {"null": -1.5, "other": 2.0},
         "Hugging Face has no place for the thresholds null=-1.5, other=2."),
    ],
)  # fmt: skip
def test_what_hugging_face_does_otherwise_is_told(tmp_path, unverified, name, thresholds, note):
    source = _source(tmp_path, "bert_tf", MODELS[name], thresholds=thresholds)
    for form, notes in (("huggingface", (note,)), ("google_tf1", ())):
        assert conversion.convert(source, str(tmp_path / form), form).notes == notes


def test_names_of_targets(tmp_path, monkeypatch, unverified):
    """A trailing slash, missing folders, the working directory."""
    source = _source(tmp_path)
    conversion.convert(source, f"{tmp_path}/a/b/", "google_tf1")
    assert open_checkpoint(tmp_path / "a" / "b").format == "google_tf1"
    assert os.listdir(tmp_path / "a") == ["b"]
    monkeypatch.chdir(tmp_path)
    conversion.convert(source, "here.keras", "keras")
    assert sorted(os.listdir(tmp_path)) == ["a", "here.keras", "source"]


# === Nothing is overwritten ===


@pytest.mark.parametrize("form", conversion.FORMATS)
def test_a_target_that_is_there(tmp_path, form):
    target = tmp_path / ("target.keras" if form == "keras" else "target")
    if form == "keras":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine").touch()
    sentence = rf"{target.name} is there already, and is never overwritten: name another\.$"
    with pytest.raises(ValueError, match=sentence):
        conversion.convert("no matter", str(target), form)
    assert os.listdir(tmp_path) == [target.name]


def test_an_empty_directory_is_as_good_as_none(tmp_path, unverified):
    source, target = _source(tmp_path), tmp_path / "target"
    target.mkdir()
    conversion.convert(source, str(target), "huggingface")
    assert open_checkpoint(target).format == "huggingface"
    (tmp_path / "empty.keras").mkdir()
    with pytest.raises(ValueError, match=r"empty\.keras is a directory, and only a file is"):
        conversion.convert(source, str(tmp_path / "empty.keras"), "keras")


def test_a_target_that_appears_meanwhile(tmp_path, monkeypatch):
    source, target = _source(tmp_path), tmp_path / "target"

    def compare(*checkpoints):
        target.mkdir()
        (target / "mine").touch()
        return {}

    monkeypatch.setattr(conversion, "compare", compare)
    with pytest.raises(ValueError, match=r"target is there already, and is never overwritten"):
        conversion.convert(source, str(target), "huggingface")
    assert os.listdir(target) == ["mine"] and sorted(os.listdir(tmp_path)) == ["source", "target"]


@pytest.mark.parametrize(
    "target, form, sentence",
    [
        ("x", "onnx", r"^There is no format 'onnx' to write: expected bert_tf, huggingface, goog"),
        ("x", "keras", r"x has to end in \.keras, or Keras will not open it\.$"),
        ("x.keras", "huggingface", r"x.keras would be a directory, as huggingface is: leave out"),
    ],
)
def test_wrong_arguments(target, form, sentence):
    with pytest.raises(ValueError, match=sentence):
        conversion.convert("no matter", target, form)


# === Nothing is left behind ===


@pytest.mark.parametrize("form", conversion.FORMATS)
@pytest.mark.parametrize("empty", [False, True])
def test_a_writer_that_changes_a_weight(tmp_path, monkeypatch, form, empty):
    source, write = _source(tmp_path), conversion._WRITERS[form]
    name = "layer_1/attention/key/kernel"

    def careless(checkpoint, path):
        return write(_changed(checkpoint, name, lambda array: array.fill(0.01)), path)

    monkeypatch.setitem(conversion._WRITERS, form, careless)
    target = _target(tmp_path, form)
    if empty and form != "keras":
        os.mkdir(target)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ValueError, match=rf"source has other weights: {name}\.$"):
        conversion.convert(source, target, form)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_writer_that_changes_the_config(tmp_path, monkeypatch):
    source, write = _source(tmp_path), conversion._WRITERS["google_tf1"]
    config = dataclasses.replace(CONFIG, hidden_act="relu")

    def careless(checkpoint, path):
        return write(dataclasses.replace(checkpoint, config=config), path)

    monkeypatch.setitem(conversion._WRITERS, "google_tf1", careless)
    with pytest.raises(ValueError, match=r"source gives other outputs: they differ in logits by"):
        conversion.convert(source, str(tmp_path / "target"), "google_tf1")
    assert os.listdir(tmp_path) == ["source"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("when", ["write", "compare"])
@pytest.mark.parametrize("form", ["bert_tf", "keras"])
def test_stopped(tmp_path, monkeypatch, form, when, error):
    source, write = _source(tmp_path), conversion._WRITERS[form]

    def stop(checkpoint, path):
        if when == "write":
            write(checkpoint, path)
        raise error("stopped")

    writer = {form: stop} if when == "write" else {}
    monkeypatch.setattr(conversion, "_WRITERS", conversion._WRITERS | writer)
    monkeypatch.setattr(conversion, "compare", stop)
    with pytest.raises(error, match="stopped"):
        conversion.convert(source, _target(tmp_path, form), form)
    assert os.listdir(tmp_path) == ["source"]


def test_stopped_while_keras_saves(tmp_path, monkeypatch):
    def stop(model, path, **options):
        os.mkdir(path)
        raise KeyboardInterrupt

    source = _source(tmp_path)
    monkeypatch.setattr("keras.saving.save_model", stop)
    with pytest.raises(KeyboardInterrupt):
        conversion.convert(source, _target(tmp_path, "keras"), "keras")
    assert os.listdir(tmp_path) == ["source"]


# === Sources that are not whole ===


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"classifier/bias": None, "layer_1/output/kernel": None},
         r"source lacks layer_1/output/kernel, classifier/bias, so there is no whole "
         r"BertClassifier to convert\.$"),
        ({"classifier/bias": np.zeros(4, "f")}, r"classifier\.bias is \(4,\), expected \(3,\)"),
    ],
)  # fmt: skip
def test_a_weight_is_missing_or_of_another_shape(tmp_path, changed, sentence):
    checkpoint = make_checkpoint(MODELS["classifier"])
    for name, array in changed.items():
        checkpoint.tensors.pop(name)
        if array is not None:
            checkpoint.tensors[name] = stored(name, array)
    source = write(checkpoint, "huggingface", tmp_path, "source")
    with pytest.raises(ValueError, match=sentence):
        conversion.convert(source, str(tmp_path / "target"), "bert_tf")
    assert os.listdir(tmp_path) == ["source"]


def _compare(first, second):
    return conversion.compare(conversion.take_sample(first), conversion.take_sample(second))


OUTPUTS = {
    "encoder": {"sequence_output", "encoder_outputs", "embedding_output", "pooled_output"},
    "pretrainer": {"masked_lm_logits", "next_sentence_logits"},
    "span predictor": {"start_logits", "end_logits"},
    "multiple choice": {"logits"},
    "regressor": {"logits"},
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_checkpoint_and_itself(name):
    checkpoint = make_checkpoint(MODELS[name])
    differences = _compare(checkpoint, checkpoint)
    assert differences == dict.fromkeys(OUTPUTS[name], 0.0)


def test_a_narrower_dtype_is_the_same_model():
    half = make_checkpoint(MODELS["classifier"], dtype="float16")
    tensors = {name: stored(name, array.astype("f")) for name, array in read_all(half).items()}
    _compare(half, dataclasses.replace(half, tensors=tensors))


def _changed(checkpoint, name, change):
    array = checkpoint.tensors[name].read().copy()
    change(array)
    tensors = {**checkpoint.tensors, name: stored(name, array)}
    return dataclasses.replace(checkpoint, tensors=tensors)


def _without(checkpoint, spec, names):
    tensors = {name: t for name, t in checkpoint.tensors.items() if not name.startswith(names)}
    return dataclasses.replace(checkpoint, model=spec, tensors=tensors)


def _last_bit(array):
    array.flat[-1] = np.nextafter(array.flat[-1], np.float32(9))


def test_every_weight_is_compared_to_the_last_bit(monkeypatch):
    checkpoint = make_checkpoint(MODELS["pretrainer"])
    monkeypatch.setattr(conversion, "_run", None)
    for name in checkpoint.tensors:
        sentence = rf"^What was made of memory has other weights: {name}\.$"
        with pytest.raises(ValueError, match=sentence):
            _compare(checkpoint, _changed(checkpoint, name, _last_bit))


def test_a_transposed_matrix_is_another():
    checkpoint = make_checkpoint(MODELS["encoder"])
    name = "layer_0/intermediate/kernel"
    turned = {name: stored(name, checkpoint.tensors[name].read().reshape(12, 8))}
    other = dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **turned})
    with pytest.raises(ValueError, match=r"has other weights: layer_0/intermediate/kernel\.$"):
        _compare(checkpoint, other)


def test_a_weight_more():
    checkpoint = make_checkpoint(MODELS["pretrainer"])
    less = _without(checkpoint, MODELS["next sentence"], "masked_lm/")
    with pytest.raises(ValueError, match="has other weights: masked_lm/dense/kernel, masked_lm/de"):
        _compare(less, checkpoint)


@pytest.mark.parametrize(
    "changes",
    [{"hidden_act": "relu"}, {"layer_norm_eps": 0.1}, {"num_attention_heads": 4}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_config_that_computes_otherwise(changes):
    checkpoint = make_checkpoint(MODELS["classifier"])
    other = dataclasses.replace(checkpoint, config=dataclasses.replace(CONFIG, **changes))
    sentence = r"^What .* gives other outputs: they differ in logits by \d.*, where at most 1e-05 w"
    with pytest.raises(ValueError, match=sentence):
        _compare(checkpoint, other)


def test_weights_that_are_no_numbers():
    checkpoint = make_checkpoint(MODELS["regressor"])
    broken = _changed(checkpoint, "regressor/bias", lambda array: array.fill(np.nan))
    with pytest.raises(ValueError, match=r"they differ in logits by nan"):
        _compare(broken, broken)


def test_other_outputs():
    checkpoint = make_checkpoint(MODELS["pretrainer"])
    other = _without(checkpoint, MODELS["masked lm"], ("pooler/", "next_sentence/"))
    sentence = (
        "^memory gives masked_lm_logits, next_sentence_logits, and what was made of it gives "
        r"masked_lm_logits\.$"
    )
    with pytest.raises(ValueError, match=sentence):
        _compare(checkpoint, other)


@pytest.mark.parametrize("name", ["pretrainer", "multiple choice"])
def test_the_input_is_such_that_every_weight_counts(name):
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)
    checkpoint = make_checkpoint(MODELS[name], config)
    model = build_model(config, MODELS[name])
    assign(model, checkpoint.tensors)
    inputs = conversion._random_inputs(model)
    mask = inputs["input_mask"]
    assert 0 < (mask == 0).mean() < 0.5 and (mask[..., 0] == 1).all()
    assert set(inputs["input_type_ids"].flat) == {0, 1, 2}
    assert len(set(inputs["input_word_ids"].flat)) > 10
    first = keras.tree.flatten(model(inputs))
    for variable in model.weights:
        before = np.array(variable)
        # Not all by the same amount, which a normalisation would take out again.
        variable.assign(before + 0.1 * np.random.default_rng(2).normal(size=before.shape))
        second = keras.tree.flatten(model(inputs))
        changes = [np.max(np.abs(a - b)) for a, b in zip(first, second, strict=True)]
        assert max(changes) > conversion.TOLERANCE, variable.path
        variable.assign(before)


def test_few_words_are_the_models_own():
    config = dataclasses.replace(CONFIG, vocab_size=500)
    checkpoint = make_checkpoint(MODELS["masked lm"], config)
    few = conversion._with_few_words(checkpoint)
    assert few.config == dataclasses.replace(config, vocab_size=64)
    table = checkpoint.tensors["embeddings/word_embeddings"].read()
    bias = checkpoint.tensors["masked_lm/output_bias"].read()
    rows = few.tensors["embeddings/word_embeddings"].read()
    words = [int(np.flatnonzero((table == row).all(1))[0]) for row in rows]
    assert len(set(words)) == 64
    assert np.array_equal(few.tensors["masked_lm/output_bias"].read(), bias[words])
    model = build_model(few.config, few.model)
    assign(model, few.tensors)
    assert variables_of(model)["embeddings/word_embeddings"].shape == (64, 8)
