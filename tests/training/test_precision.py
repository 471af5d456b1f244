"""The precision of a device, and the warnings if it is not supported."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest
import tensorflow as tf

from bert_tf.io.messages import DifferenceWarning
from bert_tf.pipelines.replicas import compute_batches
from bert_tf.training import precision as precisions
from tests.training.test_bfloat16 import needs_bfloat16


@pytest.fixture
def restore_precision():
    with precisions.preserved_arithmetic():
        yield


@pytest.mark.parametrize(
    ("precision", "device", "policy", "rewrite"),
    [
        ("float32", "GPU", "float32", False),
        ("bfloat16", "GPU", "mixed_bfloat16", False),
        ("bfloat16", "TPU", "mixed_bfloat16", False),
        pytest.param("bfloat16", "CPU", "float32", True, marks=needs_bfloat16),
    ],
)
def test_precision_is_a_policy_or_a_graph_rewrite(
    precision, device, policy, rewrite, restore_precision
):
    assert precisions.set_precision(precision, device) == policy
    # XLA does not see the graph rewrite.
    assert precisions.set_precision("bfloat16", device, jit_compile=True) == "mixed_bfloat16"
    assert precisions.set_precision(precision, device) == policy
    assert keras.config.dtype_policy().name == policy
    assert _rounds() is rewrite


def _rounds():
    """Whether a function called by this thread multiplies in bfloat16."""
    row = tf.constant([[1.0 + 2**-12] * 64])
    multiply = tf.function(lambda x: tf.nn.relu(tf.matmul(x, tf.ones([64, 64]))))
    return float(multiply(row)[0, 0]) == 64.0


@needs_bfloat16
def test_precision_applies_to_one_thread(restore_precision):
    options = tf.config.optimizer.get_experimental_options()
    precisions.set_precision("bfloat16", "CPU")
    with ThreadPoolExecutor(1) as other:
        assert _rounds() and not other.submit(_rounds).result()
        assert other.submit(keras.config.dtype_policy).result().name == "float32"
    assert tf.config.optimizer.get_experimental_options() == options


@needs_bfloat16
def test_precision_applies_to_threads_of_call(restore_precision):
    batches = [None] * 3
    for precision, is_rounded in (("bfloat16", True), ("float32", False)):
        precisions.set_precision(precision, "CPU")
        found = [rounded for _, rounded in compute_batches(lambda _: _rounds(), batches)]
        assert found == [is_rounded] * 3


def test_processor_without_avx512_computes_in_float32_with_a_warning(
    restore_precision, monkeypatch
):
    monkeypatch.setattr(precisions.runtime, "supports_bfloat16", lambda: False)
    with pytest.warns(DifferenceWarning, match="bfloat16: this processor has no AVX-512"):
        assert precisions.set_precision("bfloat16", "CPU") == "float32"
    assert not _rounds()


def test_preserved_settings_are_restored(restore_precision):
    precisions.set_precision("bfloat16", "GPU")
    with precisions.preserved_arithmetic():
        precisions.set_precision("bfloat16", "CPU")
    assert keras.config.dtype_policy().name == "mixed_bfloat16" and not _rounds()


def test_missing_graph_rewrite_raises_error(restore_precision, monkeypatch):
    monkeypatch.setattr(precisions, "_REWRITE", "auto_mixed_precision_of_another_name")
    with pytest.raises(ImportError, match="no graph rewrite auto_mixed_precision_of_another_name"):
        precisions.set_precision("bfloat16", "CPU")


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), 1), ((8, 0), 0), (None, 0)])
def test_gpu_without_bfloat16_causes_warning(capability, expected, restore_precision, monkeypatch):
    details = {"device_name": "Tesla T4", "compute_capability": capability}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [None])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: details)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        precisions.set_precision("float32", "GPU")
        precisions.set_precision("bfloat16", "GPU")
    messages = [str(each.message) for each in found if each.category is DifferenceWarning]
    assert len(messages) == expected
    start = "--precision=bfloat16: Tesla T4 has compute capability 7.5, but bfloat16 requires 8.0"
    assert all(message.startswith(start) for message in messages)


def test_unknown_precision_raises_error():
    message = r"Unknown precision 'float16': expected one of float32, bfloat16\."
    with pytest.raises(ValueError, match=message):
        precisions.set_precision("float16", "GPU")
