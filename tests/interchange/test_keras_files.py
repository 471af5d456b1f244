"""``.keras`` files: Keras opens what is written, what Keras wrote is read, bombs are refused."""

import io
import json
import os
import tempfile
import zipfile

import h5py
import keras
import pytest

from bert_tf.interchange import keras_files
from bert_tf.interchange.weights import assign, build_model
from tests.interchange.small_checkpoints import (
    CASED,
    CONFIG,
    MODELS,
    assert_bit_equal,
    fused,
    make_checkpoint,
    read_all,
    variables_of,
)

EVERY_MODEL = pytest.mark.parametrize(
    "name",
    [
        name if name == "pretrainer" else pytest.param(name, marks=pytest.mark.slow)
        for name in MODELS
    ],
)


@EVERY_MODEL
def test_keras_opens_what_is_written(tmp_path, name):
    checkpoint = make_checkpoint(MODELS[name], tokenization=CASED)
    path = str(tmp_path / "model.keras")
    went = keras_files.write(checkpoint, path)
    assert os.listdir(tmp_path) == ["model.keras"]
    model = keras.saving.load_model(path, safe_mode=True)
    assert type(model).__name__ == MODELS[name].class_name and model.config == CONFIG
    assert_bit_equal(variables_of(model), fused(read_all(checkpoint)))
    with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as file:
        with h5py.File(io.BytesIO(file.read())) as weights:
            places = []
            weights.visititems(
                lambda place, item: places.append(place) if isinstance(item, h5py.Dataset) else None
            )
    assert set(went.values()) == set(places)


@EVERY_MODEL
def test_what_keras_saved_is_read(tmp_path, name):
    model = build_model(CONFIG, MODELS[name], dtype="mixed_bfloat16")
    assign(model, make_checkpoint(MODELS[name]).tensors)
    path = str(tmp_path / "model.keras")
    model.save(path)
    checkpoint = keras_files.open_checkpoint(path)
    assert (checkpoint.config, checkpoint.model.class_name) == (CONFIG, MODELS[name].class_name)
    assert_bit_equal(fused(read_all(checkpoint)), variables_of(model))
    assert checkpoint.tokenization is None and checkpoint.labels == ()
    (note,) = checkpoint.notes
    assert note.startswith(f"{path} has neither vocabulary nor labels, as Keras' own save keeps")
    assert checkpoint.unused == ()


def test_the_optimizers_weights_are_unused(tmp_path):
    model = build_model(CONFIG, MODELS["classifier"])
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    path = str(tmp_path / "model.keras")
    model.save(path)
    checkpoint = keras_files.open_checkpoint(path)
    assert_bit_equal(fused(read_all(checkpoint)), variables_of(model))
    assert len(checkpoint.unused) > 2 * len(model.weights)
    assert all(name.startswith("optimizer/") for name in checkpoint.unused)


def test_what_keras_has_no_place_for(tmp_path):
    labels = ("a", "b", "c")
    checkpoint = make_checkpoint(
        MODELS["classifier"], tokenization=CASED, labels=labels, multi_label=True
    )
    path = str(tmp_path / "model.keras")
    keras_files.write(checkpoint, path)
    read = keras_files.open_checkpoint(path)
    assert (read.tokenization, read.labels, read.multi_label) == (CASED, labels, True)
    assert read.model == MODELS["classifier"] and read.notes == ()


@pytest.mark.parametrize("place", ["pooler/dense_of_old", "pooler"])
def test_a_keras_that_lays_out_files_otherwise(tmp_path, monkeypatch, place):
    monkeypatch.setitem(keras_files._PLACES, "pooler/dense", place)
    with pytest.raises(ImportError, match=r"keeps pooler/dense/kernel elsewhere than in layers/.*"):
        keras_files.write(make_checkpoint(MODELS["encoder"]), str(tmp_path / "m.keras"))


def test_a_keras_that_numbers_variables_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(
        keras_files, "_LEAVES", {**keras_files._LEAVES, "kernel": "vars/1", "bias": "vars/0"}
    )
    with pytest.raises(ImportError, match=r"^Keras .* keeps .*: install the version that this li"):
        keras_files.write(make_checkpoint(MODELS["encoder"]), str(tmp_path / "m.keras"))


def test_the_unpacked_copy_goes_when_no_tensor_needs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = str(tmp_path / "model.keras")
    keras_files.write(make_checkpoint(MODELS["encoder"]), path)
    checkpoint = keras_files.open_checkpoint(path)
    assert len(os.listdir(tmp_path / "temporary")) == 1
    tensor = checkpoint.tensors["pooler/dense/bias"]
    del checkpoint
    assert tensor.read().shape == (8,)
    del tensor
    assert os.listdir(tmp_path / "temporary") == []


def test_the_unpacked_copy_was_deleted(tmp_path):
    path = str(tmp_path / "model.keras")
    keras_files.write(make_checkpoint(MODELS["encoder"]), path)
    tensor = keras_files.open_checkpoint(path).tensors["pooler/dense/bias"]
    folder = next(
        cell.cell_contents for cell in tensor.read.__closure__
        if isinstance(cell.cell_contents, tempfile.TemporaryDirectory)
    )  # fmt: skip
    folder.cleanup()
    with pytest.raises(ValueError, match=r"where the weights were unpacked, is gone\.$"):
        tensor.read()


# === Refused ===


