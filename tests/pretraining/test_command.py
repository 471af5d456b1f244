"""The pretrain command as a user runs it: files, output and flags."""

import json
import os
import re

import pytest
import tensorflow as tf

from tests.anew import run_anew

from .commands import pretrain, refusal_of


@pytest.mark.slow
def test_what_a_run_leaves(finished):
    model_dir, printed = finished
    for name in ("flags.json", "vocab.txt", "bert_config.json", "export/1/saved_model.pb"):
        assert (model_dir / name).is_file(), name
    assert sorted(os.listdir(model_dir / "checkpoints")) == [
        "step-00000004",
        "step-00000008",
        "step-00000012",
    ]
    results = json.loads((model_dir / "results.json").read_text())
    evaluation = results["evaluation"]
    kept = "step objective parameters trained_tokens held_out evaluation best filled_masks export"
    assert results.keys() == set(kept.split())
    assert results["step"] == 12
    assert 0 < evaluation["masked_lm_baseline"] < 1
    assert f"{evaluation['masked_lm_accuracy']:6.1%}" in printed
    assert f"{evaluation['next_sentence_baseline']:6.1%}" in printed
    assert "Corpus: 1 file, google, 40 documents," in printed
    events = list((model_dir / "logs").rglob("*tfevents*"))
    assert {path.parent.name for path in events} == {"train", "eval"}


@pytest.mark.slow
def test_a_finished_command_prints_its_results_again(finished, inputs):
    model_dir, printed = finished
    again = pretrain(inputs, model_dir)
    assert again.returncode == 0
    assert again.stdout.startswith(f"{model_dir} contains this run, finished.")
    shown = printed[printed.index("Held-out") :]
    assert again.stdout.split("finished.")[1].strip() == shown.strip()


@pytest.mark.slow
def test_tfrecords_written_and_read(finished, inputs, tmp_path):
    model_dir, _ = finished
    written = run_anew(
        "create_pretraining_data",
        f"--input={inputs}/corpus.txt",
        f"--output_file={tmp_path}/ex-1.tfrecord,{tmp_path}/ex-2.tfrecord",
        *(f"--vocab_file={model_dir}/vocab.txt", "--max_seq_length=32", "--num_epochs=2"),
        "--max_predictions_per_seq=5",
    )
    assert written.returncode == 0, written.stderr
    # Google's script writes examples to its files in turn.
    first, second = (
        sum(1 for _ in tf.data.TFRecordDataset(f"{tmp_path}/ex-{i}.tfrecord")) for i in (1, 2)
    )
    assert first - second in (0, 1) and f"{first + second:,} examples in " in written.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"ex-1.tfrecord", "ex-2.tfrecord"}
    records = {
        "input": tmp_path / "ex-*.tfrecord",
        "input_format": "tfrecord",
        "vocab_size": None,
        "vocab_file": model_dir / "vocab.txt",
        "max_predictions_per_seq": 5,
        "export": "false",
    }
    assert "--max_predictions_per_seq=5" in written.stdout
    done = pretrain(inputs, tmp_path / "run", **records)
    assert done.returncode == 0, done.stderr
    assert "Accuracy on the training records after 12 steps" in done.stdout
    short = tmp_path / "short.txt"
    short.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    assert re.search(
        "expected integers from 0 to 5 in feature .*input_ids., got .*Pass the vocabulary of the "
        "records as --vocab_file",
        refusal_of(inputs, tmp_path / "b", **{**records, "vocab_file": short}),
    )


@pytest.mark.slow
def test_nothing_is_held_out_or_exported_where_that_is_asked_for(inputs, tmp_path):
    flags = {"held_out_fraction": 0, "export": "false", "num_train_steps": 3}
    done = pretrain(inputs, tmp_path / "run", **flags)
    assert done.returncode == 0, done.stderr
    assert "--held_out_fraction=0: nothing is held out or evaluated." in done.stdout
    assert not (tmp_path / "run" / "export").exists()
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["evaluation"], results["export"]) == ({}, None)
    again = pretrain(inputs, tmp_path / "run", **flags)
    assert "SavedModel:" not in again.stdout
    assert f"python -m bert_tf.export --model={tmp_path}/run --output=" in again.stdout


@pytest.mark.slow
def test_a_dry_run_writes_nothing(inputs, tmp_path):
    done = pretrain(inputs, tmp_path / "run", dry_run="true")
    assert done.returncode == 0, done.stderr
    assert "Parameters: 7,322." in done.stdout and "Nothing was written." in done.stdout
    assert not (tmp_path / "run").exists()
