"""Pre-training on one card: model FLOPs' share of its peak, beside transformers, in one table.

    python -m benchmarks.gpu [--sizes=base,large] [--lengths=128,512] [--precisions=bfloat16]
    python -m benchmarks.gpu --device=cpu --sizes=tiny --lengths=32 --rows=4 --rounds=1  # a trial

Random tokens without padding, so that every contender computes the same. bert_tf runs with XLA and
without; the peer, left out where torch or transformers is missing, is train_step's, with SDPA,
eager and compiled. Each contender is a process of its own, after the one before has ended, and
takes the largest batch that fits, halving from --rows. The median of the rounds counts.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from bert_tf.config import BertConfig

from . import train_step
from .machine import step_flops
from .measured_process import MeasuredProcess

# Dense bfloat16 TFLOP/s by the makers' data sheets, by what nvidia-smi calls the card.
PEAKS = {
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
}
OURS = ("bert_tf", "bert_tf XLA")
PEERS = ("torch eager", "torch compile")
STEPS = 3
NO_MEMORY = -1.0
PRODUCT = 8192  # the size of the matrices that an unknown card's peak is measured by


def describe_card() -> tuple[str, str]:
    """The card's name, and a line with its driver and memory; two empty texts without one."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return "", ""
    name, driver, memory = (part.strip() for part in lines[0].split(","))
    return name, f"{name}, driver {driver}, {memory}"


def known_peak(card: str) -> float | None:
    """The dense bfloat16 TFLOP/s of a card of the table, by its longest name that fits.

    >>> known_peak("NVIDIA A100-SXM4-80GB"), known_peak("NVIDIA H100 PCIe"), known_peak("Card")
    (312.0, 756.0, None)
    """
    words = card.replace("-", " ").split()
    fitting = [name for name in PEAKS if set(name.split()) <= set(words)]
    return PEAKS[max(fitting, key=len)] if fitting else None


def random_batches(size: str, rows: int, length: int, path: str) -> None:
    """Writes batches of random tokens to a file, every feature (NUM_BATCHES, B, ...)."""
    from bert_tf import features

    rng = np.random.default_rng(0)
    count = train_step.NUM_BATCHES
    predictions = max(1, round(0.15 * length))
    sizes = {"B": rows, "S": length, "P": predictions}
    arrays = {
        key: np.ones([count, *(sizes[letter] for letter in feature.dimensions)], feature.dtype)
        for key, feature in features.PRETRAINING_FEATURES.items()
    }
    tokens = BertConfig.from_preset(train_step.SIZES[size][0]).vocab_size
    for key in (features.INPUT_WORD_IDS, features.MASKED_LM_IDS):
        arrays[key] = rng.integers(5, tokens, arrays[key].shape, np.int32)
    arrays[features.MASKED_LM_POSITIONS] *= np.arange(predictions, dtype=np.int32)
    arrays[features.INPUT_TYPE_IDS][..., : length // 2] = 0
    arrays[features.NEXT_SENTENCE_LABELS] = rng.integers(0, 2, (count, rows), np.int32)
    arrays[features.CURSOR] = np.zeros((count, rows, 3), np.int32)
    np.savez(path, **arrays)


# === The contenders' processes ===


def _stepper(name: str, size: str, precision: str, path: str, device: str) -> Callable[..., None]:
    with np.load(path) as file:
        arrays = dict(file)
    if name in OURS:
        return train_step.our_stepper(size, precision, arrays, name == "bert_tf XLA")
    where = "cuda" if device == "gpu" else "cpu"
    return train_step.peer_stepper(size, precision, arrays, name == "torch compile", where)


# TensorFlow's, torch's and Python's, without importing them to know them.
_NO_MEMORY_ERRORS = ("ResourceExhaustedError", "OutOfMemoryError", "MemoryError")


def _is_no_memory(error: Exception) -> bool:
    return any(base.__name__ in _NO_MEMORY_ERRORS for base in type(error).__mro__)


def serve(name: str, size: str, precision: str, path: str, device: str) -> None:
    """Warms up, answers whether the memory was enough, then makes steps as it is asked to."""
    try:
        step = _stepper(name, size, precision, path, device)
        step(STEPS)
    except Exception as error:
        if not _is_no_memory(error):
            raise
        print(f"ANSWER {NO_MEMORY}", flush=True)
        return
    print("ANSWER 0", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        step(int(line))
        print(f"ANSWER {time.perf_counter() - began}", flush=True)


def measure_peak(device: str) -> None:
    """Answers with the TFLOP/s of a large product of bfloat16 matrices."""
    import tensorflow as tf

    size = PRODUCT if device == "gpu" else 512
    matrix = tf.cast(tf.random.stateless_normal((size, size), (0, 0)), tf.bfloat16)
    product = tf.function(lambda: tf.matmul(matrix, matrix)[0, 0])
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - began)
    print(f"ANSWER {2 * size**3 / min(seconds) / 1e12}", flush=True)


# === The comparison ===


def measure(
    name: str, size: str, precision: str, length: int, rows: int, rounds: int, device: str
) -> tuple[int, float] | None:
    """The rows of the largest batch that fits, and the seconds of a step; None if not one row."""
    while rows:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "batches.npz")
            random_batches(size, rows, length, path)
            arguments = [f"--serve={name}", f"--sizes={size}", f"--precisions={precision}"]
            process = MeasuredProcess(
                name,
                ["benchmarks.gpu", *arguments, f"--batches={path}", f"--device={device}"],
                # TensorFlow sees the card alone, or none; torch takes the device by its name.
                {} if device == "gpu" else {"CUDA_VISIBLE_DEVICES": ""},
            )
            try:
                if process.answer() != NO_MEMORY:
                    seconds = [process.ask(STEPS) / STEPS for _ in range(rounds)]
                    return rows, statistics.median(seconds)
            finally:
                process.close()
        rows //= 2
    return None


