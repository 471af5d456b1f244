"""The tagging task: predictions, scores, mistakes, files and training."""

import dataclasses
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.evaluation.metrics import compare_entities
from bert_tf.modeling import BertTokenClassifier
from bert_tf.readers.examples import TaggedExample
from bert_tf.tasks.tagging.entities import find_all
from bert_tf.tasks.tagging.reader import read_tagging
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task import evaluate
from tests.finetuning.small_tasks import (
    CONFIG,
    IDS,
    TAGS,
    TOKENIZER,
    WORDS,
    StandIn,
    by_token,
    examples_of,
    inference,
    loss_of,
    make_task,
    random_sentences,
    read_columns,
    without,
)


def by_plain_loop(model, words):
    """Computes (words, C) log-probabilities of one sentence in its own row."""
    ids, first_tokens = [IDS["[CLS]"]], []
    for word in words:
        first_tokens.append(len(ids))
        ids += TOKENIZER.tokenize([word])[0].numpy().tolist() or [IDS["[UNK]"]]
    ids = tf.constant([[*ids, IDS["[SEP]"]]])
    features = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    return tf.nn.log_softmax(model(features, training=False)[0]).numpy()[first_tokens]


def by_word(labels=TAGS):
    """Returns a stub model that tags words by their first token's id, and its tag function."""
    count = len(labels)
    model = StandIn(lambda inputs: tf.one_hot(inputs["input_word_ids"] % count, count) * 5.0)

    def tag(word):
        pieces = TOKENIZER.tokenize([word])[0].numpy().tolist() or [IDS["[UNK]"]]
        return labels[pieces[0] % count]

    return model, tag


def stub_tagger(tags, labels=TAGS):
    """Returns a stub model with a logit of 1 for a token's tag and 0 for others."""
    columns = [
        by_token({word: float(tag == label) for word, tag in tags.items()}) for label in labels
    ]
    return StandIn(lambda inputs: tf.stack([column(inputs) for column in columns], 2))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(CONFIG, initializer_range=0.5, hidden_size=32)
    return BertTokenClassifier(config, num_classes=len(TAGS))


def test_evaluation_equals_plain_loop(model, tmp_path):
    examples = random_sentences(9)
    task = TaggingTask("ner", examples, {"dev": examples}, {"test": without(examples, tags=None)})
    assert (task.labels, task.model_arguments) == (TAGS, {"num_classes": 5})
    assert task.headline == "f1"
    rows = [by_plain_loop(model, item.words) for item in examples.items]
    tags = [[TAGS[number] for number in row.argmax(1)] for row in rows]
    true = [item.tags for item in examples.items]
    pairs = [pair for both in zip(true, tags, strict=True) for pair in zip(*both, strict=True)]

    runner = inference(model)
    found = evaluate(task, runner, "dev")
    assert len({tag for row in tags for tag in row}) > 2
    losses = [
        -sum(row[index, TAGS.index(tag)] for index, tag in enumerate(item.tags))
        for row, item in zip(rows, examples.items, strict=True)
    ]
    comparison = compare_entities(true, tags, [*zip(find_all(true), find_all(tags), strict=True)])
    expected = {
        **comparison.scores,
        "accuracy": np.mean([one == other for one, other in pairs]),
        "loss": sum(losses) / len(pairs),
    }
    assert found.scores == pytest.approx(expected, rel=1e-4)
    assert found.scores.keys() == set(task.logged_scores)
    assert found.comparison.classes == comparison.classes
    assert list(found.scores)[:3] == ["f1", "precision", "recall"]
    assert found.constant is False
    confusion = np.zeros((5, 5), int)
    for one, other in pairs:
        confusion[TAGS.index(one), TAGS.index(other)] += 1
    np.testing.assert_array_equal(found.confusion.matrix(5), confusion)
    assert len(found.mistakes) == 9, "random tags of random words are never all right"
    order = np.argsort(losses)[::-1]
    assert [mistake.id for mistake in found.mistakes] == [f"id{index}" for index in order]
    np.testing.assert_allclose([m.loss for m in found.mistakes], np.array(losses)[order], rtol=1e-4)

    for name, gold in [("dev", True), ("test", False)]:
        path, *tables = task.write_predictions(runner, name, str(tmp_path), {})
        assert path == str(tmp_path / f"{name}.conll")
        assert tables == ([str(tmp_path / "dev_entities.tsv")] if gold else [])
        assert read_columns(path) == [
            [
                [word, *([tag] if gold else []), predicted]
                for word, tag, predicted in zip(item.words, item.tags, row, strict=True)
            ]
            for item, row in zip(examples.items, tags, strict=True)
        ]


