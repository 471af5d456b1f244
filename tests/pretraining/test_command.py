"""The pretrain command as a user runs it: files, output and flags."""

import json
import os
import re

import pytest
import tensorflow as tf

import bert_tf
from tests.processes import run_bert_tf

from .commands import error_of_run, pretrain

pytestmark = pytest.mark.slow


def test_files_of_finished_run(finished):
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
    assert "Held out for evaluation: 2 documents.\n" in printed
    events = list((model_dir / "logs").rglob("*tfevents*"))
    assert {path.parent.name for path in events} == {"train", "eval"}


def test_finished_run_prints_results_again(finished, inputs):
    model_dir, printed = finished
    again = pretrain(inputs, model_dir)
    assert again.startswith(f"{model_dir} contains this run, which has finished.")
    shown = printed[printed.index("Held-out") :]
    assert again.split("finished.")[1].strip() == shown.strip()


def test_tfrecords_are_written_and_read(finished, inputs, tmp_path):
    model_dir, _ = finished
    written = run_bert_tf(
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
    printed = pretrain(inputs, tmp_path / "run", **records)
    assert "Accuracy on the training records after 12 steps" in printed
    short = tmp_path / "short.txt"
    short.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    assert re.search(
        "expected integers from 0 to 5 in feature .*input_ids., got .*Pass the vocabulary of the "
        "records as --vocab_file",
        error_of_run(inputs, tmp_path / "b", **{**records, "vocab_file": short}),
    )


def test_run_without_held_out_data_and_export(inputs, tmp_path):
    flags = {"held_out_fraction": 0, "export": "false", "num_train_steps": 3}
    printed = pretrain(inputs, tmp_path / "run", **flags)
    assert "--held_out_fraction=0: nothing is held out or evaluated." in printed
    assert not (tmp_path / "run" / "export").exists()
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["evaluation"], results["export"]) == ({}, None)
    again = pretrain(inputs, tmp_path / "run", **flags)
    assert "SavedModel:" not in again
    assert f"python -m bert_tf.export --model={tmp_path}/run --output=" in again


def test_dry_run_writes_nothing(inputs, tmp_path):
    printed = pretrain(inputs, tmp_path / "run", dry_run="true")
    assert "Parameters: 7,322." in printed and "Nothing was written." in printed
    assert not (tmp_path / "run").exists()


def test_left_to_right_model_learns_and_keeps_direction(inputs, tmp_path):
    model_dir = tmp_path / "ltr"
    printed = pretrain(inputs, model_dir, objective="ltr")
    evaluation = json.loads((model_dir / "results.json").read_text())["evaluation"]
    assert f"  next token    {evaluation['masked_lm_accuracy']:6.1%}" in printed
    assert "masked LM" not in printed and "next sentence" not in printed and "MLM" not in printed
    assert evaluation["masked_lm_accuracy"] > 0 and evaluation["next_sentence_rows"] == 0
    assert json.loads((model_dir / "bert_config.json").read_text())["is_decoder"] is True
    model = bert_tf.load(model_dir)
    assert model.config.is_decoder and not model.nsp
    exported = tf.saved_model.load(str(model_dir / "export" / "1"))
    assert set(exported.signatures) == {"serving_default", "tokens"}
    classifier = bert_tf.load(model_dir, bert_tf.BertClassifier, num_classes=2)
    assert classifier.encoder.config.is_decoder
    start = {"bert_config": None, "vocab_size": None, "init_checkpoint": model_dir}
    error = error_of_run(inputs, tmp_path, **start, objective="mlm")
    assert error.endswith("Pass --objective=ltr.")
    assert f"{model_dir} is a causal model (is_decoder), but --objective=mlm trains" in error
