"""Classification, multilabel and regression tasks: scores, predictions, files and training."""

import dataclasses
import math
import pathlib
import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.evaluation.report import write_report
from bert_tf.modeling import MODEL_CLASSES, BertRegressor
from bert_tf.pipelines.classification import classification_examples
from bert_tf.tasks.losses import squared_error
from bert_tf.tasks.task import evaluate
from bert_tf.tasks.texts.multilabel import best_threshold
from bert_tf.tasks.training_options import parse_class_weights
from tests.finetuning.small_tasks import (
    CONFIG,
    LABELS,
    TOKENIZER,
    StandIn,
    by_first_word,
    by_token,
    examples_of,
    inference,
    items_of,
    text_task,
    texts_with,
)


def evaluated(labels, outputs, thresholds=None, kind="classification", **options):
    """Evaluates a task whose text with label i has the model output i."""
    words = [f"{letter}{number}" for letter in "ab" for number in range(5)][: len(labels)]
    data = examples_of(items_of(dict(zip(words, labels, strict=True))), LABELS)
    task = text_task("own", None, {"dev": data}, {}, kind=kind, **options)
    model = by_first_word(dict(zip(words, outputs, strict=True)))
    return evaluate(task, inference(model), "dev", thresholds)


def make_task(kind, labels, *, second=False, **more):
    names = () if kind == "regression" else LABELS
    items = texts_with(labels, second)
    dev = examples_of(items, names)
    test = examples_of([dataclasses.replace(item, label=None) for item in items], names)
    return text_task("own", dev, {"dev": dev}, {"test": test}, kind=kind, **more)


NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "labels", "outputs", "constant"),
    [
        ("classification", ["x", "x", "y"], [[5, 0, 1]] * 3, True),
        ("classification", ["x", "x", "y"], [[5, 0, 1], [5, 0, 1], [0, 5, 1]], False),
        ("classification", ["x", "x"], [[5, 0, 1]] * 2, False),  # all predictions are correct
        ("classification", ["x", "y"], [[NAN] * 3] * 2, True),
        ("multilabel", [("x",), ("x",), ("y",)], [[5, 0, -5]] * 3, True),
        ("multilabel", [("x",), ("x",), ("y",)], [[5, 0, -5], [5, 0, -5], [-5, 5, -5]], False),
        # Constant at the default threshold of 0.5, which applies if no threshold helps.
        ("multilabel", [("x",), ("x",), ("y",)], [[-3, -1, -2], [-1, -2, -3], [-1, -2, -3]], True),
        ("multilabel", [("x",), ("x",), ("y",)], [[-1, -2, -3], [-1, -2, -3], [-3, -1, -2]], False),
        ("multilabel", [("x",), ("y",)], [[NAN] * 3] * 2, True),
        ("regression", [1.0, 1.0, 3.0], [1.7, 1.7, 1.7], True),
        ("regression", [1.0, 1.0, 3.0], [1.7, 1.7, 3.0], False),
        ("regression", [1.0, 2.0], [NAN, NAN], True),
        ("regression", [1.0, 2.0], [NAN, 2.0], False),  # one NaN does not affect other examples
    ],
)
def test_collapsed_models_are_detected_and_diverged_ones_evaluated(kind, labels, outputs, constant):
    found = evaluated(labels, outputs, kind=kind)
    assert found.constant is constant
    undefined = ["matthews_correlation"] if len({*labels}) == 1 else []
    assert [n for n, score in found.scores.items() if not math.isfinite(score)] == undefined


# === GLUE ===


