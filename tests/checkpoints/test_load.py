"""``bert_tf.load``: model, preprocessor, new and unused weights, and errors."""

import dataclasses
import logging
import os

import keras
import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.load import load, load_with_report, open_checkpoint
from bert_tf.io.messages import DifferenceWarning
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
)
from bert_tf.predicting.predictor import Predictor
from tests.checkpoints.hugging_face_files import ENCODER, POOLER, random_tensors, write_directory
from tests.checkpoints.samples import EMBEDDING, SAMPLES
from tests.checkpoints.small_checkpoints import (
    CASED,
    MODELS,
    PIECES,
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

# === Opening ===


def test_allow_pickle_is_passed_to_hugging_face_reader(tmp_path, monkeypatch):
    path = write_directory(tmp_path / "hf", random_tensors({**ENCODER, **POOLER}))
    os.rename(f"{path}/model.safetensors", f"{path}/pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"pytorch_model\.bin is a pickle, which can run arbitrary code"
    ):
        open_checkpoint(path)
    calls = []
    monkeypatch.setattr(
        "bert_tf.checkpoints.tensor_files.open_pickle",
        lambda path, allow_pickle: calls.append(allow_pickle) or {},
    )
    open_checkpoint(path, allow_pickle=True)
    assert calls == [True]


def test_error_without_a_path_gets_the_path_of_the_checkpoint(tmp_path, monkeypatch):
    path = write(make_checkpoint(MODELS["encoder"], tokenization=UNCASED), "bert_tf", tmp_path)

    def fails(*arguments):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr("bert_tf.checkpoints.tensor_files.Bundle.read", fails)
    checkpoint = open_checkpoint(path)
    with pytest.raises(ValueError, match=rf"^Cannot read {path}: std::bad_alloc$"):
        checkpoint.tensors["layer_0/output/bias"].read()
    monkeypatch.setattr("bert_tf.checkpoints.model_directory.Bundle", fails)
    with pytest.raises(ValueError, match=rf"^Cannot read {path}: std::bad_alloc$"):
        open_checkpoint(path)


NOT_FOUND = (
    r"No such checkpoint: {}\. Expected a directory, a prefix such as DIR/bert_model\.ckpt, a "
    r"\.keras file, hf://OWNER/NAME, or tiny\. See docs/guides/weights\.md\.$"
)
DID_YOU_MEAN = (
    r"No such checkpoint: {} \(did you mean hf://google-bert/bert-base-cased\?\)\. Expected .* See "
    r"docs/guides/weights\.md\.$"
)
UNKNOWN = "{} is not a supported checkpoint: expected .*; got "
INVALID = "{} is not a supported checkpoint: its "
CONVERTED = r"Pass the directory of the original model, with model\.safetensors\.$"


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        *(([], name, NOT_FOUND) for name in ("no", "no.keras", "folder/bert_model.ckpt")),
        ([], "bert-base-cased", DID_YOU_MEAN),
        ([], "google-bert/bert-base-cased", DID_YOU_MEAN),
        ([], "", NOT_FOUND),  # not the root directory
        ([], ".", UNKNOWN + r"an empty directory\.$"),
        ("abcdefghij", ".",
         UNKNOWN + r"a directory with a, b, c, d, e, f, g, h and 2 more\.$"),
        (["config.json"], ".", UNKNOWN + r"a directory with config\.json\.$"),
        (["config.json", "bert.bin"], "bert.bin",
         UNKNOWN + r"a file\. Pass its directory\.$"),
        (["adapter_config.json", "adapter_model.safetensors"], ".",
         INVALID + "adapter_model.safetensors is an adapter. Merge it with peft: "
         r"PeftModel\.from_pretrained.*\. Pass NEW\.$"),
        (["checkpoint-2/a", "checkpoint-10/a", "runs/a"], ".",
         INVALID
         + r"checkpoint-10 is a checkpoint of transformers' Trainer\. Pass \./checkpoint-10\.$"),
        (["config.json", "model.fp16.safetensors"], ".",
         r"\. has no weights: its model\.fp16\.safetensors is a variant of the weights\. Rename it "
         r"to model\.safetensors \(or pytorch_model\.bin, tf_model\.h5\) in a directory with "
         r"config\.json and the tokenizer files"),
        (["config.json", "pytorch_model.fp16.bin"], ".",
         INVALID + "pyt.* is a variant of the weights. Rename it to model.safetensors"),
        (["config.json", "onnx/model.onnx"], ".",
         INVALID + f"onnx is an ONNX model. {CONVERTED}"),
        (["config.json", "model.onnx"], ".",
         INVALID + f"model.onnx is an ONNX model. {CONVERTED}"),
        (["config.json", "openvino_model.xml"], ".",
         INVALID + f"openvino_model.xml is an OpenVINO model. {CONVERTED}"),
        (["config.json", "model.bin"], ".",
         INVALID + f"model.bin is a CTranslate2 model. {CONVERTED}"),
        (["config.json", "flax_model.msgpack"], ".",
         INVALID + r"flax_model.msgpack is a Flax model. Convert it with transformers 4: "
         r"from_pretrained\(DIR, from_flax=True\), then save_pretrained\.$"),
        (["a.gguf"], "a.gguf",
         f"a.gguf is not a supported checkpoint: it is a llama.cpp model. {CONVERTED}"),
        (["a.tflite"], "a.tflite",
         f"a.tflite is not .*: it is a LiteRT model. {CONVERTED}"),
        (["a.pt"], "a.pt", r"a\.pt is not a supported checkpoint: it is a pickle\. Load it in "
         r"the code that builds the model, then call save_pretrained\(DIR\)"),
        (["model.weights.h5"], ".", INVALID + "model.weights.h5 is a Keras weights file without "
         "the model's config. Load it with load_weights in the code that builds the "
         r"model, then call save_to_preset \(KerasHub\) or bert_tf\.save\.$"),
        (["model.safetensors"], ".", INVALID + "model.safetensors is a Hugging Face weights file. "
         r"Add config\.json and pass the directory\.$"),
        (["0_Transformer/a", "1_Pooling/a"], ".", INVALID + "0_Transformer is a "
         r"sentence-transformers module\. Add modules\.json to the directory\.$"),
    ],
)  # fmt: skip
def test_unsupported_path_raises_error(tmp_path, monkeypatch, files, path, message):
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match="^" + message.format(path)):
        open_checkpoint(path)