def evaluated(examples, predictions, labels=TAGS):
    """Returns a task on pairs of words and tags, its inference with a stub, and its evaluation."""
    items = [
        TaggedExample(str(n), tuple(words.split()), tuple(tags.split()), n)
        for n, (words, tags) in enumerate(examples)
    ]
    task = TaggingTask("ner", examples_of(items, labels), {"dev": examples_of(items, labels)}, {})
    runner = inference(stub_tagger(predictions, labels))
    return task, runner, evaluate(task, runner, "dev")


def test_entity_scores_by_type_are_written(tmp_path):
    predictions = {"a0": "B-LOC", "a1": "B-LOC", "b0": "B-PER"}
    task, runner, _ = evaluated([("a0 a1 b0", "B-LOC B-PER B-PER")], predictions)
    paths = task.write_predictions(runner, "dev", str(tmp_path), {})
    assert pathlib.Path(paths[1]).read_text().splitlines() == [
        "type\tprecision\trecall\tf1\ttrue\tpredicted\tcorrect",
        "all\t0.666667\t0.666667\t0.666667\t3\t3\t2",
        "LOC\t0.5\t1\t0.666667\t1\t2\t1",
        "PER\t1\t0.5\t0.666667\t2\t1\t1",
    ]


@pytest.mark.parametrize("document_context", [False, True])
def test_all_words_are_tagged_with_windows_and_context(document_context, tmp_path):
    examples = random_sentences(12, longest=24)
    sets = {"test": without(examples, tags=None), "empty": examples_of([])}
    options = {"labels": TAGS, "document_context": document_context}
    task = make_task("tagging", "ner", examples, {}, sets, **options)
    model, tag = by_word()
    (path,) = task.write_predictions(
        inference(model, max_seq_length=12, batch_size=5), "test", str(tmp_path), {}
    )
    assert [[row[-1] for row in rows] for rows in read_columns(path)] == [
        [tag(word) for word in item.words] for item in examples.items
    ]
    assert model.traces == 1
    lengths = task.training_examples(TOKENIZER, 12).lengths
    assert np.all(lengths == 12) == document_context
    assert len(lengths) > 12
    (path,) = task.write_predictions(inference(model), "empty", str(tmp_path), {})
    assert pathlib.Path(path).read_bytes() == b""


def test_mistakes_show_entities():
    def evaluate_one(words, tags, predicted):
        predictions = dict(zip(words.split(), predicted.split(), strict=True))
        return evaluated([(words, tags)], predictions)[2]

    found = evaluate_one("a0 a1 b0 c0", "B-PER I-PER O B-LOC", "B-PER O O I-LOC")
    (mistake,) = found.mistakes
    assert (mistake.id, mistake.text) == ("0", "a0 a1 b0 c0")
    assert (mistake.expected, mistake.predicted) == ("PER: a0 a1; LOC: c0", "PER: a0; LOC: c0")
    # Softmax of (1, 0, 0, 0, 0): two words are correct, two are not.
    one = np.log(np.e + 4)
    assert mistake.loss == pytest.approx(2 * (one - 1) + 2 * one)
    assert found.scores["f1"] == 0.5
    for tags, predicted, expected in (
        ("O O", "O B-LOC", ("(none)", "LOC: a1")),
        ("O B-LOC", "O O", ("LOC: a1", "(none)")),
    ):
        (mistake,) = evaluate_one("a0 a1", tags, predicted).mistakes
        assert (mistake.expected, mistake.predicted) == expected
    assert evaluate_one("a0 a1", "O B-LOC", "O O").constant is True
    # An entity may start with I-: the tag is wrong, but the entity is correct.
    found = evaluate_one("a0 a1", "O B-LOC", "O I-LOC")
    assert (found.mistakes, found.scores["f1"], found.scores["accuracy"]) == ([], 1.0, 0.5)


