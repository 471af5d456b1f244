import csv
import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertMultipleChoice
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.tasks.choice_task import ChoiceTask
from bert_tf.tasks.task import TrainingOptions

from .small_tasks import (
    CONFIG,
    TOKENIZER,
    VOCAB,
    StandIn,
    examples_of,
    inference,
    loss_of,
    random_choices,
    without,
)


def read_table(path):
    with open(path) as file:
        return list(csv.reader(file, delimiter="\t"))


def by_plain_loop(model, item, max_seq_length=32):
    """The probabilities of one example's choices, from the preprocessor's rows."""
    preprocessor = BertPreprocessor(VOCAB, max_seq_length=max_seq_length)
    contexts = [item.context] * len(item.choices)
    rows = preprocessor((tf.constant(contexts), tf.constant(item.choices)))
    logits = model({key: value[None] for key, value in rows.items()}, training=False)[0]
    return tf.nn.softmax(logits).numpy()


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return BertMultipleChoice(dataclasses.replace(CONFIG, initializer_range=0.5))


def test_equals_a_plain_loop(model, tmp_path):
    examples = random_choices(7)
    task = ChoiceTask(
        "made up", examples, {"dev": examples}, {"test": without(examples, label=None)}
    )
    expected = np.array([by_plain_loop(model, item) for item in examples.items])
    labels = np.array([item.label for item in examples.items])
    chosen = expected.argmax(1)
    assert 0 < np.mean(chosen == labels) < 1 and len(set(chosen)) > 1

    how = inference(model)
    found = task.evaluate(how, "dev")
    assert found.scores == {
        "accuracy": pytest.approx(np.mean(chosen == labels)),
        "loss": pytest.approx(-np.log(expected[np.arange(7), labels]).mean(), rel=1e-4),
    }
    assert found.constant is False
    losses = {
        item.id: -np.log(row[item.label])
        for item, row in zip(examples.items, expected, strict=True)
        if row.argmax() != item.label
    }
    assert [mistake.id for mistake in found.mistakes] == sorted(losses, key=losses.get)[::-1]
    for mistake in found.mistakes:
        item = examples.items[int(mistake.id.removeprefix("id"))]
        assert mistake.text == item.context
        assert mistake.expected == item.choices[item.label]
        assert mistake.predicted == item.choices[chosen[int(mistake.id.removeprefix("id"))]]
        assert mistake.loss == pytest.approx(losses[mistake.id], rel=1e-4)

    probabilities = [f"probability_{number}" for number in range(4)]
    for name, more, end in (("test", [], []), ("dev", ["expected"], ["text"])):
        (path,) = task.write_predictions(how, name, str(tmp_path), {})
        assert path == str(tmp_path / f"{name}.tsv")
        header, *rows = read_table(path)
        assert header == ["id", "prediction", *more, *probabilities, *end]
        assert [row[0] for row in rows] == [item.id for item in examples.items]
        assert [int(row[1]) for row in rows] == chosen.tolist()
        shares = np.array([row[2 + len(more) :][:4] for row in rows], float)
        np.testing.assert_allclose(shares, expected, rtol=1e-4, atol=1e-6)
    assert [int(row[2]) for row in rows] == labels.tolist()


def test_names_a_collapse():
    constant = StandIn(lambda inputs: tf.one_hot(tf.ones_like(inputs["input_mask"][:, 0, 0]), 4))
    many = random_choices(9)
    right = examples_of(dataclasses.replace(item, label=0) for item in many.items)
    for examples, collapsed in ((many, True), (right, False), (random_choices(1), False)):
        task = ChoiceTask("made up", None, {"dev": examples}, {})
        assert task.evaluate(inference(constant), "dev").constant is collapsed


def test_another_number_of_choices_in_each_row(model, tmp_path):
    counts = [2, 4, 1, 3, 4, 2, 3]
    examples = examples_of(
        dataclasses.replace(item, choices=item.choices[:count], label=item.label % count)
        for item, count in zip(random_choices(7).items, counts, strict=True)
    )
    task = ChoiceTask("made up", examples, {"dev": examples}, {})
    expected = [by_plain_loop(model, item) for item in examples.items]
    losses = [-np.log(row[i.label]) for row, i in zip(expected, examples.items, strict=True)]
    how = inference(model)
    found = task.evaluate(how, "dev", {})
    right = [row.argmax() == i.label for row, i in zip(expected, examples.items, strict=True)]
    assert found.scores["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert found.scores["accuracy"] == pytest.approx(np.mean(right)) and not all(right)
    # What is trained on is the same loss, and smoothed that of each row's own choices.
    rows = task.training_examples(TOKENIZER, 32)
    ((features, labels),) = rows.evaluation_batches(8)
    assert loss_of(task, model, features, labels, training=False) == pytest.approx(
        np.mean(losses), rel=1e-4
    )
    task = task.asked(TrainingOptions(label_smoothing=0.2))
    smoothed = [
        0.8 * loss - 0.2 * np.log(row).mean() for loss, row in zip(losses, expected, strict=True)
    ]
    assert loss_of(task, model, features, labels, training=False) == pytest.approx(
        np.mean(smoothed), rel=1e-4
    )
    (record, *_) = task.predict(how, "dev", {})
    assert list(record["probabilities"].values())[2:] == [None, None]
    np.testing.assert_allclose(list(record["probabilities"].values())[:2], expected[0], rtol=1e-4)
    (path,) = task.write_predictions(how, "dev", str(tmp_path), {})
    header, *lines = read_table(path)
    at = header.index("probability_0")
    assert [sum(map(bool, line[at : at + 4])) for line in lines] == counts
