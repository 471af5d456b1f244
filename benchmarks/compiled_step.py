"""Compiles a training step for a TPU or an H100, without the hardware, and counts bytes moved.

    python -m benchmarks.compiled_step [--targets=v5e,h100] [--programs=tiny:32x128,base:32x512]
        [--python=v5e=VENV/bin/python,h100=VENV/bin/python] [--keep=FOLDER]

A program is SIZE:ROWSxTOKENS. base/4 is bert-base with four layers; finetune is the fine-tuning of
a classifier of the size of all-MiniLM-L6-v2. TensorFlow lowers the whole step (forward, backward
and update) in bfloat16. The compilers for jax 0.10.2 compile it without the hardware:

- for a TPU, libtpu (pip install 'jax[tpu]==0.10.2');
- for an H100, XLA with the GPU's description in h100.txtpb
  (pip install jax==0.10.2 jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2).

If this environment lacks a compiler, pass the interpreter of another one as --python. The output
has one line per program: kernels, bytes moved, the time this takes at the memory bandwidth,
temporaries and compilation time. The lines below it list the parts of the step with the largest
memory traffic. The GPU compiler uses the flags of a training run, but cannot autotune. --keep keeps
the lowered and compiled programs.
"""

import argparse
import collections
import dataclasses
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

JAX = "0.10.2"


class Target(NamedTuple):
    """A chip: bandwidth in bytes per second, peak in bfloat16 FLOP/s, memory in bytes."""

    platform: str
    topology: str
    bytes_per_second: float
    peak: float
    memory: float


# Sources: https://cloud.google.com/tpu/docs and NVIDIA's data sheet.
TARGETS = {
    "v5e": Target("tpu", "v5e:2x2", 819e9, 197e12, 16e9),
    "v6e": Target("tpu", "v6e:2x2", 1640e9, 918e12, 32e9),
    "h100": Target("cuda", "1x1x1", 3.35e12, 989e12, 80e9),
}
# Prevents libtpu from searching the machine and the network for a TPU.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

# Settings of all-MiniLM-L6-v2 that differ from bert-base.
MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
}


# === The step, lowered by TensorFlow ===


