"""Properties of the machine that accompany benchmark figures: processor, speed and FLOPs."""

import os
import pathlib
import platform
import statistics
import time
from typing import Any

# Instruction set extensions that determine the speed of matrix products, fastest first.
_EXTENSIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


def processor() -> str:
    """Returns the processor model, its fastest extension for matrix products, and its cores."""
    path = pathlib.Path("/proc/cpuinfo")
    fields: dict[str, str] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    parts = [
        fields.get("model name", platform.machine()),
        *([f"family {fields['cpu family']}"] if "cpu family" in fields else []),
        *[name for name in _EXTENSIONS if name in flags][:1],
        f"{os.cpu_count()} cores",
    ]
    return ", ".join(parts)


def product_rate(precision: str, size: int = 2048) -> float:
    """Returns the median FLOP/s of a large TensorFlow matrix product in ``precision``."""
    import tensorflow as tf

    one, other = (
        tf.cast(tf.random.stateless_normal((size, size), (0, seed)), precision) for seed in (1, 2)
    )
    product = tf.function(lambda: tf.matmul(one, other))
    product()
    seconds = []
    for _ in range(15):
        start = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(seconds)


def step_flops(config: Any, rows: int, length: int, predictions: int) -> int:
    """Returns the FLOPs of the matrix products of a pre-training step.

    A multiply-add counts as two; the backward pass counts twice the forward pass.
    """
    hidden, inner, vocabulary = config.hidden_size, config.intermediate_size, config.vocab_size
    layer = 2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * length * hidden
    row = length * config.num_hidden_layers * layer + 2 * hidden * hidden  # the pooler
    return 3 * rows * (row + 2 * predictions * hidden * (hidden + vocabulary))
