"""Tagging is trained as it is meant to be, and learns."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.tagging import TaggingTask
from bert_tf.modeling import BertTokenClassifier
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.conll import read_conll
from bert_tf.tasks.entities import entity_scores
from bert_tf.tasks.examples import TaggedExample

from .small_sentences import LABELS, random_examples, read_columns
from .small_tasks import (
    CONFIG,
    TOKENIZER,
    WORDS,
    compile_for_fit,
    examples_of,
    fit,
    inference,
)


def test_the_loss_is_the_words_mean_in_fit():
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(CONFIG, initializer_range=0.5)
    model = BertTokenClassifier(config, num_classes=len(LABELS))
    examples = random_examples(12, longest=24)
    task = TaggingTask("ner", examples, {}, {})
    rows = task.training_examples(TOKENIZER, 16)
    batch_losses = []
    for batch, labels in rows.training_batches(6, seed=2):
        logs = tf.nn.log_softmax(model(batch, training=False)).numpy()
        labels = labels.numpy()
        assert np.any(labels == -1)
        batch_losses.append(
            np.mean(
                [
                    -logs[place][labels[place]]
                    for place in np.ndindex(labels.shape)
                    if labels[place] >= 0
                ]
            )
        )
    compile_for_fit(model, keras.optimizers.SGD(0.0), task)
    seen = []
    model.fit(
        rows.training_batches(6, seed=2),
        verbose=0,
        shuffle=False,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_train_batch_begin=lambda batch, logs: model.reset_metrics(),
                on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]),
            )
        ],
    )
    np.testing.assert_allclose(seen, batch_losses, rtol=1e-5)


def test_what_there_is_to_train_on_in_words():
    items = [
        TaggedExample(str(number), tuple(WORDS[:count]), ("O",) * count, number)
        for number, count in enumerate((3, 14, 30))
    ]
    task = TaggingTask("ner", examples_of(items, LABELS), {}, {})
    rows = task.training_examples(TOKENIZER, 16)
    assert len(rows) > 3
    assert task.training_lines(rows) == [
        f"3 sentences in {len(rows)} rows",
        "1 of the training sentences are read in several rows of 16 tokens (--max_seq_length).",
    ]
    assert task.training_lines(task.training_examples(TOKENIZER, 32)) == ["3 sentences in 3 rows"]


@pytest.mark.slow
def test_overfits():
    examples = random_examples(64)
    task = TaggingTask("ner", examples, {"train_again": examples}, {})
    keras.utils.set_random_seed(0)
    model = BertTokenClassifier(CONFIG, num_classes=len(LABELS))
    losses = fit(task, model, epochs=60)
    assert losses[0] > 1.0 > losses[-1]
    assert task.evaluate(inference(model), "train_again").scores["f1"] >= 0.95


@pytest.mark.slow
def test_conll_2002_trains(data_dir, tmp_path):
    archive = data_dir / "ner" / "conll2002.zip" / "conll2002"
    vocab = (data_dir / "vocab" / "bert-base-multilingual-cased.txt").read_text().splitlines()
    tokenizer = BertTokenizer(vocab, do_lower_case=False)
    train = read_conll(f"{archive}/esp.train")
    train = examples_of(train.items[:200], train.labels)
    dev = read_conll(f"{archive}/esp.testa", labels=train.labels)
    dev = examples_of(dev.items[:100], train.labels)
    task = TaggingTask("ner", train, {"dev": dev, "train_again": train}, {"test": dev})
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(CONFIG, vocab_size=len(vocab))
    model = BertTokenClassifier(config, num_classes=len(task.labels))
    losses = fit(task, model, tokenizer=tokenizer, epochs=12, max_seq_length=64)
    assert losses[-1] < 0.5 * losses[0]
    run = inference(model, tokenizer=tokenizer, max_seq_length=64, batch_size=32)
    trained = task.evaluate(run, "train_again")
    assert trained.scores["f1"] > 0.5
    found = task.evaluate(run, "dev")
    (path,) = task.write_predictions(run, "test", str(tmp_path), found.thresholds)
    sentences = read_columns(path)
    assert [[row[:2] for row in rows] for rows in sentences] == [
        [list(pair) for pair in zip(item.words, item.tags, strict=True)] for item in dev.items
    ]
    written = entity_scores(
        [[row[1] for row in rows] for rows in sentences],
        [[row[2] for row in rows] for rows in sentences],
    )
    assert written.overall.f1 == pytest.approx(found.scores["f1"])
