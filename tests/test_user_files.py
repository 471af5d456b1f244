"""What is the user's stays as it is, whatever a command is given as its output, however it ends."""

import dataclasses
import functools
import json
import os
import shutil
import stat
from unittest import mock

import pytest
import tensorflow as tf

import bert_tf
from bert_tf import vocab
from bert_tf.extraction import run as extraction
from bert_tf.extraction.settings import resolve
from bert_tf.finetuning.run import run as finetune
from bert_tf.interchange import google, hugging_face, model_directory
from bert_tf.interchange.conversion import convert
from bert_tf.pretraining.run import run as pretrain
from bert_tf.saved_models import export
from tests.finetuning import small_runs
from tests.interchange.small_checkpoints import MODELS, UNCASED, make_checkpoint
from tests.killing import kill_at_a_write
from tests.predicting import prediction_models
from tests.preparation import small as preparation
from tests.pretraining import commands

# Names that a command might take for its own.
_FOREIGN = (
    "mine.txt", "flags.json.bak", "vocab.txt", "bert_config.json", "model.json", "inputs.json",
    "manifest.json", "results.json", "task.json", "part-000000.jsonl", "part-000001.jsonl.partial",
    "variables.index", ".hidden", "checkpoints/step-00000000/variables.index",
    "checkpoints/step-00000004/notes.txt", "last/step-00000006/mine", "corpus/sample.txt",
    "corpus/mine.idx", "logs/events", "runs/a/results.json", "export/1/saved_model.pb",
    "export/1.partial/mine", "dev/dev.tsv",
)  # fmt: skip
_FORMATS = {
    "bert_tf": model_directory,
    "huggingface": hugging_face,
    "google_tf1": google,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Inputs of every command."""
    folder = small_runs.write_inputs(tmp_path_factory.mktemp("world"))
    commands.write_corpus(folder / "corpus.txt")
    (folder / "config.json").write_text(json.dumps(commands.TINY))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in small_runs.VOCAB))
    prediction_models.write_classifier(folder / "classifier")
    prediction_models.write_texts(folder)
    checkpoint = make_checkpoint(MODELS["pretrainer"], tokenization=UNCASED)
    for form, module in _FORMATS.items():
        (folder / form).mkdir()
        module.write(checkpoint, str(folder / form))
    return folder


# === Every command that writes: inputs and an output's path to what it does ===


def _pretrain(world, output):
    given = commands.arguments(world, output, num_train_steps=2, save_checkpoints_steps=1)
    pretrain(commands.parse(*given)[0])


def _finetune(world, output):
    finetune(small_runs.settings(world, output, num_train_epochs=1))


def _predict(world, output):
    prediction_models.predict(world / "classifier", world / "texts.tsv", output)


def _export(world, output):
    export(_classifier(str(world / "classifier")), str(output))


@functools.cache
def _classifier(path):
    return bert_tf.load(path)


def _convert(form):
    return lambda world, output: convert(str(world / "tiny"), str(output), form)


def _extract_features(world, output):
    given = {"input": [str(world / "test.tsv")], "model": str(world / "tiny")}
    with mock.patch.object(extraction, "_load", _extractor):
        extraction.run(resolve(output=str(output), lines_per_shard=4, layers=["-1"], **given))


_load_extractor = functools.cache(extraction._load)


def _extractor(settings):
    """The model is loaded once, wherever its vectors go."""
    return _load_extractor(dataclasses.replace(settings, output=""))


def _prepare(world, output):
    preparation.prepare(world, output, input=[str(world / "corpus.txt")], min_characters=20)


def _vocab(overwrite):
    return lambda world, output: vocab.learn(
        [str(world / "corpus.txt")], str(output), overwrite=overwrite, vocab_size=60
    )


def _create_pretraining_data(world, output):
    given = [f"--input={world}/corpus.txt", f"--vocab_file={world}/vocab.txt", "--num_epochs=1",
             "--max_seq_length=16", "--max_predictions_per_seq=2"]  # fmt: skip
    preparation.create_pretraining_data(*given, f"--output_file={output}")


# By name: what it does, and what its output's name ends in.
DIRECTORIES = {
    "pretrain": (_pretrain, ""),
    "finetune": (_finetune, ""),
    "export": (_export, ""),
    "extract_features": (_extract_features, ""),
    "prepare": (_prepare, ""),
    **{f"convert to {form}": (_convert(form), "") for form in _FORMATS},
}
FILES = {
    "predict": (_predict, ".tsv"),
    "vocab": (_vocab(overwrite=False), ".txt"),
    "vocab --overwrite": (_vocab(overwrite=True), ".txt"),
    "create_pretraining_data": (_create_pretraining_data, ".tfrecord"),
}
COMMANDS = {**DIRECTORIES, **FILES}
# The user names a file to be replaced.
REPLACING = ("predict", "vocab --overwrite")


# === What may be there already ===


def write_foreign(folder):
    """Files of somebody's, and links among them, with any names."""
    for name in _FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"the user's {name}".encode())
    (folder / "link").symlink_to("mine.txt")
    (folder / "nowhere").symlink_to("missing")
    return folder


def place_foreign(world, kind, folder, output):
    """Puts what the kind says in an output's place, foreign files beside it."""
    elsewhere = write_foreign(folder / "elsewhere")
    (folder / "beside.txt").write_text("beside")
    if kind == "directory":
        write_foreign(output)
    elif kind == "link to a directory":
        output.symlink_to(elsewhere)
    elif kind == "link to a file":
        output.symlink_to(elsewhere / "mine.txt")
    elif kind == "dangling link":
        output.symlink_to(folder / "missing")
    elif kind == "file":
        output.write_text("the user's")
    elif kind.startswith("neighbours"):
        for name in (".partial", ".tmp", ".part", ".0.tmp", ".lock", "~"):
            write_foreign(folder / f"{output.name}{name}")
        for name in (".bak", ".old", ".new", "-1"):
            (folder / f"{output.name}{name}").symlink_to(elsewhere)
    else:
        copy = shutil.copyfile if kind == "checkpoint keras" else shutil.copytree
        copy(world / kind.removeprefix("checkpoint "), output)