def test_glue_metrics_and_submission_files(tmp_path):
    items = items_of({"a0": "1", "a1": "1", "a2": "0", "a3": "0"})
    data = examples_of(items, ("0", "1"))
    task = text_task("MRPC", data, {"dev": data}, {"test": data})
    assert task.headline == "f1"
    runner = inference(by_first_word({"a0": [0, 1], "a1": [1, 0], "a2": [1, 0], "a3": [0, 1]}))
    found = evaluate(task, runner, "dev")
    loss = np.mean([np.log1p(np.exp(wrong)) for wrong in (-1, 1, -1, 1)])
    assert found.scores == {"accuracy": 0.5, "f1": 0.5, "loss": pytest.approx(loss)}
    task = text_task("MRPC", data, {"dev": data}, {"test": data}, metric="recall_0")
    assert evaluate(task, runner, "dev").scores["recall_0"] == 0.5
    (path,) = task.write_predictions(runner, "test", str(tmp_path), {})
    assert path == str(tmp_path / "MRPC.tsv")
    written = (tmp_path / "MRPC.tsv").read_text()
    assert written == "index\tprediction\nid0\t1\nid1\t0\nid2\t0\nid3\t1\n"
    (path,) = task.write_predictions(runner, "dev", str(tmp_path), {})
    assert path == str(tmp_path / "dev.tsv")
    # The diagnostic set uses MNLI's model.
    data = examples_of(items_of({"a0": None}), ("contradiction", "entailment", "neutral"))
    task = text_task("MNLI", None, {}, {"test_matched": data, "ax": data})
    runner = inference(by_first_word({"a0": [0, 0, 1]}))
    for name, file in (("test_matched", "MNLI-m.tsv"), ("ax", "AX.tsv")):
        (path,) = task.write_predictions(runner, name, str(tmp_path), {})
        assert path == str(tmp_path / file)
        assert (tmp_path / file).read_text() == "index\tprediction\nid0\tneutral\n"
    # Predictions are clipped to the scale.
    data = examples_of(items_of({"a0": 1.0, "a1": 2.0, "a2": 4.0}))
    task = text_task("STS-B", None, {"dev": data}, {"test": data}, kind="regression")
    assert task.headline == "spearman"
    runner = inference(by_first_word({"a0": -1.0, "a1": 2.5, "a2": 7.0}))
    assert list(evaluate(task, runner, "dev").scores)[:2] == ["pearson", "spearman"]
    task.write_predictions(runner, "test", str(tmp_path), {})
    rows = (tmp_path / "STS-B.tsv").read_text().splitlines()[1:]
    assert rows == ["id0\t0.000", "id1\t2.500", "id2\t5.000"]


# === Training ===


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_batch_targets(kind):
    labels = [("z",), (), ("x", "z")] if kind == "multilabel" else [1.5, -2.0, 0.25]
    task = make_task(kind, labels)
    expected = [[0, 0, 1], [0, 0, 0], [1, 0, 1]] if kind == "multilabel" else labels
    for rows, targets in task.training_examples(TOKENIZER, 32).evaluation_batches(2):
        assert targets.dtype == tf.float32
        for index, target in zip(rows["example_index"].numpy(), targets.numpy(), strict=True):
            assert target.tolist() == expected[index]


# === Invalid data ===


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("classification", ["x", "x"], "Every example has the label 'x'"),
        ("multilabel", [("x",), ("x",)], "Every example has the label ('x',)"),
        ("multilabel", [("x",), ()], None),
    ],
)
def test_single_label_causes_a_warning(kind, labels, message):
    task = make_task(kind, labels)
    _, *warnings = task.training_summary(task.training_examples(TOKENIZER, 32))
    starts = f"{message}, so there is nothing to learn."
    assert len(warnings) == (message is not None) and all(s.startswith(starts) for s in warnings)


def test_sets_without_labels_or_examples_raise_error():
    good, empty = examples_of(items_of({"a0": "x"}), LABELS), examples_of([], LABELS)
    with pytest.raises(ValueError, match="own has no labels: expected the names of the classes"):
        text_task("own", None, {}, {"t": examples_of([])})
    with pytest.raises(ValueError, match="own: dev is empty: expected examples to evaluate on"):
        text_task("own", good, {"dev": empty}, {})
    for train in (None, empty):
        with pytest.raises(ValueError, match="own has no training set"):
            text_task("own", train, {"dev": good}, {}).training_examples(TOKENIZER, 32)


# === Classes ===


