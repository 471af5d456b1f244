"""Texts with classes, several classes and numbers: evaluated, predicted and learned."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertClassifier
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.tasks.examples import TextExample

from .small_tasks import (
    CONFIG,
    TOKENIZER,
    VOCAB,
    WORDS,
    by_first_word,
    examples_of,
    fit,
    inference,
    items_of,
    text_task,
)

LABELS = ("x", "y", "z")


def texts_with(labels, second=False):
    """As many texts of random length as labels."""
    rng = np.random.default_rng(len(labels))

    def text():
        return " ".join(rng.choice(WORDS, rng.integers(1, 9)))

    return [
        TextExample(f"id{number}", text(), text() if second else None, label)
        for number, label in enumerate(labels)
    ]


def random_labels(kind, count, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "classification":
        return [str(label) for label in rng.choice(LABELS, count)]
    if kind == "multilabel":
        return [tuple(name for name in LABELS if rng.random() < 0.4) for _ in range(count)]
    return rng.normal(1.0, 2.0, count).round(2).tolist()


def make_task(kind, labels, *, second=False, **more):
    names = () if kind == "regression" else LABELS
    items = texts_with(labels, second)
    dev = examples_of(items, names)
    test = examples_of([dataclasses.replace(item, label=None) for item in items], names)
    return text_task("own", dev, {"dev": dev}, {"test": test}, kind=kind, **more)


@pytest.mark.parametrize("second", [False, True], ids=["texts", "pairs"])
def test_predictions_of_a_model_equal_a_plain_loops(second):
    task = make_task("classification", random_labels("classification", 5), second=second)
    keras.utils.set_random_seed(3)
    model = BertClassifier(dataclasses.replace(CONFIG, initializer_range=0.5), num_classes=3)
    predicted = list(task.predict(inference(model), "test", {}))
    preprocessor = BertPreprocessor(VOCAB, max_seq_length=32)
    assert [record["id"] for record in predicted] == [f"id{number}" for number in range(5)]
    for item, record in zip(texts_with([None] * 5, second), predicted, strict=True):
        texts = ([item.text_a], [item.text_b]) if second else [item.text_a]
        logits = model(preprocessor(texts), training=False)
        expected = tf.nn.softmax(logits)[0].numpy()
        np.testing.assert_allclose([*record["probabilities"].values()], expected, atol=1e-5)
        assert record["prediction"] == LABELS[expected.argmax()]


@pytest.mark.parametrize(
    ("kind", "labels", "same", "other"),
    [
        ("classification", ["x", "x", "y"], [5, 0, 1], [0, 5, 1]),
        ("multilabel", [("x",), ("x",), ("y",)], [5, 0, -5], [-5, 5, -5]),
        ("regression", [1.0, 1.0, 3.0], 1.7, 3.0),
    ],
)
def test_a_collapsed_model_is_known(kind, labels, same, other):
    words = ("a0", "a1", "a2")
    data = examples_of(items_of(dict(zip(words, labels, strict=True))), LABELS)
    task = text_task("own", None, {"dev": data}, {}, kind=kind)
    for last, constant in ((same, True), (other, False)):
        model = by_first_word({"a0": same, "a1": same, "a2": last})
        assert task.evaluate(inference(model), "dev").constant is constant


def test_all_right_on_one_class_is_no_collapse():
    data = examples_of(items_of({"a0": "x", "a1": "x"}), LABELS)
    model = by_first_word({"a0": [1, 0, 0], "a1": [1, 0, 0]})
    found = text_task("own", None, {"dev": data}, {}).evaluate(inference(model), "dev")
    assert not found.constant and found.scores["accuracy"] == 1.0


def test_a_model_that_diverged_is_evaluated():
    nan = float("nan")
    for kind, labels, output in (
        ("classification", ("x", "y"), [nan] * 3),
        ("multilabel", (("x",), ("y",)), [nan] * 3),
        ("regression", (1.0, 2.0), nan),
    ):
        data = examples_of(items_of(dict(zip(("a0", "a1"), labels, strict=True))), LABELS)
        task = text_task("own", None, {"dev": data}, {}, kind=kind)
        found = task.evaluate(inference(by_first_word({"a0": output, "a1": output})), "dev")
        assert found.constant and all(math.isfinite(value) for value in found.scores.values())


def test_a_model_is_traced_once_for_batches_of_every_width():
    task = make_task("classification", random_labels("classification", 23))
    model = by_first_word({"a0": [1, 0, 0]})
    for _ in range(2):
        task.evaluate(inference(model), "dev")
    assert model.traces == 1


# === GLUE ===


def test_glue_has_its_own_metrics_and_submissions(tmp_path):
    items = items_of({"a0": "1", "a1": "1", "a2": "0", "a3": "0"})
    data = examples_of(items, ("0", "1"))
    task = text_task("MRPC", data, {"dev": data}, {"test": data}, glue="MRPC")
    assert task.headline == "f1"
    model = by_first_word({"a0": [0, 1], "a1": [1, 0], "a2": [1, 0], "a3": [0, 1]})
    found = task.evaluate(inference(model), "dev")
    assert found.scores == {"accuracy": 0.5, "f1": 0.5}
    (path,) = task.write_predictions(inference(model), "test", str(tmp_path), {})
    assert path == str(tmp_path / "MRPC.tsv")
    with open(path) as file:
        assert file.read() == "index\tprediction\nid0\t1\nid1\t0\nid2\t0\nid3\t1\n"
    (path,) = task.write_predictions(inference(model), "dev", str(tmp_path), {})
    assert path == str(tmp_path / "dev.tsv")


def test_the_diagnostic_set_goes_with_mnli(tmp_path):
    names = ("contradiction", "entailment", "neutral")
    data = examples_of(items_of({"a0": None}), names)
    task = text_task("MNLI", None, {}, {"test_matched": data, "ax": data}, glue="MNLI")
    model = by_first_word({"a0": [0, 0, 1]})
    for name, file in (("test_matched", "MNLI-m.tsv"), ("ax", "AX.tsv")):
        (path,) = task.write_predictions(inference(model), name, str(tmp_path), {})
        assert path == str(tmp_path / file)
        assert (tmp_path / file).read_text() == "index\tprediction\nid0\tneutral\n"


def test_glues_numbers(tmp_path):
    data = examples_of(items_of({"a0": 1.0, "a1": 2.0, "a2": 4.0}))
    task = text_task("STS-B", None, {"dev": data}, {"test": data}, kind="regression", glue="STS-B")
    assert task.headline == "spearman"
    model = by_first_word({"a0": -1.0, "a1": 2.5, "a2": 7.0})
    assert list(task.evaluate(inference(model), "dev").scores)[:2] == ["pearson", "spearman"]
    task.write_predictions(inference(model), "test", str(tmp_path), {})
    assert (tmp_path / "STS-B.tsv").read_text().split()[2:] == [
        "id0", "0.000", "id1", "2.500", "id2", "5.000"
    ]  # fmt: skip


# === Training ===


def test_class_weights_are_the_examples_weights():
    task = make_task("classification", ["x", "y", "x", "z"], class_weights={"x": 3.0, "z": 0.5})
    examples = task.training_examples(TOKENIZER, 32)
    seen = {}
    for rows, labels, weights in examples.evaluation_batches(2):
        triples = zip(
            *(part.numpy() for part in (rows["example_index"], labels, weights)), strict=True
        )
        seen |= {int(index): (int(label), float(weight)) for index, label, weight in triples}
    assert seen == {0: (0, 3.0), 1: (1, 1.0), 2: (0, 3.0), 3: (2, 0.5)}


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_targets_of_batches(kind):
    labels = [("z",), (), ("x", "z")] if kind == "multilabel" else [1.5, -2.0, 0.25]
    task = make_task(kind, labels)
    expected = [[0, 0, 1], [0, 0, 0], [1, 0, 1]] if kind == "multilabel" else labels
    for rows, targets in task.training_examples(TOKENIZER, 32).evaluation_batches(2):
        assert targets.dtype == tf.float32
        for index, target in zip(rows["example_index"].numpy(), targets.numpy(), strict=True):
            assert target.tolist() == expected[index]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_64_examples_are_learned(kind):
    task = make_task(kind, random_labels(kind, 64))
    keras.utils.set_random_seed(1)
    model = task.model_class(CONFIG, **task.model_arguments)
    fit(task, model, epochs=60)
    found = task.evaluate(inference(model), "dev")
    assert found.scores[task.headline] >= 0.95, found.scores
    assert not found.constant


# === Refusals ===


def test_refusals():
    good, empty = examples_of(items_of({"a0": "x"}), LABELS), examples_of([], LABELS)
    with pytest.raises(ValueError, match="own has no labels: expected the names of the"):
        text_task("own", None, {}, {"t": examples_of([])})
    with pytest.raises(ValueError, match="own: dev is empty: expected examples"):
        text_task("own", good, {"dev": empty}, {})
    for train in (None, empty):
        with pytest.raises(ValueError, match="own has no training set"):
            text_task("own", train, {"dev": good}, {}).training_examples(TOKENIZER, 32)
