import itertools

import numpy as np
import pytest

from bert_tf.finetuning.sweep import summarise
from bert_tf.metrics.calibration import of_classes
from bert_tf.readers.examples import TextExample
from bert_tf.results.run_directory import FineTuningDirectory
from bert_tf.results.summary import data_lines, label_lines, layer_table, scores_by_seed, show
from tests.finetuning.small_tasks import TOKENIZER, examples_of, text_task


def results(**changes):
    return {
        "task": "MRPC",
        "headline": "f1",
        "scores": {"dev": {"accuracy": 0.75, "f1": 0.8364}},
        "intervals": {},
        "classes": {},
        "thresholds": {"null": -1.25},
        "collapsed": None,
        "best": {"step": 40, "epoch": 2 / 3},
        "steps": 1200,
        "seconds": 75.0,
        "examples_per_second": 512.0,
        "files": {"dev": ["run/dev/dev.tsv"]},
        **changes,
    }


def test_the_data_in_words():
    items = [TextExample(str(number), "a0 " * number, None, "x") for number in range(1, 6)]
    sets = examples_of(items, ("x", *"abcdefghijk"))
    task = text_task("own", sets, {"dev": sets}, {"test": sets})
    assert data_lines(task, task.training_examples(TOKENIZER, 5)) == [
        "Task: own, 5 examples to train on, labels x, a, b, c, d, e, f, g, h, i and 2 more; "
        "evaluated on: dev; predicted: test.",
        "2 of the training examples have more than 5 tokens (--max_seq_length): they are cut.",
    ]
    numbers = examples_of([TextExample(str(n), "a0", None, n + 0.5) for n in (0, 2)])
    task = text_task("own", numbers, {}, {}, kind="regression")
    assert data_lines(task, task.training_examples(TOKENIZER, 5)) == [
        "Task: own, 2 examples to train on; evaluated on: nothing.",
        "The numbers to learn: mean 1.5, standard deviation 1.",
    ]


def test_the_commonest_class_has_its_own_accuracy_and_f1():
    def of(first, second, rows, **scores):
        classes = {"0": {"true": first}, "1": {"true": second}}
        run = {"seed": 1, "collapsed": None, "scores": {"dev": scores}}
        run |= {"classes": {"dev": classes}, "rows": {"dev": rows}}
        return scores_by_seed({"dev_set": "dev", "runs": [run]})[0][2]

    own = {"accuracy": 0.5, "f1": 0.5, "loss": 1.0}
    assert of(1, 3, 4, **own) == {
        **{"accuracy": 50.0, "f1": 50.0},
        **{"commonest_class_accuracy": 75.0, "commonest_class_f1": pytest.approx(600 / 7)},
    }
    assert of(3, 1, 4, **own)["commonest_class_f1"] == 0.0
    assert of(1, 3, 4, accuracy=0.5) == {"accuracy": 50.0, "commonest_class_accuracy": 75.0}
    # A row has several labels, or none, as one of tags has: no class is an answer to all.
    assert of(1, 3, 3, **own) == {"accuracy": 50.0, "f1": 50.0}


@pytest.mark.parametrize("seed", range(4))
def test_of_a_sweep_the_runs_of_the_best_mean_count(seed):
    """Against a plain loop: scores by chance, and the best run of all not the best's."""
    random, runs = np.random.default_rng(seed), []
    for rate, size, dropout in itertools.product((1e-5, 5e-5), (16, 32), (0.0, 0.1)):
        for number in range(3):
            scores = {"dev": {"f1": random.uniform(0.5, 0.6), "loss": random.uniform()}}
            if (rate, size, dropout) == (1e-5, 16, 0.0):
                scores["dev"]["f1"] = (0.9, 0.2, 0.2)[number]  # a lucky seed
            if (rate, size, dropout, number) == (5e-5, 16, 0.1, 1):
                scores = {}  # it diverged
            runs.append(
                {
                    "name": f"{rate}_{size}_{dropout}_{number}",
                    **{"seed": number, "train_batch_size": size, "learning_rate": rate},
                    **{"num_train_epochs": 3, "hidden_dropout_prob": dropout},
                    **{"feature_based": None, "headline": "f1", "scores": scores},
                    "collapsed": None if scores else "the loss was not finite",
                }
            )
    means = {}
    for run in runs:
        key = run["learning_rate"], run["train_batch_size"], run["hidden_dropout_prob"]
        if run["scores"]:
            means.setdefault(key, []).append(run["scores"]["dev"]["f1"])
    best, highest = None, 0.0
    for key, values in means.items():
        if sum(values) / len(values) > highest:
            best, highest = key, sum(values) / len(values)
    expected = []
    for run in runs:
        if (run["learning_rate"], run["train_batch_size"], run["hidden_dropout_prob"]) == best:
            percent = {"f1": 100 * run["scores"]["dev"]["f1"]} if run["scores"] else {}
            expected.append((str(run["seed"]), run["collapsed"] or "", percent))
    others = ["hidden_dropout_prob"]
    results = {
        **{**runs[0], "best_run": runs[0]["name"], "dev_set": "dev", "grid": others, "runs": runs},
        "configurations": summarise(runs, "dev", others),
    }
    assert scores_by_seed(results) == expected and len(expected) == 3