def micro_f1(true, probabilities, threshold):
    is_true = probabilities >= threshold
    return 2 * np.sum(true * is_true) / max(np.sum(true) + np.sum(is_true), 1)


@pytest.mark.parametrize("seed", range(5))
def test_best_threshold_is_optimal(seed):
    rng = np.random.default_rng(seed)
    true = (rng.random((30, 4)) < 0.3).astype(int)
    # Rounding creates ties.
    probabilities = np.clip(0.3 * true + 0.7 * rng.random((30, 4)), 0, 1).round(1 + seed % 2)
    found = best_threshold(true, probabilities)
    f1_scores = [
        micro_f1(true, probabilities, threshold) for threshold in np.linspace(0.001, 1, 1000)
    ]
    assert micro_f1(true, probabilities, found) == pytest.approx(max(f1_scores), abs=1e-12)


def test_best_threshold_is_nearest_to_one_half_among_ties():
    true = np.array([[1, 0], [0, 1]])
    for spread in (0.1, 0.3):
        probabilities = np.array([[0.5 + spread, 0.1], [0.1, 0.5 + spread]])
        assert best_threshold(true, probabilities) == pytest.approx((0.5 + spread + 0.1) / 2)
    # The cuts 0.85 and 0.3 both have F1 2/3.
    true, probabilities = np.array([[1, 0, 0, 1]]), np.array([[0.9, 0.8, 0.7, 0.6]])
    cuts = [0.85, 0.75, 0.65, 0.3]
    scores = [micro_f1(true, probabilities, cut) for cut in cuts]
    assert scores[0] == pytest.approx(scores[3])
    assert best_threshold(true, probabilities) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("true", "probabilities", "expected"),
    [
        ([[0, 0]], [[0.9, 0.1]], 0.5),
        ([[1, 1]], [[0.0, 0.0]], np.finfo(np.float64).tiny),
        ([[1, 1]], [[1.0, 1.0]], 0.5),
    ],
)
def test_threshold_of_extreme_probabilities_is_positive(true, probabilities, expected):
    found = best_threshold(np.array(true), np.array(probabilities))
    assert found == expected and 0 < found <= 1


def test_classification_scores_equal_literals(tmp_path):
    items = items_of({"a0": "x", "a1": "x", "a2": "y", "a3": "z", "a4": "y"})
    data = examples_of(items, LABELS)
    task = text_task("own", None, {"dev": data}, {})
    big, small = math.log(8), math.log(2)
    outputs = [[big, 0, 0], [0, small, 0], [0, big, 0], [big, 0, 0], [0, big, 0]]
    runner = inference(by_first_word({f"a{n}": output for n, output in enumerate(outputs)}))
    found = evaluate(task, runner, "dev")
    # x: 1 of 2 found, 1 false positive; y: 2 of 2, 1 false positive; z: never predicted.
    assert found.scores["accuracy"] == pytest.approx(3 / 5)
    assert found.scores["macro_f1"] == pytest.approx((1 / 2 + 4 / 5 + 0) / 3)
    # (3 * 5 - (2*2 + 2*3 + 1*0)) / sqrt((25 - 9) * (25 - 13))
    assert found.scores["matthews_correlation"] == pytest.approx(5 / math.sqrt(16 * 12))
    assert list(found.scores) == ["accuracy", "macro_f1", "matthews_correlation", "loss"]
    assert found.scores.keys() == set(task.logged_scores)
    assert found.scores["loss"] == pytest.approx(
        -np.mean(np.log([0.8, 0.25, 0.8, 0.1, 0.8])), rel=1e-5
    )
    assert found.comparison.classes["x"].to_dict()["recall"] == 0.5
    assert found.confusion.matrix(3).tolist() == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert not found.constant
    # The losses of z and x are log(10) and log(4).
    assert [(m.id, m.expected, m.predicted) for m in found.mistakes] == [
        ("id3", "z", "x"),
        ("id1", "x", "y"),
    ]
    assert [m.loss for m in found.mistakes] == pytest.approx([math.log(10), math.log(4)], rel=1e-5)
    assert found.mistakes[0].text == items[3].text_a
    # The probabilities are calibrated, like those of predictions.
    temperature = found.thresholds["temperature"]
    z, x = (np.exp(np.divide(outputs[row], temperature)) for row in (3, 1))
    probabilities = [share for mistake in found.mistakes for share in mistake.probabilities]
    expected = [*(z / z.sum())[[2, 0]], *(x / x.sum())[[0, 1]]]
    assert probabilities == pytest.approx(expected, rel=1e-5) and temperature > 1.01
    paths = task.write_predictions(runner, "dev", str(tmp_path / "new"), {})
    assert paths == [str(tmp_path / "new" / "dev.tsv")]
    assert (tmp_path / "new" / "dev.tsv").read_text().splitlines() == [
        "id\tprediction\texpected\tprobability_x\tprobability_y\tprobability_z\ttext",
        f"id0\tx\tx\t0.8\t0.1\t0.1\t{items[0].text_a}",
        f"id1\ty\tx\t0.25\t0.5\t0.25\t{items[1].text_a}",
        f"id2\ty\ty\t0.1\t0.8\t0.1\t{items[2].text_a}",
        f"id3\tx\tz\t0.8\t0.1\t0.1\t{items[3].text_a}",
        f"id4\ty\ty\t0.1\t0.8\t0.1\t{items[4].text_a}",
    ]


