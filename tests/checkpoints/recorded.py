"""What other libraries computed with their own models, recorded beside their checkpoints."""

import pathlib

import numpy as np
from keras import ops

from bert_tf import features
from bert_tf.config import BertConfig

DATA = pathlib.Path(__file__).parent / "data"
# What the recorded models were made with.
CONFIG = BertConfig(
    vocab_size=25,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.2,
    max_position_embeddings=16,
    type_vocab_size=3,
)


def assert_as_recorded(model, folder, names=None, atol=1e-5):
    """Runs a model on the inputs of ``outputs.npz`` and compares all that it records.

    Args:
        model: of this library.
        folder: where ``outputs.npz`` lies.
        names: this library's names of its arrays, where they differ; a model with one output
            gives it as ``logits``.
        atol: the largest difference allowed.
    """
    with np.load(folder / "outputs.npz") as file:
        recorded = {(names or {}).get(name, name): file[name] for name in file.files}
    outputs = model({name: recorded[name] for name in model.input})
    found = dict(outputs) if isinstance(outputs, dict) else {"logits": outputs}
    encoder = getattr(model, "encoder", model)
    found.update(encoder({name: recorded[name] for name in encoder.input}))
    compared = set(recorded) - set(features.ENCODER_FEATURES) - {features.MASKED_LM_POSITIONS}
    assert compared
    for name in compared:
        value = ops.convert_to_numpy(found[name])
        expected = recorded[name].reshape(value.shape)
        np.testing.assert_allclose(value, expected, rtol=0, atol=atol, err_msg=name)


def assert_every_tensor_is_as_described(checkpoint, shapes):
    """Each of a model's tensors is there, and is when read what was said of it before."""
    assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == shapes
    for tensor in checkpoint.tensors.values():
        value = tensor.read()
        assert (value.shape, value.dtype.name) == (tensor.shape, tensor.dtype)
