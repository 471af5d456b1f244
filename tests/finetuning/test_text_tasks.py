"""Texts with classes, several classes and numbers: evaluated, predicted and learned."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.text_tasks import TextTask
from bert_tf.modeling.classifier import BertClassifier, BertRegressor
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.tasks.examples import TextExample

from .small_tasks import CONFIG, IDS, TOKENIZER, VOCAB, WORDS, StandIn, examples_of, fit

RUN = {"max_seq_length": 32, "batch_size": 4}
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
    return TextTask("own", dev, {"dev": dev}, {"test": test}, kind=kind, **more)


def by_first_word(table):
    """A model whose output for a text is that of its first word, 0 for other words."""
    width = np.shape(next(iter(table.values())))
    values = np.zeros([len(VOCAB), *width], np.float32)
    for word, output in table.items():
        values[IDS[word]] = output
    values = tf.constant(values)
    return StandIn(lambda inputs: tf.gather(values, inputs["input_word_ids"][:, 1]))


def items_of(table):
    """A text that begins with the word, for each word; their lengths differ."""
    return [
        TextExample(f"id{number}", " ".join([word, *WORDS[: 7 * number % 5]]), None, label)
        for number, (word, label) in enumerate(table.items())
    ]


@pytest.mark.parametrize("second", [False, True], ids=["texts", "pairs"])
def test_predictions_of_a_model_equal_a_plain_loops(second):
    task = make_task("classification", random_labels("classification", 5), second=second)
    keras.utils.set_random_seed(3)
    model = BertClassifier(dataclasses.replace(CONFIG, initializer_range=0.5), num_classes=3)
    predicted = list(task.predict(model, TOKENIZER, "test", thresholds={}, **RUN))
    preprocessor = BertPreprocessor(VOCAB, max_seq_length=32)
    assert [item.id for item, _ in predicted] == [f"id{number}" for number in range(5)]
    for item, prediction in predicted:
        texts = ([item.text_a], [item.text_b]) if second else [item.text_a]
        logits = model(preprocessor(texts), training=False)
        expected = tf.nn.softmax(logits)[0].numpy()
        np.testing.assert_allclose([*prediction.probabilities.values()], expected, atol=1e-5)
        assert prediction.value == LABELS[expected.argmax()]


def test_classes_are_scored_by_hand(tmp_path):
    items = items_of({"a0": "x", "a1": "x", "a2": "y", "a3": "z", "a4": "y"})
    data = examples_of(items, LABELS)
    task = TextTask("own", None, {"dev": data}, {})
    big, small = math.log(8), math.log(2)
    model = by_first_word(
        {"a0": [big, 0, 0], "a1": [0, small, 0], "a2": [0, big, 0], "a3": [big, 0, 0],
         "a4": [0, big, 0]}
    )  # fmt: skip
    found = task.evaluate(model, TOKENIZER, "dev", **RUN)
    # x: 1 of 2 found, 1 wrong besides; y: 2 of 2, 1 wrong besides; z never.
    assert found.scores["accuracy"] == pytest.approx(3 / 5)
    assert found.scores["macro_f1"] == pytest.approx((1 / 2 + 4 / 5 + 0) / 3)
    # (3 * 5 - (2*2 + 2*3 + 1*0)) / sqrt((25 - 9) * (25 - 13))
    assert found.scores["matthews_correlation"] == pytest.approx(5 / math.sqrt(16 * 12))
    assert list(found.scores) == ["accuracy", "macro_f1", "matthews_correlation"]
    assert found.confusion.tolist() == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert not found.constant
    # The loss of z is log(10), that of x log(4).
    assert [(m.id, m.expected, m.predicted) for m in found.mistakes] == [
        ("id3", "z", "x"),
        ("id1", "x", "y"),
    ]
    assert [m.loss for m in found.mistakes] == pytest.approx([math.log(10), math.log(4)], rel=1e-5)
    assert found.mistakes[0].text == items[3].text_a
    paths = task.write_predictions(
        model, TOKENIZER, "dev", str(tmp_path / "new"), thresholds={}, **RUN
    )
    assert paths == [str(tmp_path / "new" / "dev.tsv")]
    assert (tmp_path / "new" / "dev.tsv").read_text().splitlines() == [
        "id\tprediction\texpected\tprobability_x\tprobability_y\tprobability_z",
        "id0\tx\tx\t0.8\t0.1\t0.1",
        "id1\ty\tx\t0.25\t0.5\t0.25",
        "id2\ty\ty\t0.1\t0.8\t0.1",
        "id3\tx\tz\t0.8\t0.1\t0.1",
        "id4\ty\ty\t0.1\t0.8\t0.1",
    ]


def test_classes_that_do_not_occur_do_not_count_in_macro_f1():
    data = examples_of(items_of({"a0": "x", "a1": "y"}), LABELS)
    model = by_first_word({"a0": [1, 0, 0], "a1": [0, 1, 0]})
    scores = (
        TextTask("own", None, {"dev": data}, {}).evaluate(model, TOKENIZER, "dev", **RUN).scores
    )
    assert scores["macro_f1"] == 1.0


def test_several_classes_are_scored_by_hand(tmp_path):
    data = examples_of(items_of({"a0": ("x", "z"), "a1": ("x",), "a2": ()}), LABELS)
    task = TextTask("own", None, {"dev": data}, {"test": data}, kind="multilabel")
    assert task.multi_label and task.model_arguments == {"num_classes": 3}
    third, ninth = -math.log(2), -math.log(8)  # the logits of 1/3 and of 1/9
    model = by_first_word(
        {"a0": [0, ninth, third], "a1": [third, ninth, ninth], "a2": [ninth, ninth, ninth]}
    )
    found = task.evaluate(model, TOKENIZER, "dev", **RUN)
    # What holds is 1/2, 1/3, 1/3, and all else 1/9.
    assert found.thresholds == {"probability": pytest.approx((1 / 3 + 1 / 9) / 2)}
    assert found.scores == {
        "micro_f1": 1.0,
        "macro_f1": pytest.approx(2 / 3),  # y neither holds nor is predicted
        "micro_f1_at_0.5": pytest.approx(2 / (2 + 2)),
        "macro_f1_at_0.5": pytest.approx((2 / 3) / 3),
    }
    assert found.confusion is None and found.mistakes == [] and not found.constant
    for thresholds, lines in (
        (found.thresholds, ["id0\tx,z", "id1\tx", "id2\t"]),
        ({}, ["id0\tx", "id1\t", "id2\t"]),
    ):
        task.write_predictions(
            model, TOKENIZER, "test", str(tmp_path), thresholds=thresholds, **RUN
        )
        rows = (tmp_path / "test.tsv").read_text().splitlines()
        assert rows[0] == "id\tprediction\tprobability_x\tprobability_y\tprobability_z"
        assert ["\t".join(row.split("\t")[:2]) for row in rows[1:]] == lines
    assert rows[1].split("\t")[2:] == ["0.5", "0.111111", "0.333333"]


def test_mistakes_of_several_classes():
    data = examples_of(items_of({"a0": ("x", "y"), "a1": ("y",), "a2": ()}), LABELS)
    task = TextTask("own", None, {"dev": data}, {}, kind="multilabel")
    model = by_first_word({"a0": [-1, 3, -9], "a1": [2, 3, -9], "a2": [-9, -9, -9]})
    found = task.evaluate(model, TOKENIZER, "dev", **RUN)
    # With y alone F1 is 2 * 2 / (2 + 3), with x's 2 as well less, with the -1 too 2 * 3 / (4 + 3).
    assert found.scores["micro_f1"] == pytest.approx(6 / 7)
    assert [(m.id, m.expected, m.predicted) for m in found.mistakes] == [("id1", "y", "x, y")]
    by_loop = sum(
        -math.log(1 / (1 + math.exp(-logit if holds else logit)))
        for logit, holds in ((2, False), (3, True), (-9, False))
    )
    assert found.mistakes[0].loss == pytest.approx(by_loop, rel=1e-5)
    model = by_first_word({"a0": [3, 3, -9], "a1": [3, -9, -9], "a2": [-9, -9, -9]})
    (mistake,) = task.evaluate(model, TOKENIZER, "dev", **RUN).mistakes
    assert (mistake.expected, mistake.predicted) == ("y", "x")
    model = by_first_word({"a0": [3, 3, -9], "a1": [-9, -9, -9], "a2": [-9, -9, -9]})
    (mistake,) = task.evaluate(model, TOKENIZER, "dev", **RUN).mistakes
    assert (mistake.expected, mistake.predicted) == ("y", "(none)")


def test_numbers_are_scored_by_hand(tmp_path):
    data = examples_of(items_of({"a0": 1.0, "a1": 2.0, "a2": 3.5}))
    task = TextTask("own", None, {"dev": data}, {"test": data}, kind="regression")
    assert task.labels == () and task.model_class is BertRegressor
    model = by_first_word({"a0": 1.0, "a1": 4.0, "a2": 3.0})
    found = task.evaluate(model, TOKENIZER, "dev", **RUN)
    assert list(found.scores) == ["pearson", "spearman", "mean_squared_error"]
    assert found.scores["pearson"] == pytest.approx(np.corrcoef([1, 2, 3.5], [1, 4, 3])[0, 1])
    assert found.scores["spearman"] == pytest.approx(0.5)
    assert found.scores["mean_squared_error"] == pytest.approx((0 + 4 + 0.25) / 3)
    assert [(m.id, m.expected, m.predicted, m.loss) for m in found.mistakes] == [
        ("id1", "2", "4", 4.0),
        ("id2", "3.5", "3", 0.25),
    ]
    assert not found.constant
    task.write_predictions(model, TOKENIZER, "test", str(tmp_path), thresholds={}, **RUN)
    assert (tmp_path / "test.tsv").read_text() == "id\tprediction\nid0\t1\nid1\t4\nid2\t3\n"


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
    task = TextTask("own", None, {"dev": data}, {}, kind=kind)
    for last, constant in ((same, True), (other, False)):
        model = by_first_word({"a0": same, "a1": same, "a2": last})
        assert task.evaluate(model, TOKENIZER, "dev", **RUN).constant is constant


def test_all_right_on_one_class_is_no_collapse():
    data = examples_of(items_of({"a0": "x", "a1": "x"}), LABELS)
    model = by_first_word({"a0": [1, 0, 0], "a1": [1, 0, 0]})
    found = TextTask("own", None, {"dev": data}, {}).evaluate(model, TOKENIZER, "dev", **RUN)
    assert not found.constant and found.scores["accuracy"] == 1.0


def test_a_model_that_diverged_is_evaluated():
    nan = float("nan")
    for kind, labels, output in (
        ("classification", ("x", "y"), [nan] * 3),
        ("multilabel", (("x",), ("y",)), [nan] * 3),
        ("regression", (1.0, 2.0), nan),
    ):
        data = examples_of(items_of(dict(zip(("a0", "a1"), labels, strict=True))), LABELS)
        task = TextTask("own", None, {"dev": data}, {}, kind=kind)
        found = task.evaluate(by_first_word({"a0": output, "a1": output}), TOKENIZER, "dev", **RUN)
        assert found.constant and all(math.isfinite(value) for value in found.scores.values())


def test_a_model_is_traced_once_for_batches_of_every_width():
    task = make_task("classification", random_labels("classification", 23))
    model = by_first_word({"a0": [1, 0, 0]})
    for _ in range(2):
        task.evaluate(model, TOKENIZER, "dev", **RUN)
    assert model.traces == 1


# === GLUE ===


def test_glue_has_its_own_metrics_and_submissions(tmp_path):
    items = items_of({"a0": "1", "a1": "1", "a2": "0", "a3": "0"})
    data = examples_of(items, ("0", "1"))
    task = TextTask("MRPC", data, {"dev": data}, {"test": data}, glue="MRPC")
    assert task.headline == "f1"
    model = by_first_word({"a0": [0, 1], "a1": [1, 0], "a2": [1, 0], "a3": [0, 1]})
    found = task.evaluate(model, TOKENIZER, "dev", **RUN)
    assert found.scores == {"accuracy": 0.5, "f1": 0.5}
    arguments = {"thresholds": {}, **RUN}
    (path,) = task.write_predictions(model, TOKENIZER, "test", str(tmp_path), **arguments)
    assert path == str(tmp_path / "MRPC.tsv")
    with open(path) as file:
        assert file.read() == "index\tprediction\nid0\t1\nid1\t0\nid2\t0\nid3\t1\n"
    (path,) = task.write_predictions(model, TOKENIZER, "dev", str(tmp_path), **arguments)
    assert path == str(tmp_path / "dev.tsv")


def test_the_diagnostic_set_goes_with_mnli(tmp_path):
    names = ("contradiction", "entailment", "neutral")
    data = examples_of(items_of({"a0": None}), names)
    task = TextTask("MNLI", None, {}, {"test_matched": data, "ax": data}, glue="MNLI")
    model = by_first_word({"a0": [0, 0, 1]})
    for name, file in (("test_matched", "MNLI-m.tsv"), ("ax", "AX.tsv")):
        (path,) = task.write_predictions(
            model, TOKENIZER, name, str(tmp_path), thresholds={}, **RUN
        )
        assert path == str(tmp_path / file)
        assert (tmp_path / file).read_text() == "index\tprediction\nid0\tneutral\n"


def test_glues_numbers(tmp_path):
    data = examples_of(items_of({"a0": 1.0, "a1": 2.0, "a2": 4.0}))
    task = TextTask("STS-B", None, {"dev": data}, {"test": data}, kind="regression", glue="STS-B")
    assert task.headline == "spearman"
    model = by_first_word({"a0": -1.0, "a1": 2.5, "a2": 7.0})
    assert list(task.evaluate(model, TOKENIZER, "dev", **RUN).scores) == ["pearson", "spearman"]
    task.write_predictions(model, TOKENIZER, "test", str(tmp_path), thresholds={}, **RUN)
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
    found = task.evaluate(model, TOKENIZER, "dev", **RUN)
    assert found.scores[task.headline] >= 0.95, found.scores
    assert not found.constant


# === Refusals ===

_DATA = examples_of(items_of({"a0": "x", "a1": "w"}), LABELS)
_GOOD = examples_of(items_of({"a0": "x"}), LABELS)


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (
            (_DATA, {}, {}),
            {},
            "own, train: the example id1 has the label 'w': expected the name of a class.",
        ),
        (
            (None, {"dev": _GOOD}, {}),
            {"kind": "multilabel"},
            "own, dev: the example id0 has the label 'x': expected a tuple of classes' names.",
        ),
        (
            (None, {"dev": _GOOD}, {}),
            {"kind": "regression"},
            "own, dev: the example id0 has the label 'x': expected a number.",
        ),
        ((None, {}, {"t": examples_of([])}), {}, "own has no labels: expected the names of the"),
        (
            (_GOOD, {}, {}),
            {"kind": "ranking"},
            "own: kind is 'ranking', expected classification, multilabel or regression.",
        ),
        (
            (_GOOD, {}, {}),
            {"glue": "SST-2", "kind": "multilabel"},
            "own: kind is 'multilabel', expected classification, which SST-2 is.",
        ),
        (
            (_GOOD, {}, {}),
            {"glue": "STS-B"},
            "own: kind is 'classification', expected regression, which STS-B is.",
        ),
        (
            (_GOOD, {}, {}),
            {"class_weights": {"w": 1.0}},
            "own: class_weights names 'w', expected some of x, y, z.",
        ),
        (
            (_GOOD, {}, {}),
            {"class_weights": {"x": 0.0}},
            "own: the class weight of x is 0.0, expected a number above 0.",
        ),
        (
            (examples_of(items_of({"a0": ("x",)}), LABELS), {}, {}),
            {"class_weights": {"x": 1.0}, "kind": "multilabel"},
            "own: class weights are for classification, where each example has one class; got them",
        ),
    ],
)
def test_refusals(arguments, more, message):
    with pytest.raises(ValueError) as caught:
        TextTask("own", *arguments, **more)
    assert str(caught.value).startswith(message)


def test_without_a_training_set():
    with pytest.raises(ValueError, match="own has no training set"):
        TextTask("own", None, {"dev": _GOOD}, {}).training_examples(TOKENIZER, 32)
