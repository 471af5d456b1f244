import dataclasses
import functools
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.answering import served
from bert_tf.answering.served import traced_once, untraced
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.saved_models import ExportOptions
from bert_tf.tasks.signatures import model_signatures

WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "un", "##able", "##s", ".", "!", "[", "]"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "mask", "cls"]
CONFIG = BertConfig(
    # Four more embeddings than pieces in the vocabulary.
    vocab_size=len(VOCAB) + 4,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
    initializer_range=0.5,
)
# Two rows, one with padding.
INPUTS = {
    "input_word_ids": tf.constant([[2, 5, 7, 3, 0], [2, 8, 9, 6, 3]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]),
}
# One block is enough, because all are saved in the same way.
SMALL = dataclasses.replace(CONFIG, num_hidden_layers=1)


@functools.cache
def _cached_model(model_class, config, **arguments):
    random.seed(5)
    model = model_class(config, **arguments)
    return model, model.get_weights()


def make(model_class, config=SMALL, **arguments):
    """Returns a reproducible small model, which is cached and reset for each call."""
    model, weights = _cached_model(model_class, config, **arguments)
    model.set_weights(weights)
    model.labels, model.multi_label, model.thresholds = (), False, {}
    model.preprocessor = None
    return model


@functools.cache
def traced_tokenizer():
    """Returns a tokenizer whose graphs are traced once per process."""
    return traced_once(BertTokenizer(VOCAB))


def serve(model, max_seq_length=16, *, call=None, **options):
    """Returns a served model, optionally with stub outputs from ``call``."""
    served_model = untraced(model, traced_tokenizer(), ExportOptions(**options))
    call = call or served_model.call
    return dataclasses.replace(served_model, max_seq_length=max_seq_length, call=call)


def copied(model, **options):
    """Returns a model served as in ``export``."""
    return served.serve(model, traced_tokenizer(), ExportOptions(**options))


def trace(function, inputs):
    """Returns a concrete function, as in an export."""
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in inputs.items()}
    return tf.function(function, autograph=False).get_concrete_function(**specs)


def features_of(ids, types=None):
    """Returns the features of one row without padding, or of several of equal length."""
    ids = tf.constant(ids if isinstance(ids[0], list) else [ids])
    types = tf.zeros_like(ids) if types is None else tf.constant([types])
    return {"input_word_ids": ids, "input_mask": tf.ones_like(ids), "input_type_ids": types}


def softmax(logits):
    exponentials = np.exp(logits - np.max(logits, -1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def texts_of(values):
    """Converts an array of bytes to nested lists of strings."""
    return np.vectorize(bytes.decode, otypes=[object])(values).tolist() if values.size else []


def assert_same(received, expected, atol=1e-6):
    """Compares two dicts of tensors or arrays."""
    assert set(received) == set(expected)
    for key, value in received.items():
        value, wanted = np.asarray(value), np.asarray(expected[key])
        assert value.dtype == wanted.dtype, key
        if value.dtype.kind == "f":
            np.testing.assert_allclose(value, wanted, atol=atol, err_msg=key)
        else:
            np.testing.assert_array_equal(value, wanted, err_msg=key)


def ask(head, served, **inputs):
    """Calls a signature, given by name or function, eagerly with lists of strings or tensors."""
    if isinstance(head, str):
        function = model_signatures(served)[head].function
        head = lambda _, **tensors: function(**tensors)  # noqa: E731
    tensors = {
        name: value if tf.is_tensor(value) else tf.constant(value, tf.string)
        for name, value in inputs.items()
    }
    answers = head(served, **tensors)
    return {name: value.numpy() for name, value in answers.items() if name != "invalid_utf8"}


@pytest.fixture(scope="session")
def tokenizer():
    return BertTokenizer(VOCAB)


@pytest.fixture(scope="session")
def model():
    return make(BertPretrainer)
