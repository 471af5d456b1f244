"""Trainings are those of Keras' own ``fit``; a batch in parts has the gradients of the whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.checkpoints.checkpoint import ModelSpec
from bert_tf.checkpoints.weights import build_model
from bert_tf.finetuning.objective import TaskObjective
from bert_tf.finetuning.settings import flag_defaults
from bert_tf.tasks.tagging import TaggingTask
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.optimizers import create_optimizer
from tests import two_devices

from .small_tasks import CONFIG, TOKENIZER


def _outcome(parts, words):
    """Gradients, loss and tokens of rows that have so many tagged words each."""
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
        gradient_accumulation_steps=parts,
        clip_norm=1e9,
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classification", "tagging", "choices", "questions"])
def test_every_kind_is_trained_as_fit_trains_it_on_the_same_batches(name, tmp_path):
    trained, outputs = two_devices.train(name, tf.distribute.get_strategy(), tmp_path)
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    task = (two_devices.CASES | two_devices.MORE_CASES)[name](tmp_path)
    model = build_model(CONFIG, ModelSpec(task.model_class, dict(task.model_arguments)))
    before = {weight.path: weight.numpy() for weight in model.trainable_variables}
    examples = task.training_examples(TOKENIZER, 32)
    optimizer = keras.optimizers.SGD(two_devices.SGD_RATE)
    model.compile(optimizer, jit_compile=False, **task.compile_arguments)
    batches = examples.training_batches(
        two_devices.BATCH_SIZE, epochs=2, seed=flag_defaults()["seed"], length_multiple=1
    )
    steps = examples.num_batches(two_devices.BATCH_SIZE)
    model.fit(batches, epochs=2, steps_per_epoch=steps, shuffle=False, verbose=0)
    for weight in model.weights:
        np.testing.assert_allclose(
            trained[f"model/{weight.path}"], weight, rtol=0, atol=1e-5, err_msg=weight.path
        )
    moved = [path for path, value in before.items() if (trained[f"model/{path}"] != value).any()]
    assert {path for path in before if "pooler" not in path} <= {*moved} and moved
    assert len(outputs["predictions"]) == two_devices.NUM_EXAMPLES
