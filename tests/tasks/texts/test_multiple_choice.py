import csv
import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertMultipleChoice
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.readers.examples import ChoiceExample
from bert_tf.tasks.task import evaluate, with_options
from bert_tf.tasks.texts.multiple_choice import (
    MultipleChoiceTask,
    read_choices,
    read_swag,
    swag_has_labels,
)
from tests.finetuning.small_tasks import (
    CONFIG,
    TOKENIZER,
    VOCAB,
    StandIn,
    examples_of,
    inference,
    loss_of,
    random_choices,
)
from tests.readers.test_bad_rows import SWAG


def read_table(path):
    with open(path) as file:
        return list(csv.reader(file, delimiter="\t"))


PREPROCESSOR = BertPreprocessor(VOCAB, max_seq_length=32)


def by_plain_loop(model, item):
    """Computes the probabilities of one example's choices from the preprocessor's rows."""
    contexts = [item.context] * len(item.choices)
    rows = PREPROCESSOR((tf.constant(contexts), tf.constant(item.choices)))
    logits = model({key: value[None] for key, value in rows.items()}, training=False)[0]
    return tf.nn.softmax(logits).numpy()


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return BertMultipleChoice(dataclasses.replace(CONFIG, initializer_range=0.5))


def test_evaluation_equals_plain_loop(model, tmp_path):
    """The examples have different numbers of choices."""
    counts = [2, 4, 1, 3, 4, 2, 3]
    examples = examples_of(
        dataclasses.replace(item, choices=item.choices[:count], label=item.label % count)
        for item, count in zip(random_choices(7).items, counts, strict=True)
    )
    task = MultipleChoiceTask("made up", examples, {"dev": examples}, {})
    expected = [by_plain_loop(model, item) for item in examples.items]
    labels = [item.label for item in examples.items]
    chosen = [int(row.argmax()) for row in expected]
    is_correct = np.equal(chosen, labels)
    assert 0 < is_correct.mean() < 1 and len(set(chosen)) > 1
    losses = [-np.log(row[label]) for row, label in zip(expected, labels, strict=True)]

    runner = inference(model)
    found = evaluate(task, runner, "dev")
    assert found.scores == {
        "accuracy": pytest.approx(is_correct.mean()),
        "loss": pytest.approx(np.mean(losses), rel=1e-4),
    }
    assert found.constant is False
    wrong = [number for number in np.argsort(losses)[::-1] if not is_correct[number]]
    for mistake, number in zip(found.mistakes, wrong, strict=True):
        item = examples.items[number]
        assert (mistake.id, mistake.text) == (item.id, item.context)
        assert mistake.expected == item.choices[item.label]
        assert mistake.predicted == item.choices[chosen[number]]
        assert mistake.loss == pytest.approx(losses[number], rel=1e-4)

    (path,) = task.write_predictions(runner, "dev", str(tmp_path), {})
    header, *rows = read_table(path)
    probabilities = [f"probability_{number}" for number in range(4)]
    assert header == ["id", "prediction", "expected", *probabilities, "text"]
    for row, item, choice, choice_probabilities in zip(
        rows, examples.items, chosen, expected, strict=True
    ):
        assert row[:3] == [item.id, str(choice), str(item.label)]
        cells = row[3:7]
        assert cells[len(choice_probabilities) :] == [""] * (4 - len(choice_probabilities))
        np.testing.assert_allclose(
            np.float64(cells[: len(choice_probabilities)]),
            choice_probabilities,
            rtol=1e-4,
            atol=1e-6,
        )

    # Training uses the same loss; label smoothing covers only the choices of each example.
    features, targets = next(task.training_examples(TOKENIZER, 32).sorted_batches(1000)[0])
    assert loss_of(task, model, features, targets, training=False) == pytest.approx(
        np.mean(losses), rel=1e-4
    )
    task = with_options(task, task.Options(label_smoothing=0.2))
    smoothed = [
        0.8 * loss - 0.2 * np.log(row).mean() for loss, row in zip(losses, expected, strict=True)
    ]
    assert loss_of(task, model, features, targets, training=False) == pytest.approx(
        np.mean(smoothed), rel=1e-4
    )


def test_model_with_a_constant_choice_is_detected():
    constant = StandIn(lambda inputs: tf.one_hot(tf.ones_like(inputs["input_mask"][:, 0, 0]), 4))
    many = random_choices(9)
    correct = examples_of(dataclasses.replace(item, label=0) for item in many.items)
    for examples, collapsed in ((many, True), (correct, False), (random_choices(1), False)):
        task = MultipleChoiceTask("made up", None, {"dev": examples}, {})
        assert evaluate(task, inference(constant), "dev").constant is collapsed


# === Custom tables and SWAG ===

SWAG_ROWS = [
    '0,v1,18313,"He stands, up. He","He stands, up.",He,gold,"says ""so"".",b.,c.,d.',
    "1,v2,9,A man runs. ,A man runs.,,gen,a.,b.,c.,d.",
]


def test_swag_files(write):
    labeled = [f"{row},{label}" for row, label in zip(SWAG_ROWS, (2, 0), strict=True)]
    path = write("train.csv", [f"{SWAG},label", *labeled], line_end="\r\n")
    examples = read_swag(path)
    assert examples.items == [
        ChoiceExample("0", "He stands, up.", ('He says "so".', "He b.", "He c.", "He d."), 2),
        ChoiceExample("1", "A man runs.", ("a.", "b.", "c.", "d."), 0),
    ]
    assert (examples.labels, examples.skipped) == ((), [])
    assert swag_has_labels(path)
    path = write("test.csv", [SWAG, *SWAG_ROWS])
    assert not swag_has_labels(path)
    unlabeled = read_swag(path, labelled=False).items
    assert [item.label for item in unlabeled] == [None, None]
    assert [item.choices for item in unlabeled] == [item.choices for item in examples.items]
    with pytest.raises(ValueError, match="line 1: expected one column 'label', got none"):
        read_swag(path)


def test_choices_in_columns(write):
    path = write("a.csv", ["n,q,x,y,z,best", "17,Why?,A,B,C,1", "18,How?,D,E,F,0"])
    columns = {"text_columns": ["q", "z", "x"], "label_column": "best"}
    assert read_choices(path, **columns, id_column="n").items == [
        ChoiceExample("17", "Why?", ("C", "A"), 1),
        ChoiceExample("18", "How?", ("F", "D"), 0),
    ]
    items = read_choices(path, **{**columns, "label_column": None}).items
    assert [(item.id, item.label) for item in items] == [("0", None), ("1", None)]


def test_choices_in_lists(write):
    columns = {"text_columns": ["q", "c"], "label_column": "y"}
    good = {"q": "Why?", "c": ["A", "B", "C"], "y": 2}
    path = write("a.jsonl", [good, {"q": "How?", "c": ["D", "E"], "y": "0"}])
    assert read_choices(path, **columns).items == [
        ChoiceExample("0", "Why?", ("A", "B", "C"), 2),
        ChoiceExample("1", "How?", ("D", "E"), 0),
    ]
