"""A small pre-training model with the library's inputs and outputs, and random batches for it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.training import optimizers
from bert_tf.training.schedules import WarmupLinearDecay

VOCABULARY, HIDDEN, SEQUENCE, PREDICTIONS = 11, 8, 6, 3


def small_model(dropout: float = 0.0, *, nsp: bool = True, seed: int = 0) -> keras.Model:
    """Embeddings, dropout, a dense layer, LayerNorm and two heads: a BERT without attention."""
    inputs = {
        key: keras.Input(
            (PREDICTIONS if key == features.MASKED_LM_POSITIONS else SEQUENCE,),
            dtype="int32",
            name=key,
        )
        for key in (*features.ENCODER_FEATURES, features.MASKED_LM_POSITIONS)
    }

    def initializer(offset):
        return keras.initializers.RandomNormal(stddev=0.5, seed=seed + offset)

    hidden = keras.layers.Embedding(
        VOCABULARY, HIDDEN, embeddings_initializer=initializer(0), name="word"
    )(inputs[features.INPUT_WORD_IDS])
    hidden += keras.layers.Embedding(2, HIDDEN, embeddings_initializer=initializer(1), name="type")(
        inputs[features.INPUT_TYPE_IDS]
    )
    hidden = keras.layers.Dropout(dropout, name="dropout")(hidden)
    hidden = keras.layers.Dense(
        HIDDEN, activation="gelu", kernel_initializer=initializer(2), name="dense"
    )(hidden)
    hidden = keras.layers.LayerNormalization(name="norm")(hidden)
    mask = keras.ops.cast(keras.ops.expand_dims(inputs[features.INPUT_MASK], -1), "float32")
    pooled = keras.ops.sum(hidden * mask, axis=1)
    # A masked token sees the sentence through the pooled state, as attention would let it.
    positions = keras.ops.expand_dims(inputs[features.MASKED_LM_POSITIONS], -1)
    predicted = keras.ops.take_along_axis(hidden, positions, axis=1)
    predicted = predicted + keras.ops.expand_dims(pooled, 1)
    predicted = keras.layers.Dropout(dropout, name="head_dropout")(predicted)
    outputs = {
        features.MASKED_LM_LOGITS: keras.layers.Dense(
            VOCABULARY, kernel_initializer=initializer(3), name="masked_lm"
        )(predicted)
    }
    if nsp:
        outputs[features.NEXT_SENTENCE_LOGITS] = keras.layers.Dense(
            2, kernel_initializer=initializer(4), name="next_sentence"
        )(pooled)
    return keras.Model(inputs, outputs, name="small")


def random_batch(seed: int, rows: int = 8) -> dict[str, np.ndarray]:
    """A batch whose rows hold different numbers of tokens and of predictions."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, SEQUENCE + 1, rows)
    mask = (np.arange(SEQUENCE) < lengths[:, None]).astype(np.int32)
    counts = random.integers(1, PREDICTIONS + 1, rows)
    weights = (np.arange(PREDICTIONS) < counts[:, None]).astype(np.float32)
    return {
        features.INPUT_WORD_IDS: random.integers(1, VOCABULARY, mask.shape, np.int32) * mask,
        features.INPUT_MASK: mask,
        features.INPUT_TYPE_IDS: random.integers(0, 2, mask.shape, np.int32) * mask,
        features.MASKED_LM_POSITIONS: random.integers(0, 3, weights.shape, np.int32),
        features.MASKED_LM_IDS: random.integers(1, VOCABULARY, weights.shape, np.int32)
        * weights.astype(np.int32),
        features.MASKED_LM_WEIGHTS: weights,
        features.NEXT_SENTENCE_LABELS: random.integers(0, 2, rows, np.int32),
        features.CURSOR: np.stack(
            [np.zeros(rows), np.full(rows, seed), np.arange(rows)], axis=1
        ).astype(np.int32),
    }


def batches_dataset(num_batches: int, rows: int = 8, first: int = 0) -> tf.data.Dataset:
    """``num_batches`` different batches; batch i is ``random_batch(first + i)``."""
    batches = [random_batch(first + index, rows) for index in range(num_batches)]
    stacked = {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}
    return tf.data.Dataset.from_tensor_slices(stacked)


def make_loop(model, *, peak=1e-2, seed=1, **options) -> PretrainingLoop:
    """A loop of Adam at a rate that warms up for two of twenty steps."""
    schedule = WarmupLinearDecay(peak, warmup_steps=2, total_steps=20)
    optimizer = optimizers.create_optimizer("adam", schedule, model.trainable_variables)
    return PretrainingLoop(model, optimizer, tf.distribute.get_strategy(), seed=seed, **options)


def starting_over(loop):
    """Gives what puts a loop back to where it is now: it is traced once for several runs."""
    values = {name: v.numpy() for name, v in loop.state().items()}

    def again():
        for name, variable in loop.state().items():
            variable.assign(values[name])

    return again


@pytest.fixture
def fresh_names():
    """Keras numbers equal names within a session; a restarted process starts over."""
    keras.utils.clear_session()
