from bert_tf.training import progress as progress_module
from bert_tf.training.progress import Progress


def test_a_log_gets_a_line_now_and_then_with_the_time_left(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    shown = Progress("Training", 100, "steps", start=20)
    clock[0] = 5.0
    shown.update(30)
    assert capsys.readouterr().out == ""
    clock[0] = 20.0
    shown.update(60, {"loss": "1.5"})
    # 40 steps in 20 seconds: the other 40 take as long again.
    assert capsys.readouterr().out == "Training: 60/100 steps, 20s left  loss 1.5\n"
    clock[0] = 80.0
    shown.update(100)
    shown.close()
    assert capsys.readouterr().out.endswith("Training: 100 steps in 1m20s.\n")


def test_a_sentence_stays_above_the_display(monkeypatch, capsys):
    monkeypatch.setattr(progress_module.sys.stderr, "isatty", lambda: True, raising=False)
    shown = Progress("Training", 10, "steps")
    shown.update(5)
    shown.say("Epoch 1: f1 0.5")
    printed = capsys.readouterr()
    assert printed.out == "Epoch 1: f1 0.5\n"
    assert "Training: 5/10 steps" in printed.err.rpartition("\r")[2]
