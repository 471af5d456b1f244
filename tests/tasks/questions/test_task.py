"""Answers to questions are found, scored, written and trained on; mistakes are reported."""

import dataclasses
import functools
import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertSpanPredictor
from bert_tf.tasks.questions.scores import score_predictions
from bert_tf.tasks.task import evaluate, predict
from tests.finetuning import small_tasks
from tests.finetuning.small_tasks import (
    CONFIG,
    IDS,
    TOKENIZER,
    VOCAB,
    WINDOWS,
    WORDS,
    StandIn,
    by_token,
    examples_of,
    loss_of,
    make_task,
    question,
    random_questions,
    without,
)

inference = functools.partial(small_tasks.inference, max_seq_length=24)


def task_on(train=(), dev=(), *, with_null=False, **options):
    """A task on lists of questions."""
    dev_sets = {"dev": examples_of(dev)} if dev else {}
    options = {**WINDOWS, "with_null": with_null, **options}
    return make_task("squad", "squad", examples_of(train), dev_sets, **options)


def written(paths):
    """The JSON files; of a labelled set there are JSON lines, too."""
    files = map(pathlib.Path, paths)
    return {f.name: json.loads(f.read_text()) for f in files if f.suffix == ".json"}


def stand_in(starts, ends):
    """A model whose logits are those that tokens have in two dicts."""
    columns = {"start_logits": by_token(starts), "end_logits": by_token(ends)}
    return StandIn(lambda inputs: {key: column(inputs) for key, column in columns.items()})


def test_answers_scores_and_mistakes_of_version_1(tmp_path):
    items = [
        question("right", "g0", "A0 b0,  c0 d0", "b0,  c0", "b0"),
        question("long", "g1", "b0 c0 d0 e0", "b0 c0 d0"),
        question("wrong", "g2", "b0 c0 h0", "h0"),
        question("other", "g3", "a0 d0 e0", "d0"),
    ]
    task = task_on((), items)
    assert task.headline == "f1"
    how = inference(stand_in({"b0": 3.0, "d0": 1.0}, {"c0": 3.0, "d0": 1.0}))
    found = evaluate(task, how, "dev")
    # "b0 c0" of "b0 c0 d0": two words of two and of three, F1 0.8.
    loss = found.scores["loss"]
    assert found.scores == pytest.approx({"exact_match": 50.0, "f1": 70.0, "loss": loss})
    assert found.scores.keys() == set(task.logged_scores)
    assert found.constant is False
    assert found.thresholds == {}
    by_id = {mistake.id: mistake for mistake in found.mistakes}
    assert set(by_id) == {"long", "wrong"}
    assert by_id["long"].text == "g1 ||| b0 c0 d0 e0"
    assert (by_id["long"].expected, by_id["long"].predicted) == ("b0 c0 d0", "b0 c0")
    assert (by_id["wrong"].expected, by_id["wrong"].predicted) == ("h0", "b0 c0")
    losses = [mistake.loss for mistake in found.mistakes]
    assert losses == sorted(losses, reverse=True)

    paths = task.write_predictions(how, "dev", str(tmp_path), found.thresholds)
    files = written(paths)
    assert list(files) == ["predictions.json", "nbest_predictions.json"]
    assert files["predictions.json"] == {
        "right": "b0,  c0",
        "long": "b0 c0",
        "wrong": "b0 c0",
        "other": "d0",
    }
    lines = (tmp_path / "dev.jsonl").read_text().splitlines()
    assert json.loads(lines[1]) == {
        "id": "long", "prediction": "b0 c0", "expected": ["b0 c0 d0"], "text": "g1"
    }  # fmt: skip
    # The loss is that of the right entries of the list that was written.
    for name, answer in [("long", "b0 c0 d0"), ("wrong", "h0")]:
        entries = {
            entry["text"]: entry["probability"] for entry in files["nbest_predictions.json"][name]
        }
        assert by_id[name].loss == pytest.approx(-np.log(entries[answer]))
    # The score of an answer is its probability there.
    records = {record["id"]: record for record in predict(task, how, "dev", {})}
    assert records["wrong"]["score"] == pytest.approx(entries["b0 c0"])


