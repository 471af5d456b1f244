"""Contents of exports, recorded answers and rejected arguments."""

import functools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.eager import context as eager

import bert_tf.saved_models
from bert_tf.answering.embeddings import endpoints
from bert_tf.answering.signatures import Signature
from bert_tf.checkpoints.load import load_with_report, open_checkpoint
from bert_tf.modeling import BertClassifier, BertEncoder, BertFeatures
from bert_tf.pipelines.vocabulary import load_vocabulary
from bert_tf.saved_models import ExportOptions, exporting
from bert_tf.saved_models.exporting import export
from bert_tf.training import precision

from .conftest import SMALL, VOCAB, assert_same, serve, traced_tokenizer

TEXTS = ["The [MASK] sat, un[MASK]s.", "", "[CLS] the cat [SEP]", "the mat " * 30, "[MASK]"]


@pytest.fixture(scope="module")
def trained():
    """A model as after training, with mixed precision and variables of a strategy."""
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = BertEncoder(SMALL, dtype="mixed_bfloat16")
    model.thresholds = {"temperature": 2.0}
    return model


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("export") / "new" / "1")
    options = ExportOptions(max_seq_length=16)
    return export(trained, folder, tokenizer=traced_tokenizer(), options=options, name="mine")


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(exported.path)


def test_functions_are_traced_once(trained, tmp_path, monkeypatch):
    functions = {}

    def recorded(served):
        functions.update(endpoints(served))
        return functions

    monkeypatch.setattr(exporting, "endpoints", recorded)
    options = ExportOptions(max_seq_length=16)
    export(trained, str(tmp_path / "1"), tokenizer=traced_tokenizer(), options=options)
    counts = {name: each.experimental_get_tracing_count() for name, each in functions.items()}
    assert len(counts) == 4 and set(counts.values()) == {1}


def test_contents_of_an_export(exported):
    root = os.path.dirname(exported.path)
    assert os.listdir(root) == ["1"]
    found = {
        os.path.relpath(os.path.join(folder, name), exported.path)
        for folder, _, names in os.walk(exported.path)
        for name in names
    }
    names = ("serving_default", "tokens")
    samples = {
        f"assets.extra/samples/{name}.{number}.{suffix}"
        for name in names
        for number in range(len(exported.signatures[name].samples))
        for suffix in ("json", "request.pb", "response.pb")
    }
    assert found == samples | {
        "saved_model.pb",
        "fingerprint.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "batching_params.pbtxt",
        "assets.extra/README.md",
        "assets.extra/sha256.json",
        "assets.extra/model.json",
        "assets.extra/vocab.txt",
        "assets.extra/bert_config.json",
        "assets.extra/model.config",
        "assets.extra/tf_serving_warmup_requests",
    }
    extra = os.path.join(exported.path, "assets.extra")
    assert load_vocabulary(os.path.join(extra, "vocab.txt")) == VOCAB
    with open(os.path.join(extra, "bert_config.json")) as file:
        assert file.read() == SMALL.to_json()
    with open(os.path.join(extra, "README.md")) as file:
        card = file.read()
    assert card.startswith("# mine\n\nA BertEncoder.") and "### `tokens`\n" in card


def test_export_is_loaded_as_checkpoint(exported, trained):
    # The parent directory of versions selects the newest.
    model = bert_tf.load(os.path.dirname(exported.path))
    assert type(model) is BertEncoder and model.preprocessor.tokenizer.vocab == VOCAB
    assert model.thresholds == trained.thresholds
    for found, weight in zip(model.weights, trained.weights, strict=True):
        assert found.path == weight.path
        np.testing.assert_array_equal(found, weight, err_msg=weight.path)
    _, report = load_with_report(exported.path, BertClassifier, num_classes=2)
    assert report.new == ("classifier/kernel", "classifier/bias") and report.unused == ()
    states = BertFeatures.from_checkpoint(exported.path, "last", dtype="float32")
    inputs = {key: tf.constant([[1, 1, 0]]) for key in states.encoder.input}
    expected = model(inputs)["sequence_output"]
    np.testing.assert_array_equal(states(inputs), expected)


def test_export_without_config_or_weights_raises_error(exported, tmp_path):
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "saved_model.pb").touch()
    message = "/1: expected an export of bert_tf, with saved_model.pb and assets.extra/model.json"
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)
    shutil.copytree(os.path.join(exported.path, "assets.extra"), folder / "assets.extra")
    tf.train.Checkpoint(step=tf.Variable(1)).write(str(folder / "variables" / "variables"))
    message = "/1 has no variables, because its weights are constants in the graph"
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)


