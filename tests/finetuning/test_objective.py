"""A batch in micro-batches has the loss and gradients of the full batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.finetuning.objective import TaskObjective
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.optimizers import create_optimizer


def _outcome(num_micro_batches, words, jit_compile=False):
    """Returns the gradients and loss of examples with the given numbers of tagged words."""
    keras.utils.set_random_seed(2)
    ids = keras.Input((4,), dtype="int32", name=features.INPUT_WORD_IDS)
    states = keras.layers.Embedding(9, 3)(ids)
    model = keras.Model({features.INPUT_WORD_IDS: ids}, keras.layers.Dense(5)(states))
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=features.NO_LABEL
        )
    )
    optimizer = create_optimizer("adam", 0.1, model.trainable_variables)
    loop = TrainingLoop(
        *(model, optimizer, tf.distribute.get_strategy()),
        TaskObjective(model, TaggingTask.loss_weight),
        seed=0,
        gradient_accumulation_steps=num_micro_batches,
        clip_norm=1e9,
        jit_compile=jit_compile,
    )
    rng = np.random.default_rng(1)
    targets = rng.integers(0, 5, (len(words), 4))
    targets[np.arange(4) >= np.array(words)[:, None]] = features.NO_LABEL
    batch = {
        "rows": {features.INPUT_WORD_IDS: tf.constant(rng.integers(0, 9, targets.shape))},
        "targets": tf.constant(targets, tf.int32),
        features.CURSOR: tf.constant([[0, 0, 0, len(words) - 1]]),
    }
    # As in the loop's graph, only XLA knows the number of examples.
    specs = tf.nest.map_structure(
        lambda value: tf.TensorSpec([None, *value.shape[1:]], value.dtype), batch
    )
    step = tf.function(loop.replica_step.reduce, [specs], jit_compile=jit_compile, autograph=False)
    gradients, (sums, *_) = step(batch)
    return [gradient.numpy() for gradient in gradients], sums.numpy()[0]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("words", [[4, 1, 0, 0], [4, 3, 1, 2, 4], [1]])
def test_micro_batches_are_weighted_by_tagged_words(words, jit_compile):
    """With XLA all micro-batches have one size: 4 examples form 2 of 2, and 5 examples 5 of 1."""
    full_batch, loss = _outcome(1, words)
    gradients, accumulated_loss = _outcome(3, words, jit_compile)
    assert accumulated_loss == pytest.approx(loss, rel=1e-6)
    for ours, theirs in zip(gradients, full_batch, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
