"""A training that is interrupted at any step resumes to the result of an uninterrupted one."""

import pytest

from bert_tf.finetuning import training
from bert_tf.finetuning.run import run
from bert_tf.training import attention
from bert_tf.training.attention import attend_in_groups

from .small_runs import assert_ends_as, sentences, settings, stop_at, write_table

BRIEF = {"num_train_epochs": 1}


def few_shot(inputs, folder):
    table = write_table(folder / "few.tsv", sentences(8, seed=5))
    return {"train_file": table, "few_shot": True, "few_shot_pairs": 2, "num_train_epochs": 2}


def numbers(inputs, folder):
    rows = [(text, 70 if label == "neg" else 90) for text, label in sentences(100)]
    table = write_table(folder / "numbers.tsv", rows)
    return {"task": "regression", "train_file": table, "dev_file": table, **BRIEF}


def windows(inputs, folder):
    """Windows of 6 words with a stride of 4: the longest text has 27 words, so seven windows."""
    texts = [(" ".join([text] * (1 + n % 3)), y) for n, (text, y) in enumerate(sentences(16))]
    table = write_table(folder / "long.tsv", texts)
    assert max(len(text.split()) for text, _ in texts) == 27
    flags = {"train_file": table, "dev_file": table, "max_seq_length": 8, "long_text": "windows"}
    return flags | {"num_train_epochs": 2, "gradient_accumulation_steps": 2}


def plain(inputs, folder):
    return {"test_file": inputs / "test.tsv"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags_of", "stops"),
    [
        (few_shot, [4]),
        (plain, [1, 6, 17]),
        (numbers, [3]),
        (windows, [3]),
    ],
)
def test_resumed_run_equals_uninterrupted_run(
    inputs, tmp_path, monkeypatch, capsys, flags_of, stops
):
    flags, batches, grouped_calls = flags_of(inputs, tmp_path), [], []

    def attend(*arguments):
        grouped_calls.append(attend)
        return attend_in_groups(*arguments)

    def choose_attention(lengths, texts, *others):
        batches.append(texts)
        return attention.choose_attention(lengths, texts, *others)

    monkeypatch.setattr(attention, "attend_in_groups", attend)
    monkeypatch.setattr(training, "choose_attention", choose_attention)
    if flags_of is numbers:
        monkeypatch.setattr(attention, "_MAX_SCORES", 1)
    run(settings(inputs, tmp_path / "one", **flags))
    # All 8 examples of a batch have the maximum number of windows.
    assert batches == {few_shot: [8 * 2], windows: [8 * 7]}.get(flags_of, [8])
    stop_at(monkeypatch, *stops)
    again = settings(inputs, tmp_path / "run", **flags)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            run(again)
        notice = f"Stopped at step {stop}. Rerun the same command to resume."
        assert notice in capsys.readouterr().out
    run(again)
    if stops == [3]:
        assert "Continuing from the state saved at step 3." in capsys.readouterr().out
    assert_ends_as(tmp_path / "one", tmp_path / "run")
    assert bool(grouped_calls) == (flags_of is numbers)
