"""What a run's processes read of its input when they start."""

import os

import pytest

from bert_tf.pipelines import kept_files, record_files
from bert_tf.pipelines.tfrecords import write_tfrecords
from bert_tf.pretraining.data import open_data, open_evaluation_data
from bert_tf.pretraining.settings import PretrainingSettings
from bert_tf.training.run_directory import RunDirectory
from tests.pipelines.test_tfrecords import _batch


@pytest.mark.parametrize("eval_input", [False, True])
def test_other_processes_read_what_the_chief_kept_of_records(tmp_path, monkeypatch, eval_input):
    monkeypatch.setattr(kept_files, "_TICK_SECONDS", -60)
    write_tfrecords([_batch(0, 20)], [str(tmp_path / name) for name in ("a-1", "a-2", "b-1")])
    settings = PretrainingSettings(
        model_dir=str(tmp_path / "run"),
        input=(str(tmp_path / "a-*"),),
        eval_input=(str(tmp_path / "b-*"),) if eval_input else (),
        input_format="tfrecord",
    )
    run = RunDirectory(settings.model_dir)
    run.create()
    chief = open_data(settings, run)
    run.check_inputs(chief.fingerprints)
    # Another process finds nothing itself.
    record_files._open.cache_clear()
    monkeypatch.setattr(record_files, "_find", None)
    monkeypatch.setattr(kept_files, "sample_file", None)
    before = sorted(os.listdir(run.corpus))
    worker = open_data(settings, RunDirectory(settings.model_dir, os.getpid()))
    assert worker.fingerprints == chief.fingerprints
    assert worker.is_held_out == chief.is_held_out == eval_input
    record_files._open.cache_clear()
    evaluated = open_evaluation_data(settings, run, str(tmp_path / "eval")).eval_records
    assert evaluated.files == chief.eval_records.files
    assert sorted(os.listdir(run.corpus)) == before and not (tmp_path / "eval").exists()
