"""Process-wide settings of trainings, and rules for trainings in parallel threads."""

import contextlib
import os
import threading
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.framework import config

NOT_REWRITTEN = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_INFERLIST_REMOVE"
_lock = threading.Lock()
# Whether each training in progress excludes all others.
_trainings: list[bool] = []


@contextlib.contextmanager
def training_in_process(
    *, num_replicas: int = 1, is_rewritten: bool = False, deterministic: bool = False
) -> Iterator[None]:
    """Registers a training, and restores process-wide settings at its end.

    Trainings in float32 on one device can run at the same time. All others are exclusive: several
    replicas share TensorFlow's collective operations, ``is_rewritten`` (bfloat16 on a CPU) needs an
    environment variable, and ``deterministic`` changes the operations of all threads.

    Raises:
        ValueError: If another training is in progress and one of the two is exclusive.
    """
    is_exclusive = num_replicas > 1 or is_rewritten or deterministic
    with _lock:
        if _trainings and (is_exclusive or any(_trainings)):
            raise ValueError(
                "Another training is in progress in this process, and one of the two uses several "
                "devices, bfloat16 on a CPU or deterministic. Wait until it ends, or use another "
                "process."
            )
        _trainings.append(is_exclusive)
    try:
        with contextlib.ExitStack() as stack:
            if is_rewritten:
                stack.enter_context(_biases_in_float32())
            if deterministic and not config.is_op_determinism_enabled():
                tf.config.experimental.enable_op_determinism()
                stack.callback(config.disable_op_determinism)
            yield
    finally:
        with _lock:
            _trainings.remove(is_exclusive)


@contextlib.contextmanager
def _biases_in_float32() -> Iterator[None]:
    """Excludes operations that sum many values from the bfloat16 rewrite.

    In bfloat16, BiasAddGrad sums 4,096 ones to 256, and AddN loses steps of a recurrent layer.
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
