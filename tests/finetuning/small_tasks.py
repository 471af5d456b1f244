"""What the tests of tasks share: a vocabulary of words, a tiny model, training, stand-ins."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.kinds import KINDS
from bert_tf.finetuning.task import Inference
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.tasks.examples import Examples, TextExample

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


def inference(model, *, tokenizer=TOKENIZER, max_seq_length=32, batch_size=4):
    """How the tests run a model on a data set."""
    return Inference(model, tokenizer, max_seq_length, batch_size)


def compile_for_fit(model, optimizer, task):
    """As the command does: XLA, which is Keras' default, would compile each new width."""
    model.compile(optimizer=optimizer, jit_compile=False, **task.compile_arguments)


def fit(task, model, *, epochs, tokenizer=TOKENIZER, learning_rate=3e-3, max_seq_length=32):
    """Trains on the task's training set as the command does; returns the epochs' losses."""
    rows = task.training_examples(tokenizer, max_seq_length)
    compile_for_fit(model, keras.optimizers.Adam(learning_rate), task)
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


def by_first_word(table):
    """A model whose output for a text is that of its first word, 0 for other words."""
    width = np.shape(next(iter(table.values())))
    values = np.zeros([len(VOCAB), *width], np.float32)
    for word, output in table.items():
        values[IDS[word]] = output
    values = tf.constant(values)
    return StandIn(lambda inputs: tf.gather(values, inputs["input_word_ids"][:, 1]))


def items_of(table):
    """A text that begins with the word, for each word; their lengths differ."""
    return [
        TextExample(f"id{number}", " ".join([word, *WORDS[: 7 * number % 5]]), None, label)
        for number, (word, label) in enumerate(table.items())
    ]


def text_task(*sets, kind="classification", **options):
    """The task of a kind of texts."""
    return KINDS[kind].task_class(*sets, **options)