def test_multilabel_scores_equal_literals(tmp_path):
    data = examples_of(items_of({"a0": ("x", "z"), "a1": ("x",), "a2": ()}), LABELS)
    task = text_task("own", None, {"dev": data}, {"test": data}, kind="multilabel")
    assert task.multi_label and task.model_arguments == {"num_classes": 3}
    third, ninth = -math.log(2), -math.log(8)  # the logits of 1/3 and of 1/9
    outputs = {"a0": [0, ninth, third], "a1": [third, ninth, ninth], "a2": [ninth] * 3}
    runner = inference(by_first_word(outputs))
    found = evaluate(task, runner, "dev")
    # True classes have the probabilities 1/2, 1/3 and 1/3, all others 1/9.
    temperature = found.thresholds["temperature"]
    cut = sum(1 / (1 + odds ** (1 / temperature)) for odds in (2, 8)) / 2  # between 1/3 and 1/9
    assert found.thresholds == {"probability": pytest.approx(cut), "temperature": temperature}
    assert 0.5 < temperature < 1  # all predictions are correct
    assert found.scores == {
        "micro_f1": 1.0,
        "macro_f1": pytest.approx(2 / 3),  # y is neither true nor predicted
        "micro_f1_at_0.5": pytest.approx(2 / (2 + 2)),
        "macro_f1_at_0.5": pytest.approx((2 / 3) / 3),
        # The mean over the nine pairs of text and class.
        "loss": pytest.approx(-np.mean(np.log([1 / 2, 1 / 3, 1 / 3] + [8 / 9] * 6))),
    }
    assert found.scores.keys() == set(task.logged_scores)
    assert found.confusion is None and found.mistakes == [] and not found.constant
    # Thresholds from another set and default thresholds are used as is.
    with_threshold = evaluate(task, runner, "dev", {"probability": 0.4})
    assert with_threshold.thresholds == {"probability": 0.4, "temperature": 1.0}
    assert with_threshold.scores["micro_f1"] == found.scores["micro_f1_at_0.5"]
    assert [mistake.id for mistake in with_threshold.mistakes] == ["id0", "id1"]
    default = evaluate(task, runner, "dev", {})
    assert default.thresholds == {"probability": 0.5, "temperature": 1.0}
    calibration = default.calibrate()
    assert calibration.count == 9 and calibration.raw == calibration.calibrated
    for thresholds, lines in (
        (found.thresholds, ["id0\tx,z", "id1\tx", "id2\t"]),
        ({}, ["id0\tx", "id1\t", "id2\t"]),
    ):
        task.write_predictions(runner, "test", str(tmp_path), thresholds)
        rows = (tmp_path / "test.tsv").read_text().splitlines()
        assert rows[0] == "id\tprediction\tprobability_x\tprobability_y\tprobability_z"
        assert ["\t".join(row.split("\t")[:2]) for row in rows[1:]] == lines
    assert rows[1].split("\t")[2:] == ["0.5", "0.111111", "0.333333"]