@pytest.mark.parametrize("file", ["model_head.pkl", "config_setfit.json"])
def test_setfit_head_causes_warning_and_is_not_read(tmp_path, file):
    path = tmp_path / "m"
    SAMPLES["st"].make(path)
    (path / file).write_bytes(b"{}")
    expected = r"the setfit classifier in model_head\.pkl is not read"
    with pytest.warns(DifferenceWarning, match=expected):
        model = load(path)
    assert model.sentence_embedding == EMBEDDING
    with pytest.raises(
        ValueError, match="is not read; only the encoder is loaded. Train a new head"
    ):
        Predictor(path)


def test_sentencepiece_vocabulary_has_no_preprocessor_unless_saved_by_bert_tf(tmp_path):
    pieces = (*PIECES[:5], *(f"▁{piece}" for piece in PIECES[5:]))
    for form, has_preprocessor in (("huggingface", False), ("bert_tf", True)):
        checkpoint = make_checkpoint(MODELS["encoder"], tokenization=Tokenization(pieces, False))
        read = open_checkpoint(write(checkpoint, form, tmp_path, form))
        assert (read.tokenization is not None) == has_preprocessor
        expected = "pieces that are SentencePiece's, such as '▁a'"
        assert any(expected in note for note in read.notes) != has_preprocessor


# === Loading ===


def test_settings_of_checkpoint_are_loaded(save):
    _, path = save(
        "classifier", tokenization=CASED, labels=("x", "y", "z"), thresholds={"probability": 0.25}
    )
    model = load(path)
    assert load_with_report(path)[1].messages(path) == []
    assert (model.labels, model.thresholds) == (("x", "y", "z"), {"probability": 0.25})
    assert model.dropout.rate == 0.4
    assert not model.preprocessor.tokenizer.do_lower_case
    assert tuple(model.preprocessor.tokenizer.vocab) == PIECES
    assert model.preprocessor.max_seq_length == 12  # max_position_embeddings
    ids = model.preprocessor(["Cat cat"])["input_word_ids"].numpy()[0, :4]
    assert ids.tolist() == [2, PIECES.index("Cat"), PIECES.index("cat"), 3]
    assert model(model.preprocessor(["Cat cat"])).shape == (1, 3)


# === Different model class ===


