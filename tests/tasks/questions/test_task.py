"""The question answering task: predictions, scores, mistakes, files and training."""

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
    """Returns a task on lists of questions."""
    dev_sets = {"dev": examples_of(dev)} if dev else {}
    options = {**WINDOWS, "with_null": with_null, **options}
    return make_task("squad", "squad", examples_of(train), dev_sets, **options)


def json_files(paths):
    """Returns the contents of the JSON files; labeled sets also have a JSON lines file."""
    files = map(pathlib.Path, paths)
    return {f.name: json.loads(f.read_text()) for f in files if f.suffix == ".json"}


def stub_model(starts, ends):
    """Returns a stub model with fixed start and end logits per token."""
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
    runner = inference(stub_model({"b0": 3.0, "d0": 1.0}, {"c0": 3.0, "d0": 1.0}))
    found = evaluate(task, runner, "dev")
    # "b0 c0" for "b0 c0 d0": precision 2 / 2, recall 2 / 3, F1 0.8.
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

    paths = task.write_predictions(runner, "dev", str(tmp_path), found.thresholds)
    files = json_files(paths)
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
    # The loss is computed from the probabilities of the correct entries in the n-best list.
    for name, answer in [("long", "b0 c0 d0"), ("wrong", "h0")]:
        entries = {
            entry["text"]: entry["probability"] for entry in files["nbest_predictions.json"][name]
        }
        assert by_id[name].loss == pytest.approx(-np.log(entries[answer]))
    # The score of an answer is its probability in the list.
    records = {record["id"]: record for record in predict(task, runner, "dev", {})}
    assert records["wrong"]["score"] == pytest.approx(entries["b0 c0"])


def test_unlisted_correct_answer_has_the_loss_of_the_last_entry():
    item = question("7", "g0", "b0 c0 d0", "d0")
    task = task_on((), [item], n_best_size=2)
    found = evaluate(task, inference(stub_model({"b0": 9.0, "c0": 8.0}, {"c0": 9.0})), "dev")
    # The list contains "b0 c0" (18) and "c0" (17).
    assert found.mistakes[0].loss == pytest.approx(np.log(1 + np.e))
    assert found.constant is False, "a single question is not a collapse"


def test_null_threshold_is_tuned_on_the_dev_set(tmp_path):
    items = [
        question("a", "g0", "b0 c0 a0", "b0 c0"),
        question("b", "g1", "b0 d0 d1", is_impossible=True),
        question("c", "g2", "b1 c0 a0", "b1 c0"),
        question("d", "g3", "b2 c0 a0", "a0"),
        question("e", "g3", "b3 c0 a0", "b3 c0"),
    ]
    # All null scores are 4; the null odds are -5, 1, 1.5, 2 and 1.25.
    lowest = dict.fromkeys(WORDS, -9.0)
    starts = {**lowest, "[CLS]": 2.0, "b0": 4.0, "b1": -2.5, "b2": -3.0, "b3": -2.25}
    runner = inference(stub_model(starts, {**lowest, "[CLS]": 2.0, "c0": 5.0, "d0": -1.0}))
    task = task_on((), items, with_null=True)
    assert task.headline == "best_f1"
    found = evaluate(task, runner, "dev")
    # At 0, Google's default, "a" and "b" are correct; at 1.5, "c" and "e" are correct as well, but
    # not "b".
    assert found.scores["exact_at_0"] == found.scores["f1_at_0"] == 40.0
    assert (found.scores["best_f1"], found.thresholds) == (60.0, {"null": 1.5})
    assert found.scores["exact"] == found.scores["f1"] == 60.0
    assert (found.scores["HasAns_f1"], found.scores["NoAns_f1"]) == (75.0, 0.0)
    files = json_files(task.write_predictions(runner, "dev", str(tmp_path), {}))
    assert list(files) == ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    assert files["predictions.json"] == {"a": "b0 c0", **dict.fromkeys("bcde", "")}
    assert files["null_odds.json"] == {"a": -5, "b": 1, "c": 1.5, "d": 2, "e": 1.25}
    paths = task.write_predictions(runner, "dev", str(tmp_path), found.thresholds)
    gold = {item.id: tuple(answer.text for answer in item.answers) for item in items}
    rescored = score_predictions(gold, json_files(paths)["predictions.json"], "2.0")
    assert (rescored["exact"], rescored["f1"]) == (found.scores["exact"], found.scores["f1"])
    assert {"total", "best_f1_thresh"} & set(found.scores) == set()
    assert found.scores.keys() == set(task.logged_scores)

    # A threshold from another set is used as is, without tuning.
    with_threshold = evaluate(task, runner, "dev", {"null": 1.75})
    assert with_threshold.thresholds == {"null": 1.75}
    assert (with_threshold.scores["exact"], with_threshold.scores["f1"]) == (60.0, 60.0)
    assert not [name for name in with_threshold.scores if name.startswith("best_")]
    assert evaluate(task, runner, "dev", {}).scores["f1"] == 40.0

    # A threshold in the options replaces tuning.
    fixed_task = task_on((), items, with_null=True, null_score_diff_threshold=1.75)
    assert fixed_task.headline == "f1" and fixed_task.default_thresholds == {"null": 1.75}
    assert (task.default_thresholds, task_on().default_thresholds) == ({"null": 0.0}, {})
    found = evaluate(fixed_task, runner, "dev")
    assert found.thresholds == {"null": 1.75}
    assert found.scores["f1"] == 60.0
    assert [
        (m.id, m.expected, m.predicted) for m in sorted(found.mistakes, key=lambda m: m.id)
    ] == [("b", "(no answer)", "b0 d0"), ("d", "a0", "(no answer)")]
    for thresholds, c in [(found.thresholds, "b1 c0"), ({"null": -1.0}, "")]:
        paths = fixed_task.write_predictions(runner, "dev", str(tmp_path), thresholds)
        assert json_files(paths)["predictions.json"]["c"] == c


