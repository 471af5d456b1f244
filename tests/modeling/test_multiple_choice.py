import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import BertMultipleChoice
from tests.modeling.conftest import TINY, encoder_batch, randomise, weights_by_path
from tests.modeling.numpy_bert import encode, head


def choice_batch(batch=2, choices=3, **kwargs):
    """(B, K, S): other lengths among one example's choices, and other ids."""
    rows = encoder_batch(batch=batch * choices, **kwargs)
    return {key: value.reshape(batch, choices, -1) for key, value in rows.items()}


def test_equals_plain_loops():
    model = randomise(BertMultipleChoice(TINY, dtype="float64"))
    batch = choice_batch()
    outputs = model(batch)
    assert outputs.shape == (2, 3)
    weights = weights_by_path(model)
    for b in range(2):
        for k in range(3):
            ids = (batch[key][b, k] for key in features.ENCODER_FEATURES)
            _, pooled = encode(weights, TINY, *ids)
            (expected,) = head(weights, "bert_multiple_choice/choice", pooled)
            np.testing.assert_allclose(outputs[b, k], expected, atol=1e-10)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_static_choices_flow_through_a_graph(jit_compile):
    model = randomise(BertMultipleChoice(TINY))
    batch = {key: tf.constant(value) for key, value in choice_batch().items()}
    run = tf.function(model, jit_compile=jit_compile)
    assert run.get_concrete_function(batch).structured_outputs.shape == (2, 3)
    np.testing.assert_allclose(run(batch), model(batch), atol=1e-5)


def test_open_choices_are_fitted():
    # Batches of 2 and of 4 choices, from a dataset whose shapes say neither K nor S.
    def examples():
        for index, choices in enumerate([2, 4]):
            yield choice_batch(choices=choices, sequence=5 + index), np.array([1, choices - 1])

    specs = {key: tf.TensorSpec((None, None, None), tf.int32) for key in features.CHOICE_FEATURES}
    dataset = tf.data.Dataset.from_generator(
        examples, output_signature=(specs, tf.TensorSpec((None,), tf.int32))
    )
    config = dataclasses.replace(TINY, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = randomise(BertMultipleChoice(config))
    losses, right = [], []
    for batch, answers in examples():
        logits = model(batch).numpy()
        chosen = logits[np.arange(2), answers]
        losses.append(np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen))
        right.append(np.mean(logits.argmax(axis=1) == answers))
    model.compile(
        keras.optimizers.SGD(1e-6),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    kernel = model.choice.kernel.numpy()
    history = model.fit(dataset, verbose=0).history
    assert history["loss"] == [pytest.approx(np.mean(losses), rel=1e-4)]
    assert history["accuracy"] == [pytest.approx(np.mean(right))]
    assert np.abs(model.choice.kernel.numpy() - kernel).max() > 0


def test_too_long_for_the_positions():
    model = BertMultipleChoice(TINY)
    assert model(choice_batch(sequence=12)).shape == (2, 3)
    assert model(choice_batch(choices=13)).shape == (2, 13)
    with pytest.raises(ValueError, match="of 13 tokens is longer than the 12 positions"):
        model(choice_batch(sequence=13))
