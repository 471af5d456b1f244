"""What the tests of tasks share: a vocabulary of words, a tiny model, training, stand-ins."""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.examples import Examples

WORDS = [f"{letter}{number}" for letter in "abcdefgh" for number in range(5)]
VOCAB = [*SPECIAL_TOKENS, *WORDS, "##s", "##t"]
TOKENIZER = BertTokenizer(VOCAB)
IDS = {token: number for number, token in enumerate(VOCAB)}
CONFIG = BertConfig(
    vocab_size=len(VOCAB),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.1,
)


def examples_of(items, labels=()):
    return Examples(list(items), tuple(labels), [])


def fit(task, model, *, epochs, tokenizer=TOKENIZER, learning_rate=3e-3, max_seq_length=32):
    """Trains on the task's training set as the command does; returns the epochs' losses."""
    rows = task.training_examples(tokenizer, max_seq_length)
    model.compile(optimizer=keras.optimizers.Adam(learning_rate), **task.compile_arguments())
    history = model.fit(
        rows.training_batches(16, epochs=epochs),
        epochs=epochs,
        steps_per_epoch=rows.num_batches(16),
        shuffle=False,
        verbose=0,
    )
    return history.history["loss"]


class StandIn:
    """A model whose outputs are a function of its features, and that counts its traces."""

    def __init__(self, compute):
        self._compute = compute
        self.traces = 0

    def __call__(self, inputs, training):
        assert training is False
        self.traces += 1
        return self._compute(inputs)


def by_token(scores):
    """(B, S) token ids to the scores, floats, that they have in a dict by token; 0 elsewhere."""
    table = tf.constant([float(scores.get(token, 0.0)) for token in VOCAB])
    return lambda inputs: tf.gather(table, inputs["input_word_ids"])
