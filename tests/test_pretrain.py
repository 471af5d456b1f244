"""The pretrain command, run as a user runs it: results, resumption, refusals, bad input."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

TINY = {
    "vocab_size": 200,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}


def _corpus(path, documents=40, seed=0):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(120)]
    with path.open("w") as file:
        for _ in range(documents):
            for _ in range(rng.randint(3, 9)):
                file.write(" ".join(rng.choices(words, k=rng.randint(4, 12))).capitalize() + ".\n")
            file.write("\n")
    return path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    _corpus(folder / "corpus.txt")
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


def _arguments(inputs, model_dir, **changes):
    flags = {
        "input": inputs / "corpus.txt",
        "bert_config": inputs / "config.json",
        "vocab_size": 150,
        "max_seq_length": 32,
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "num_train_steps": 12,
        "save_checkpoints_steps": 4,
        "learning_rate": 1e-2,
        "model_dir": model_dir,
        **changes,
    }
    given = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    return [sys.executable, "-m", "bert_tf.pretrain", *given]


def _run(inputs, model_dir, **changes):
    return subprocess.run(_arguments(inputs, model_dir, **changes), capture_output=True, text=True)


def _weights(model_dir, step):
    reader = tf.train.load_checkpoint(f"{model_dir}/checkpoints/step-{step:08d}/variables")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def _assert_bit_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(scope="module")
def finished(inputs, tmp_path_factory):
    """A run of 12 steps that nothing interrupted: its directory and what it printed."""
    model_dir = tmp_path_factory.mktemp("finished") / "run"
    done = _run(inputs, model_dir)
    assert done.returncode == 0, done.stderr
    return model_dir, done.stdout


@pytest.fixture(scope="module")
def finished_in(inputs, tmp_path_factory):
    """The seconds that such a run takes."""
    began = time.monotonic()
    assert _run(inputs, tmp_path_factory.mktemp("timed") / "run").returncode == 0
    return time.monotonic() - began


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
    assert results["step"] == 12
    assert 0 < evaluation["masked_lm_baseline"] < 1
    assert f"{evaluation['masked_lm_accuracy']:6.1%}" in printed
    assert f"{evaluation['next_sentence_baseline']:6.1%}" in printed
    assert "Corpus: 1 file, google, 40 documents," in printed
    events = list((model_dir / "logs").rglob("*tfevents*"))
    assert {path.parent.name for path in events} == {"train", "eval"}


def test_a_finished_command_prints_its_results_again(finished, inputs):
    model_dir, printed = finished
    again = _run(inputs, model_dir)
    assert again.returncode == 0
    assert again.stdout.startswith(f"{model_dir} holds this run, finished.")
    shown = printed[printed.index("Held-out") :]
    assert again.stdout.split("finished.")[1].strip() == shown.strip()


def test_changed_flags_are_refused_by_name(finished, inputs):
    model_dir, _ = finished
    refused = _run(inputs, model_dir, learning_rate=1e-3, masking="span", keep_checkpoints=9)
    assert refused.returncode == 1
    assert "--learning_rate=0.001 (was 0.01), --masking=span (was token)." in refused.stderr
    assert "keep_checkpoints" not in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.3, 0.6, 0.9])
def test_killed_at_any_instant_and_started_again(finished, finished_in, inputs, tmp_path, moment):
    """Killed by SIGKILL at fractions of its life, some in the middle of a save, again and again."""
    model_dir = tmp_path / "run"
    arguments = _arguments(inputs, model_dir)
    for _ in range(2):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(finished_in * moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = _run(inputs, model_dir)
    assert done.returncode == 0, done.stderr
    _assert_bit_equal(_weights(model_dir, 12), _weights(finished[0], 12))
    one, other = (
        json.loads(pathlib.Path(path, "results.json").read_text())
        for path in (model_dir, finished[0])
    )
    assert one["evaluation"] == other["evaluation"]


KILLED_AT_A_WRITE = """
import os, signal, sys
import tensorflow as tf
from absl import flags

moment, target = sys.argv.pop(1), sys.argv.pop(1)
rename = tf.io.gfile.rename

def killing(source, destination, overwrite=False):
    hit = destination.endswith(target)
    if hit and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, destination, overwrite=overwrite)
    if hit:
        os.kill(os.getpid(), signal.SIGKILL)

