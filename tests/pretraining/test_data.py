"""The input that the processes of a run read at the start."""

import os
import re
from dataclasses import replace

import pytest
import tensorflow as tf

from bert_tf.pipelines.pretraining import tfrecords
from bert_tf.pipelines.pretraining.tfrecords import write_tfrecords
from bert_tf.pretraining.data import Batches, PretrainingData, check_records, open_data
from bert_tf.pretraining.run import read_inputs
from bert_tf.pretraining.settings import Phase, PretrainingSettings
from bert_tf.training.run_directory import RunDirectory
from tests.pipelines.pretraining.test_tfrecords import _batch
from tests.tfds_data import write_texts

from .commands import arguments, parse


@pytest.fixture
def run(tmp_path):
    made = RunDirectory(str(tmp_path / "run"))
    made.create()
    return made


@pytest.fixture
def two_corpora(tmp_path, monkeypatch):
    """Flags for a corpus of text files and texts of TensorFlow Datasets."""
    (tmp_path / "a.txt").write_text(
        "".join(f"This is {i}.\nIt ends at {i}.\n\n" for i in range(30))
    )
    texts = [f"That was {i}. It began at {i}." for i in range(20)]
    monkeypatch.setenv("TFDS_DATA_DIR", write_texts(tmp_path / "data", "toy", texts))
    return {"input": tmp_path / "a.txt", "tfds": "toy"}


def test_files_and_dataset_form_one_corpus(two_corpora, tmp_path, monkeypatch, run):
    # The module that reads the variable is already imported.
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", os.environ["TFDS_DATA_DIR"])
    settings = PretrainingSettings(input=(str(two_corpora["input"]),), tfds="toy")
    data = open_data(settings, run)
    held_out = [*data.evaluated.sentences()]
    expected = [
        *(line for i in range(30) for line in (f"This is {i}.", f"It ends at {i}.")),
        *(line for i in range(20) for line in (f"That was {i}.", f"It began at {i}.")),
    ]
    assert len(held_out) == 4
    assert [*data.train.sentences()] == [line for line in expected if line not in held_out]
    files_only = open_data(PretrainingSettings(input=settings.input), run).fingerprints
    assert data.fingerprints.keys() == {"--input", "--tfds", "held_out"}
    assert data.fingerprints["--input"] == files_only["--input"] != data.fingerprints["--tfds"]


def test_single_document_is_not_held_out(tmp_path, capsys, run):
    (tmp_path / "a.txt").write_text("This is one.\nIt has two sentences.\n")
    settings = PretrainingSettings(input=(str(tmp_path / "a.txt"),), pairs=False)
    assert open_data(settings, run).evaluated is None
    assert "nothing is held out or evaluated" in capsys.readouterr().out


@pytest.mark.parametrize("nsp", [True, False])
def test_single_held_out_document_has_no_next_sentence_accuracy(nsp, tmp_path, capsys, run):
    (tmp_path / "a.txt").write_text("\n".join(f"This is {i}.\nIt ends at {i}.\n" for i in range(3)))
    settings = PretrainingSettings(input=(str(tmp_path / "a.txt"),), nsp=nsp)
    data = open_data(settings, run)
    printed = capsys.readouterr().out
    assert "Held out for evaluation: 1 document.\n" in printed
    assert not data.evaluates_next_sentence
    assert ("Next-sentence accuracy is not measured" in printed) is nsp


def test_records_without_evaluation(tmp_path, capsys, run):
    write_tfrecords([_batch(0, 20)], [str(tmp_path / name) for name in ("a-1", "b-1")])
    settings = PretrainingSettings(
        model_dir=run.path,
        input=(str(tmp_path / "a-1"),),
        input_format="tfrecord",
        held_out_fraction=0.0,
    )
    data = open_data(settings, run)
    assert data.evaluated is None and not data.is_held_out
    printed = capsys.readouterr().out
    assert printed.startswith("Corpus: TFRecords, 1 file.\n--held_out_fraction=0: nothing is ")
    run.check_inputs(data.fingerprints)
    with_eval_input = replace(settings, eval_input=(str(tmp_path / "b-1"),))
    assert open_data(with_eval_input, run).is_held_out


