from bert_tf.finetuning.results import show
from bert_tf.finetuning.run_directory import FineTuningDirectory


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


def test_what_a_finished_run_shows(capsys):
    show(results(), FineTuningDirectory("run"))
    assert capsys.readouterr().out == (
        "Trained 1,200 steps, 1m15s, 512.0 examples/s; the weights of epoch 0.667 are kept.\n"
        "  dev             f1 0.836, accuracy 0.750\n"
        "  threshold null: -1.25\n"
        "\n"
        "dev:\n"
        "  run/dev/dev.tsv\n"
        "\n"
        "Results: run/results.json\n"
        "\n"
        "What comes next:\n"
        "  python -m bert_tf.predict --model_dir=run --input=FILE\n"
        "  tensorboard --logdir run/logs\n"
        "  python -c \"import bert_tf; model = bert_tf.load('run')\"\n"
    )


def test_a_collapse_is_named(capsys):
    show(
        results(collapsed="every prediction on dev is the same", examples_per_second=None),
        FineTuningDirectory("run"),
    )
    printed = capsys.readouterr().out
    assert "COLLAPSED: every prediction on dev is the same. Try another --seed" in printed
    assert printed.startswith("Trained 1,200 steps; the weights")
