"""Pre-training on one GPU compared with transformers, with model FLOPs utilization (MFU).

    python -m benchmarks.gpu [--sizes=base,large] [--lengths=128,512] [--precisions=bfloat16]
    python -m benchmarks.gpu --device=cpu --sizes=tiny --lengths=32 --rows=4 --rounds=1  # a trial

The data are random tokens without padding, so that all contenders compute the same. bert_tf runs
with and without XLA. The peer is that of ``train_step``, with SDPA, eager and compiled; it is
skipped if torch or transformers is not installed. Each contender is a separate process, started
after the previous one has ended. It uses the largest batch that fits in memory, found by halving
--rows. The result is the median of the rounds.
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

# Dense bfloat16 TFLOP/s from NVIDIA's data sheets, by the name that nvidia-smi prints.
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
OUT_OF_MEMORY = -1.0
PRODUCT = 8192  # size of the matrices to measure the peak of an unknown GPU


def describe_gpu() -> tuple[str, str]:
    """Returns the name of the GPU, and a line with driver and memory; ("", "") without a GPU."""
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


def known_peak(gpu: str) -> float | None:
    """Returns the dense bfloat16 TFLOP/s of a GPU by its longest matching name in ``PEAKS``.

    >>> known_peak("NVIDIA A100-SXM4-80GB"), known_peak("NVIDIA H100 PCIe"), known_peak("Card")
    (312.0, 756.0, None)
    """
    words = gpu.replace("-", " ").split()
    matching = [name for name in PEAKS if set(name.split()) <= set(words)]
    return PEAKS[max(matching, key=len)] if matching else None


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
    torch_device = "cuda" if device == "gpu" else "cpu"
    return train_step.peer_stepper(size, precision, arrays, name == "torch compile", torch_device)


# Names of the errors of TensorFlow, torch and Python, to avoid imports.
_OUT_OF_MEMORY_ERRORS = ("ResourceExhaustedError", "OutOfMemoryError", "MemoryError")


def _is_out_of_memory(error: Exception) -> bool:
    return any(base.__name__ in _OUT_OF_MEMORY_ERRORS for base in type(error).__mro__)


def serve(name: str, size: str, precision: str, path: str, device: str) -> None:
    """Warms up, reports whether the batch fits in memory, then runs the requested steps."""
    try:
        step = _stepper(name, size, precision, path, device)
        step(STEPS)
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        print(f"ANSWER {OUT_OF_MEMORY}", flush=True)
        return
    print("ANSWER 0", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        step(int(line))
        print(f"ANSWER {time.perf_counter() - start}", flush=True)


def measure_peak(device: str) -> None:
    """Prints the TFLOP/s of a large bfloat16 matrix product."""
    import tensorflow as tf

    size = PRODUCT if device == "gpu" else 512
    matrix = tf.cast(tf.random.stateless_normal((size, size), (0, 0)), tf.bfloat16)
    product = tf.function(lambda: tf.matmul(matrix, matrix)[0, 0])
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        product().numpy()
        seconds.append(time.perf_counter() - start)
    print(f"ANSWER {2 * size**3 / min(seconds) / 1e12}", flush=True)


# === The comparison ===


def measure(
    name: str, size: str, precision: str, length: int, rows: int, rounds: int, device: str
) -> tuple[int, float] | None:
    """Returns the largest batch size that fits and the seconds per step; None if none fits."""
    while rows:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "batches.npz")
            random_batches(size, rows, length, path)
            flags = [f"--serve={name}", f"--sizes={size}", f"--precisions={precision}"]
            process = MeasuredProcess(
                name,
                ["benchmarks.gpu", *flags, f"--batches={path}", f"--device={device}"],
                # Hides the GPU from TensorFlow on a CPU; torch gets its device by name.
                {} if device == "gpu" else {"CUDA_VISIBLE_DEVICES": ""},
            )
            try:
                if process.answer() != OUT_OF_MEMORY:
                    seconds = [process.ask(STEPS) / STEPS for _ in range(rounds)]
                    return rows, statistics.median(seconds)
            finally:
                process.close()
        rows //= 2
    return None


def main() -> None:
    """Prints a line per contender, size, length and precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes",
        default="base,large",
        help="Model sizes, from " + ", ".join(train_step.SIZES) + ".",
    )
    parser.add_argument("--lengths", default="128,512")
    parser.add_argument(
        "--precisions",
        default="bfloat16",
        help="bfloat16, float32; MFU is relative to the bfloat16 peak.",
    )
    parser.add_argument(
        "--rows", type=int, default=512, help="Initial batch size, halved until it fits."
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument(
        "--peak_tflops", type=float, default=0.0, help="Peak to use instead of the known one."
    )
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--batches", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve == "peak":
        measure_peak(arguments.device)
        return
    if arguments.serve:
        serve(
            arguments.serve,
            arguments.sizes,
            arguments.precisions,
            arguments.batches,
            arguments.device,
        )
        return
    gpu, line = describe_gpu() if arguments.device == "gpu" else ("", "")
    if arguments.device == "gpu" and not gpu:
        sys.exit("nvidia-smi finds no GPU. Use a machine with an NVIDIA GPU, or try --device=cpu.")
    sizes = arguments.sizes.split(",")
    if unknown := [size for size in sizes if size not in train_step.SIZES]:
        sys.exit(f"--sizes={unknown[0]}: expected one of {', '.join(train_step.SIZES)}.")
    peak = arguments.peak_tflops or known_peak(gpu)
    source = "--peak_tflops" if arguments.peak_tflops else "the data sheet, bfloat16, dense"
    if peak is None:
        process = MeasuredProcess(
            "peak", ["benchmarks.gpu", "--serve=peak", f"--device={arguments.device}"]
        )
        peak, source = process.answer(), "measured by a matrix product"
        process.close()
    print(f"{line or 'CPU'}; peak {peak:.3g} TFLOP/s ({source})", flush=True)
    has_peers = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    if not has_peers:
        print("torch or transformers is not installed. Their rows are skipped.")
    for size in sizes:
        config = BertConfig.from_preset(train_step.SIZES[size][0])
        for length in map(int, arguments.lengths.split(",")):
            for precision in arguments.precisions.split(","):
                for name in (*OURS, *(PEERS if has_peers else ())):
                    found = measure(
                        name,
                        size,
                        precision,
                        length,
                        arguments.rows,
                        arguments.rounds,
                        arguments.device,
                    )
                    row = f"{size:6} {length:4} {precision:9} {name:14}"
                    if found is None:
                        print(f"{row} out of memory with one row", flush=True)
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