@pytest.mark.parametrize("with_null", [True, False])
def test_questions_without_valid_spans(with_null, tmp_path):
    task = task_on((), random_questions(8).items, n_best_size=1, with_null=with_null)
    runner = inference(stub_model({"[CLS]": 9.0}, {"[CLS]": 9.0}))
    found = evaluate(task, runner, "dev")
    assert found.constant is True
    assert found.scores["f1"] == 0.0
    assert len(found.mistakes) == 8
    assert {mistake.predicted for mistake in found.mistakes} == {"(no answer)"}
    assert np.all(np.isfinite([mistake.loss for mistake in found.mistakes]))
    paths = task.write_predictions(runner, "dev", str(tmp_path), found.thresholds)
    assert set(json_files(paths)["predictions.json"].values()) == {""}


def test_answer_is_found_in_any_window():
    rng = np.random.default_rng(0)
    items = []
    for number in range(9):
        words = rng.choice([word for word in WORDS if word[0] not in "gh"], 60).tolist()
        words[7 * number : 7 * number + 2] = ["g0", "h0"]
        items.append(question(f"id{number}", "a0 a1", " ".join(words), "g0 h0"))
    task = task_on(items, items)
    model = stub_model({"g0": 5.0}, {"h0": 5.0})
    assert evaluate(task, inference(model), "dev").scores["exact_match"] == 100.0
    rows = task.training_examples(TOKENIZER, 24)
    assert (rows.num_too_long, len(rows) > 9 * 5) == (9, True)
    num_with_answer = 0
    batch, labels = next(rows.sorted_batches(1000)[0])
    for row, start, end in zip(batch["input_word_ids"].numpy(), *labels.values(), strict=True):
        tokens = [VOCAB[token] for token in row[int(start) : int(end) + 1]]
        assert tokens == (["g0", "h0"] if start else ["[CLS]"])
        num_with_answer += bool(start)
    assert num_with_answer >= 9


