"""The arithmetic of a device: float32, or bfloat16 by Keras' policy or TensorFlow's rewrite."""

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.eager import context as eager

from bert_tf import choices
from bert_tf.io.wording import warn

_REWRITE = "auto_mixed_precision_onednn_bfloat16"


def is_rewritten(precision: str, device_type: str, jit_compile: bool = False) -> bool:
    """Whether TensorFlow rewrites graphs for a precision: on a CPU without XLA."""
    return precision == "bfloat16" and device_type == "CPU" and not jit_compile


def dtype_policy(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Keras' dtype policy of a precision; on a CPU without XLA, graphs are rewritten instead."""
    rewritten = is_rewritten(precision, device_type, jit_compile)
    return choices.DTYPE_POLICIES["float32" if rewritten else precision]


def _without_bfloat16() -> Iterator[str]:
    """A sentence for each GPU that is older than the units which compute in bfloat16."""
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        major, minor = details.get("compute_capability") or (8, 0)
        if major < 8:
            yield (
                f"--precision=bfloat16: {details.get('device_name', 'the GPU')} has compute "
                f"capability {major}.{minor}, and bfloat16 takes 8.0: it is slower than float32 "
                "there, or fails; give --precision=float32."
            )


def set_precision(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Sets this thread's arithmetic, before the model is built; returns the Keras dtype policy.

    ``bfloat16`` keeps variables, gradients' sums, updates and losses in float32, and runs matrix
    products and most elementwise operations between them in bfloat16. On GPUs and TPUs, and where
    XLA compiles the gradients, it is Keras' ``mixed_bfloat16`` policy. On a CPU the model stays
    float32 and TensorFlow's graph optimiser rewrites the matrix products of every traced function
    for oneDNN, which measured 1.16 times the speed of the policy at base size; eager code is not
    affected, and a processor without AVX-512 keeps computing in float32.

    >>> set_precision("float32", "CPU")
    'float32'
    """
    if precision not in choices.PRECISIONS:
        raise ValueError(
            f"Unknown precision {precision!r}: expected one of {', '.join(choices.PRECISIONS)}."
        )
    policy = dtype_policy(precision, device_type, jit_compile)
    set_rewrite(is_rewritten(precision, device_type, jit_compile))
    if precision == "bfloat16" and device_type == "GPU":
        warn(_without_bfloat16())
    keras.config.set_dtype_policy(policy)
    return policy


def set_rewrite(is_on: bool) -> None:
    """Sets whether functions that this thread calls are rewritten to bfloat16.

    ``tf.config.optimizer`` sets it for all threads that have not called a function yet.
    """
    options = eager.context().function_call_options
    config = config_pb2.ConfigProto.FromString(options.config_proto_serialized)
    toggle = (
        rewriter_config_pb2.RewriterConfig.ON if is_on else rewriter_config_pb2.RewriterConfig.OFF
    )
    try:
        setattr(config.graph_options.rewrite_options, _REWRITE, toggle)
    except AttributeError as error:
        raise ImportError(
            f"TensorFlow {tf.__version__} has no graph rewrite {_REWRITE}: install the version "
            "that this library requires."
        ) from error
    eager.context().function_call_options = eager.FunctionCallOptions(options.executor_type, config)


@contextlib.contextmanager
def preserved_arithmetic() -> Iterator[None]:
    """Restores what ``set_precision`` and ``set_rewrite`` set within the context."""
    context, policy = eager.context(), keras.config.dtype_policy()
    options = context.function_call_options
    try:
        yield
    finally:
        context.function_call_options = options
        keras.config.set_dtype_policy(policy)
