"""What is the user's stays as it is, whatever a command is given as its output, however it ends."""

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
from tests.anew import run_main
from tests.checkpoints.small_checkpoints import MODELS, UNCASED, make_checkpoint
from tests.finetuning import small_runs
from tests.killing import kill_at_a_write
from tests.predicting import prediction_models
from tests.pretraining import commands

# Names that a command might take for its own.
_FOREIGN = (
    "mine.txt", "vocab.txt", "model.json", "manifest.json", "results.json", "part-000000.jsonl",
    ".hidden", "checkpoints/step-00000004/notes.txt", "last/step-00000006/mine",
    "corpus/sample.txt", "export/1/saved_model.pb", "export/1.partial/mine", "dev/dev.tsv",
)  # fmt: skip
_FORMATS = {"bert_tf": model_directory, "huggingface": hugging_face, "google_tf1": google}


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
    texts = world / "lines.txt"
    texts.write_text("a fine film\n")
    given = {"input": [str(texts)], "model": str(world / "tiny")}
    with mock.patch.object(extraction, "_load", _extractor):
        extraction.run(resolve(output=str(output), layers=["-1"], **given))


_load_extractor = functools.cache(extraction._load)


def _extractor(settings):
    """The model is loaded once, wherever its vectors go."""
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
    **{f"convert to {form}": _convert(form) for form in _FORMATS},
    "predict": _predict,
    "vocab": _vocab,
    "create_pretraining_data": _create_pretraining_data,
}
# What the names of files end in; other commands write directories.
SUFFIXES = {"predict": ".tsv", "vocab": ".txt", "create_pretraining_data": ".tfrecord"}


# Commands that take longer than a fast test may.
SLOW = ("pretrain", "finetune", "export")


# === What may be there already ===


def write_foreign(folder):
    """Files of somebody's, and links among them, with any names."""
    for name in _FOREIGN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"the user's {name}".encode())
    (folder / "link").symlink_to("mine.txt")
    (folder / "nowhere").symlink_to("missing")
    return folder


# What puts it in an output's place, of inputs and a folder of foreign files.
KINDS = {
    "directory": lambda output, world, elsewhere: write_foreign(output),
    "link to a directory": lambda output, world, elsewhere: output.symlink_to(elsewhere),
    "link to a file": lambda output, world, elsewhere: output.symlink_to(elsewhere / "mine.txt"),
    "dangling link": lambda output, world, elsewhere: output.symlink_to(elsewhere / "missing"),
    "file": lambda output, world, elsewhere: output.write_text("the user's"),
    "checkpoint": lambda output, world, elsewhere: shutil.copytree(world / "bert_tf", output),
}


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
    command, output = COMMANDS[name], tmp_path / f"out{SUFFIXES.get(name, '')}"
    (tmp_path / "beside.txt").write_text("beside")
    KINDS[kind](output, world, write_foreign(tmp_path / "elsewhere"))
    before = snapshot(tmp_path)
    if kind == "file" and name == "predict":  # the user names a file to be replaced
        command(world, output)
        assert output.read_bytes() != before[str(output)]
        assert_kept(before, tmp_path, output)
        return
    with pytest.raises((ValueError, OSError)) as refused:
        command(world, output)
    assert "\n" not in str(refused.value)
    assert_kept(before, tmp_path)


@pytest.mark.parametrize("umask", [0o022, 0o027], ids=oct)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in COMMANDS],
)
def test_whatever_is_written_has_the_mode_of_the_umask(world, tmp_path, name, umask, capsys):
    before = os.umask(umask)
    try:
        COMMANDS[name](world, tmp_path / f"out{SUFFIXES.get(name, '')}")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode for path in tmp_path.rglob("*")}
    of_kinds = {True: 0o777 & ~umask, False: 0o666 & ~umask}
    expected = {path: stat.S_IFMT(mode) | of_kinds[path.is_dir()] for path, mode in modes.items()}
    assert modes and modes == expected


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
