from bert_tf.finetuning.summary import label_summary, show, training_summary
from bert_tf.readers.examples import TextExample
from bert_tf.training.run_directory import FineTuningDirectory
from tests.finetuning.small_tasks import TOKENIZER, examples_of, text_task


def results(**changes):
    return {
        "task": "MRPC",
        "headline": "f1",
        "scores": {"dev": {"accuracy": 0.75, "f1": 0.8364}},
        "thresholds": {"null": -1.25},
        "collapsed": None,
        "best": {"step": 40, "epoch": 2 / 3},
        "steps": 1200,
        "seconds": 75.0,
        "examples_per_second": 512.0,
        "files": {"dev": ["run/dev/dev.tsv"]},
        **changes,
    }


def test_description_of_data():
    items = [
        TextExample(str(number), "a0 " * number, None, "xa"[number % 2]) for number in range(1, 6)
    ]
    sets = examples_of(items, ("x", *"abcdefghijk"))
    task = text_task("own", sets, {"dev": sets}, {"test": sets})
    assert training_summary(task, task.training_examples(TOKENIZER, 5), TOKENIZER) == [
        "Task: own, 5 examples for training, labels x, a, b, c, d, e, f, g, h, i and 2 more; "
        "evaluated on: dev; predicted: test.",
        "2 of the training examples have more than 5 tokens (--max_seq_length) and are truncated.",
        "Training set: a 3, x 2 of 5.",
        "Baseline: always predicting 'a', the most common label, has an accuracy of 0.600 on dev.",
    ]
    numbers = examples_of([TextExample(str(n), "a0", None, n + 0.5) for n in (0, 2)])
    task = text_task("own", numbers, {}, {}, kind="regression")
    assert training_summary(task, task.training_examples(TOKENIZER, 5), TOKENIZER) == [
        "Task: own, 2 examples for training; evaluated on: nothing.",
        "Training targets: mean 1.5, standard deviation 1.",
    ]


def test_labels_are_counted_and_compared():
    def task_on(train, dev, kind="classification"):
        sets = [
            examples_of([TextExample(str(n), "a0", None, label) for n, label in enumerate(labels)])
            for labels in (train, dev)
        ]
        return text_task("own", sets[0], {"dev": sets[1]}, {}, kind=kind, labels=["x", "y", "z"])

    assert label_summary(task_on(["y", "x", "y"], ["x", "x", "y", "x"])) == [
        "Training set: y 2, x 1 of 3.",
        "Baseline: always predicting 'y', the most common label, has an accuracy of 0.250 on dev.",
    ]
    lines = label_summary(task_on(["x", "x", "y"], ["x", "z"]))
    assert lines[2].startswith("dev has no examples of 'y', so these labels are not evaluated.")
    assert lines[3].startswith("The training set has no examples of 'z', although dev does.")
    assert len(lines) == 4
    several = task_on([("x", "y"), (), ("y",)], [("x",), ("y",)], "multilabel")
    assert label_summary(several) == ["Training set: y 2, x 1."]
    numbers = text_task(
        "own", examples_of([TextExample("0", "a0", None, 1.5)]), {}, {}, kind="regression"
    )
    assert label_summary(numbers) == []


def test_output_of_finished_run(capsys):
    show(results(), FineTuningDirectory("run"))
    assert capsys.readouterr().out == (
        "Trained 1,200 steps at 512.0 examples/s. Saved the weights of epoch 0.667.\n"
        "  dev             f1 0.836, accuracy 0.750\n"
        "  threshold null: -1.25, used for scores and predictions\n"
        "\n"
        "dev:\n"
        "  run/dev/dev.tsv\n"
        "\n"
        "Results: run/results.json\n"
        "\n"
        "Next steps:\n"
        "  python -m bert_tf.predict --model=run --input=FILE\n"
        "  tensorboard --logdir run/logs\n"
        "  python -c \"import bert_tf; model = bert_tf.load('run')\"\n"
    )


def test_export_and_collapse_are_printed(capsys):
    show(results(export="run/export/1"), FineTuningDirectory("run"))
    printed = capsys.readouterr().out
    assert "\nResults: run/results.json\nSavedModel: run/export/1\n" in printed
    assert "\n  python -m bert_tf.verify run/export/1\n" in printed
    assert printed.endswith("\nTry it in a browser: python -m bert_tf.serve --model=run\n")
    same = "on dev every prediction is the same"
    show(results(collapsed=same, export=None, examples_per_second=None), FineTuningDirectory("run"))
    printed = capsys.readouterr().out
    assert f"COLLAPSED: {same}. Try another --seed" in printed and "SavedModel" not in printed
    assert printed.startswith("Trained 1,200 steps. Saved the weights of epoch 0.667.")