tf.io.gfile.rename = killing
from bert_tf import pretraining_run, pretraining_settings
flags.FLAGS(sys.argv)
pretraining_run.run(pretraining_settings.settings_from_flags()[0])
"""


@pytest.mark.slow
def test_killed_at_each_write(finished, inputs, tmp_path):
    """Each start is killed by SIGKILL as a file gets its name, the last is let through."""
    flags = _arguments(inputs, tmp_path / "run")[3:]
    checkpoints = [f"step-{step:08d}/manifest.json" for step in (4, 8, 12)]
    for target in ("flags.json", "vocab.txt", "bert_config.json", *checkpoints, "export/1"):
        for moment in ("before", "after") if target == checkpoints[1] else ("before",):
            started = subprocess.run(
                [sys.executable, "-c", KILLED_AT_A_WRITE, moment, target, *flags],
                capture_output=True,
            )
            assert started.returncode == -signal.SIGKILL, (target, started.stderr)
    for moment in ("after", "before"):  # of the export, which is made again, and of the results
        target = "export/1" if moment == "after" else "results.json"
        started = subprocess.run(
            [sys.executable, "-c", KILLED_AT_A_WRITE, moment, target, *flags], capture_output=True
        )
        assert started.returncode == -signal.SIGKILL, (target, started.stderr)
    done = _run(inputs, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    _assert_bit_equal(_weights(tmp_path / "run", 12), _weights(finished[0], 12))
    assert (tmp_path / "run/export/1/saved_model.pb").is_file()


@pytest.mark.slow
def test_interrupted_saved_and_gone_on_with(inputs, tmp_path):
    """Ctrl-C keeps a checkpoint of the very step, from which the end is the same bit for bit."""
    steps = {"num_train_steps": 400, "save_checkpoints_steps": 1000, "steps_per_loop": 1}
    assert _run(inputs, tmp_path / "whole", **steps).returncode == 0
    model_dir = tmp_path / "run"
    process = subprocess.Popen(
        _arguments(inputs, model_dir, **steps),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if line.startswith("Model:"):
            break
    logs = model_dir / "logs" / "train"
    while not (logs.is_dir() and any(path.stat().st_size > 2000 for path in logs.iterdir())):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "The same command goes on from there." in stdout
    (kept,) = os.listdir(model_dir / "checkpoints")
    assert 0 < int(kept.removeprefix("step-")) < 400
    done = _run(inputs, model_dir, **steps)
    assert done.returncode == 0, done.stderr
    assert f"Going on from the checkpoint at step {int(kept.removeprefix('step-'))}." in done.stdout
    _assert_bit_equal(_weights(model_dir, 400), _weights(tmp_path / "whole", 400))


@pytest.mark.slow
def test_a_truncated_newest_checkpoint_is_passed_over(finished, inputs, tmp_path):
    model_dir = tmp_path / "run"
    first = _run(inputs, model_dir)
    assert first.returncode == 0
    (model_dir / "results.json").unlink()
    data = model_dir / "checkpoints/step-00000012/variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-100])
    done = _run(inputs, model_dir)
    assert done.returncode == 0, done.stderr
    assert "Passed over the checkpoint" in done.stdout
    assert "Going on from the checkpoint at step 8." in done.stdout
    _assert_bit_equal(_weights(model_dir, 12), _weights(finished[0], 12))


@pytest.mark.slow
def test_phases_resume_in_the_second(inputs, tmp_path):
    flags = {"max_seq_length": None, "phases": "16:0.5,48:0.5", "save_checkpoints_steps": 3}
    assert _run(inputs, tmp_path / "whole", **flags).returncode == 0
    model_dir = tmp_path / "run"
    assert _run(inputs, model_dir, **flags).returncode == 0
    for gone in ("results.json", "checkpoints/step-00000012/manifest.json"):
        (model_dir / gone).unlink()
    done = _run(inputs, model_dir, **flags)
    assert "Going on from the checkpoint at step 9." in done.stdout, done.stderr
    assert "Training at length 48" in done.stdout and "Training at length 16" not in done.stdout
    _assert_bit_equal(_weights(model_dir, 12), _weights(tmp_path / "whole", 12))


def _error(inputs, tmp_path, **changes):
    done = _run(inputs, tmp_path / "run", **changes)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1 and lines[0].startswith("Error: "), done.stderr
    return lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, content, message",
    [
        ("empty.txt", b"", r"empty.txt.* empty|no document"),
        ("bytes.txt", b"A good line.\nA bad \xff one.\n\nMore.\n", r"bytes.txt.*\b19\b"),
        ("one.txt", b"One sentence.\nAnother one.\nA third.\n", "leaves 1 document .*--nsp=false"),
    ],
)
def test_bad_corpora(inputs, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    assert re.search(message, _error(inputs, tmp_path, input=path))


@pytest.mark.slow
def test_bad_files_and_flags_leave_the_directory_free_for_the_right_ones(inputs, tmp_path):
    assert "nothing*.txt" in _error(inputs, tmp_path, input=tmp_path / "nothing*.txt")
    vocabulary = {"vocab_file": tmp_path / "vocab.txt", "vocab_size": None}
    vocabulary["vocab_file"].write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n")
    assert re.search(r"vocab.txt.*\[MASK\]", _error(inputs, tmp_path, **vocabulary))
    vocabulary["vocab_file"].write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\nword\n")
    assert re.search("lines 6 and 7|line 6.*line 7", _error(inputs, tmp_path, **vocabulary))
    pieces = "".join(f"w{number}\n" for number in range(300))
    vocabulary["vocab_file"].write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + pieces)
    assert "has 305 pieces, but the model's vocab_size is 200" in _error(
        inputs, tmp_path, **vocabulary
    )
    assert "Rows of 65 tokens are longer than the model's 64 positions" in _error(
        inputs, tmp_path, max_seq_length=65
    )
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**TINY, "num_attention_heads": 3}))
    assert "hidden_size 16 is not a multiple of num_attention_heads 3" in _error(
        inputs, tmp_path, bert_config=config
    )
    done = _run(inputs, tmp_path / "run", num_train_steps=2)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_file_that_changed_behind_its_flag_is_refused(inputs, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(TINY))
    assert _run(inputs, tmp_path / "run", bert_config=config).returncode == 0
    (tmp_path / "run" / "results.json").unlink()
    config.write_text(json.dumps({**TINY, "hidden_act": "relu"}))
    assert "What --bert_config read is not what the run" in _error(
        inputs, tmp_path, bert_config=config
    )
    kept = json.loads((tmp_path / "run" / "bert_config.json").read_text())
    assert kept["hidden_act"] == "gelu"


@pytest.mark.slow
def test_tfrecords_written_and_read(finished, inputs, tmp_path):
    model_dir, _ = finished
    written = subprocess.run(
        [
            *(sys.executable, "-m", "bert_tf.create_pretraining_data"),
            *(f"--input={inputs}/corpus.txt", f"--output_file={tmp_path}/ex-1.tfrecord"),
            *(f"--vocab_file={model_dir}/vocab.txt", "--max_seq_length=32", "--num_epochs=2"),
            "--max_predictions_per_seq=5",
        ],
        capture_output=True,
        text=True,
    )
    assert written.returncode == 0, written.stderr
    records = {
        "input": tmp_path / "ex-*.tfrecord",
        "input_format": "tfrecord",
        "vocab_size": None,
        "vocab_file": model_dir / "vocab.txt",
        "max_predictions_per_seq": 5,
    }
    assert "--max_predictions_per_seq=5" in written.stdout
    done = _run(inputs, tmp_path / "run", **records)
    assert done.returncode == 0, done.stderr
    assert "Accuracy on the training records after 12 steps" in done.stdout
    short = tmp_path / "short.txt"
    short.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    assert re.search(
        "holds token id .*, and the vocabulary has 6 pieces",
        _error(inputs, tmp_path / "b", **{**records, "vocab_file": short}),
    )


@pytest.mark.slow
def test_a_single_document_trains_without_next_sentence_prediction(inputs, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("".join(f"Sentence number {number} of one document.\n" for number in range(60)))
    done = _run(inputs, tmp_path / "run", input=path, nsp="false", num_train_steps=3)
    assert done.returncode == 0, done.stderr
    assert "nothing is held out" in done.stdout


@pytest.mark.slow
def test_no_tpu_is_told_in_time(inputs, tmp_path):
    began = time.monotonic()
    assert "TPU" in _error(inputs, tmp_path, tpu="grpc://127.0.0.1:9")
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_dry_run_writes_nothing(inputs, tmp_path):
    done = _run(inputs, tmp_path / "run", dry_run="true")
    assert done.returncode == 0, done.stderr
    assert "Parameters: 7,322." in done.stdout and "Nothing was written." in done.stdout
    assert not (tmp_path / "run").exists()


def test_help_lists_the_flags():
    done = subprocess.run(
        [sys.executable, "-m", "bert_tf.pretrain", "--help"], capture_output=True, text=True
    )
    for flag in ("--input:", "--[no]dry_run:", "--phases:", "--tpu:", "--[no]debug:"):
        assert flag in done.stdout


def test_googles_flags_are_understood(inputs, tmp_path):
    arguments = [
        sys.executable,
        "-m",
        "bert_tf.pretrain",
        f"--input_file={tmp_path}/none.txt",
        f"--output_dir={tmp_path}/run",
        f"--bert_config_file={inputs}/config.json",
        "--iterations_per_loop=10",
        "--max_seq_length=32",
        "--dupe_factor=5",
        "--use_tpu=False",
        "--do_train",
    ]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 1 and "none.txt" in done.stderr
    assert done.stdout.splitlines()[:3] == [
        "--dupe_factor is ignored: every epoch pairs and masks the text anew.",
        "--use_tpu is ignored: --tpu=NAME alone chooses a TPU.",
        "--do_train is ignored: a run trains and then evaluates.",
    ]
    assert json.loads((tmp_path / "run" / "flags.json").read_text())["steps_per_loop"] == 10