def main() -> None:
    """Prints a line for each contender at each size, length and precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="base,large", help="of " + ", ".join(train_step.SIZES))
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument(
        "--precisions", default="bfloat16", help="or float32, its MFU of bfloat16's"
    )
    parser.add_argument("--rows", type=int, default=512, help="the batch to halve from")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--peak_tflops", type=float, default=0.0, help="instead of the table's")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--batches", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve == "peak":
        measure_peak(given.device)
        return
    if given.serve:
        serve(given.serve, given.sizes, given.precisions, given.batches, given.device)
        return
    card, line = describe_card() if given.device == "gpu" else ("", "")
    if given.device == "gpu" and not card:
        sys.exit("No NVIDIA card answers nvidia-smi: this measures one; --device=cpu is a trial.")
    sizes = given.sizes.split(",")
    if unknown := [size for size in sizes if size not in train_step.SIZES]:
        sys.exit(f"--sizes={unknown[0]}: expected some of {', '.join(train_step.SIZES)}.")
    peak = given.peak_tflops or known_peak(card)
    source = "--peak_tflops" if given.peak_tflops else "the data sheet, bfloat16, dense"
    if peak is None:
        process = MeasuredProcess(
            "peak", ["benchmarks.gpu", "--serve=peak", f"--device={given.device}"]
        )
        peak, source = process.answer(), "measured by a matrix product"
        process.close()
    print(f"{line or 'CPU'}; peak {peak:.3g} TFLOP/s ({source})", flush=True)
    has_peers = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    if not has_peers:
        print("torch or transformers is not installed: their rows are left out.")
    for size in sizes:
        config = BertConfig.from_preset(train_step.SIZES[size][0])
        for length in map(int, given.lengths.split(",")):
            for precision in given.precisions.split(","):
                for name in (*OURS, *(PEERS if has_peers else ())):
                    found = measure(
                        name, size, precision, length, given.rows, given.rounds, given.device
                    )
                    row = f"{size:6} {length:4} {precision:9} {name:14}"
                    if found is None:
                        print(f"{row} not one row fits into the memory", flush=True)
                        continue
                    rows, seconds = found
                    flops = step_flops(config, rows, length, max(1, round(0.15 * length)))
                    print(
                        f"{row} {rows:4} rows {seconds:8.4f} s/step "
                        f"{rows * length / seconds:11,.0f} tokens/s  MFU "
                        f"{flops / seconds / peak / 1e12:6.1%}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
