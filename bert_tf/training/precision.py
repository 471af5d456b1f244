"""The arithmetic of a device: float32, or bfloat16 by Keras' policy or TensorFlow's rewrite."""

import os
from collections.abc import Iterator

import keras
import tensorflow as tf

from bert_tf import choices
from bert_tf.differences import tell

_REWRITE = "auto_mixed_precision_onednn_bfloat16"
_NOT_REWRITTEN = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_INFERLIST_REMOVE"


def dtype_policy(precision: str, device_type: str, jit_compile: bool = False) -> str:
    """Keras' dtype policy of a precision; on a CPU without XLA, graphs are rewritten instead."""
    is_rewritten = device_type == "CPU" and not jit_compile
    return choices.DTYPE_POLICIES["float32" if is_rewritten else precision]


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
    """Sets the process' arithmetic, before the model is built; returns the Keras dtype policy.

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
    rewrite = policy != choices.DTYPE_POLICIES[precision]
    tf.config.optimizer.set_experimental_options({_REWRITE: rewrite})
    # In bfloat16 BiasAddGrad adds rows one by one, and of 4,096 ones makes 256; likewise AddN the
    # steps of a recurrent layer.
    kept = {*os.environ.get(_NOT_REWRITTEN, "AddN").split(","), "AddN", "BiasAddGrad"}
    os.environ[_NOT_REWRITTEN] = ",".join(sorted(kept))
    # TensorFlow takes any name, and heeds those that it knows.
    if tf.config.optimizer.get_experimental_options().get(_REWRITE) != rewrite:
        raise ImportError(
            f"TensorFlow {tf.__version__} has no graph rewrite {_REWRITE}: install the version "
            "that this library requires."
        )
    if precision == "bfloat16" and device_type == "GPU":
        tell(_without_bfloat16())
    keras.config.set_dtype_policy(policy)
    return policy
