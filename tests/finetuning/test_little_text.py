"""Weights that saw little text get a higher rate and more epochs where no flag says others."""

import json

import pytest

from .small_runs import parse

FLAGS = "--task=classification --train_file=a.csv --text_columns=a --label_column=b"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "start").mkdir()
    return tmp_path


def resolved(flags=""):
    settings, said = parse(*f"{FLAGS} --init_checkpoint=start {flags}".split())
    return (settings.learning_rate, settings.num_train_epochs), said


@pytest.mark.parametrize(
    ("results", "flags", "expected", "sentence"),
    [
        ({"trained_tokens": 6_144_000}, "", (1e-3, 10),
         "start saw little text (6,144,000 tokens), so the defaults are --learning_rate=0.001 and "
         "--num_train_epochs=10 instead of 5e-05 and 3."),
        ({"trained_tokens": 99_999_999}, "--learning_rate=2e-4", (2e-4, 10),
         "start saw little text (99,999,999 tokens), so the default is --num_train_epochs=10 "
         "instead of 3."),
        ({"trained_tokens": 7}, "--max_steps=5", (1e-3, 3), "start saw little text (7 tokens), so "
         "the default is --learning_rate=0.001 instead of 5e-05."),
        ({"trained_tokens": 7}, "--learning_rate=2e-4 --num_train_epochs=4", (2e-4, 4), None),
        ({"trained_tokens": 7}, "--grid=learning_rate=1e-5,1e-4 --num_train_epochs=2", (5e-5, 2),
         None),
        ({"trained_tokens": 100_000_000}, "", (5e-5, 3), None),
        ({"trained_tokens": None}, "", (5e-5, 3), None),
        ({"evaluation": {}}, "", (5e-5, 3), None),
        (["no object"], "", (5e-5, 3), None),
    ],
)  # fmt: skip
def test_what_is_taken_and_said(folder, results, flags, expected, sentence):
    (folder / "start" / "results.json").write_text(json.dumps(results))
    assert resolved(flags) == (expected, [] if sentence is None else [sentence])


@pytest.mark.parametrize("name", ["best", "steps/1000", "best/"])
def test_the_weights_of_a_step_saw_as_little(folder, name):
    (folder / "start" / name).mkdir(parents=True)
    (folder / "start" / "results.json").write_text(json.dumps({"trained_tokens": 7}))
    settings, said = parse(*f"{FLAGS} --init_checkpoint=start/{name}".split())
    assert (settings.learning_rate, settings.num_train_epochs) == (1e-3, 10)
    assert said[0].startswith(f"start/{name} saw little text (at most 7 tokens), so the defaults")
    # A run of that name knows its own tokens.
    results = json.dumps({"trained_tokens": 8})
    (folder / "start" / name / "results.json").write_text(results)
    said = parse(*f"{FLAGS} --init_checkpoint=start/{name}".split())[1]
    assert said[0].startswith(f"start/{name} saw little text (8 tokens), so the defaults")


@pytest.mark.parametrize("start", ["hf://google-bert/bert-base-uncased", "start/bert_model.ckpt"])
def test_what_a_run_was_given_before_is_no_default_of_released_weights(folder, start):
    (folder / "start" / "bert_model.ckpt.index").touch()
    run = folder / "runs" / "classification"
    run.mkdir(parents=True)
    kept = {"init_checkpoint": start, "learning_rate": 2e-5, "num_train_epochs": 10}
    (run / "flags.json").write_text(json.dumps(kept))
    settings, said = parse(*f"{FLAGS} --init_checkpoint={start}".split())
    assert (settings.learning_rate, settings.num_train_epochs, said) == (5e-5, 3, [])


def test_a_run_goes_on_alike_when_its_start_is_gone(folder):
    (folder / "start").rmdir()
    run = folder / "runs" / "classification"
    run.mkdir(parents=True)
    kept = {"init_checkpoint": "start", "learning_rate": 1e-3, "num_train_epochs": 10}
    (run / "flags.json").write_text(json.dumps(kept))
    assert resolved()[0] == (1e-3, 10)
    (run / "flags.json").write_text(json.dumps({**kept, "init_checkpoint": "other"}))
    assert resolved()[0] == (5e-5, 3)
    (run / "flags.json").write_text(json.dumps({**kept, "learning_rate": 2e-5}))
    assert resolved()[0] == (5e-5, 10)