@pytest.mark.parametrize(
    "model_class, arguments, head",
    [
        (BertEncoder, {}, None),
        (BertClassifier, {"num_classes": 5}, "classifier"),
        (BertRegressor, {}, "regressor"),
        (BertSpanPredictor, {}, "span"),
        (BertMultipleChoice, {"dropout": 0.25}, "choice"),
    ],
)
def test_new_head_for_other_model_class(save, model_class, arguments, head):
    checkpoint, path = save("pretrainer")
    model, report = load_with_report(path, model_class, **arguments)
    new = (f"{head}/kernel", f"{head}/bias") if head else ()
    assert type(model) is model_class and report.new == new
    variables, expected = variables_of(model), fused(read_all(checkpoint))
    old = variables.keys() - set(new)
    assert_bit_equal({n: variables[n] for n in old}, {n: expected[n] for n in old})
    heads = {name for name in checkpoint.tensors if name.startswith(("masked", "next", "pooler"))}
    used = {name for name in variables if name.startswith("pooler/")}
    assert set(report.unused) == {f"model/{_model_name(name)}/{name}" for name in heads - used}
    lines = report.messages("PATH")
    if new:
        expected = "Weights not in PATH, randomly initialized (train before use): "
        assert lines[0] == f"{expected}{', '.join(new)}."
    assert lines[-1].startswith("Unused tensors in PATH: model/") and "/masked_lm/" in lines[-1]


def _model_name(name):
    return "bert_encoder" if name.startswith("pooler/") else "bert_pretrainer"


def test_from_checkpoint_passes_all_arguments(save, caplog):
    _, path = save("encoder", tokenization=UNCASED)
    with caplog.at_level(logging.WARNING, "bert_tf"):
        model = BertClassifier.from_checkpoint(
            path, num_classes=7, dropout=0.125, dtype="mixed_bfloat16", max_seq_length=9
        )
    assert (model.num_classes, model.dropout.rate) == (7, 0.125)
    assert model.preprocessor.max_seq_length == 9
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert {v.dtype for v in model.weights} == {"float32"}
    assert [record.getMessage() for record in caplog.records] == [
        f"Weights not in {path}, randomly initialized (train before use): classifier/kernel, "
        "classifier/bias."
    ]


def test_new_head_and_arguments_override_the_checkpoint(save):
    checkpoint, path = save("classifier", multi_label=True, labels=("x", "y", "z"))
    model, report = load_with_report(path, BertClassifier, num_classes=5, new_head=True)
    assert model.classifier.kernel.shape == (8, 5) and model.labels == ()
    assert model.multi_label is False  # the default of a new classifier
    assert report.new == ("classifier/kernel", "classifier/bias")
    assert set(report.unused) == {"model/bert_classifier/classifier/kernel",
                                  "model/bert_classifier/classifier/bias"}  # fmt: skip
    model, report = load_with_report(path, BertClassifier, new_head=True)
    assert model.num_classes == 3 and model.labels == ()
    kernel = np.array(model.classifier.kernel)
    assert not np.array_equal(kernel, checkpoint.tensors["classifier/kernel"].read())
    model = load(path, BertClassifier, dropout=0.0)
    assert (model.dropout.rate, model.num_classes, model.labels) == (0.0, 3, ("x", "y", "z"))


def test_heads_and_pooler_are_added_or_removed(save):
    pooler = ("pooler/dense/kernel", "pooler/dense/bias")
    _, path = save("masked lm")
    model, report = load_with_report(path, BertPretrainer, nsp=True)
    assert report.new == (*pooler, "next_sentence/dense/kernel", "next_sentence/dense/bias")
    assert model.masked_lm is not None and model.next_sentence is not None
    model, report = load_with_report(path, BertEncoder)
    assert model.pooler is None and report.new == ()
    assert load_with_report(path, BertEncoder, pooler=True)[1].new == pooler
    model, report = load_with_report(save("pretrainer")[1], BertPretrainer, nsp=False)
    assert model.next_sentence is None and report.new == () and len(report.unused) == 2


# === Preprocessor ===

LONG = dataclasses.replace(SMALL, max_position_embeddings=300)


@pytest.mark.parametrize(
    "tokenization, config, note",
    [
        (None, {}, "No preprocessor was created: "),
        (UNCASED, {"vocab_size": 143},
         " has 15 tokens in its vocabulary but 143 embeddings. The vocabulary may be truncated."),
        (Tokenization((*PIECES, *"bcdefg"), True), {},
         "has 21 pieces, more than the model's vocab_size=20. Use the model's vocabulary, or for a "
         "new model set vocab_size to at least 21."),
        (UNCASED, {"max_position_embeddings": 4}, "max_seq_length=4"),
    ],
)  # fmt: skip
def test_missing_or_mismatched_vocabulary_causes_warning(save, tokenization, config, note):
    config = dataclasses.replace(SMALL, **config)
    _, path = save("encoder", tokenization=tokenization, config=config)
    with pytest.warns(DifferenceWarning) as caught:
        model = load(path)
    (warning,) = caught
    assert note in str(warning.message) and warning.filename == __file__
    has_preprocessor = "No preprocessor was created: " not in str(warning.message)
    assert (model.preprocessor is not None) is has_preprocessor
    if tokenization and "21" not in note and not has_preprocessor:
        with pytest.raises(
            ValueError,
            match=r"max_seq_length=5: expected at most 4 \(max_position_embeddings of ",
        ):
            load(path, max_seq_length=5)


