import csv
import dataclasses
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.choices import ChoiceTask
from bert_tf.modeling import BertMultipleChoice
from bert_tf.pipelines.preprocessor import BertPreprocessor
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.examples import ChoiceExample
from bert_tf.tasks.multiple_choice import read_codah

from .small_tasks import (
    CONFIG,
    VOCAB,
    WORDS,
    StandIn,
    by_token,
    examples_of,
    fit,
    inference,
)


def random_examples(count, longest=6):
    rng = np.random.default_rng(5)

    def text():
        return " ".join(rng.choice(WORDS, rng.integers(1, longest)))

    return examples_of(
        ChoiceExample(
            f"id{number}",
            text(),
            tuple(text() for _ in range(4)),
            int(rng.integers(4)),
        )
        for number in range(count)
    )


def unlabelled(examples):
    return examples_of(dataclasses.replace(item, label=None) for item in examples.items)


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
    examples = random_examples(11)
    task = ChoiceTask("made up", examples, {"dev": examples}, {"test": unlabelled(examples)})
    expected = np.array([by_plain_loop(model, item) for item in examples.items])
    labels = np.array([item.label for item in examples.items])
    chosen = expected.argmax(1)
    assert 0 < np.mean(chosen == labels) < 1 and len(set(chosen)) > 1

    found = task.evaluate(inference(model), "dev")
    assert found.scores == {"accuracy": pytest.approx(np.mean(chosen == labels))}
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
    for name, more in (("test", []), ("dev", ["expected"])):
        (path,) = task.write_predictions(inference(model), name, str(tmp_path), {})
        assert path == str(tmp_path / f"{name}.tsv")
        header, *rows = read_table(path)
        assert header == ["id", "prediction", *more, *probabilities]
        assert [row[0] for row in rows] == [item.id for item in examples.items]
        assert [int(row[1]) for row in rows] == chosen.tolist()
        np.testing.assert_allclose(
            np.array([row[-4:] for row in rows], float), expected, rtol=1e-4, atol=1e-6
        )
    assert [int(row[2]) for row in rows] == labels.tolist()


def test_traces_once_whatever_the_batches_shapes():
    stand_in = StandIn(lambda inputs: tf.reduce_sum(by_token({"a0": 1.0})(inputs), 2))
    task = ChoiceTask("made up", None, {"dev": random_examples(30, longest=12)}, {})
    task.evaluate(inference(stand_in), "dev")
    assert stand_in.traces == 1


def test_names_a_collapse():
    constant = StandIn(lambda inputs: tf.one_hot(tf.ones_like(inputs["input_mask"][:, 0, 0]), 4))
    task = ChoiceTask("made up", None, {"dev": random_examples(9)}, {})
    assert task.evaluate(inference(constant), "dev").constant is True
    right = [dataclasses.replace(item, label=0) for item in random_examples(9).items]
    all_right = ChoiceTask("made up", None, {"dev": examples_of(right)}, {})
    assert all_right.evaluate(inference(constant), "dev").constant is False
    one = ChoiceTask("made up", None, {"dev": random_examples(1)}, {})
    assert one.evaluate(inference(constant), "dev").constant is False


def test_an_empty_set_is_predicted(model, tmp_path):
    task = ChoiceTask("made up", None, {}, {"test": examples_of([])})
    (path,) = task.write_predictions(inference(model), "test", str(tmp_path), {})
    assert pathlib.Path(path).read_text() == ""


@pytest.mark.slow
def test_overfits():
    examples = random_examples(64)
    task = ChoiceTask("made up", examples, {"train_again": examples}, {})
    keras.utils.set_random_seed(0)
    model = BertMultipleChoice(CONFIG)
    losses = fit(task, model, epochs=30)
    assert losses[0] > 1.0 > losses[-1]
    assert task.evaluate(inference(model), "train_again").scores["accuracy"] >= 0.95


@pytest.mark.slow
def test_codah_trains(data_dir, tmp_path):
    items = read_codah(str(data_dir / "multiple_choice" / "codah.tsv")).items
    train, dev = examples_of(items[:96]), examples_of(items[200:240])
    vocab = (data_dir / "vocab" / "bert-base-uncased.txt").read_text().splitlines()
    tokenizer = BertTokenizer(vocab)
    task = ChoiceTask("codah", train, {"dev": dev, "train_again": train}, {"test": dev})
    keras.utils.set_random_seed(0)
    model = BertMultipleChoice(dataclasses.replace(CONFIG, vocab_size=len(vocab)))
    losses = fit(task, model, tokenizer=tokenizer, epochs=8, max_seq_length=48)
    assert losses[-1] < 0.8 * losses[0]
    run = inference(model, tokenizer=tokenizer, max_seq_length=48, batch_size=32)
    trained = task.evaluate(run, "train_again")
    assert trained.scores["accuracy"] > 0.5
    found = task.evaluate(run, "dev")
    (path,) = task.write_predictions(run, "test", str(tmp_path), found.thresholds)
    rows = read_table(path)[1:]
    right = [int(row[1]) == item.label for row, item in zip(rows, dev.items, strict=True)]
    assert found.scores["accuracy"] == pytest.approx(np.mean(right))
    assert len(found.mistakes) == right.count(False)
