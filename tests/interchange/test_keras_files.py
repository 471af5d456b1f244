"""``.keras`` files: Keras opens what is written, what Keras wrote is read, bombs are refused."""

import json
import os
import tempfile
import zipfile

import keras
import pytest

from bert_tf.interchange import hdf5_files, keras_files
from tests.interchange.small_checkpoints import (
    CASED,
    CONFIG,
    MODELS,
    SMALL,
    assert_bit_equal,
    fused,
    make_checkpoint,
    read_all,
    variables_of,
)

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name != "pretrainer"]


@pytest.mark.parametrize("name", ["pretrainer", *SLOW])
def test_keras_opens_what_is_written_and_what_it_saves_is_read(tmp_path, name):
    checkpoint = make_checkpoint(MODELS[name], tokenization=CASED)
    path = str(tmp_path / "model.keras")
    went = keras_files.write(checkpoint, path)
    assert os.listdir(tmp_path) == ["model.keras"]
    model = keras.saving.load_model(path, safe_mode=True)
    assert type(model).__name__ == MODELS[name].class_name and model.config == CONFIG
    assert_bit_equal(variables_of(model), fused(read_all(checkpoint)))
    with zipfile.ZipFile(path) as archive:
        archive.extract("model.weights.h5", tmp_path)
    assert set(went.values()) == set(hdf5_files.open_file(str(tmp_path / "model.weights.h5")))
    # And back, with an optimizer's weights.
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    model.save(path)
    checkpoint = keras_files.open_checkpoint(path)
    assert (checkpoint.config, checkpoint.model.class_name) == (CONFIG, MODELS[name].class_name)
    assert_bit_equal(fused(read_all(checkpoint)), variables_of(model))
    assert checkpoint.tokenization is None and checkpoint.labels == ()
    (note,) = checkpoint.notes
    assert note.startswith(f"{path} has neither vocabulary nor labels, as Keras' own save keeps")
    assert len(checkpoint.unused) > 2 * len(model.weights)
    assert all(name.startswith("optimizer/") for name in checkpoint.unused)


@pytest.mark.parametrize(
    "table, changes",
    [
        ("_PLACES", {"pooler/dense": "pooler/dense_of_old"}),
        ("_PLACES", {"pooler/dense": "pooler"}),
        ("_LEAVES", {"kernel": "vars/1", "bias": "vars/0"}),
    ],
)
def test_a_keras_that_lays_out_files_otherwise(tmp_path, monkeypatch, table, changes):
    monkeypatch.setattr(keras_files, table, getattr(keras_files, table) | changes)
    sentence = r"^Keras .* keeps \S+ elsewhere than in layers/.*: install the version that this li"
    with pytest.raises(ImportError, match=sentence):
        keras_files.write(make_checkpoint(MODELS["encoder"], SMALL), str(tmp_path / "m.keras"))


def test_the_unpacked_copy_goes_when_no_tensor_needs_it(tmp_path, monkeypatch):
    """And is missed where it was deleted before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = str(tmp_path / "model.keras")
    keras_files.write(make_checkpoint(MODELS["encoder"], SMALL), path)
    checkpoint = keras_files.open_checkpoint(path)
    assert len(os.listdir(tmp_path / "temporary")) == 1
    tensor = checkpoint.tensors["pooler/dense/bias"]
    del checkpoint
    assert tensor.read().shape == (8,)
    del tensor
    assert os.listdir(tmp_path / "temporary") == []
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

    def alter(compression=zipfile.ZIP_STORED, **changes):
        bad = str(tmp_path / "bad.keras")
        with zipfile.ZipFile(bad, "w", compression) as archive:
            for name, content in good_members.items():
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
    """Sets a value of a member's JSON; the key has the keys above, too, between slashes."""

    def change(values):
        *above, last = key.split("/")
        for part in above:
            values = values[part]
        values[last] = value

    return change


LAMBDA = {"class_name": "Lambda", "config": {"function": {"class_name": "__lambda__"}}}


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"config": json.dumps(LAMBDA)},
         r"bad\.keras holds a 'Lambda', expected a model of this l"),
        ({"config": _set("registered_name", "evil>BertClassifier")},
         r"holds a 'evil>BertClassifier', expected a model of this library"),
        ({"config": _set("config/function", "os.system")},
         r"config\.json: BertClassifier cannot be made with function='os\.system'"),
        ({"config": _set("config/config/model_type", "roberta")},
         r"bad\.keras, config\.json: model_type is 'roberta', expected 'bert'"),
        ({"config": b"[" * 10**5}, r"bad\.keras: config\.json in it is not JSON"),
        ({"metadata": b"\xff"}, r"bad\.keras: metadata\.json in it is not JSON"),
        ({"metadata": _set("bert_tf", 5)}, r"metadata\.json: expected an object that"),
        ({"config": None}, r"is not a \.keras file that can be read: .*no item named 'config"),
        ({"weights": b"garbage"}, r"bad\.keras, model\.weights\.h5 is not an HDF5 file that"),
    ],
)  # fmt: skip
def test_a_stranger_changed_a_member(altered, changes, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        keras_files.open_checkpoint(altered(**changes))
    assert "\n" not in str(caught.value)
    assert tempfile.gettempdir() + "/bert_tf-" not in str(caught.value)


@pytest.mark.parametrize("member", ["config", "weights"])
def test_bombs(altered, member, monkeypatch):
    monkeypatch.setattr(keras_files, "_MAX_TEXT_BYTES", 1 << 20)
    path = altered(zipfile.ZIP_DEFLATED, **{member: b" " * (3 << 20)})
    assert os.path.getsize(path) < 1 << 19
    with pytest.raises(ValueError, match=r"in it would unpack to 3,145,728 bytes, expected at mo"):
        keras_files.open_checkpoint(path)


COMPRESSIONS = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_that_was_compressed_afterwards_is_read_and_its_damage_refused(altered, compression):
    path = altered(compression)
    checkpoint = keras_files.open_checkpoint(path)
    assert_bit_equal(read_all(checkpoint), read_all(make_checkpoint(MODELS["classifier"])))
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("model.weights.h5")
    with open(path, "rb+") as file:
        # Behind the member's local header, and LZMA's own.
        file.seek(member.header_offset + 30 + len(member.filename) + 12)
        file.write(b"\xff" * 200)
    with pytest.raises(ValueError, match=r"bad\.keras is not a \.keras file that can be read"):
        keras_files.open_checkpoint(path)
