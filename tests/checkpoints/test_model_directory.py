"""Directories of bert_tf, whose latest intact checkpoint is read, and ``.keras`` files."""

import json
import os
import tempfile
import zipfile

import keras
import pytest

from bert_tf.checkpoints import model_directory
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.weights import assign, build_model
from bert_tf.training import saved_states
from tests.checkpoints import small_checkpoints as small


def test_latest_intact_checkpoint_is_read(tmp_path):
    model = build_model(small.CONFIG, small.MODELS["classifier"])
    description = Checkpoint(
        *(str(tmp_path), "bert_tf", small.CONFIG, small.MODELS["classifier"]),
        tokenization=small.UNCASED,
        labels=("a", "b", "c"),
    )
    model_directory.write_description(description, str(tmp_path))
    for step in (1, 2):
        model.classifier.bias.assign([step, 0, 0])
        others = dict.fromkeys(("opt/moment", "model/bert_classifier/old"), keras.Variable([0.0]))
        _save(tmp_path, step, model, others)
    checkpoint = model_directory.read_checkpoint(str(tmp_path))
    assert checkpoint.tensors["classifier/bias"].read().tolist() == [2, 0, 0]
    assert checkpoint.unused == ("model/bert_classifier/old",)  # optimizer variables are not listed
    assert (checkpoint.labels, checkpoint.tokenization) == (("a", "b", "c"), small.UNCASED)
    assert checkpoint.config == small.CONFIG and checkpoint.model == small.MODELS["classifier"]
    small.assert_bit_equal(small.fused(small.read_all(checkpoint)), small.variables_of(model))
    # A damaged checkpoint is skipped and reported.
    data = tmp_path / "checkpoints/step-00000002/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    checkpoint = model_directory.read_checkpoint(str(tmp_path))
    assert checkpoint.tensors["classifier/bias"].read().tolist() == [1, 0, 0]
    (note,) = checkpoint.notes
    assert note.startswith("Skipped the checkpoint ") and "step-00000002" in note


def _save(folder, step, model, others=None):
    """Saves the variables of a model as in training."""
    variables = {f"model/{variable.path}": variable for variable in model.weights}
    saved_states.save(str(folder / "checkpoints"), step, {**variables, **(others or {})}, {})


# === .keras files ===

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in small.MODELS if name != "pretrainer"]


def keras_file(path, checkpoint):
    """Saves a model with Keras, including optimizer variables, and returns the path."""
    model = build_model(checkpoint.config, checkpoint.model)
    assign(model, checkpoint.tensors)
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    model.save(path)
    return str(path)


@pytest.mark.parametrize("name", ["pretrainer", *SLOW])
def test_keras_file_is_read(tmp_path, name):
    expected = small.make_checkpoint(small.MODELS[name])
    path = keras_file(tmp_path / "m.keras", expected)
    checkpoint = model_directory.read_checkpoint(path)
    assert (checkpoint.config, checkpoint.model.class_name) == (
        small.CONFIG,
        small.MODELS[name].class_name,
    )
    small.assert_bit_equal(small.read_all(checkpoint), small.read_all(expected))
    assert checkpoint.tokenization is None and checkpoint.labels == ()
    (note,) = checkpoint.notes
    assert note.startswith(f"{path} has no vocabulary and no labels, so the model has no ")


# === Errors ===


@pytest.fixture(scope="module")
def valid_members(tmp_path_factory):
    path = tmp_path_factory.mktemp("keras") / "good.keras"
    with zipfile.ZipFile(
        keras_file(path, small.make_checkpoint(small.MODELS["classifier"]))
    ) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def altered(tmp_path, valid_members):
    """Returns a function that writes a file with changed members.

    A change is a function of the parsed JSON, new bytes, or None to remove the member.
    """

    def alter(compression=zipfile.ZIP_STORED, **changes):
        bad = str(tmp_path / "bad.keras")
        with zipfile.ZipFile(bad, "w", compression) as archive:
            for name, content in valid_members.items():
                change = changes.get(name.split(".")[-2], content)
                if callable(change):
                    values = json.loads(content)
                    change(values)
                    change = json.dumps(values)
                if change is not None:
                    archive.writestr(name, change)
        return bad

    return alter


def _set(key, value):
    """Returns a change that sets a value in nested JSON. `key` is a path separated by slashes."""

    def change(values):
        *parents, last = key.split("/")
        for part in parents:
            values = values[part]
        values[last] = value

    return change


LAMBDA = {"class_name": "Lambda", "config": {"function": {"class_name": "__lambda__"}}}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"config": json.dumps(LAMBDA)},
         r"bad\.keras: expected a model of bert_tf .*, got 'Lambda'"),
        ({"config": _set("registered_name", "evil>BertClassifier")},
         r"expected a model of bert_tf .*, got 'evil>BertClassifier'"),
        ({"config": _set("config/function", "os.system")},
         r"config\.json: function='os\.system' is not a valid argument of BertClassifier"),
        ({"config": _set("config/config/vocab_size", 10**7)},
         r"bad\.keras: model\.weights\.h5 is too small for the [\d,]+ weights of config\.json"),
        ({"config": _set("config/config/vocab_size", 19)},
         r"bad\.keras: the weights do not match a BertClassifier of this config: "),
        ({"config": None}, r"cannot be read as a \.keras file: .*no item named 'config"),
        ({"weights": b"garbage" * 10_000}, r"bad\.keras: the weights do not match .*cannot be read "
         "as HDF5"),
    ],
)  # fmt: skip
def test_changed_member_raises_error(altered, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        model_directory.read_checkpoint(altered(**changes))
    assert "\n" not in str(caught.value)
    assert tempfile.gettempdir() + "/bert_tf-" not in str(caught.value)


@pytest.mark.parametrize("member", ["config", "weights"])
def test_zip_bomb_raises_error(altered, member, monkeypatch):
    monkeypatch.setattr(model_directory, "_MAX_TEXT_BYTES", 1 << 20)
    path = altered(zipfile.ZIP_DEFLATED, **{member: b" " * (3 << 20)})
    assert os.path.getsize(path) < 1 << 19
    message = r"expected at most [\d,]+ bytes when unpacked, got 3,145,728\.$"
    with pytest.raises(ValueError, match=message):
        model_directory.read_checkpoint(path)