def test_records_may_be_shorter_than_max_seq_length(tmp_path, run):
    batch = _batch(0, 20)
    batch |= {key: batch[key][:, :4] for key in ("input_word_ids", "input_mask", "input_type_ids")}
    write_tfrecords([batch], [str(tmp_path / "a")])
    settings = PretrainingSettings(
        model_dir=run.path,
        input=(str(tmp_path / "a"),),
        input_format="tfrecord",
        max_predictions_per_seq=2,
    )
    batches = Batches(settings, open_data(settings, run), None, 1)
    phase = Phase(max_seq_length=4, first_step=0, last_step=10, rows=8)
    rows = batches.training(phase, 0, (0, 0, 0))(tf.distribute.InputContext(1, 0, 1))
    assert rows.element_spec["input_word_ids"].shape[1] == 4


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("input_type_ids", 3, "expected integers from 0 to 1 in feature 'segment_ids', got 3."),
        ("input_mask", -1, "expected integers from 0 to 1 in feature 'input_mask', got -1."),
        ("next_sentence_labels", 2, "from 0 to 1 in feature 'next_sentence_labels', got 2."),
        ("masked_lm_positions", 6, "from 0 to 5 in feature 'masked_lm_positions', got 6."),
        (
            "input_word_ids",
            -7,
            "expected integers from 0 to 99 in feature 'input_ids', got -7. Pass the vocabulary "
            "of the records as --vocab_file",
        ),
        ("masked_lm_ids", 100, "got 100. Pass the vocabulary of the records as --vocab_file"),
    ],
)
def test_invalid_records_raise_error(key, value, message, tmp_path):
    batch = _batch(0, 20)
    batch[key][-1] = value
    write_tfrecords([batch], [str(tmp_path / "a")])
    records = tfrecords.open_records(str(tmp_path / "a"))
    settings = PretrainingSettings(model_dir="", input=(), max_predictions_per_seq=2)
    data = PretrainingData(records, None, {}), 100
    phase = Phase(6, 0, 1, 16)
    with pytest.raises(ValueError, match=re.escape(message)):
        check_records(settings, *data, 2, phase)
    if key == "input_type_ids":
        check_records(settings, *data, 4, phase)
    if key == "next_sentence_labels":
        check_records(replace(settings, nsp=False), *data, 2, phase)


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [({"vocab_size": 60}, 60), ({"recipe": "bert_base", "vocab_size": None}, 200)],
)
def test_learned_vocabulary_size_follows_flag_and_config(inputs, tmp_path, flags, pieces, run):
    settings = parse(*arguments(inputs, tmp_path / "run", **flags))[0]
    _, tokenizer, config = read_inputs(settings, run, None, [])
    assert len(tokenizer.vocab) <= pieces <= settings.vocab_size
    assert (len(tokenizer.vocab) == 60) is (pieces == 60) and config.vocab_size == 200


@pytest.mark.parametrize("eval_input", [False, True])
def test_workers_read_record_index_of_chief(tmp_path, monkeypatch, eval_input, run):
    write_tfrecords([_batch(0, 20)], [str(tmp_path / name) for name in ("a-1", "a-2", "b-1")])
    settings = PretrainingSettings(
        model_dir=run.path,
        input=(str(tmp_path / "a-*"),),
        eval_input=(str(tmp_path / "b-*"),) if eval_input else (),
        input_format="tfrecord",
    )
    chief = open_data(settings, run)
    run.check_inputs(chief.fingerprints)
    # Other processes do not index the files themselves.
    tfrecords._open.cache_clear()
    monkeypatch.setattr(tfrecords, "_index_file", None)
    before = sorted(os.listdir(run.corpus))
    worker = open_data(settings, RunDirectory(settings.model_dir, is_chief=False))
    assert worker.fingerprints == chief.fingerprints
    assert worker.is_held_out == chief.is_held_out == eval_input
    assert sorted(os.listdir(run.corpus)) == before
