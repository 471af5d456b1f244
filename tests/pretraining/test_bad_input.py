"""Bad input to the pretrain command raises one error and leaves no files behind."""

import json
import os
import re
import shutil

import pytest

import bert_tf
from bert_tf.io.messages import DifferenceWarning
from bert_tf.pretraining import run as pretraining_run
from bert_tf.pretraining.data import check_hosts_can_read
from bert_tf.pretraining.run import run
from bert_tf.pretraining.training import PretrainingTrainer
from bert_tf.training import distribution
from bert_tf.training.run_directory import RunDirectory

from .commands import TINY, arguments, assert_bit_equal, error_of_run, parse, weights, write_corpus

PIECES = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"
VOCABULARY = {"vocab_file": "vocab.txt", "vocab_size": None}
HEADS = json.dumps({**TINY, "num_attention_heads": 3})


@pytest.mark.parametrize(
    ("changes", "content", "message"),
    [
        ({"input": "empty.txt"}, b"", r"empty.txt.* empty|no document"),
        ({"input": "bytes.txt"}, b"A good line.\nA bad \xff one.\n\nMore.\n", r"bytes.txt.*\b19\b"),
        ({"input": "one.txt"}, b"One sentence.\nAnother one.\nA third.\n",
         "has 1 training document, but .*--pairs=false"),
        ({"input": "nothing*.txt"}, None, r"nothing\*\.txt"),
        ({"input": "none"}, None, "none"),
        (VOCABULARY, f"{PIECES}word\n".encode(), r"vocab.txt.*\[MASK\]"),
        (VOCABULARY, f"{PIECES}[MASK]\nword\nword\n".encode(), "lines 6 and 7|line 6.*line 7"),
        ({"bert_config": "config.json"}, HEADS.encode(),
         "hidden_size=16: expected a multiple of num_attention_heads=3"),
        ({"vocab_size": 201}, None, "--vocab_size=201: expected at most 200, the vocab_size of "),
        ({"tpu": "grpc://127.0.0.1:9"}, None, "^No TPU was found at 'grpc://127.0.0.1:9'"),
        ({"strategy": "multi_worker"}, None, "requires at least two workers"),
    ],
)  # fmt: skip
def test_bad_input_raises_error_and_leaves_directory_usable(
    inputs, tmp_path, monkeypatch, changes, content, message
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / next(iter(changes.values()))).write_bytes(content)
    before = {*os.listdir(tmp_path)}
    assert re.search(message, error_of_run(inputs, tmp_path, **changes))
    left = {*os.listdir(tmp_path)} - before
    assert left <= ({"run"} if content and changes.get("input") != "bytes.txt" else set())
    directory = RunDirectory(str(tmp_path / "run"))
    directory.check_location({})
    directory.create()
    directory.check_settings({"model_dir": directory.path, "seed": 99})


def test_uncoordinated_processes_cause_warning(inputs, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.warns(DifferenceWarning, match="each of the 2 processes trains its own model"):
        assert "requires at least two" in error_of_run(inputs, tmp_path, strategy="multi_worker")


def test_model_dir_inside_corpus_raises_error(inputs, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    shutil.copy(inputs / "corpus.txt", corpus)
    settings = parse(*arguments(inputs, corpus / "run", input=corpus))[0]
    message = "^--model_dir=.*/run is in .*/corpus, so the output would be read as input"
    with pytest.raises(ValueError, match=message):
        run(settings)
    assert [path.name for path in corpus.iterdir()] == ["corpus.txt"]


@pytest.mark.slow
def test_moved_files_are_accepted_and_other_files_raise_error(finished, inputs, tmp_path, capsys):
    moved = shutil.copytree(inputs, tmp_path / "moved")
    run(parse(*arguments(moved, finished[0]))[0])
    assert "contains this run, which has finished." in capsys.readouterr().out
    write_corpus(moved / "corpus.txt", seed=1)
    with pytest.raises(
        ValueError, match="The data of --input differ from the data that the run in .* started"
    ):
        run(parse(*arguments(moved, finished[0]))[0])


def test_tpu_slice_requires_records():
    one = distribution.choose_strategy("one_device")
    slice = one._replace(device_type="TPU", hosts=4)
    check_hosts_can_read(slice, "tfrecord")
    check_hosts_can_read(slice._replace(hosts=1), None)
    with pytest.raises(
        ValueError, match="TPU has 4 hosts, .* pass the new files with --input_format=tfrecord"
    ):
        check_hosts_can_read(slice, "google")


def test_invalid_cluster_raises_error_before_writing(inputs, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}}')
    assert (
        'TF_CONFIG: expected one of the cluster\'s 2 tasks, such as {"type": "worker", '
        '"index": 0}, got None'
    ) in error_of_run(inputs, tmp_path)
    assert not (tmp_path / "run").exists()


def test_truncated_newest_checkpoint_is_skipped(inputs, tmp_path, monkeypatch, capsys):
    model_dir = tmp_path / "run"
    flags = {"num_train_steps": 2, "save_checkpoints_steps": 1, "max_eval_steps": 1}
    # Only resuming is tested here; pairs have separate tests.
    flags |= dict.fromkeys(("export", "pairs", "nsp"), "false")
    settings = parse(*arguments(inputs, model_dir, **flags))[0]
    evaluate, results_of = PretrainingTrainer.evaluate, {}

    def evaluated(self, *args):
        """Caches evaluations of the same weights, which other tests compute again."""
        if self.step not in results_of:
            results_of[self.step] = evaluate(self, *args)
        return results_of[self.step]

    monkeypatch.setattr(PretrainingTrainer, "evaluate", evaluated)
    run(settings)
    expected, results = weights(model_dir, 2), json.loads((model_dir / "results.json").read_text())
    # Results of the first run for the same corpus and weights are reused.
    for name, found in (("describe_rows", []), ("first_sentences", []),
                        ("fill_masks", results["filled_masks"])):  # fmt: skip
        monkeypatch.setattr(pretraining_run, name, lambda *_, found=found, **__: found)
    (model_dir / "results.json").unlink()
    data = model_dir / "checkpoints/step-00000002/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-100])
    capsys.readouterr()
    run(settings)
    printed = capsys.readouterr().out
    assert "Skipped the checkpoint" in printed
    assert "Continuing from the checkpoint at step 1." in printed
    assert_bit_equal(weights(model_dir, 2), expected)
    assert json.loads((model_dir / "results.json").read_text()) == results
    loaded = {f"model/{v.path}": v.numpy() for v in bert_tf.load(model_dir).weights}
    saved = {name: value for name, value in expected.items() if name.startswith("model/")}
    assert_bit_equal(loaded, saved)
