"""Which format a path is, and what is said of a path that is none."""

import dataclasses
import os

import numpy as np
import pytest

from bert_tf import load
from bert_tf.checkpoints import conversion
from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.formats import WRITTEN
from tests.checkpoints.hugging_face_files import ENCODER, POOLER, random_tensors, write_directory
from tests.checkpoints.small_checkpoints import (
    MODELS,
    PIECES,
    UNCASED,
    make_checkpoint,
    read_all,
    stored,
    write,
)


def _write(folder, form):
    return write(make_checkpoint(MODELS["encoder"], tokenization=UNCASED), form, folder)


def test_only_hugging_faces_reader_is_told_to_unpickle(tmp_path, monkeypatch):
    path = write_directory(tmp_path / "hf", random_tensors({**ENCODER, **POOLER}))
    os.rename(f"{path}/model.safetensors", f"{path}/pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is a pickle"):
        open_checkpoint(path)
    asked = []
    monkeypatch.setattr(
        "bert_tf.checkpoints.tensor_files.open_pickle",
        lambda path, allow_pickle: asked.append(allow_pickle) or {},
    )
    open_checkpoint(path, allow_pickle=True)
    assert asked == [True]


@pytest.mark.parametrize("form", WRITTEN)
def test_a_vocabulary_with_more_pieces_than_embeddings_is_none(tmp_path, form):
    larger = Tokenization((*PIECES, *"bcdefg"), True)
    found = open_checkpoint(
        write(make_checkpoint(MODELS["encoder"], tokenization=larger), form, tmp_path)
    )
    assert found.tokenization is None
    assert "has 21 pieces, but the model's vocab_size is 20: take" in found.notes[-1]


# === Values that no model computes with ===


@pytest.mark.parametrize("form", WRITTEN)
def test_a_value_that_is_no_number_is_refused_by_its_name(tmp_path, form):
    """Such a model gives NaN for every text."""
    checkpoint = make_checkpoint(MODELS["encoder"], tokenization=UNCASED)
    tensors = dict(checkpoint.tensors)
    kernel = tensors["layer_1/intermediate/kernel"].read().copy()
    kernel[-1, -1] = np.nan
    tensors["layer_1/intermediate/kernel"] = stored("x", kernel)
    path = write(dataclasses.replace(checkpoint, tensors=tensors), form, tmp_path)
    sentence = rf"^{path}: \S*(intermediate|feed_forward)\S* has a value that is infinite or no num"
    with pytest.raises(ValueError, match=sentence):
        read_all(open_checkpoint(path))
    if form == "bert_tf":
        with pytest.raises(ValueError, match=sentence):
            load(path)
        with pytest.raises(ValueError, match=sentence):
            conversion.convert(path, str(tmp_path / "converted"), "bert_tf")
        assert not (tmp_path / "converted").exists()


# === Nothing that can be read ===


def test_an_error_without_a_file_gets_the_checkpoints_name(tmp_path, monkeypatch):
    path = _write(tmp_path, "bert_tf")

    def fails(*arguments):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr("bert_tf.checkpoints.tensor_files.Bundle.read", fails)
    checkpoint = open_checkpoint(path)
    with pytest.raises(ValueError, match=rf"^{path} cannot be read: std::bad_alloc$"):
        checkpoint.tensors["layer_0/output/bias"].read()
    monkeypatch.setattr("bert_tf.checkpoints.model_directory.Bundle", fails)
    with pytest.raises(ValueError, match=rf"^{path} cannot be read: std::bad_alloc$"):
        open_checkpoint(path)


def test_nothing_there(tmp_path):
    for name in ("no", "no.keras", "folder/bert_model.ckpt"):
        with pytest.raises(
            ValueError, match=r"^There is no checkpoint at .*: expected a directory, the pref"
        ):
            open_checkpoint(tmp_path / name)
    with pytest.raises(ValueError, match="^There is no checkpoint at : expected"):  # not of /
        open_checkpoint("")
    meant = r" Face hub \(did you mean hf://google-bert/bert-base-cased\?\), or tiny, which"
    for name in ("bert-base-cased", "google-bert/bert-base-cased"):
        with pytest.raises(ValueError, match=meant):
            open_checkpoint(name)


@pytest.mark.parametrize(
    "files, there",
    [
        ("", "a directory with nothing in it"),
        ("abcdefghij", "a directory with a, b, c, d, e, f, g, h and 2 more in it"),
        (["config.json"], "a directory with config.json in it"),
    ],
)
def test_a_directory_of_something_else(tmp_path, files, there):
    for name in files:
        (tmp_path / name).write_text("{}")
    sentence = rf"^{tmp_path} is not a checkpoint of a known format: .*; it is {there}\.$"
    with pytest.raises(ValueError, match=sentence):
        open_checkpoint(tmp_path)


def test_a_file_of_a_checkpoint(tmp_path):
    path = write_directory(tmp_path / "hf", random_tensors(ENCODER))
    with pytest.raises(ValueError, match=r"; it is a file: name the directory that it lies in\.$"):
        open_checkpoint(f"{path}/model.safetensors")