def test_multilabel_mistakes():
    def found_of(first, second):
        labels, outputs = [("x", "y"), ("y",), ()], [first, second, [-9, -9, -9]]
        return evaluated(labels, outputs, kind="multilabel")

    found = found_of([-1, 3, -9], [2, 3, -9])
    # F1 is 2 * 2 / (2 + 3) with the logits of 3, lower with >= 2, and 2 * 3 / (4 + 3) with >= -1.
    assert found.scores["micro_f1"] == pytest.approx(6 / 7)
    assert [(m.id, m.expected, m.predicted) for m in found.mistakes] == [("id1", "y", "x, y")]
    by_loop = sum(
        -math.log(1 / (1 + math.exp(-logit if is_true else logit)))
        for logit, is_true in ((2, False), (3, True), (-9, False))
    )
    assert found.mistakes[0].loss == pytest.approx(by_loop, rel=1e-5)
    for second, predicted in (([3, -9, -9], "x"), ([-9, -9, -9], "(none)")):
        (mistake,) = found_of([3, 3, -9], second).mistakes
        assert (mistake.expected, mistake.predicted) == ("y", predicted)


# === Class weights ===

CLASSES = ("neg", "pos", "odd:one")


def test_class_weights_are_balanced_or_named():
    weights = parse_class_weights("balanced", CLASSES, {"neg": 6, "pos": 2})
    assert weights["neg"] * 6 == weights["pos"] * 2
    assert (weights["neg"] * 6 + weights["pos"] * 2) / 8 == weights["odd:one"] == 1.0
    found = parse_class_weights("pos:2,odd:one:0.5", CLASSES, {})
    assert found == {"neg": 1.0, "pos": 2.0, "odd:one": 0.5}
    found = parse_class_weights('{"odd:one": 0.5, "a, b": 2}', (*CLASSES, "a, b"), {})
    assert found == {"neg": 1.0, "pos": 1.0, "odd:one": 0.5, "a, b": 2.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maybe:2", "got 'maybe'. The classes are neg, pos, odd:one"),
        ("pos:1,pos:2", "expected balanced, or each class at most once as .* got 'pos'"),
        ("pos:much", "expected a positive weight for pos, got 'much'"),
        ("pos:-1", "expected a positive weight for pos, got '-1'"),
        ('{"pos": [1]}', "expected a positive weight for pos, got .1."),
        ("{'pos': 1}",
         "--class_weights is not JSON: Expecting property name enclosed in double quotes"),
        ("pos:nan", "expected a positive weight for pos, got 'nan'"),
    ],
)  # fmt: skip
def test_invalid_class_weights_raise_error(text, message):
    with pytest.raises(ValueError, match=message):
        parse_class_weights(text, CLASSES, {})


# === Numbers ===


def test_squared_error_weights_each_example():
    labels, zeros, weights = np.float32([1, 3]), np.zeros(2, np.float32), np.float32([10, 1])
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    # Keras' loss is the mean error of both, 5, times the mean weight.
    for loss, expected in ((squared_error, (10 + 9) / 2), ("mean_squared_error", 5 * 11 / 2)):
        model.compile(loss=loss)
        found = model.compute_loss(y=labels, y_pred=zeros, sample_weight=weights)
        assert float(found) == pytest.approx(expected)


