"""Commands do not change or delete files of the user, whatever the output path is."""

import dataclasses
import functools
import json
import os
import shutil
import stat
from unittest import mock

import pytest

import bert_tf
from bert_tf import create_pretraining_data, vocab
from bert_tf.checkpoints import google, hugging_face, model_directory
from bert_tf.checkpoints.conversion import convert
from bert_tf.extraction import run as extraction
from bert_tf.extraction.settings import resolve
from bert_tf.finetuning.run import run as finetune
from bert_tf.pretraining.run import run as pretrain
from bert_tf.saved_models import export
from tests.checkpoints.small_checkpoints import MODELS, UNCASED, make_checkpoint
from tests.finetuning import small_runs
from tests.killed_processes import kill_at_write
from tests.predicting import prediction_models
from tests.pretraining import commands
from tests.processes import run_main

# Files of the user with names that commands use.
_FOREIGN = (
    "mine.txt", "vocab.txt", "model.json", "manifest.json", "results.json", "part-000000.jsonl",
    ".hidden", "checkpoints/step-00000004/notes.txt", "last/step-00000006/mine",
    "corpus/sample.txt", "export/1/saved_model.pb", "export/1.partial/mine", "dev/dev.tsv",
)  # fmt: skip
_FORMATS = {"bert_tf": model_directory, "huggingface": hugging_face, "google_tf1": google}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Returns a folder with the inputs of all commands."""
    folder = small_runs.write_inputs(tmp_path_factory.mktemp("world"))
    commands.write_corpus(folder / "corpus.txt")
    (folder / "config.json").write_text(json.dumps(commands.TINY))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in small_runs.VOCAB))
    prediction_models.write_classifier(folder / "classifier")
    prediction_models.write_texts(folder)
    checkpoint = make_checkpoint(MODELS["pretrainer"], tokenization=UNCASED)
    for file_format, module in _FORMATS.items():
        (folder / file_format).mkdir()
        module.write(checkpoint, str(folder / file_format))
    return folder


# === Commands that write to a path ===


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


def _convert(file_format):
    return lambda world, output: convert(str(world / "tiny"), str(output), file_format)


def _extract_features(world, output):
    texts = world / "lines.txt"
    texts.write_text("a fine film\n")
    given = {"input": [str(texts)], "model": str(world / "tiny")}
    with mock.patch.object(extraction, "_load", _extractor):
        extraction.run(resolve(output=str(output), layers=["-1"], **given))


_load_extractor = functools.cache(extraction._load)


def _extractor(settings):
    """Loads the model once for all outputs."""
    return _load_extractor(dataclasses.replace(settings, output=""))


def _vocab(world, output):
    given = {"input": [str(world / "corpus.txt")], "output": str(output), "vocab_size": 60}
    vocab.learn(vocab.VocabularySettings(**given))


def _create_pretraining_data(world, output):
    given = [f"--input={world}/corpus.txt", f"--vocab_file={world}/vocab.txt", "--num_epochs=1",
             "--max_seq_length=16", "--max_predictions_per_seq=2"]  # fmt: skip
    run_main(create_pretraining_data, *given, f"--output_file={output}")


COMMANDS = {
    "pretrain": _pretrain,
    "finetune": _finetune,
    "export": _export,
    "extract_features": _extract_features,
    **{f"convert to {file_format}": _convert(file_format) for file_format in _FORMATS},
    "predict": _predict,
    "vocab": _vocab,
    "create_pretraining_data": _create_pretraining_data,
}
# Suffixes of output files; the other commands write directories.
SUFFIXES = {"predict": ".tsv", "vocab": ".txt", "create_pretraining_data": ".tfrecord"}


# Commands that are too slow for fast tests.
SLOW = ("pretrain", "finetune", "export")


# === Existing files ===


def write_foreign(folder):
    """Writes files of the user and links between them."""
    for name in _FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"the user's {name}".encode())
    (folder / "link").symlink_to("mine.txt")
    (folder / "nowhere").symlink_to("missing")
    return folder


# Functions that create something at the output path; ``elsewhere`` contains files of the user.
EXISTING_OUTPUTS = {
    "directory": lambda output, world, elsewhere: write_foreign(output),
    "link to a directory": lambda output, world, elsewhere: output.symlink_to(elsewhere),
    "link to a file": lambda output, world, elsewhere: output.symlink_to(elsewhere / "mine.txt"),
    "dangling link": lambda output, world, elsewhere: output.symlink_to(elsewhere / "missing"),
    "file": lambda output, world, elsewhere: output.write_text("the user's"),
    "checkpoint": lambda output, world, elsewhere: shutil.copytree(world / "bert_tf", output),
}


def snapshot(folder):
    """Returns the file content or link target of each path below a folder."""
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
    """Asserts that a folder is unchanged, except for the output."""
    after = snapshot(folder)
    output = str(may_change) if may_change else "\0"
    for path, content in before.items():
        if path != output:
            assert after.get(path) == content, path
    new = [path for path in after if path not in before and not path.startswith(output)]
    assert not new, new


@pytest.mark.parametrize("existing", EXISTING_OUTPUTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_existing_output_is_rejected_and_unchanged(world, tmp_path, name, existing, capsys):
    command, output = COMMANDS[name], tmp_path / f"out{SUFFIXES.get(name, '')}"
    (tmp_path / "beside.txt").write_text("beside")
    EXISTING_OUTPUTS[existing](output, world, write_foreign(tmp_path / "elsewhere"))
    before = snapshot(tmp_path)
    if existing == "file" and name == "predict":  # predict may replace an existing output file
        command(world, output)
        assert output.read_bytes() != before[str(output)]
        assert_kept(before, tmp_path, output)
        return
    with pytest.raises((ValueError, OSError)) as error:
        command(world, output)
    assert "\n" not in str(error.value)
    assert_kept(before, tmp_path)


@pytest.mark.parametrize("umask", [0o022, 0o027], ids=oct)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in COMMANDS],
)
def test_written_files_follow_the_umask(world, tmp_path, name, umask, capsys):
    before = os.umask(umask)
    try:
        COMMANDS[name](world, tmp_path / f"out{SUFFIXES.get(name, '')}")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    permissions = {True: 0o777 & ~umask, False: 0o666 & ~umask}
    expected = {
        path: stat.S_IFMT(mode) | permissions[path.is_dir()] for path, mode in modes.items()
    }
    assert modes and modes == expected


@pytest.mark.slow
def test_resumed_run_keeps_foreign_files(world, tmp_path, capsys):
    """The run is killed and resumed."""
    output = tmp_path / "run"
    flags = small_runs.arguments(world, output, num_train_epochs=2)
    kill_at_write("bert_tf.finetune", flags, "after", "last/step-00000006/manifest.json")
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
