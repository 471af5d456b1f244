"""The training loop of a model: precision and XLA by device."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pretraining.model import _configure_precision, build_loop
from bert_tf.training import distribution
from bert_tf.training.precision import set_precision
from tests.training.conftest import SEQUENCE, batches_dataset

from .commands import parse

CONFIG = BertConfig(
    vocab_size=11, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=SEQUENCE, initializer_range=0.3,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip


@pytest.fixture
def restored():
    yield
    set_precision("float32", "CPU")


@pytest.mark.parametrize(
    ("flag", "device", "compiles", "policy"),
    [
        ("auto", "CPU", False, "float32"),
        ("auto", "GPU", True, "mixed_bfloat16"),
        ("auto", "TPU", False, "mixed_bfloat16"),  # the complete step is compiled
        ("true", "CPU", True, "mixed_bfloat16"),
        ("true", "GPU", True, "mixed_bfloat16"),
        ("true", "TPU", False, "mixed_bfloat16"),
        ("false", "GPU", False, "mixed_bfloat16"),
        ("false", "CPU", False, "float32"),
    ],
)
def test_device_determines_compilation_and_precision(flag, device, compiles, policy, restored):
    settings, _ = parse(f"--jit_compile={flag}", "--precision=bfloat16")
    assert _configure_precision(settings, device) is compiles
    assert keras.config.dtype_policy().name == policy


def test_tpu_without_xla_raises_error():
    settings, _ = parse("--jit_compile=false")
    with pytest.raises(
        ValueError, match="^--jit_compile=false: a TPU only runs code compiled with XLA"
    ):
        _configure_precision(settings, "TPU")


def _trained(settings, devices):
    """Returns the weights after three steps, and whether XLA compiled the gradients."""
    keras.utils.clear_session()
    loop = build_loop(settings, CONFIG, devices)
    iterator = loop.distribute(batches_dataset(3))
    loop.make(iterator, 3)
    found = [variable.numpy() for variable in loop.model.trainable_variables]
    graph = loop._make.get_concrete_function(iterator, tf.constant(3)).graph
    compiled = any(
        function.cached_definition.attr["_XlaMustCompile"].b
        for function in graph._functions.values()
    )
    return found, compiled


@pytest.mark.slow
def test_gradients_are_equal_up_to_rounding(restored):
    flags = ["--remat", "--gradient_accumulation_steps=2"]
    devices = distribution.choose_strategy("one_device")
    settings, _ = parse("--train_batch_size=8", "--num_warmup_steps=0", *flags)
    settings = dataclasses.replace(settings, num_train_steps=100)
    plain, is_compiled = _trained(settings, devices)
    assert not is_compiled
    compiled, is_compiled = _trained(dataclasses.replace(settings, jit_compile="true"), devices)
    assert is_compiled
    for one, other in zip(plain, compiled, strict=True):
        # One step of Adam changes weights by up to 1e-3.
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-5)