@pytest.fixture(scope="module")
def good_members(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("keras") / "good.keras")
    keras_files.write(make_checkpoint(MODELS["classifier"], tokenization=CASED), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def altered(tmp_path, good_members):
    """Writes a file whose members were changed: by a function of their JSON, or to other bytes."""
    members = dict(good_members)

    def alter(compression=zipfile.ZIP_STORED, **changes):
        for name in list(members):
            change = changes.get(name.split(".")[-2])
            if callable(change):
                values = json.loads(members[name])
                change(values)
                members[name] = json.dumps(values).encode()
            elif name.split(".")[-2] in changes:
                members[name] = change
        bad = str(tmp_path / "bad.keras")
        with zipfile.ZipFile(bad, "w", compression) as archive:
            for name, content in members.items():
                if content is not None:
                    archive.writestr(name, content)
        return bad

    return alter


def _set(place, key, value):
    def change(values):
        for part in place:
            values = values[part]
        values[key] = value

    return change


def _lambda(values):
    values.clear()
    values.update(
        {"module": "keras.layers", "class_name": "Lambda", "registered_name": None,
         "config": {"name": "x", "function": {"class_name": "__lambda__", "config": {}}}}
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"config": _lambda}, r"bad\.keras holds a 'Lambda', expected a model of this library: B"),
        (
            {"config": _set([], "registered_name", "evil>BertClassifier")},
            r"holds a 'evil>BertClassifier', expected a model of this library",
        ),
        ({"config": _set([], "registered_name", ["x"])}, r"holds a \['x'\], expected a model"),
        ({"config": _set([], "config", None)}, r"config\.json has no sizes of a BERT under config"),
        (
            {"config": _set(["config"], "function", "os.system")},
            r"config\.json: BertClassifier cannot be made with function='os\.system'",
        ),
        ({"config": _set(["config"], "num_classes", -1)}, r"cannot be made with num_classes=-1"),
        (
            {"config": _set(["config", "config"], "model_type", "roberta")},
            r"bad\.keras, config\.json: model_type is 'roberta', expected 'bert'",
        ),
        (
            {"config": _set(["config", "config"], "num_hidden_layers", 10**9)},
            r"bad\.keras, config\.json: num_hidden_layers is 1000000000: expected at most 1,000",
        ),
        (
            {"config": _set(["config", "config"], "hidden_size", 4)},
            r"query_key_value/vars/\d is \(.*24.*\): expected 12 columns",
        ),
        ({"config": b"{"}, r"bad\.keras: config\.json in it is not JSON"),
        ({"config": b"[]"}, r"bad\.keras: config\.json in it: expected a JSON object, got a list"),
        ({"config": b"[" * 10**5}, r"bad\.keras: config\.json in it is not JSON"),
        ({"metadata": b"\xff"}, r"bad\.keras: metadata\.json in it is not JSON"),
        ({"metadata": _set([], "bert_tf", 5)}, r"metadata\.json: expected an object that"),
        (
            {"metadata": _set(["bert_tf"], "vocabulary", ["a", "a"])},
            r"'a' stands on line 1 and again on line 2",
        ),
        ({"config": None}, r"is not a \.keras file that can be read: .*no item named 'config"),
        ({"weights": None}, r"is not a \.keras file that can be read: .*no item named 'model"),
        ({"weights": b"garbage"}, r"bad\.keras, model\.weights\.h5 is not an HDF5 file that"),
    ],
)  # fmt: skip
def test_a_stranger_changed_a_member(altered, changes, sentence):
    path = altered(**changes)
    with pytest.raises(ValueError, match=sentence) as caught:
        keras_files.open_checkpoint(path)
    assert "\n" not in str(caught.value) and tempfile.gettempdir() + "/bert_tf-" not in str(
        caught.value
    )


@pytest.mark.parametrize("member", ["config", "metadata", "weights"])
def test_bombs(altered, member):
    path = altered(zipfile.ZIP_DEFLATED, **{member: b" " * (70 << 20)})
    assert os.path.getsize(path) < 1 << 20
    with pytest.raises(ValueError, match=r"in it would unpack to 73,400,320 bytes, expected at mo"):
        keras_files.open_checkpoint(path)


def test_a_file_that_was_compressed_afterwards_is_read(altered):
    checkpoint = keras_files.open_checkpoint(altered(zipfile.ZIP_DEFLATED))
    assert_bit_equal(read_all(checkpoint), read_all(make_checkpoint(MODELS["classifier"])))


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_LZMA])
def test_cut_off(altered, kept, compression):
    path = altered(compression)
    os.truncate(path, int(os.path.getsize(path) * kept))
    with pytest.raises(ValueError, match=r"bad\.keras is not a \.keras file that can be read"):
        keras_files.open_checkpoint(path)


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_damaged_in_the_middle(altered, compression):
    path = altered(compression)
    with open(path, "rb+") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"\xff" * 64)
    with pytest.raises(ValueError, match=r"bad\.keras is not a \.keras file that can be read"):
        keras_files.open_checkpoint(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compressed_member_that_cannot_be_unpacked(altered, compression):
    path = altered(compression)
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("model.weights.h5")
    with open(path, "rb+") as file:
        # Behind the member's local header, and LZMA's own.
        file.seek(member.header_offset + 30 + len(member.filename) + 12)
        file.write(b"\xff" * 200)
    with pytest.raises(ValueError, match=r"bad\.keras is not a \.keras file that can be read"):
        keras_files.open_checkpoint(path)
