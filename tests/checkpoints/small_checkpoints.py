"""In-memory checkpoints of every model with random weights, and comparisons of weights."""

import dataclasses

import numpy as np

from bert_tf.checkpoints import conversion
from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec, StoredTensor, Tokenization
from bert_tf.checkpoints.weights import expected_shapes
from bert_tf.config import BertConfig
from bert_tf.modeling import (
    BertClassifier,
    BertEncoder,
    BertFeatureTagger,
    BertMultipleChoice,
    BertPretrainer,
    BertRegressor,
    BertSpanPredictor,
    BertTokenClassifier,
)
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS

# No value equals its default, so that a setting that is not stored is detected.
CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.3,
    max_position_embeddings=12,
    type_vocab_size=3,
    initializer_range=0.05,
    layer_norm_eps=1e-5,
)
# One layer suffices for tests that build models.
SMALL = dataclasses.replace(CONFIG, num_hidden_layers=1)
PIECES = (*SPECIAL_TOKENS, "a", "Cat", "cat", "sat", "##s", "un", "##able", ".", "é", "中")
CASED, UNCASED = Tokenization(PIECES, False), Tokenization(PIECES, True)

MODELS = {
    "encoder": ModelSpec(BertEncoder, {"pooler": True}),
    "encoder without pooler": ModelSpec(BertEncoder, {"pooler": False}),
    "pretrainer": ModelSpec(BertPretrainer, {"mlm": True, "nsp": True, "pooler": True}),
    "masked lm": ModelSpec(BertPretrainer, {"mlm": True, "nsp": False, "pooler": False}),
    "next sentence": ModelSpec(BertPretrainer, {"mlm": False, "nsp": True, "pooler": True}),
    "classifier": ModelSpec(BertClassifier, {"num_classes": 3, "dropout": 0.4}),
    "classifier of one": ModelSpec(BertClassifier, {"num_classes": 1}),
    "regressor": ModelSpec(BertRegressor, {"dropout": 0.0}),
    "token classifier": ModelSpec(BertTokenClassifier, {"num_classes": 4, "pooler": False}),
    "span predictor": ModelSpec(BertSpanPredictor, {"pooler": False}),
    "multiple choice": ModelSpec(BertMultipleChoice, {"dropout": 0.5}),
}

# Models that the formats of other libraries cannot store.
BERT_TF_ONLY = {
    "multiple choice by the mean": ModelSpec(
        BertMultipleChoice, {"dropout": 0.5, "pooling": "mean"}
    ),
    "feature tagger": ModelSpec(
        BertFeatureTagger, {"num_classes": 3, "variant": "last", "lstm_units": 5, "dropout": 0.4}
    ),
    "feature tagger of a sum": ModelSpec(
        BertFeatureTagger, {"num_classes": 2, "variant": "weighted_sum_all", "lstm_units": 3}
    ),
}


def stored(name, array):
    return StoredTensor(name, array.shape, array.dtype.name, lambda: array)


def make_checkpoint(spec, config=CONFIG, *, dtype="float32", seed=0, **fields):
    """Creates a complete checkpoint with a standard deviation of 0.5 and a mean gamma of 1."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in expected_shapes(config, spec).items():
        values = random.normal(size=shape) * 0.5 + name.endswith("gamma")
        tensors[name] = stored(name, values.astype(dtype))
    return Checkpoint("memory", "none", config, spec, tensors, **fields)


def write(checkpoint, form, folder, name="m"):
    """Writes a checkpoint in a format into a folder and returns its path."""
    path = folder / name
    path.mkdir()
    conversion.write(checkpoint, str(path), form)
    return str(path)


def read_all(checkpoint):
    """Reads all tensors and checks their declared shapes and dtypes."""
    arrays = {}
    for name, tensor in checkpoint.tensors.items():
        arrays[name] = tensor.read()
        assert arrays[name].shape == tensor.shape, name
        assert arrays[name].dtype.name == tensor.dtype, name
    return arrays


def assert_bit_equal(arrays, expected):
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        other = expected[name].astype(array.dtype)
        assert array.shape == other.shape and array.tobytes() == other.tobytes(), name


def fused(arrays):
    """Concatenates query, key and value weights, as in a model's variables."""
    variables = {}
    for name, array in arrays.items():
        if "/attention/query/" in name:
            parts = [arrays[name.replace("query", part)] for part in ("query", "key", "value")]
            variables[name.replace("query", "query_key_value")] = np.concatenate(parts, -1)
        elif "/attention/key/" not in name and "/attention/value/" not in name:
            variables[name] = array
    return variables


def variables_of(model):
    """Returns a model's weights by path, without the model's name."""
    return {v.path.split("/", 1)[1]: np.array(v.value) for v in model.weights}