def test_a_right_answer_that_is_not_listed_loses_as_much_as_the_last_entry():
    item = question("7", "g0", "b0 c0 d0", "d0")
    task = task_on((), [item], n_best_size=2)
    found = evaluate(task, inference(stand_in({"b0": 9.0, "c0": 8.0}, {"c0": 9.0})), "dev")
    # "b0 c0" (18) and "c0" (17) are the list.
    assert found.mistakes[0].loss == pytest.approx(np.log(1 + np.e))
    assert found.constant is False, "one question alone is no collapse"


def test_null_is_tuned_on_the_set(tmp_path):
    items = [
        question("a", "g0", "b0 c0 a0", "b0 c0"),
        question("b", "g1", "b0 d0 d1", is_impossible=True),
        question("c", "g2", "b1 c0 a0", "b1 c0"),
        question("d", "g3", "b2 c0 a0", "a0"),
        question("e", "g3", "b3 c0 a0", "b3 c0"),
    ]
    # The null's score is 4 everywhere; the odds are -5, 1, 1.5, 2 and 1.25.
    low = dict.fromkeys(WORDS, -9.0)
    starts = {**low, "[CLS]": 2.0, "b0": 4.0, "b1": -2.5, "b2": -3.0, "b3": -2.25}
    how = inference(stand_in(starts, {**low, "[CLS]": 2.0, "c0": 5.0, "d0": -1.0}))
    task = task_on((), items, with_null=True)
    assert task.headline == "best_f1"
    found = evaluate(task, how, "dev")
    # At 0, Google's default, "a" keeps its answer and "b" is rightly silent; at 1.5 "c" and "e" are
    # right too, and "b" no more.
    assert found.scores["exact_at_0"] == found.scores["f1_at_0"] == 40.0
    assert (found.scores["best_f1"], found.thresholds) == (60.0, {"null": 1.5})
    assert found.scores["exact"] == found.scores["f1"] == 60.0
    assert (found.scores["HasAns_f1"], found.scores["NoAns_f1"]) == (75.0, 0.0)
    files = written(task.write_predictions(how, "dev", str(tmp_path), {}))
    assert list(files) == ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    assert files["predictions.json"] == {"a": "b0 c0", **dict.fromkeys("bcde", "")}
    assert files["null_odds.json"] == {"a": -5, "b": 1, "c": 1.5, "d": 2, "e": 1.25}
    paths = task.write_predictions(how, "dev", str(tmp_path), found.thresholds)
    gold = {item.id: tuple(answer.text for answer in item.answers) for item in items}
    alone = score_predictions(gold, written(paths)["predictions.json"], "2.0")
    assert (alone["exact"], alone["f1"]) == (found.scores["exact"], found.scores["f1"])
    assert {"total", "best_f1_thresh"} & set(found.scores) == set()
    assert found.scores.keys() == set(task.logged_scores)

    # Decided on another set, a threshold is kept to, and none is searched.
    given = evaluate(task, how, "dev", {"null": 1.75})
    assert given.thresholds == {"null": 1.75}
    assert (given.scores["exact"], given.scores["f1"]) == (60.0, 60.0)
    assert not [name for name in given.scores if name.startswith("best_")]
    assert evaluate(task, how, "dev", {}).scores["f1"] == 40.0

    # A threshold of one's own decides instead.
    fixed = task_on((), items, with_null=True, null_score_diff_threshold=1.75)
    assert fixed.headline == "f1" and fixed.default_thresholds == {"null": 1.75}
    assert (task.default_thresholds, task_on().default_thresholds) == ({"null": 0.0}, {})
    found = evaluate(fixed, how, "dev")
    assert found.thresholds == {"null": 1.75}
    assert found.scores["f1"] == 60.0
    assert [
        (m.id, m.expected, m.predicted) for m in sorted(found.mistakes, key=lambda m: m.id)
    ] == [("b", "(no answer)", "b0 d0"), ("d", "a0", "(no answer)")]
    for thresholds, c in [(found.thresholds, "b1 c0"), ({"null": -1.0}, "")]:
        paths = fixed.write_predictions(how, "dev", str(tmp_path), thresholds)
        assert written(paths)["predictions.json"]["c"] == c