def test_max_seq_length(save):
    _, path = save("encoder", tokenization=UNCASED, config=LONG)
    assert load(path).preprocessor.max_seq_length == 128
    assert load(path, max_seq_length=300).preprocessor.max_seq_length == 300
    for length, message in (
        (
            301,
            r"max_seq_length=301: expected at most 300 \(max_position_embeddings of ",
        ),
        (
            4,
            r"max_seq_length=4: expected at least 5, for \[CLS\], two \[SEP\] and "
            "one token of each text",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            load(path, max_seq_length=length)


# === Errors ===

ERRORS = [
    ("classifier", {"without": ["classifier/"]}, {},
     r"m lacks weights of the model: classifier/kernel, classifier/bias \(unused: .*\)\. Use a "
     r"complete checkpoint, or a model without these weights\.$"),
    *(
        ("pretrainer", {"without": [prefix]}, {"model_class": model_class, "new_head": is_new},
         rf"m lacks weights of the model: {names} \(unused: .*\)\. Use a complete checkpoint, or a "
         r"model without these weights\.$")
        for prefix, names, model_class, is_new in (
            ("masked_lm/layer_norm/beta", "masked_lm/layer_norm/beta", None, False),
            ("masked_lm/layer_norm/beta", "masked_lm/layer_norm/beta", BertPretrainer, False),
            ("embeddings/layer_norm/gamma", "embeddings/layer_norm/gamma", None, False),
            ("embeddings/layer_norm/gamma", "embeddings/layer_norm/gamma", BertPretrainer, True),
            ("layer_0/", "layer_0/.*, .* and 8 more", BertEncoder, True),
        )
    ),
    ("classifier", {"changed": {"classifier/kernel": stored("k", np.zeros((8, 4), "f"))}}, {},
     "m has tensors whose shapes do not match its config or the arguments: "
     r"model/bert_classifier/classifier/kernel: expected \(8, 3\), got \(8, 4\)\. Fix the "
     "config, or pass new_head=True to replace the head"),
    ("classifier", {}, {"model_class": BertClassifier, "num_classes": 5},
     r"classifier/kernel: expected \(8, 5\), got \(8, 3\); .*/classifier/bias: expected \(5,\), "
     r"got \(3,\)\. .* pass new_head=True to replace the head\.$"),
    ("encoder", {}, {"num_classes": 3, "dropout": 0.1},
     r"^num_classes, dropout: arguments require model_class\. Pass model_class; .*m contains a "
     r"BertEncoder\.$"),
    ("encoder", {}, {"model_class": keras.Model}, "model_class=<class .*>: expected one of "
     "BertEncoder, BertPretrainer, BertClassifier, BertRegressor, BertTokenClassifier, "
     "BertFeatureTagger, BertSpanPredictor, BertMultipleChoice"),
    ("encoder", {}, {"model_class": BertClassifier},
     "m contains a BertEncoder, which does not set the number of classes of a BertClassifier. Pass "
     r"num_classes\.$"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "arguments", "message"), ERRORS)
def test_errors(save, name, damage, arguments, message):
    _, path = save(name, **damage)
    with pytest.raises(ValueError, match=message):
        load(path, **arguments)


def test_incomplete_head_is_replaced_on_request(save):
    _, path = save("classifier", without=["classifier/"])
    assert load_with_report(path, BertClassifier)[1].new == ("classifier/kernel", "classifier/bias")
    _, path = save("pretrainer", without=["masked_lm/layer_norm/beta"])
    report = load_with_report(path, BertPretrainer, new_head=True)[1]
    assert report.new[0] == "masked_lm/dense/kernel"


def test_shape_mismatch_is_detected_before_building(save, monkeypatch, tmp_path):
    _, path = save("encoder")
    config = dataclasses.replace(SMALL, vocab_size=10**7, intermediate_size=10**6)
    (tmp_path / "m" / "bert_config.json").write_text(config.to_json())
    monkeypatch.setattr("bert_tf.checkpoints.load.build_model", None)
    message = (
        r"word_embeddings: expected \(10000000, 8\), got \(20, 8\); .*\)\. Fix the config, or pass "
        "new_head=True to replace the head"
    )
    with pytest.raises(ValueError, match=message):
        load(path)
