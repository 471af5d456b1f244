"""What a figure is of: the processor's name, and what it can do at most."""

import os
import pathlib
import platform
import statistics
import time
from typing import Any

# What decides how fast products are, the best first.
_EXTENSIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


def processor() -> str:
    """Its model, the extension that its matrix products use, and the number of cores."""
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
    """FLOP/s of a large matrix product of TensorFlow in ``float32`` or ``bfloat16``: a median."""
    import tensorflow as tf

    one, other = (
        tf.cast(tf.random.stateless_normal((size, size), (0, seed)), precision) for seed in (1, 2)
    )
    product = tf.function(lambda: tf.matmul(one, other))
    product()
    seconds = []
    for _ in range(15):
        began = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(seconds)


def step_flops(config: Any, rows: int, length: int, predictions: int) -> int:
    """FLOPs of a pre-training step's matrix products, a multiply-add two: forward, twice back."""
    hidden, inner, vocabulary = config.hidden_size, config.intermediate_size, config.vocab_size
    layer = 2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * length * hidden
    row = length * config.num_hidden_layers * layer + 2 * hidden * hidden  # the pooler
    return 3 * rows * (row + 2 * predictions * hidden * (hidden + vocabulary))