def test_labels_are_counted_and_compared():
    def task_on(train, dev, kind="classification"):
        sets = [
            examples_of([TextExample(str(n), "a0", None, label) for n, label in enumerate(labels)])
            for labels in (train, dev)
        ]
        return text_task("own", sets[0], {"dev": sets[1]}, {}, kind=kind, labels=["x", "y", "z"])

    assert label_lines(task_on(["y", "x", "y"], ["x", "x", "y", "x"])) == [
        "In the training set: y 2, x 1 of 3.",
        "To beat: always saying 'y', the most frequent, has an accuracy of 0.250 on dev.",
    ]
    found = label_lines(task_on(["x", "x", "y"], ["x", "z"]))
    assert found[2].startswith("Only the training set has 'y': dev cannot show how well that is")
    assert found[3].startswith("Only dev has 'z': the training set has no examples to learn that")
    assert len(found) == 4
    several = task_on([("x", "y"), (), ("y",)], [("x",), ("y",)], "multilabel")
    assert label_lines(several) == ["In the training set: y 2, x 1."]
    numbers = text_task(
        "own", examples_of([TextExample("0", "a0", None, 1.5)]), {}, {}, kind="regression"
    )
    assert label_lines(numbers) == []


def test_what_a_finished_run_shows(capsys):
    show(results(), FineTuningDirectory("run"))
    assert capsys.readouterr().out == (
        "Trained 1,200 steps, 1m15s after the first, 512.0 examples/s; the weights of epoch 0.667 "
        "are kept.\n"
        "  dev             f1 0.836, accuracy 0.750\n"
        "  threshold null: -1.25, used for the scores and the predictions\n"
        "\n"
        "dev:\n"
        "  run/dev/dev.tsv\n"
        "\n"
        "Results: run/results.json\n"
        "\n"
        "What comes next:\n"
        "  python -m bert_tf.predict --model=run --input=FILE\n"
        "  tensorboard --logdir run/logs\n"
        "  python -c \"import bert_tf; model = bert_tf.load('run')\"\n"
    )


def test_an_export_and_a_collapse_are_shown(capsys):
    show(results(export="run/export/1"), FineTuningDirectory("run"))
    printed = capsys.readouterr().out
    assert "\nResults: run/results.json\nSavedModel: run/export/1\n" in printed
    assert "\n  python -m bert_tf.verify run/export/1\n" in printed
    same = "on dev every prediction is the same"
    show(results(collapsed=same, export=None, examples_per_second=None), FineTuningDirectory("run"))
    printed = capsys.readouterr().out
    assert f"COLLAPSED: {same}. Try another --seed" in printed and "SavedModel" not in printed
    assert printed.startswith("Trained 1,200 steps; the weights")


@pytest.mark.parametrize(("rows", "is_shown"), [(4, True), (2, False)])
def test_what_rejecting_costs_is_shown_of_one_class_a_row(capsys, rows, is_shown):
    """Two classes are enough; a tag of several in a row is not rejected."""
    logits = np.array([[3.0, 0.0], [0.0, 3.0], [0.1, 0.0], [0.0, 0.1]])
    found = of_classes(logits, np.array([0, 1, 1, 1]), 1.0).to_dict()
    score = {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "true": 2, "predicted": 2}
    shown = results(calibration={"dev": found}, rows={"dev": rows})
    show(shown | {"classes": {"dev": {"a": score, "b": score}}}, FineTuningDirectory("run"))
    line = "on dev, predict --reject_below=0.5 answers 100% (75% right), 0.7 50% (100%)"
    assert (line in capsys.readouterr().out) == is_shown


def test_deviations_and_what_has_no_score():
    results = {
        "headline": "accuracy",
        "dev_set": "dev",
        "configurations": [
            {"feature_based": "embeddings", "mean": 0.5, "std": 0.0123, "runs": 5},
            {"feature_based": "weighted_sum_all", "mean": None, "std": None, "runs": 1},
        ],
    }
    lines = layer_table(results).splitlines()
    assert lines[0] == "| layers                 | accuracy on dev | the paper's F1 |"
    assert lines[2] == "| embeddings             |      50.0 ± 1.2 |           91.0 |"
    assert lines[7] == "| weighted_sum_all       |               - |           95.5 |"
    assert len({len(line) for line in lines[:8]}) == 1
    assert lines[8] == "" and "the mean of five" in lines[9] and len(lines) == 10
