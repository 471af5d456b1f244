"""Training and prediction of long texts, compared with plain loops over their windows."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.task import evaluate, outputs

from .small_tasks import (
    IDS,
    LABELS,
    TOKENIZER,
    VOCAB,
    WORDS,
    StandIn,
    examples_of,
    inference,
    random_labels,
    text_task,
    texts_with,
)

FORMS = ("head", "head_tail", "windows")
LENGTH = 8  # six tokens of text; windows begin every four tokens


def rows_of(form, words):
    ids, room = [IDS[word] for word in words], LENGTH - 2
    if len(ids) <= room or form == "head":
        return [ids[:room]]
    if form == "head_tail":
        return [[*ids[:1], *ids[1 - room :]]]
    starts = [*range(0, len(ids) - room, 4), len(ids) - room]
    return [ids[start : start + room] for start in starts]


def by_plain_loop(model, form, words):
    """Returns the mean of the logits of each window, computed separately."""
    outputs = []
    for row in rows_of(form, words):
        ids = tf.constant([[IDS["[CLS]"], *row, IDS["[SEP]"]]])
        inputs = {"input_word_ids": ids, "input_mask": 0 * ids + 1, "input_type_ids": 0 * ids}
        outputs.append(model(inputs, training=False)[0].numpy())
    return np.mean(outputs, 0)


def long_items(labels):
    rng = np.random.default_rng(3)
    lengths = [1, 6, 7, 10, 11, 23, 17]
    texts = [" ".join(rng.choice(WORDS, length)) for length in lengths]
    items = texts_with(labels)
    return [dataclasses.replace(i, text_a=text) for i, text in zip(items, texts, strict=True)]


def order_sensitive_model(*outputs):
    """A stand-in whose outputs are nonlinear in the words and their positions."""
    table = np.random.default_rng(4).normal(size=(len(VOCAB), *outputs)).astype(np.float32)

    def compute(inputs):
        ids, mask = inputs["input_word_ids"], tf.cast(inputs["input_mask"], tf.float32)
        position_weights = mask / tf.range(1.0, 1.0 + tf.cast(tf.shape(ids)[1], tf.float32))
        return tf.tanh(tf.einsum("bs,bs...->b...", position_weights, tf.gather(table, ids)))

    return StandIn(compute)


SUMMARIES = {"head": "and are truncated.", "head_tail": "their middle is ignored.",
        "windows": "and are read in up to 16 windows."}  # fmt: skip


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_outputs_and_losses_equal_plain_loop(kind):
    items = long_items(random_labels(kind, 7))
    data = examples_of(items, LABELS if kind == "classification" else ())
    model = order_sensitive_model(*() if kind == "regression" else (3,))
    for form in FORMS:
        task = text_task("own", data, {"dev": data}, {}, kind=kind, long_text=form)
        expected = [by_plain_loop(model, form, item.text_a.split()) for item in items]
        how = inference(model, max_seq_length=LENGTH)
        np.testing.assert_allclose(outputs(task, how, "dev"), expected, atol=1e-5)
        # Training uses the loss of the mean logits, and reports it over the data set.
        loss = evaluate(task, how, "dev", {}).scores["loss"]
        if kind == "classification":
            logs = tf.nn.log_softmax(np.array(expected)).numpy()
            ids = [LABELS.index(item.label) for item in items]
            assert loss == pytest.approx(-logs[np.arange(7), ids].mean(), rel=1e-4)
        else:
            labels = np.array([item.label for item in items])
            assert loss == pytest.approx(np.mean((labels - expected) ** 2), rel=1e-4)
        rows = task.training_examples(TOKENIZER, LENGTH)
        assert task.training_summary(rows)[1].endswith(SUMMARIES[form]) and rows.num_too_long == 5
        assert task.saved_options(task.options) == {"long_text": form}
