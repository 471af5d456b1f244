"""Few-shot training: the pairs, the optimum of the head, and the results of a run."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf import api
from bert_tf.checkpoints.load import open_checkpoint
from bert_tf.finetuning.data import read_task
from bert_tf.finetuning.few_shot import draw_pairs, fit_head
from bert_tf.finetuning.run import run
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.task_file import export_options, load_task_file

from .small_runs import sentences, settings, write_table

IDS = np.array([0, 0, 1, 2, 1, 0, 1])


def test_pairs_are_labeled_by_class():
    pairs = draw_pairs(IDS, 4, seed=3)
    for one, other, score in pairs:
        assert one != other and score == float(IDS[one] == IDS[other])
    counts = {score: sum(label == score for *_, label in pairs) for score in (0.0, 1.0)}
    assert counts == {0.0: 7 * 4, 1.0: 6 * 4}  # one class has a single example
    assert pairs == draw_pairs(IDS, 4, seed=3) != draw_pairs(IDS, 4, seed=4)
    drawn = {other for one, other, score in draw_pairs(IDS, 50, seed=0) if (one, score) == (0, 0)}
    assert drawn == {2, 3, 4, 6}


def clusters(classes, each):
    rng = np.random.default_rng(classes)
    centers = rng.normal(size=(classes, 12))
    vectors = np.repeat(centers, each, 0) + rng.normal(size=(classes * each, 12))
    return vectors.astype(np.float32), np.repeat(np.arange(classes), each)


@pytest.mark.parametrize("classes", [2, 5])
def test_gradient_of_fitted_head_is_zero(classes):
    vectors, ids = clusters(classes, 8)
    kernel, bias = fit_head(vectors, ids, classes)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions, scale = vectors / lengths, lengths.mean()
    logits = directions @ kernel * scale + bias
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    left = probabilities - np.eye(classes)[ids]
    np.testing.assert_allclose(directions.T @ left + kernel * scale, 0, atol=1e-4)
    np.testing.assert_allclose(left.sum(0), 0, atol=1e-5)
    assert (logits.argmax(1) == ids).mean() > 0.9


# === Runs ===


@pytest.fixture(scope="module")
def few_shot_flags(inputs, tmp_path_factory):
    """Returns the flags of a run on 24 texts."""
    path = write_table(tmp_path_factory.mktemp("few") / "few.tsv", sentences(24, seed=5))
    flags = {"few_shot": True, "few_shot_pairs": 5}
    return {"train_file": path, "learning_rate": 1e-2, "num_train_epochs": 2, **flags}


@pytest.fixture(scope="module")
def run_dir(few_shot_flags, inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("few_shot") / "run"
    run(settings(inputs, folder, **few_shot_flags))
    return folder


def test_few_shot_run_produces_classifier(run_dir):
    results = json.loads((run_dir / "results.json").read_text())
    assert results["scores"]["dev"]["accuracy"] > 0.8 and results["steps"] == 2 * 30
    assert results["rows"]["train"] == 24
    assert (run_dir / "README.md").exists() and (run_dir / "dev" / "worst_errors.html").exists()
    model = bert_tf.load(str(run_dir))
    assert type(model).__name__ == "BertClassifier" and model.pooling == "mean"
    texts = [text for text, _ in sentences(9, seed=2)]
    answers = model(model.preprocessor(texts), training=False).numpy().argmax(1)
    records = api.predict(str(run_dir), texts, verbose=False)
    assert [record["prediction"] for record in records] == [model.labels[at] for at in answers]
    task = load_task_file(open_checkpoint(str(run_dir)))
    assert len({*answers}) == 2 and export_options(task) == ExportOptions(16)


def test_single_class_raises_error(inputs, tmp_path):
    path = write_table(tmp_path / "few.tsv", [("good", "pos"), ("bad", "neg")])
    flags = {"few_shot": True, "train_file": path, "dev_file": None}
    one = write_table(tmp_path / "one.tsv", [(f"good {n}", "pos") for n in range(4)])
    for wrong in ({}, {"train_file": one}, {"train_file": one, "dev_fraction": 0}):
        message = (
            "^--few_shot requires two classes, but all training texts have the class '(pos|neg)'"
        )
        with pytest.raises(ValueError, match=message):
            read_task(settings(inputs, tmp_path, **flags | wrong))
    task, _ = read_task(settings(inputs, tmp_path, **flags, dev_fraction=0))
    assert len(task.training_items()) == 2