def test_tags_that_are_not_entities():
    examples = [("a0 a1 b0", "NOUN VERB NOUN"), ("a1 b0", "VERB NOUN")]
    predictions = {"a0": "ADJ", "a1": "VERB", "b0": "NOUN"}
    task, _, found = evaluated(examples, predictions, ("ADJ", "NOUN", "VERB", "X"))
    assert task.headline == "accuracy"
    # NOUN: two of three found; VERB: both; ADJ: predicted once; X: never.
    loss = np.log(np.e + 3) - 4 / 5
    expected = {"accuracy": 0.8, "macro_f1": (0.8 + 1.0 + 0.0) / 3, "loss": loss}
    assert found.scores == pytest.approx(expected)
    assert found.scores.keys() == set(task.logged_scores)
    (mistake,) = found.mistakes
    assert (mistake.text, mistake.expected, mistake.predicted) == ("a0 a1 b0", "a0/NOUN", "a0/ADJ")


def test_bioes_tags_and_misspelled_tags(tmp_path):
    predictions = {"a0": "B-LOC", "a1": "E-LOC", "b0": "S-PER", "b1": "S-PER"}
    examples = [("a0 a1 b0 b1", "B-LOC E-LOC S-PER O")]
    task, _, found = evaluated(examples, predictions, ("O", "B-LOC", "E-LOC", "S-PER"))
    assert task.headline == "f1" and found.scores["f1"] == pytest.approx(2 * 2 / (2 + 3))
    predictions = {"a0": "B-LOC", "a1": "o", "b0": "O", "b1": "B_PER"}
    examples = [("a0 a1 b0", "B-LOC O o"), ("a0 b1 a1", "B-LOC B_PER O")]
    task, runner, found = evaluated(examples, predictions, ("B-LOC", "B_PER", "O", "o"))
    assert (found.scores["f1"], found.scores["f1_LOC"], found.mistakes) == (1.0, 1.0, [])
    assert found.scores["accuracy"] == 0.5
    _, table = task.write_predictions(runner, "dev", str(tmp_path), {})
    assert pathlib.Path(table).read_text().split("\n")[1] == "all\t1\t1\t1\t2\t2\t2"


def test_words_with_spaces_are_written_as_json_lines(tmp_path):
    items = [TaggedExample("0", ("a0", "New York"), ("O", "B-LOC"), 0)]
    task = TaggingTask("ner", None, {"dev": examples_of(items, TAGS)}, {})
    path, _ = task.write_predictions(inference(stub_tagger({})), "dev", str(tmp_path), {})
    assert path == str(tmp_path / "dev.jsonl")
    assert read_tagging(path).items[0].words == ("a0", "New York")
    assert read_tagging(path, label_column="expected").items[0].tags == ("O", "B-LOC")


# === Training ===


def test_loss_is_mean_over_words(model):
    task = TaggingTask("ner", random_sentences(12, longest=24), {}, {})
    batch, labels = next(task.training_examples(TOKENIZER, 16).sorted_batches(1000)[0])
    logs = tf.nn.log_softmax(model(batch, training=False)).numpy()
    words = np.argwhere(labels.numpy() >= 0)
    assert len(words) < labels.numpy().size
    expected = -np.mean([logs[row, column, labels[row, column]] for row, column in words])
    assert loss_of(task, model, batch, labels) == pytest.approx(expected, rel=1e-5)


def test_training_summary():
    items = [
        TaggedExample(str(number), tuple(WORDS[:count]), ("O",) * count, number)
        for number, count in enumerate((3, 14, 30))
    ]
    task = TaggingTask("ner", examples_of(items, TAGS), {}, {})
    rows = task.training_examples(TOKENIZER, 16)
    assert len(rows) > 3
    assert task.training_summary(rows) == [
        f"3 sentences in {len(rows)} rows",
        "1 of the training sentences are read in several rows of 16 tokens (--max_seq_length).",
    ]
    assert task.training_summary(task.training_examples(TOKENIZER, 32)) == ["3 sentences in 3 rows"]
    damaged = [dataclasses.replace(item, words=("It\x92s", *item.words[1:])) for item in items]
    summary = TaggingTask("ner", examples_of(damaged, TAGS), {}, {}).training_summary(rows)
    assert summary[1] == (
        "train: 3 of 3 texts contain control characters, which the tokenizer deletes, such as "
        "'It\\x92s'. Pass --encoding=cp1252 instead of latin-1, or correct the file."
    )
    with pytest.raises(ValueError, match="ner: every word has the tag 'O': expected two or more"):
        TaggingTask("ner", examples_of(items, ["O"]), {}, {}).training_summary(rows)