def test_one_trace_predicts_unlabeled_and_empty_sets(tmp_path):
    unlabeled = without(random_questions(12, longest=40), answers=())
    sets = {"test": unlabeled, "empty": examples_of([])}
    task = make_task("squad", "squad", None, {}, sets, **WINDOWS, with_null=True)
    model = stub_model(dict.fromkeys(WORDS[::3], 1.0), dict.fromkeys(WORDS[::2], 1.0))
    paths = task.write_predictions(inference(model), "test", str(tmp_path / "test"), {"null": 0.0})
    predictions = json_files(paths)["predictions.json"]
    assert list(predictions) == [item.id for item in unlabeled.items]
    for item in unlabeled.items:
        assert predictions[item.id] in item.context
    task.write_predictions(inference(model), "test", str(tmp_path / "test"), {"null": 0.0})
    assert model.traces == 1
    paths = task.write_predictions(inference(model), "empty", str(tmp_path / "empty"), {})
    assert json_files(paths) == {
        "predictions.json": {},
        "nbest_predictions.json": {},
        "null_odds.json": {},
    }


# === Training ===


def test_training_summary():
    items = [
        question("long", "a0", " ".join(WORDS[:30]), "a1"),
        question("accent", "a0", "b0 \u0301 b1", "\u0301"),
        question("short", "a0", "b0 b1", "b1"),
        question("wide", "a0 " * 9, " ".join(WORDS[:30]), " ".join(WORDS[:19])),
    ]
    task = task_on(items, max_answer_length=18)
    rows = task.training_examples(TOKENIZER, 24)
    assert len(rows) == 11  # 20 of 30 tokens fit next to the question; the stride is 4
    assert task.training_summary(rows) == [
        "4 questions in 11 windows",
        "The contexts of 2 of the training questions are split into several windows of 24 tokens "
        "(--max_seq_length).",
        "The answers to 2 of the training questions have no tokens or do not fit into a "
        "window (--max_seq_length, --doc_stride). These questions are trained as unanswerable.",
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
        (["\uc11c\uc6b8 \ud2b9\ubcc4\uc2dc", "b0", "b0 \u5317"], 0),  # Korean uses spaces
        (["\u5317\u4eac", *["b0"] * 9], 0),  # too few
    ],
)
def test_answers_without_spaces_cause_a_warning(answers, count):
    task = task_on([question(str(n), "a0", f"{text} c0", text) for n, text in enumerate(answers)])
    warnings = [line for line in task.training_summary(task.training_examples(TOKENIZER, 24))
                if "without spaces" in line]  # fmt: skip
    assert warnings == [
        f"{count} of the answers are written without spaces, so f1 counts each as one word. "
        "Score predictions.json with the data set's own script, which compares characters."
    ] * bool(count)


def test_first_answer_is_the_training_target():
    # The text has fewer characters than bytes.
    item = question("7", "a0", "\u00e9 b0 \u00e9\u00e9 c0 d0", "\u00e9\u00e9 c0", "b0")
    task = task_on([item])
    batch, labels = next(task.training_examples(TOKENIZER, 24).sorted_batches(1000)[0])
    tokens = batch["input_word_ids"].numpy()[0]
    start, end = labels["start_logits"].numpy()[0], labels["end_logits"].numpy()[0]
    assert tokens[start : end + 1].tolist() == [IDS["[UNK]"], IDS["c0"]]
    assert tokens[start - 1] == IDS["b0"]


def test_loss_is_mean_of_start_and_end():
    task = task_on(random_questions(8).items)
    keras.utils.set_random_seed(1)
    model = BertSpanPredictor(dataclasses.replace(CONFIG, initializer_range=0.5))
    rows = task.training_examples(TOKENIZER, 24)
    batch, labels = next(rows.sorted_batches(1000)[0])
    logits = model(batch, training=False)
    expected = []
    for index in range(len(rows)):
        length = int(tf.reduce_sum(batch["input_mask"][index]))
        for key in ("start_logits", "end_logits"):
            logs = tf.nn.log_softmax(logits[key][index, :length]).numpy()
            expected.append(-logs[labels[key].numpy()[index]])
    assert loss_of(task, model, batch, labels) == pytest.approx(np.mean(expected), rel=1e-5)
    # Evaluation computes the loss from the logits of the predictions.
    dev = task_on((), random_questions(8).items)
    found = evaluate(dev, small_tasks.inference(model, max_seq_length=24, batch_size=3), "dev")
    assert found.scores["loss"] == pytest.approx(np.mean(expected), rel=1e-5)