KINDS = ("directory", "link to a directory", "link to a file", "dangling link", "file",
         *(f"checkpoint {form}" for form in _FORMATS))  # fmt: skip


def snapshot(folder):
    """Every path below a folder with what is there: a file's contents, a link's end."""
    found = {}
    for root, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = os.path.join(root, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[path] = f"link to {os.readlink(path)}"
            elif stat.S_ISDIR(mode):
                found[path] = "directory"
            else:
                with open(path, "rb") as file:
                    found[path] = file.read()
    return found


def assert_kept(before, folder, may_change=None):
    """All that was there is there still, and nothing else but the output."""
    after = snapshot(folder)
    own = str(may_change) if may_change else "\0"
    for path, content in before.items():
        if path != own:
            assert after.get(path) == content, path
    new = [path for path in after if path not in before and not path.startswith(own)]
    assert not new, new


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_in_an_outputs_place_is_refused_and_stays(world, tmp_path, name, kind, capsys):
    command, suffix = COMMANDS[name]
    output = tmp_path / f"out{suffix}"
    place_foreign(world, kind, tmp_path, output)
    before = snapshot(tmp_path)
    if kind == "file" and name in REPLACING:
        command(world, output)
        assert output.read_bytes() != before[str(output)]
        assert_kept(before, tmp_path, output)
        return
    if kind == "checkpoint keras" and name in REPLACING:
        pytest.skip("a file that the user names to be replaced")
    with pytest.raises((ValueError, OSError)) as refused:
        command(world, output)
    assert "\n" not in str(refused.value)
    assert_kept(before, tmp_path)


class _FullDiskError(OSError):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_an_error_as_a_file_gets_its_name(world, tmp_path, monkeypatch, name):
    command, suffix = FILES[name]
    output = tmp_path / f"out{suffix}"
    place_foreign(world, "neighbours", tmp_path, output)
    if name in REPLACING:
        output.write_text("the user's")
    before = snapshot(tmp_path)
    with monkeypatch.context() as patched:

        def refuse(source, destination, overwrite=False):
            raise _FullDiskError("No space left on device")

        patched.setattr(tf.io.gfile, "rename", refuse)
        with pytest.raises(_FullDiskError):
            command(world, output)
    assert_kept(before, tmp_path)
    command(world, output)
    assert output.is_file()
    assert_kept(before, tmp_path, output)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["extract_features", "convert to huggingface", "export"])
def test_an_error_as_a_directory_gets_its_name(world, tmp_path, monkeypatch, name):
    command, _ = DIRECTORIES[name]
    output = tmp_path / "out"
    place_foreign(world, "neighbours", tmp_path, output)
    before = snapshot(tmp_path)
    rename = tf.io.gfile.rename

    def refuse(source, destination, overwrite=False):
        if "part-000001" in destination or destination == str(output):
            raise _FullDiskError("No space left on device")
        rename(source, destination, overwrite=overwrite)

    with monkeypatch.context() as patched:
        patched.setattr(tf.io.gfile, "rename", refuse)
        with pytest.raises(_FullDiskError):
            command(world, output)
    assert_kept(before, tmp_path, output)
    if name != "extract_features":  # which goes on from there
        assert not output.exists()
    elif output.exists():
        command(world, output)
        (output / "notes.txt").write_text("mine")
        command(world, output)
        assert (output / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_run_keeps_what_is_put_into_its_directory(world, tmp_path, capsys):
    """Also where it is killed, and as its results are there and something is exported again."""
    output = tmp_path / "run"
    flags = small_runs.arguments(world, output, num_train_epochs=2)
    kill_at_a_write("bert_tf.finetune", flags, "after", "last/step-00000006/manifest.json")
    for name in ("mine.txt", "dev/mine", "logs/mine", "checkpoints/mine", "last/mine", "runs/a/b",
                 "last/step-00000099.mine/x", "export/mine"):  # fmt: skip
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text("the user's")
    (output / "linked").symlink_to(write_foreign(tmp_path / "elsewhere"))
    before = snapshot(tmp_path)
    mine = [path for path in before if before[path] == b"the user's" or "elsewhere" in path]
    kept = {path: before[path] for path in [*mine, str(output / "linked")]}
    finetune(small_runs.settings(world, output, num_train_epochs=2))
    assert "Continuing" in capsys.readouterr().out
    assert (output / "results.json").exists()
    after = snapshot(tmp_path)
    assert {path: after.get(path) for path in kept} == kept


@pytest.mark.slow
def test_a_kill_as_an_output_gets_its_name(world, tmp_path):
    given = [f"--input={world}/corpus.txt", "--vocab_size=60", "--overwrite"]
    output = tmp_path / "out.txt"
    place_foreign(world, "neighbours", tmp_path, output)
    output.write_text("the user's")
    before = snapshot(tmp_path)
    kill_at_a_write("bert_tf.vocab", [*given, f"--output={output}"], "before", output.name)
    after = snapshot(tmp_path)
    assert {path: after.get(path) for path in before} == before
    _vocab(overwrite=True)(world, output)
    output.write_text("the user's")
    assert_kept(before, tmp_path)  # what the killed process left is gone too