def build_step(
    device: str, size: str, rows: int, length: int, *, jit_compile: bool
) -> tuple[Callable[..., Any], dict[str, Any], float]:
    """Returns the bfloat16 step of one replica, a batch, and the FLOPs of its matrix products."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import keras
    import tensorflow as tf

    from benchmarks.machine import step_flops
    from bert_tf import features
    from bert_tf.config import BertConfig
    from bert_tf.finetuning.objective import TaskObjective
    from bert_tf.modeling import BertClassifier, BertPretrainer
    from bert_tf.pretraining.objective import PretrainingLoop
    from bert_tf.tasks.texts.classification import ClassificationTask
    from bert_tf.training import optimizers, schedules
    from bert_tf.training.loop import TrainingLoop

    # The model queries the device that it runs on.
    keras.distribution.list_devices = lambda *_: [f"{device.lower()}:0"]
    keras.config.set_dtype_policy("mixed_bfloat16")
    strategy = tf.distribute.get_strategy()
    options = {"seed": 0, "jit_compile": jit_compile, "device_type": device, "clip_norm": 1.0}

    def make_optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
        schedule = schedules.WarmupLinearDecay(1e-4, warmup_steps=100, total_steps=10_000)
        return optimizers.create_optimizer("adamw", schedule, model.trainable_variables)

    def zeros(layout: Mapping[str, features.Feature], **sizes: int) -> dict[str, Any]:
        return {
            key: tf.zeros([sizes[letter] for letter in feature.dimensions], feature.dtype)
            for key, feature in layout.items()
        }

    if size == "finetune":
        config = BertConfig(**MINILM)
        model = BertClassifier(config, num_classes=2)
        model.encoder.trains_without_padding = not jit_compile
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(loss=loss, jit_compile=False)
        objective = TaskObjective(model, ClassificationTask.loss_weight)
        loop = TrainingLoop(model, make_optimizer(model), strategy, objective, **options)
        encoded = zeros(features.ENCODER_FEATURES, B=rows, S=length)
        batch = {"rows": encoded, "targets": tf.zeros([rows], tf.int32)}
        predictions = 0
    else:
        preset, _, layers = size.partition("/")
        config = BertConfig.from_preset(f"bert-{preset}")
        if layers:
            config = dataclasses.replace(config, num_hidden_layers=int(layers))
        model = BertPretrainer(config)
        loop = PretrainingLoop(model, make_optimizer(model), strategy, **options)
        predictions = max(1, math.ceil(0.15 * length))
        batch = zeros(features.PRETRAINING_FEATURES, B=rows, S=length, P=predictions)
    batch[features.CURSOR] = tf.zeros([rows, 4], tf.int32)
    return loop.replica_step, batch, step_flops(config, rows, length, predictions)


def lower(platform: str, size: str, rows: int, length: int) -> tuple[str, float]:
    """Returns the step of one replica as StableHLO, and the FLOPs of its matrix products."""
    device = {"tpu": "TPU", "cuda": "GPU"}[platform]
    step, batch, flops = build_step(device, size, rows, length, jit_compile=True)
    import tensorflow as tf

    compiled = tf.function(step, jit_compile=True, autograph=False)
    # There is no such device here; the program for a CPU is the same.
    text = compiled.experimental_get_compiler_ir(batch)(stage="stablehlo", platform_name="CPU")
    return text, flops


# === Compilation, in a separate process ===


def compile_program(program: str, name: str, hlo_file: str) -> None:
    """Compiles a program, writes the result as text, and prints a line of JSON.

    Runs in a separate process, because importing JAX may search for a TPU or reserve GPU memory.
    """
    import jax
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    if jax.__version__ != JAX:
        sys.exit(f"Expected jax {JAX}, got {jax.__version__}.")
    target = TARGETS[name]
    if target.platform == "cuda":
        description = pathlib.Path(__file__).with_name(f"{name}.txtpb").read_text()
        # Without a topology, JAX requests a client, which needs a GPU.
        options = {"topology_name": "", "topology": target.topology, "target_config": description}
    else:
        options = {"topology_name": target.topology}
    device = topologies.get_topology_desc(platform=target.platform, **options).devices[0]
    compiling = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, device_assignment=np.zeros((1, 1), int)
    )
    text = pathlib.Path(program).read_text()
    with mlir.make_ir_context():
        # The compilers do not support mhlo.copy, to which XLA's bridge lowers tf.identity.
        module = ir.Module.parse(text.replace("mhlo.copy", "stablehlo.optimization_barrier"))
        start = _cpu_seconds()
        found = device.client.compile(module, xla_client.DeviceList((device,)), compiling)
        seconds = _cpu_seconds() - start
    memory = found.get_compiled_memory_stats()
    hlo = "\n".join(each.to_string() for each in found.hlo_modules())
    pathlib.Path(hlo_file).write_text(hlo)
    # The TPU compiler reports the bytes accessed.
    moved = found.cost_analysis()["bytes accessed"] if target.platform == "tpu" else None
    sizes = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    print(json.dumps([seconds, *sizes, moved]))
    sys.stdout.flush()
    os._exit(0)  # libtpu fails at exit without a TPU


def _cpu_seconds() -> float:
    """Returns the processor seconds of this process and its children."""
    return sum(os.times()[:4])


# === The compiled program ===

_BYTES = {
    **dict.fromkeys(("pred", "s8", "u8"), 1),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 2),
    **dict.fromkeys(("s32", "u32", "f32"), 4),
    **dict.fromkeys(("s64", "u64", "f64"), 8),
}
_ARRAY = re.compile(rf"\b({'|'.join(_BYTES)})\[([\d,]*)\](?:\{{([\d,]*)(?::T\(([\d,]+)\))?)?")
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)")
_SOURCE = re.compile(r'op_name="([^"]*)"')
# Operations that move no bytes.
_FREE = {"get-tuple-element", "tuple", "parameter", "bitcast", "constant"}


def array_bytes(shape: str) -> int:
    """Returns the bytes of the arrays of a shape as tiled in TPU memory, including padding.

    >>> array_bytes("f32[10,3]"), array_bytes("f32[10,3]{1,0:T(8,128)}")
    (120, 8192)
    """
    total = 0
    for name, sizes, order, tile in _ARRAY.findall(shape):
        dimensions = [int(size) for size in sizes.split(",") if size]
        # The order starts with the fastest dimension, and a tile ends with it.
        positions = [int(each) for each in order.split(",") if each]
        tiles = [int(each) for each in tile.split(",") if each]
        for dimension, multiple in zip(positions, reversed(tiles), strict=False):
            dimensions[dimension] = -(-dimensions[dimension] // multiple) * multiple
        total += math.prod(dimensions) * _BYTES[name]
    return total


def kernels(hlo: str) -> Iterator[tuple[int, str]]:
    """Yields the bytes moved and the source of each kernel in the entry computation."""
    entry = hlo[hlo.index("\nENTRY") :]
    sizes: dict[str, int] = {}
    for line in entry[: entry.index("\n}")].split("\n"):
        if found := _INSTRUCTION.match(line):
            name, shape, operation, rest = found.groups()
            sizes[name] = array_bytes(shape)
            # Prefetched data counts at the instruction that uses it.
            if operation in _FREE or operation.endswith(("-start", "-done")):
                continue
            operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
            source = _SOURCE.search(line)
            where = re.sub(r"_\d+\b", "", source.group(1)) if source else operation
            yield sizes[name] + sum(sizes.get(each, 0) for each in operands), where[-70:]


def summarize(
    target: Target,
    hlo: str,
    flops: float,
    seconds: float,
    arguments: int,
    temporaries: int,
    moved: float | None,
) -> list[str]:
    """Returns the line of a program, and the lines of its parts with the largest memory traffic."""
    parts, counts = collections.Counter[str](), collections.Counter[str]()
    for size, where in kernels(hlo):
        parts[where] += size
        counts[where] += 1
    moved = moved or sum(parts.values())
    min_seconds = max(moved / target.bytes_per_second, flops / target.peak)
    fits = "" if arguments + temporaries < target.memory else " TOO MUCH"
    return [
        f"{sum(counts.values()):,} kernels, {moved / 1e9:.2f} GB moved: "
        f"{moved / target.bytes_per_second * 1e3:.1f} ms; products {flops / 1e12:.3g} TFLOP: "
        f"{flops / target.peak * 1e3:.1f} ms, MFU {flops / target.peak / min_seconds:.0%} at most; "
        f"{arguments / 1e9:.2f} GB variables and batch, {temporaries / 1e9:.2f} temporaries{fits}; "
        f"compiled in {seconds:.0f} s of a processor",
        *(
            f"  {size / 1e9:7.2f} GB {counts[where]:4}  {where}"
            for where, size in parts.most_common(8)
        ),
    ]


def measure(name: str, program: str, python: str, folder: pathlib.Path) -> list[str]:
    """Lowers and compiles a program for a target, and returns the lines to print."""
    target = TARGETS[name]
    size, _, shape = program.partition(":")
    rows, length = map(int, shape.split("x"))
    stem = f"{name}-{program}".translate({ord("/"): "-", ord(":"): "-"})
    path, hlo_file = (folder / f"{stem}.{kind}" for kind in ("mlir", "hlo"))
    environment = {**os.environ, **ENVIRONMENT}
    if target.platform == "cuda":
        from bert_tf.io.runtime import COMPILER_FLAGS

        environment.setdefault("XLA_FLAGS", COMPILER_FLAGS)
    text, flops = lower(target.platform, size, rows, length)
    path.write_text(text)
    command = [python, __file__, "--compile", str(path), name, str(hlo_file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return [f"the compiler failed with status {done.returncode}: {last}"]
    found = json.loads(done.stdout.splitlines()[-1])
    return summarize(target, hlo_file.read_text(), flops, *found)


def main() -> None:
    if sys.argv[1:2] == ["--compile"]:
        compile_program(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--targets", default="v5e,h100", help=f"Targets, from {', '.join(TARGETS)}."
    )
    parser.add_argument("--programs", default="tiny:32x128", help="Programs, as SIZE:ROWSxTOKENS.")
    parser.add_argument(
        "--python", default="", help="Interpreters with a compiler, as TARGET=PATH."
    )
    parser.add_argument("--keep", help="Folder to keep the programs in.")
    arguments = parser.parse_args()
    pythons: Mapping[str, str] = dict(
        each.partition("=")[::2] for each in arguments.python.split(",") if each
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(arguments.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.targets.split(","):
            for program in arguments.programs.split(","):
                lines = measure(name, program, pythons.get(name, sys.executable), folder)
                print(f"{name} {program}: " + "\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