@pytest.mark.parametrize("with_null", [True, False])
def test_no_span_at_all_is_no_crash(with_null, tmp_path):
    task = task_on((), random_questions(8).items, n_best_size=1, with_null=with_null)
    how = inference(stand_in({"[CLS]": 9.0}, {"[CLS]": 9.0}))
    found = evaluate(task, how, "dev")
    assert found.constant is True
    assert found.scores["f1"] == 0.0
    assert len(found.mistakes) == 8
    assert {mistake.predicted for mistake in found.mistakes} == {"(no answer)"}
    assert np.all(np.isfinite([mistake.loss for mistake in found.mistakes]))
    paths = task.write_predictions(how, "dev", str(tmp_path), found.thresholds)
    assert set(written(paths)["predictions.json"].values()) == {""}


def test_finds_an_answer_in_any_window():
    rng = np.random.default_rng(0)
    items = []
    for number in range(9):
        words = rng.choice([word for word in WORDS if word[0] not in "gh"], 60).tolist()
        words[7 * number : 7 * number + 2] = ["g0", "h0"]
        items.append(question(f"id{number}", "a0 a1", " ".join(words), "g0 h0"))
    task = task_on(items, items)
    model = stand_in({"g0": 5.0}, {"h0": 5.0})
    assert evaluate(task, inference(model), "dev").scores["exact_match"] == 100.0
    rows = task.training_examples(TOKENIZER, 24)
    assert (rows.num_too_long, len(rows) > 9 * 5) == (9, True)
    marked = 0
    (batch, labels), _ = rows.single_batch()
    for row, start, end in zip(batch["input_word_ids"].numpy(), *labels.values(), strict=True):
        tokens = [VOCAB[token] for token in row[int(start) : int(end) + 1]]
        assert tokens == (["g0", "h0"] if start else ["[CLS]"])
        marked += bool(start)
    assert marked >= 9


def test_traces_once_and_predicts_unlabelled_and_empty_sets(tmp_path):
    unlabelled = without(random_questions(12, longest=40), answers=())
    sets = {"test": unlabelled, "empty": examples_of([])}
    task = make_task("squad", "squad", None, {}, sets, **WINDOWS, with_null=True)
    model = stand_in(dict.fromkeys(WORDS[::3], 1.0), dict.fromkeys(WORDS[::2], 1.0))
    paths = task.write_predictions(inference(model), "test", str(tmp_path / "test"), {"null": 0.0})
    predictions = written(paths)["predictions.json"]
    assert list(predictions) == [item.id for item in unlabelled.items]
    for item in unlabelled.items:
        assert predictions[item.id] in item.context
    task.write_predictions(inference(model), "test", str(tmp_path / "test"), {"null": 0.0})
    assert model.traces == 1
    paths = task.write_predictions(inference(model), "empty", str(tmp_path / "empty"), {})
    assert written(paths) == {
        "predictions.json": {},
        "nbest_predictions.json": {},
        "null_odds.json": {},
    }


# === Training ===


