"""Which format a path is, and what is said of a path that is none."""

import os

import pytest

from bert_tf.interchange import conversion
from bert_tf.interchange.recognition import open_checkpoint
from tests.interchange.hugging_face_files import ENCODER, POOLER, random_tensors, write_directory
from tests.interchange.small_checkpoints import MODELS, UNCASED, make_checkpoint


def _write(folder, form):
    path = folder / ("m.keras" if form == "keras" else "m")
    if form != "keras":
        path.mkdir()
    checkpoint = make_checkpoint(MODELS["encoder"], tokenization=UNCASED)
    conversion._WRITERS[form](checkpoint, str(path))
    return path


@pytest.mark.parametrize("form", conversion.FORMATS)
def test_every_format_that_is_written(tmp_path, form):
    path = _write(tmp_path, form)
    for spelling in (str(path), path, *([] if form == "keras" else [f"{path}/"])):
        checkpoint = open_checkpoint(spelling)
        assert (checkpoint.format, checkpoint.path) == (form, str(path))


def test_a_prefix(tmp_path):
    path = _write(tmp_path, "google_tf1")
    assert open_checkpoint(path / "bert_model.ckpt").format == "google_tf1"


def test_only_hugging_faces_reader_is_told_to_unpickle(tmp_path, monkeypatch):
    path = write_directory(tmp_path / "hf", random_tensors({**ENCODER, **POOLER}))
    os.rename(f"{path}/model.safetensors", f"{path}/pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is a pickle"):
        open_checkpoint(path)
    asked = []
    monkeypatch.setattr(
        "bert_tf.interchange.torch_files.open_pytorch_bin",
        lambda path, allow_pickle: asked.append(allow_pickle) or {},
    )
    open_checkpoint(path, allow_pickle=True)
    assert asked == [True]


# === Nothing that can be read ===


def test_nothing_there(tmp_path):
    for name in ("no", "no.keras", "folder/bert_model.ckpt"):
        with pytest.raises(
            ValueError, match=r"^There is no checkpoint at .*: expected a directory, the prefix of"
        ):
            open_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    "files, there",
    [
        ([], "a directory with nothing in it"),
        (["b.txt", "a.txt"], "a directory with a.txt, b.txt in it"),
        (list("abcdefghij"), "a directory with a, b, c, d, e, f, g, h and 2 more"),
        (["config.json"], "a directory with config.json in it"),
    ],
)
def test_a_directory_of_something_else(tmp_path, files, there):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError) as caught:
        open_checkpoint(tmp_path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{tmp_path} is no checkpoint that can be recognised: expected mod")
    assert sentence.endswith(f"; it is {there}.")


def test_a_file_of_a_checkpoint(tmp_path):
    path = write_directory(tmp_path / "hf", random_tensors({**ENCODER, **POOLER}))
    with pytest.raises(ValueError, match=r"; it is a file: name the directory that it lies in\.$"):
        open_checkpoint(f"{path}/model.safetensors")
