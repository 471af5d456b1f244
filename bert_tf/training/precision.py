"""Precision (Keras' dtype policy or TensorFlow's graph rewrite) and process-wide settings."""

import contextlib
import os
import threading
from collections.abc import Iterator

import keras
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.eager import context as eager
from tensorflow.python.framework import config as framework_config

from bert_tf import choices
from bert_tf.io import runtime
from bert_tf.io.messages import warn

NOT_REWRITTEN = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_INFERLIST_REMOVE"
_REWRITE = "auto_mixed_precision_onednn_bfloat16"


def is_rewritten(precision: str, device_type: str, jit_compile: bool = False) -> bool:
    """Returns whether TensorFlow rewrites graphs to bfloat16, which it does on CPUs without XLA."""
    return precision == "bfloat16" and device_type == "CPU" and not jit_compile


def dtype_policy(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Returns Keras' dtype policy; it is float32 if graphs are rewritten."""
    rewritten = is_rewritten(precision, device_type, jit_compile)
    return choices.DTYPE_POLICIES["float32" if rewritten else precision]


def _bfloat16_warnings() -> Iterator[str]:
    """Yields a message for each GPU without bfloat16 units."""
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        major, minor = details.get("compute_capability") or (8, 0)
        if major < 8:
            yield (
                f"--precision=bfloat16: {details.get('device_name', 'the GPU')} has compute "
                f"capability {major}.{minor}, but bfloat16 requires 8.0. Computations are slower "
                "or fail. Use --precision=float32."
            )


def set_precision(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Sets the precision of this thread. Call this function before creating the model.

    With ``bfloat16``, variables, sums of gradients, updates and losses are float32; matrix products
    and most elementwise operations are bfloat16. On GPUs and TPUs, and with XLA, this is Keras'
    ``mixed_bfloat16`` policy. On CPUs, the model is float32, and TensorFlow's graph optimizer
    rewrites the matrix products of traced functions for oneDNN. For BERT-base, the rewrite is 1.16
    times as fast as the policy. Eager code computes in float32; without AVX-512, so does all code,
    with a `DifferenceWarning`.

    Args:
        precision: "float32" or "bfloat16".
        device_type: "CPU", "GPU" or "TPU".
        jit_compile: Whether XLA compiles the step.

    Returns:
        The Keras dtype policy.

    >>> set_precision("float32", "CPU")
    'float32'
    """
    if precision not in choices.PRECISIONS:
        raise ValueError(
            f"Unknown precision {precision!r}: expected one of {', '.join(choices.PRECISIONS)}."
        )
    policy = dtype_policy(precision, device_type, jit_compile)
    rewritten = is_rewritten(precision, device_type, jit_compile)
    # TensorFlow would also rewrite graphs if it had to compute in bfloat16 without oneDNN.
    set_rewrite(rewritten and runtime.supports_bfloat16())
    if rewritten and not runtime.supports_bfloat16():
        warn(["--precision=bfloat16: this processor has no AVX-512. Computations are in float32."])
    if precision == "bfloat16" and device_type == "GPU":
        warn(_bfloat16_warnings())
    keras.config.set_dtype_policy(policy)
    return policy


def set_rewrite(is_on: bool) -> None:
    """Enables or disables the bfloat16 rewrite of functions that this thread calls.

    ``tf.config.optimizer`` would affect all threads that have not called a function yet.
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
            f"TensorFlow {tf.__version__} has no graph rewrite {_REWRITE}. Install the version "
            "that bert_tf requires."
        ) from error
    eager.context().function_call_options = eager.FunctionCallOptions(options.executor_type, config)


@contextlib.contextmanager
def preserved_arithmetic() -> Iterator[None]:
    """Restores the precision at the end of the context."""
    context, policy = eager.context(), keras.config.dtype_policy()
    options = context.function_call_options
    try:
        yield
    finally:
        context.function_call_options = options
        keras.config.set_dtype_policy(policy)


# === Process-wide settings, and training runs in parallel threads ===

_lock = threading.Lock()
# One value per training run in progress: whether the run is exclusive.
_trainings: list[bool] = []


@contextlib.contextmanager
def training_in_process(
    *, num_replicas: int = 1, is_rewritten: bool = False, deterministic: bool = False
) -> Iterator[None]:
    """Registers a training run, and restores process-wide settings when the context exits.

    Several runs can train in parallel if each uses float32 on one device. All other runs are
    exclusive: several replicas share TensorFlow's collective operations, ``is_rewritten`` (bfloat16
    on a CPU) needs an environment variable, and ``deterministic`` affects all threads.

    Raises:
        ValueError: If another training run is in progress and either run is exclusive.
    """
    is_exclusive = num_replicas > 1 or is_rewritten or deterministic
    with _lock:
        if _trainings and (is_exclusive or any(_trainings)):
            raise ValueError(
                "Another training run is in progress in this process, and one of the two runs uses "
                "several devices, bfloat16 on a CPU or deterministic operations. Wait until the "
                "other run ends, or use another process."
            )
        _trainings.append(is_exclusive)
    try:
        with contextlib.ExitStack() as stack:
            if is_rewritten:
                stack.enter_context(_biases_in_float32())
            if deterministic and not framework_config.is_op_determinism_enabled():
                tf.config.experimental.enable_op_determinism()
                stack.callback(framework_config.disable_op_determinism)
            yield
    finally:
        with _lock:
            _trainings.remove(is_exclusive)


@contextlib.contextmanager
def _biases_in_float32() -> Iterator[None]:
    """Excludes operations that sum many values from the bfloat16 rewrite.

    In bfloat16, BiasAddGrad sums 4,096 ones to 256, and AddN loses time steps of recurrent layers.
    """
    previous = os.environ.get(NOT_REWRITTEN)
    excluded = {*(previous or "AddN").split(","), "AddN", "BiasAddGrad"}
    os.environ[NOT_REWRITTEN] = ",".join(sorted(excluded))
    try:
        yield
    finally:
        if previous is None:
            del os.environ[NOT_REWRITTEN]
        else:
            os.environ[NOT_REWRITTEN] = previous