def test_what_there_is_to_train_on_in_words():
    items = [
        question("long", "a0", " ".join(WORDS[:30]), "a1"),
        question("accent", "a0", "b0 \u0301 b1", "\u0301"),
        question("short", "a0", "b0 b1", "b1"),
        question("wide", "a0 " * 9, " ".join(WORDS[:30]), " ".join(WORDS[:19])),
    ]
    task = task_on(items, max_answer_length=18)
    rows = task.training_examples(TOKENIZER, 24)
    assert len(rows) == 11  # 20 of 30 tokens fit into a row with the question; the next begin 4 on
    assert task.training_summary(rows) == [
        "4 questions in 11 windows",
        "The contexts of 2 of the training questions are split into several windows of 24 tokens "
        "(--max_seq_length).",
        "The answers to 2 of the training questions have no tokens or do not fit into a "
        "window (--max_seq_length, --doc_stride). They are trained as unanswerable.",
        "1 of the questions are truncated, because they are longer than --max_query_length=6.",
        "1 of the answers are never predicted, because they are longer than "
        "--max_answer_length=18.",
    ]
    assert task.training_summary(task.training_examples(TOKENIZER, 48))[0] == (
        "4 questions in 4 windows"
    )
    task = task_on([question("none", "a0", "b0 b1")], with_null=True)
    assert task.training_summary(task.training_examples(TOKENIZER, 24))[1:] == [
        "No question has an answer, so there is nothing to learn. Check the label column and "
        "whether the file is complete."
    ]


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        (["\u5317\u4eac\u5927\u5b66", "\u6771\u4eac", "b0"], 2),
        (["\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e"], 1),
        (["\uc11c\uc6b8 \ud2b9\ubcc4\uc2dc", "b0", "b0 \u5317"], 0),  # Korean has spaces
        (["\u5317\u4eac", *["b0"] * 9], 0),  # few
    ],
)
def test_answers_without_spaces_cause_a_warning(answers, count):
    task = task_on([question(str(n), "a0", f"{text} c0", text) for n, text in enumerate(answers)])
    warnings = [line for line in task.training_summary(task.training_examples(TOKENIZER, 24))
                if "without spaces" in line]  # fmt: skip
    assert warnings == [
        f"{count} of the answers are written without spaces, so f1 counts each as one word. "
        "Score predictions.json with the script of the data set, which counts characters."
    ] * bool(count)


def test_trains_on_the_first_answer():
    # Its characters are fewer than its bytes.
    item = question("7", "a0", "\u00e9 b0 \u00e9\u00e9 c0 d0", "\u00e9\u00e9 c0", "b0")
    task = task_on([item])
    (batch, labels), _ = task.training_examples(TOKENIZER, 24).single_batch()
    tokens = batch["input_word_ids"].numpy()[0]
    start, end = labels["start_logits"].numpy()[0], labels["end_logits"].numpy()[0]
    assert tokens[start : end + 1].tolist() == [IDS["[UNK]"], IDS["c0"]]
    assert tokens[start - 1] == IDS["b0"]


def test_the_loss_is_the_mean_of_both():
    task = task_on(random_questions(8).items)
    keras.utils.set_random_seed(1)
    model = BertSpanPredictor(dataclasses.replace(CONFIG, initializer_range=0.5))
    rows = task.training_examples(TOKENIZER, 24)
    (batch, labels), _ = rows.single_batch()
    logits = model(batch, training=False)
    expected = []
    for index in range(len(rows)):
        length = int(tf.reduce_sum(batch["input_mask"][index]))
        for key in ("start_logits", "end_logits"):
            logs = tf.nn.log_softmax(logits[key][index, :length]).numpy()
            expected.append(-logs[labels[key].numpy()[index]])
    assert loss_of(task, model, batch, labels) == pytest.approx(np.mean(expected), rel=1e-5)
    # On a set to evaluate on it comes of the pass that answers.
    dev = task_on((), random_questions(8).items)
    found = evaluate(dev, small_tasks.inference(model, max_seq_length=24, batch_size=3), "dev")
    assert found.scores["loss"] == pytest.approx(np.mean(expected), rel=1e-5)
