"""Every kind of task is learned: random examples by heart, and some of the published ones."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest

from bert_tf.metrics.squad_scores import score_predictions
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.readers.choices import read_codah
from bert_tf.readers.conll import read_conll
from bert_tf.readers.squad import SquadReferences, read_squad
from bert_tf.tasks.choice_task import ChoiceTask
from bert_tf.tasks.question_task import QuestionTask
from bert_tf.tasks.tagging_task import TaggingTask
from bert_tf.tasks.task import TrainingOptions
from tests.readers.entity_scores import entity_scores

from .small_tasks import (
    CONFIG,
    LABELS,
    WINDOWS,
    examples_of,
    fit,
    inference,
    random_choices,
    random_labels,
    random_questions,
    random_sentences,
    read_columns,
    text_task,
    texts_with,
)


def by_heart(make, examples, **options):
    return make("own", examples, {"again": examples}, {}, **options)


def texts(kind):
    examples = examples_of(texts_with(random_labels(kind, 64)), LABELS)
    return by_heart(text_task, examples, kind=kind)


def questions(with_null):
    examples = random_questions(64, impossible=0.3 * with_null)
    return by_heart(QuestionTask, examples, **WINDOWS, with_null=with_null)


def on_features(folder):
    training = TrainingOptions(variant="weighted_sum_all", lstm_units=64)
    return by_heart(TaggingTask, random_sentences(64), folder=str(folder), training=training)


_EXHAUSTIVE = pytest.mark.exhaustive


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "epochs"),
    [
        pytest.param(lambda _: texts("classification"), 60, id="classification"),
        pytest.param(lambda _: texts("multilabel"), 60, id="multilabel", marks=_EXHAUSTIVE),
        pytest.param(lambda _: texts("regression"), 60, id="regression", marks=_EXHAUSTIVE),
        pytest.param(lambda _: by_heart(TaggingTask, random_sentences(64)), 60, id="tagging"),
        pytest.param(on_features, 100, id="frozen features"),
        pytest.param(lambda _: by_heart(ChoiceTask, random_choices(64)), 60, id="choices"),
        pytest.param(lambda _: questions(False), 40, id="squad 1.1", marks=_EXHAUSTIVE),
        pytest.param(lambda _: questions(True), 40, id="squad 2.0"),
    ],
)
def test_64_examples_are_learned_by_heart(make, epochs, tmp_path):
    task = make(tmp_path)
    keras.utils.set_random_seed(0)
    model = task.model_class(CONFIG, **task.model_arguments)
    encoder = [weight.numpy() for weight in model.encoder.weights]
    fit(task, model, epochs=epochs)
    found = task.evaluate(inference(model), "again")
    assert found.scores[task.headline] >= (95 if isinstance(task, QuestionTask) else 0.95)
    assert not found.constant
    same = map(np.array_equal, encoder, model.encoder.weights)
    assert all(same) == (task.training.variant is not None)


# === Published examples: what is written has the scores that are reported ===


def codah(folder):
    items = read_codah(str(folder / "multiple_choice" / "codah.tsv")).items
    train, dev = examples_of(items[:96]), examples_of(items[200:240])
    return ChoiceTask("codah", train, {"dev": dev, "train": train}, {"test": dev})


def conll(folder):
    archive = folder / "ner" / "conll2002.zip" / "conll2002"
    train = read_conll(f"{archive}/esp.train")
    train = examples_of(train.items[:200], train.labels)
    dev = read_conll(f"{archive}/esp.testa", labels=train.labels)
    dev = examples_of(dev.items[:100], train.labels)
    return TaggingTask("ner", train, {"dev": dev, "train": train}, {"test": dev})


def squad(folder):
    data = examples_of(read_squad(str(folder / "squad" / "half-dev-v2.0.json.gz")).items[:48])
    return QuestionTask("squad", data, {"dev": data, "train": data}, {"test": data}, with_null=True)


def codahs_accuracy(path, items):
    rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()[1:]]
    return np.mean([int(row[1]) == item.label for row, item in zip(rows, items, strict=True)])


def conlls_f1(path, items):
    sentences = read_columns(path)
    assert [[row[0] for row in rows] for rows in sentences] == [[*item.words] for item in items]
    true, predicted = ([[row[at] for row in rows] for rows in sentences] for at in (1, 2))
    return entity_scores(true, predicted).overall.f1


def squads_f1(path, items):
    gold = {item.id: tuple(answer.text for answer in item.answers) for item in items}
    predictions = json.loads(pathlib.Path(path).read_text())
    return score_predictions(SquadReferences(gold, "2.0"), predictions).to_dict()["f1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "vocabulary", "length", "epochs", "fall", "least", "score"),
    [
        (codah, "bert-base-uncased", 48, 8, 0.8, 0.5, codahs_accuracy),
        (conll, "bert-base-multilingual-cased", 64, 12, 0.5, 0.5, conlls_f1),
        (squad, "bert-base-uncased", 256, 2, 1.0, 0, squads_f1),
    ],
)
def test_published_examples(
    make, vocabulary, length, epochs, fall, least, score, data_dir, tmp_path
):
    task = make(data_dir)
    vocab = (data_dir / "vocab" / f"{vocabulary}.txt").read_text().splitlines()
    tokenizer = BertTokenizer(vocab, do_lower_case=vocabulary.endswith("uncased"))
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(CONFIG, vocab_size=len(vocab), max_position_embeddings=256)
    model = task.model_class(config, **task.model_arguments)
    losses = fit(task, model, tokenizer=tokenizer, epochs=epochs, max_seq_length=length)
    assert losses[-1] < fall * losses[0]
    run = inference(model, tokenizer=tokenizer, max_seq_length=length, batch_size=32)
    assert task.evaluate(run, "train").scores[task.headline] >= least
    found = task.evaluate(run, "dev")
    path, *_ = task.write_predictions(run, "test", str(tmp_path), found.thresholds)
    written = score(path, task._sets["test"].items)
    assert found.scores[task.headline] == pytest.approx(written)