def test_loaded_signatures_and_endpoints_return_recorded_answers(loaded, exported):
    assert set(loaded.signatures) == set(exported.signatures)
    for sample in exported.samples:
        function = loaded.signatures[sample.signature]
        tensors = {name: tf.constant(value) for name, value in sample.inputs.items()}
        assert_same(function(**tensors), sample.outputs)
        for answer in function(**{name: value[:0] for name, value in tensors.items()}).values():
            assert answer.shape[0] == 0, sample.signature
        if sample.signature == "tokens":
            states, wanted = loaded.encoder(tensors), sample.outputs["sequence_output"]
            np.testing.assert_allclose(states["sequence_output"], wanted, atol=1e-6)
            nested = {"default", "pooled_output", "sequence_output", "encoder_outputs"}
            assert set(states) == nested and len(states["encoder_outputs"]) == 1
    assert {weight.trainable for weight in loaded.weights.values()} == {True}
    states = loaded.text_encoder(TEXTS)
    wanted = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(states["default"], wanted["pooled_output"], atol=1e-5)
    lengths = states["input_mask"].numpy().sum(1)
    assert states["sequence_output"].shape[1] == lengths.max() == 16 and lengths.min() == 2
    assert {sample.signature for sample in exported.samples} == set(loaded.signatures)
    embeddings = {"mean_output", "cls_output", "pooled_output", "truncated", "invalid_utf8"}
    assert set(exported.outputs["serving_default"]) == embeddings
    assert callable(loaded.encoder_training)


# === Rejected arguments and interrupted exports ===


def test_rejected_arguments_leave_no_files(model, tokenizer, tmp_path):
    message = "bert_pretrainer has no preprocessor. Pass the tokenizer that the model was trained"
    with pytest.raises(ValueError, match=message):
        export(model, str(tmp_path / "1"))
    message = (
        r"""name='my model': expected letters, digits, "\.", "_" and "-", starting with a letter """
        "or a digit, because the name is part of the URL"
    )
    with pytest.raises(ValueError, match=message):
        export(model, str(tmp_path / "1"), tokenizer=tokenizer, name="my model")
    message = r"export cannot run in strategy\.scope\(\), where variables belong to the strategy"
    with (
        tf.distribute.MirroredStrategy(["CPU:0"]).scope(),
        pytest.raises(ValueError, match=message),
    ):
        export(model, str(tmp_path / "1"), tokenizer=tokenizer)
    assert not list(tmp_path.iterdir())


def test_samples_are_run_with_default_arithmetic(model, tokenizer, tmp_path, monkeypatch):
    """Samples do not use the bfloat16 arithmetic that training may have enabled."""
    seen = []

    def is_rewritten():
        options = eager.context().function_call_options.config_proto_serialized
        rewrites = config_pb2.ConfigProto.FromString(options).graph_options.rewrite_options
        enabled = rewriter_config_pb2.RewriterConfig.ON
        return rewrites.auto_mixed_precision_onednn_bfloat16 == enabled

    def run(*arguments):
        seen.append(is_rewritten())
        raise KeyboardInterrupt

    # A fast stub in place of the model's signatures.
    signature = Signature(
        lambda text: {"length": tf.strings.length(text)},
        {"text": tf.TensorSpec([None], tf.string)},
        ({"text": ["a"]},),
        "It counts.",
    )
    monkeypatch.setattr(exporting, "serve", lambda model, *_: serve(model))
    monkeypatch.setattr(exporting, "model_signatures", lambda _: {"serving_default": signature})
    monkeypatch.setattr(exporting, "endpoints", lambda _: {})
    monkeypatch.setattr(exporting, "run_samples", run)
    # A process-wide setting also applies to new threads.
    pool = functools.partial(ThreadPoolExecutor, initializer=precision.set_rewrite, initargs=[True])
    monkeypatch.setattr(exporting, "ThreadPoolExecutor", pool)
    with precision.preserved_arithmetic():
        precision.set_precision("bfloat16", "CPU")
        with pytest.raises(KeyboardInterrupt):
            export(model, str(tmp_path / "1"), tokenizer=tokenizer)
        assert is_rewritten()
    assert seen == [False] and not list(tmp_path.iterdir())
