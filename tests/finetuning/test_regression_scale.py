"""Targets of any scale are trained normalized, and predictions have the original units."""

import json

import keras
import numpy as np
import pytest

from bert_tf import api
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.finetuning.model import build_model, initial_model
from bert_tf.finetuning.run import run
from bert_tf.modeling import BertRegressor
from bert_tf.readers.examples import TextExample
from bert_tf.training import saved_states

from .small_runs import TINY, results_of, sentences, settings, write_table
from .small_tasks import TOKENIZER, examples_of, text_task


def regression(inputs, folder):
    """Returns the settings of a run on texts in which one word determines the target."""
    tables = {}
    for name, size, seed in (("train", 600, 0), ("dev", 60, 1)):
        rows = [(text, 70 if label == "neg" else 90) for text, label in sentences(size, seed)]
        tables[f"{name}_file"] = write_table(folder / f"{name}.tsv", rows)
    own = {"task": "regression", "train_batch_size": 16, "learning_rate": 5e-3}
    return settings(inputs, folder / "run", **own, **tables)


@pytest.mark.slow
def test_targets_around_80_are_learned_and_predicted(inputs, tmp_path, capsys):
    run(regression(inputs, tmp_path))
    printed = capsys.readouterr().out
    assert "Training targets: mean 79.5" in printed and "COLLAPSED" not in printed
    scores = results_of(tmp_path / "run")["scores"]["dev"]
    assert scores["pearson"] > 0.99 and scores["r2"] > 0.9
    texts, true = zip(*sentences(60, seed=1), strict=True)
    answers = [record["prediction"] for record in api.predict(tmp_path / "run", list(texts))]
    errors = np.array(answers) - [70 if label == "neg" else 90 for label in true]
    expected = scores["root_mean_squared_error"]
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(expected, rel=1e-4)
    # The loss has the units of the scores: it starts at the variance.
    curve = saved_states.find_latest(str(tmp_path / "run" / "last")).extra["curve"]
    assert curve["sums"][0] / curve["counts"][0] == pytest.approx(100, rel=0.2)


def test_initial_regressor_keeps_its_predictions(inputs, tmp_path):
    keras.utils.set_random_seed(3)
    source = BertRegressor(TINY)
    source.regressor.bias.assign([75.0])
    folder = tmp_path / "source.keras"
    source.save(folder)
    flags = regression(inputs, tmp_path)
    items = [TextExample(str(number), "good", None, number) for number in (70.0, 90.0)]
    task = text_task("own", examples_of(items), {}, {}, kind="regression")
    start = initial_model(flags, open_checkpoint(flags.init_checkpoint))
    start = start._replace(checkpoint=open_checkpoint(str(folder)))
    model, sentences = build_model(flags, task, start)
    assert not any("new" in sentence for sentence in sentences)
    ids = keras.ops.ones((2, 5), "int32")
    rows = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    expected = source(rows).numpy()
    np.testing.assert_allclose(model(rows), (expected - 80) / 10, rtol=1e-4)
    before = model.regressor.kernel.numpy()
    with task.target_scale.folded(model):
        np.testing.assert_allclose(model(rows), expected, rtol=1e-5)
    np.testing.assert_array_equal(model.regressor.kernel, before)


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [([70, 90], (80, 10)), ([5, 5], (5, 1)), ([1e-42, 0], (0, 1)), ([0.1] * 7, (0.1, 1))],
)
def test_target_scale(numbers, scale):
    items = [TextExample("0", "good", None, number) for number in numbers]
    task = text_task("own", examples_of(items), {}, {}, kind="regression")
    lines = " ".join(task.training_summary(task.training_examples(TOKENIZER, 16)))
    assert ("there is nothing to learn" in lines) == (len({*numbers}) == 1)
    np.testing.assert_allclose(task.target_scale, scale, rtol=1e-6, atol=1e-40)


def test_large_scale_is_predicted_in_float32():
    model = BertRegressor(TINY, dtype="mixed_bfloat16")
    model.regressor.kernel.assign(model.regressor.kernel * 1e7)
    model.regressor.bias.assign([1001.0])
    ids = keras.ops.ones((1, 5), "int32")
    rows = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    pooled = model.encoder(rows)["pooled_output"].numpy().astype(np.float32)
    expected = pooled @ model.regressor.kernel.numpy() + 1001
    np.testing.assert_allclose(model(rows), expected[:, 0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "restarts", "headline"), [("regression", 2, "spearman"), ("similarity", 1, "spearman")]
)
def test_equal_labels_have_undefined_correlations(
    task, restarts, headline, inputs, tmp_path, capsys
):
    rows = [(f"good film {n}", *["plot"] * (task == "similarity"), float(n % 3)) for n in range(8)]
    dev = [(*row[:-1], 2.5) for row in rows[:3]]
    flags = {"num_train_epochs": 2, "train_batch_size": 4, "max_seq_length": 16}
    flags |= {"text_columns": "q,d", "label_column": "s"} if task == "similarity" else {}
    start = settings(inputs, tmp_path).init_checkpoint
    logs = []

    class Logs(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, values):
            logs.append(values)

    tuned = api.fine_tune(
        *(rows, dev),
        task=task,
        init=start,
        restarts=restarts,
        model_dir=tmp_path / "run",
        callbacks=[Logs()],
        export=False,
        **flags,
    )
    results = json.loads(
        (tmp_path / "run" / "results.json").read_text(), parse_constant=pytest.fail
    )
    scores = results["scores"]["dev"]
    assert scores[headline] is scores["pearson"] is None and np.isnan(tuned.scores["dev"][headline])
    printed = capsys.readouterr().out
    assert (
        "Every label of dev is 2.5, so correlations and r2 are undefined. Use data with "
        "different labels.\n"
    ) in printed
    assert f": dev {headline} undefined, pearson undefined" in printed
    assert "| `pearson` | undefined |" in (tmp_path / "run" / "README.md").read_text()
    assert f"val_{headline}" not in logs[-1]
    # The loss selects the best run; without a loss, the last epoch is kept.
    if task == "similarity":
        assert results["best"]["epoch"] == 2
    else:
        assert results["configurations"][0]["mean"] is None
        losses = [run["scores"]["dev"]["loss"] for run in results["runs"]]
        assert results["best_run"] == results["runs"][int(np.argmin(losses))]["name"]
