"""A batch in parts has the loss and the gradients of the whole, whatever its loss divides by."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.finetuning.objective import TaskObjective
from bert_tf.modeling import BertEncoder, seed_variables
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.tasks.inference import outputs_of
from bert_tf.tasks.similarity_losses import CosineOrder, InBatchNegatives
from bert_tf.tasks.tagging_task import TaggingTask
from bert_tf.tasks.task import Task
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.optimizers import create_optimizer
from bert_tf.training.step import dropout_seeds

from .small_tasks import CONFIG


def _outcome(parts, words):
    """Gradients, loss and tokens of rows that have so many tagged words each."""
    keras.utils.set_random_seed(2)
    ids = keras.Input((4,), dtype="int32", name=features.INPUT_WORD_IDS)
    states = keras.layers.Embedding(9, 3)(ids)
    model = keras.Model({features.INPUT_WORD_IDS: ids}, keras.layers.Dense(5)(states))
    model.compile(loss=TaggingTask.usual_loss)
    optimizer = create_optimizer("adam", 0.1, model.trainable_variables)
    loop = TrainingLoop(
        *(model, optimizer, tf.distribute.get_strategy()),
        TaskObjective(model, TaggingTask.loss_weight),
        seed=0,
        gradient_accumulation_steps=parts,
        clip_norm=None,
    )
    rng = np.random.default_rng(1)
    targets = rng.integers(0, 5, (len(words), 4))
    targets[np.arange(4) >= np.array(words)[:, None]] = features.NO_LABEL
    batch = {
        "rows": {features.INPUT_WORD_IDS: tf.constant(rng.integers(0, 9, targets.shape))},
        "targets": tf.constant(targets, tf.int32),
        features.CURSOR: tf.constant([[0, 0, 0, len(words) - 1]]),
    }
    gradients, (sums, *_) = loop.replica_step.reduce(batch)
    return [gradient.numpy() for gradient in gradients], sums.numpy()[0]


@pytest.mark.parametrize("words", [[4, 1, 0, 0], [4, 3, 1, 2, 4], [1]])
def test_parts_count_by_their_words(words):
    (whole, loss), (gradients, of_parts) = (_outcome(parts, words) for parts in (1, 3))
    assert of_parts == pytest.approx(loss, rel=1e-6)
    for ours, theirs in zip(gradients, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)


# === Losses that compare rows ===

SEED = 5


def encoder(loss, dropout=0.0):
    keras.utils.set_random_seed(4)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = BertEncoder(dataclasses.replace(CONFIG, **rates), pooler=False)
    model.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=32)
    model.compile(loss=loss)
    return model


def pairs(count):
    """Rows of two texts, their numbers (two are the same) and their scores."""
    rng = np.random.default_rng(count)
    ids = tf.constant(rng.integers(5, CONFIG.vocab_size, (count, 2, 6)), tf.int32)
    mask = tf.constant(np.arange(6) < rng.integers(3, 7, (count, 2, 1)), tf.int32)
    rows = dict(zip(features.ENCODER_FEATURES, (ids * mask, mask, mask * 0), strict=True))
    numbers = np.arange(2 * count).reshape(count, 2)
    numbers[-1, 1] = numbers[0, 1]
    return rows, {InBatchNegatives: numbers, CosineOrder: rng.random(count).astype(np.float32)}


def gradients_in(parts, model, rows, targets):
    """Gradients and loss as a training has them."""
    optimizer = create_optimizer("adam", 0.1, model.trainable_variables)
    loop = TrainingLoop(
        *(model, optimizer, tf.distribute.get_strategy()),
        TaskObjective(model, Task.loss_weight, compares_rows=True),
        seed=SEED,
        gradient_accumulation_steps=parts,
        clip_norm=None,
    )
    batch = {
        "rows": rows,
        "targets": tf.constant(targets),
        features.CURSOR: tf.zeros([1, 4], tf.int32),
    }
    gradients, (sums, *_) = loop.replica_step.reduce(batch)
    return [gradient.numpy() for gradient in gradients], sums.numpy()


@pytest.mark.parametrize("loss", [InBatchNegatives(both_ways=True), CosineOrder()])
def test_parts_have_the_negatives_of_the_whole_batch(loss):
    rows, labels = pairs(5)
    model = encoder(loss)
    whole, of_whole = gradients_in(1, model, rows, labels[type(loss)])
    assert max(np.abs(gradient).max() for gradient in whole) > 0.1
    gradients, sums = gradients_in(2, model, rows, labels[type(loss)])  # of 3 and of 2 rows
    np.testing.assert_allclose(sums, of_whole, rtol=1e-6)
    for ours, theirs in zip(gradients, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_both_passes_draw_the_same_masks():
    """Against one tape over all parts, each with the masks of its number."""
    rows, labels = pairs(4)
    loss = InBatchNegatives()
    model = encoder(loss, dropout=0.3)
    gradients, sums = gradients_in(2, model, rows, labels[InBatchNegatives])
    (generator,) = seed_variables(model)
    outputs = []
    with tf.GradientTape() as tape:
        for part in range(2):
            seeds = [(generator, dropout_seeds(SEED, 0, 0, part, 1)[0])]
            own = {key: value[2 * part : 2 * part + 2] for key, value in rows.items()}
            with keras.StatelessScope(state_mapping=seeds):
                outputs.append(outputs_of(model, own, training=True))
        value = loss(labels[InBatchNegatives], tf.concat(outputs, 0))
    assert sums[0] == pytest.approx(float(value), rel=1e-6)
    variables = [variable.value for variable in model.trainable_variables]
    for ours, theirs in zip(gradients, tape.gradient(value, variables), strict=True):
        np.testing.assert_allclose(ours, tf.convert_to_tensor(theirs), rtol=1e-5, atol=1e-5)
