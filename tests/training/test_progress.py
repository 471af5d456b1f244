import io
import os
import signal

import pytest
import tensorflow as tf

from bert_tf.training import progress as progress_module
from bert_tf.training.progress import Progress, Summaries
from bert_tf.training.trainer import Interruption


def test_log_lines_are_periodic_with_remaining_time(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    shown = Progress("Training", 100, "steps", start=20)
    clock[0] = 5.0
    shown.update(21)
    assert capsys.readouterr().out == ""
    clock[0] = 25.0
    shown.update(61, {"loss": "1.5"})
    # 40 steps take 20 seconds, so the other 39 take as long. The first took 5, mostly for tracing.
    assert capsys.readouterr().out == "Training: 61/100 steps, 20s left  loss 1.5\n"
    clock[0] = 80.0
    shown.update(100)
    shown.close()
    assert capsys.readouterr().out.endswith("Training: 100 steps in 1m20s.\n")


def test_message_is_printed_above_progress(monkeypatch, capsys):
    monkeypatch.setattr(progress_module.sys.stderr, "isatty", lambda: True, raising=False)
    shown = Progress("Training", 10, "steps")
    shown.update(5)
    shown.write("Epoch 1: f1 0.5")
    printed = capsys.readouterr()
    assert printed.out == "Epoch 1: f1 0.5\n"
    assert "Training: 5/10 steps" in printed.err.rpartition("\r")[2]


def test_progress_supports_other_encodings(monkeypatch):
    with io.TextIOWrapper(io.BytesIO(), "latin-1") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        progress_module.print_progress("été", "食物", flush=True)
        assert stream.buffer.getvalue() == "été \\u98df\\u7269\n".encode("latin-1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_recorded_and_second_interrupts(number, capsys):
    before = signal.getsignal(number)
    with Interruption() as interruption:
        os.kill(os.getpid(), number)
        assert interruption.requested
        assert "Stopping after the current steps to save a checkpoint" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 1)
    assert signal.getsignal(number) is before


def test_second_signal_calls_previous_handler():
    """The handler of a command records it, because TensorFlow may replace the KeyboardInterrupt."""
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with Interruption():
            os.kill(os.getpid(), signal.SIGTERM)
            assert not received
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                signal.sigtimedwait([], 1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


def test_curves_have_five_sections(tmp_path):
    tags_of_scores = {
        "masked_lm_accuracy": "masked_lm/accuracy",
        "next_sentence_loss": "next_sentence/loss",
        "gradient_norm": "optimizer/gradient_norm",
        "device_tokens_per_second": "speed/device_tokens_per_second",
        "input_wait_share": "speed/input_wait_share",
        "loss": "scores/loss",
        "f1": "scores/f1",
    }
    curves = Summaries(str(tmp_path))
    curves.write("train", 1, dict.fromkeys(tags_of_scores, 1.0))
    curves.flush()
    (path,) = (tmp_path / "train").iterdir()
    events = tf.compat.v1.train.summary_iterator(str(path))
    tags = [value.tag for event in events for value in event.summary.value]
    assert tags == list(tags_of_scores.values())


@pytest.mark.parametrize("is_local", [True, False])
def test_schedule_of_curve_writes(tmp_path, monkeypatch, is_local):
    if not is_local:
        monkeypatch.setattr(progress_module, "local_path", lambda path: None)
    curves = Summaries(str(tmp_path))

    def steps():
        if not (tmp_path / "train").exists():
            return []
        (path,) = (tmp_path / "train").iterdir()
        return [event.step for event in tf.compat.v1.train.summary_iterator(str(path))][1:]

    for step in range(1, 31):
        curves.write("train", step, {"loss": 1.0})
    assert steps() == (list(range(1, 31)) if is_local else [])
    curves.flush()
    assert steps() == list(range(1, 31))
