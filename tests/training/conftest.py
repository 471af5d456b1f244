"""A small pre-training model with the library's inputs and outputs, and random batches for it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.training import optimizers
from bert_tf.training.schedules import WarmupLinearDecay

VOCABULARY, HIDDEN, SEQUENCE, PREDICTIONS = 11, 8, 6, 3


def small_model(dropout: float = 0.0, *, nsp: bool = True) -> keras.Model:
    """A BERT without attention: embeddings, dropout, a dense layer, LayerNorm and two heads."""
    layers, normal = keras.layers, keras.initializers.RandomNormal(stddev=0.5, seed=0)
    sizes = dict.fromkeys(features.ENCODER_FEATURES, SEQUENCE)
    sizes[features.MASKED_LM_POSITIONS] = PREDICTIONS
    inputs = {key: keras.Input((size,), dtype="int32", name=key) for key, size in sizes.items()}
    words, types = (
        layers.Embedding(rows, HIDDEN, embeddings_initializer=normal, name=name)(inputs[key])
        for rows, name, key in (
            (VOCABULARY, "word", features.INPUT_WORD_IDS),
            (2, "type", features.INPUT_TYPE_IDS),
        )
    )
    hidden = layers.Dropout(dropout, name="dropout")(words + types)
    hidden = layers.Dense(HIDDEN, "gelu", kernel_initializer=normal, name="dense")(hidden)
    hidden = layers.LayerNormalization(name="norm")(hidden)
    mask = keras.ops.cast(keras.ops.expand_dims(inputs[features.INPUT_MASK], -1), "float32")
    pooled = keras.ops.sum(hidden * mask, axis=1)
    # Through the pooled state, a masked token has access to the rest of the text.
    positions = keras.ops.expand_dims(inputs[features.MASKED_LM_POSITIONS], -1)
    predicted = keras.ops.take_along_axis(hidden, positions, axis=1)
    predicted = predicted + keras.ops.expand_dims(pooled, 1)
    predicted = layers.Dropout(dropout, name="head_dropout")(predicted)
    head = layers.Dense(VOCABULARY, kernel_initializer=normal, name="masked_lm")
    outputs = {features.MASKED_LM_LOGITS: head(predicted)}
    if nsp:
        head = layers.Dense(2, kernel_initializer=normal, name="next_sentence")
        outputs[features.NEXT_SENTENCE_LOGITS] = head(pooled)
    return keras.Model(inputs, outputs, name="small")


def bert(
    vocabulary: int = VOCABULARY, dropout: float = 0.0, layers: int = 1, causal: bool = False
) -> keras.Model:
    """Returns a small BERT with the same weights on every call."""
    keras.utils.set_random_seed(3)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=8, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, initializer_range=0.5, is_decoder=causal,
    )  # fmt: skip
    return BertPretrainer(config)


def random_batch(seed: int, rows: int = 8) -> dict[str, np.ndarray]:
    """Returns a batch whose examples differ in their numbers of tokens and predictions."""
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
    """Returns a dataset of ``num_batches`` batches; batch i is ``random_batch(first + i)``."""
    batches = [random_batch(first + index, rows) for index in range(num_batches)]
    stacked = {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}
    return tf.data.Dataset.from_tensor_slices(stacked)


def make_loop(model, *, peak=1e-2, seed=1, **options) -> PretrainingLoop:
    """Returns a loop of Adam whose learning rate warms up for 2 of 20 steps."""
    schedule = WarmupLinearDecay(peak, warmup_steps=2, total_steps=20)
    optimizer = optimizers.create_optimizer("adam", schedule, model.trainable_variables)
    return PretrainingLoop(model, optimizer, tf.distribute.get_strategy(), seed=seed, **options)


def state_resetter(loop):
    """Returns a function that resets a loop to its current state, so that it is traced once."""
    values = {name: v.numpy() for name, v in loop.state().items()}

    def reset():
        for name, variable in loop.state().items():
            variable.assign(values[name])

    return reset


@pytest.fixture
def fresh_names():
    """Clears Keras' session, which numbers equal names, as in a restarted process."""
    keras.utils.clear_session()