def test_regression_scores_equal_literals(tmp_path):
    data = examples_of(items_of({"a0": 1.0, "a1": 2.0, "a2": 3.5}))
    task = text_task("own", None, {"dev": data}, {"test": data}, kind="regression")
    assert task.labels == () and MODEL_CLASSES[task.model] is BertRegressor
    runner = inference(by_first_word({"a0": 1.0, "a1": 4.0, "a2": 3.0}))
    found = evaluate(task, runner, "dev")
    expected = {
        "pearson": np.corrcoef([1, 2, 3.5], [1, 4, 3])[0, 1],
        "spearman": 0.5,
        "mean_squared_error": (0 + 4 + 0.25) / 3,
        "root_mean_squared_error": 4.25**0.5 / 3**0.5,
        "mean_absolute_error": 2.5 / 3,
        "r2": 1 - 4.25 / np.var([1, 2, 3.5]) / 3,
        "loss": 4.25 / 3,
    }
    assert found.scores == pytest.approx(expected) and list(found.scores) == list(expected)
    assert found.scores.keys() == set(task.logged_scores)
    assert [(m.id, m.expected, m.predicted, m.loss) for m in found.mistakes] == [
        ("id1", "2", "4", 4.0),
        ("id2", "3.5", "3", 0.25),
    ]
    assert not found.constant
    task.write_predictions(runner, "test", str(tmp_path), {})
    assert (tmp_path / "test.tsv").read_text() == "id\tprediction\nid0\t1\nid1\t4\nid2\t3\n"


# === Inference ===


@pytest.mark.parametrize("labels", [None, [0, 1, 0, 1, 0]])
def test_outputs_cover_each_example_once(labels):
    texts = ["a0", "a0 a0 b0", "b0", "a0 b0 b0 b0 b0 b0 b0 a0", "a0 a0 a0"]
    examples = classification_examples(TOKENIZER, texts, labels=labels, max_seq_length=32)
    model = StandIn(lambda inputs: tf.reduce_sum(by_token({"a0": 1.0})(inputs), 1))
    found = {}
    for batch, outputs in inference(model, batch_size=2).outputs(examples):
        assert len(outputs) <= 2
        found.update(zip(batch["example_index"].tolist(), outputs.tolist(), strict=True))
    assert found == {index: text.split().count("a0") for index, text in enumerate(texts)}
    again = classification_examples(TOKENIZER, ["b0 a0"], labels=labels and [0], max_seq_length=9)
    ((_, outputs),) = inference(model, batch_size=2).outputs(again)
    assert outputs.tolist() == [1.0]
    assert model.traces == 1, "a later call is not traced again"


def test_model_can_be_saved_after_inference(tmp_path):
    examples = classification_examples(TOKENIZER, ["a0", "b0 b1 b2"])
    model = BertRegressor(CONFIG)
    before = [outputs for _, outputs in inference(model, batch_size=2).outputs(examples)]
    model.encoder.pooler.dense.kernel.assign(model.encoder.pooler.dense.kernel * -1.0)
    after = [outputs for _, outputs in inference(model, batch_size=2).outputs(examples)]
    assert np.all(before[0] != after[0]), "the weights of the moment count"
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    ((_, reloaded),) = inference(again, batch_size=2).outputs(examples)
    np.testing.assert_allclose(reloaded, after[0], rtol=1e-5)


def test_memory_with_many_classes_is_linear(tmp_path):
    """A confusion matrix of 10,000 classes would need 800 MB."""
    count, labels = 50, tuple(f"class {number}" for number in range(10_000))
    rng = np.random.default_rng(0)
    true = rng.integers(0, len(labels), count)
    outputs = rng.normal(size=[count, len(labels)]).astype(np.float32)
    outputs[np.arange(40), true[:40]] = 9.0
    items = items_of({f"word{n}": labels[label] for n, label in enumerate(true)})
    task = text_task("own", None, {"dev": examples_of(items, labels)}, {})
    tracemalloc.start()
    found = task.score(items, outputs, None)
    assert found.calibrate().raw.error > 0
    page, _ = write_report(str(tmp_path), found, labels, "dev", None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 25 * outputs.nbytes
    assert found.scores["accuracy"] == 0.8 and found.scores["matthews_correlation"] > 0.79
    assert found.confusion.counts.sum() == count
    assert "The most frequent of 10 pairs of confused classes" in pathlib.Path(page).read_text()
