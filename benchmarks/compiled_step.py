"""What the compilers of a TPU and of an H100 make of a training's step, on neither.

    python -m benchmarks.compiled_step [--targets=v5e,h100] [--programs=tiny:32x128,base:32x512]
        [--python=v5e=VENV/bin/python,h100=VENV/bin/python] [--keep=FOLDER]

A program is a size, rows and tokens a row; base/4 is bert-base of four layers, and finetune the
fine-tuning of a classifier of all-MiniLM-L6-v2's sizes. TensorFlow lowers the whole step, forward,
backward and update, in bfloat16; the compilers that jax 0.10.2 brings compile it without the
hardware: for a TPU libtpu (pip install 'jax[tpu]==0.10.2'), for an H100 XLA with the card's
description in h100.txtpb (pip install jax==0.10.2 jax-cuda12-plugin==0.10.2
jax-cuda12-pjrt==0.10.2). --python names environments that have them, if this one does not. A line
a program: kernels, bytes that they move, the seconds that takes at the memory's speed, temporaries,
a processor's seconds to compile; below it what the step's parts move most. The compiler for a GPU
times nothing there, and has the flags that a run sets. --keep keeps the programs, lowered and
compiled.
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
    """A chip: what it is called by, bytes and bfloat16 operations a second, bytes of memory."""

    platform: str
    topology: str
    bytes_per_second: float
    peak: float
    memory: float


# Sources: https://cloud.google.com/tpu/docs; NVIDIA's data sheet.
TARGETS = {
    "v5e": Target("tpu", "v5e:2x2", 819e9, 197e12, 16e9),
    "v6e": Target("tpu", "v6e:2x2", 1640e9, 918e12, 32e9),
    "h100": Target("cuda", "1x1x1", 3.35e12, 989e12, 80e9),
}
# What of libtpu looks for a TPU, on a machine or on the network, is told that there is none.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

# The sizes of all-MiniLM-L6-v2 that are not bert-base's.
MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
}


# === The step, lowered by TensorFlow ===


def build_step(
    device: str, size: str, rows: int, length: int, *, jit_compile: bool
) -> tuple[Callable[..., Any], dict[str, Any], float]:
    """A step of one replica, in bfloat16, a batch, and the FLOPs of its matrix products."""
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

    # The model asks what it computes on.
    keras.distribution.list_devices = lambda *_: [f"{device.lower()}:0"]
    keras.config.set_dtype_policy("mixed_bfloat16")
    strategy = tf.distribute.get_strategy()
    options = {"seed": 0, "jit_compile": jit_compile, "device_type": device, "clip_norm": 1.0}

    def optimizer_of(model: keras.Model) -> keras.optimizers.Optimizer:
        schedule = schedules.WarmupLinearDecay(1e-4, warmup_steps=100, total_steps=10_000)
        return optimizers.create_optimizer("adamw", schedule, model.trainable_variables)

    def zeros(named: Mapping[str, features.Feature], **sizes: int) -> dict[str, Any]:
        return {
            key: tf.zeros([sizes[letter] for letter in feature.dimensions], feature.dtype)
            for key, feature in named.items()
        }

    if size == "finetune":
        config = BertConfig(**MINILM)
        model = BertClassifier(config, num_classes=2)
        model.encoder.trains_without_padding = not jit_compile
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(loss=loss, jit_compile=False)
        objective = TaskObjective(model, ClassificationTask.loss_weight)
        loop = TrainingLoop(model, optimizer_of(model), strategy, objective, **options)
        encoded = zeros(features.ENCODER_FEATURES, B=rows, S=length)
        batch = {"rows": encoded, "targets": tf.zeros([rows], tf.int32)}
        predictions = 0
    else:
        preset, _, layers = size.partition("/")
        config = BertConfig.from_preset(f"bert-{preset}")
        if layers:
            config = dataclasses.replace(config, num_hidden_layers=int(layers))
        model = BertPretrainer(config)
        loop = PretrainingLoop(model, optimizer_of(model), strategy, **options)
        predictions = max(1, math.ceil(0.15 * length))
        batch = zeros(features.PRETRAINING_FEATURES, B=rows, S=length, P=predictions)
    batch[features.CURSOR] = tf.zeros([rows, 4], tf.int32)
    return loop.replica_step, batch, step_flops(config, rows, length, predictions)


def lower(platform: str, size: str, rows: int, length: int) -> tuple[str, float]:
    """A step of one replica as StableHLO, and the FLOPs of its matrix products."""
    device = {"tpu": "TPU", "cuda": "GPU"}[platform]
    step, batch, flops = build_step(device, size, rows, length, jit_compile=True)
    import tensorflow as tf

    compiled = tf.function(step, jit_compile=True, autograph=False)
    # No such device is there to lower for; the program is the same.
    text = compiled.experimental_get_compiler_ir(batch)(stage="stablehlo", platform_name="CPU")
    return text, flops


# === The compilers, in a process and perhaps an environment of their own ===


def compile_program(program: str, name: str, hlo_file: str) -> None:
    """Compiles a program, writes the result as text, and prints a line of JSON.

    A process of its own: JAX, imported, may look for a TPU or take a GPU's memory.
    """
    import jax
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    if jax.__version__ != JAX:
        sys.exit(f"jax {JAX} is needed, and {jax.__version__} is installed")
    target = TARGETS[name]
    if target.platform == "cuda":
        card = pathlib.Path(__file__).with_name(f"{name}.txtpb").read_text()
        # The topology must be given, or it asks for a client, which needs a GPU.
        options = {"topology_name": "", "topology": target.topology, "target_config": card}
    else:
        options = {"topology_name": target.topology}
    device = topologies.get_topology_desc(platform=target.platform, **options).devices[0]
    compiling = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, device_assignment=np.zeros((1, 1), int)
    )
    text = pathlib.Path(program).read_text()
    with mlir.make_ir_context():
        # The compilers do not know what XLA's bridge makes of tf.identity.
        module = ir.Module.parse(text.replace("mhlo.copy", "stablehlo.optimization_barrier"))
        began = _processor_seconds()
        found = device.client.compile(module, xla_client.DeviceList((device,)), compiling)
        seconds = _processor_seconds() - began
    memory = found.get_compiled_memory_stats()
    hlo = "\n".join(each.to_string() for each in found.hlo_modules())
    pathlib.Path(hlo_file).write_text(hlo)
    # The TPU's compiler counts itself what is accessed.
    moved = found.cost_analysis()["bytes accessed"] if target.platform == "tpu" else None
    sizes = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    print(json.dumps([seconds, *sizes, moved]))
    sys.stdout.flush()
    os._exit(0)  # libtpu's own end fails without a TPU


def _processor_seconds() -> float:
    """Seconds of all cores that this process has taken, and those that it began."""
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
# What only names or regroups what is there.
_FREE = {"get-tuple-element", "tuple", "parameter", "bitcast", "constant"}


def array_bytes(shape: str) -> int:
    """The bytes of a shape's arrays as they are tiled in a TPU's memory, padding included.

    >>> array_bytes("f32[10,3]"), array_bytes("f32[10,3]{1,0:T(8,128)}")
    (120, 8192)
    """
    total = 0
    for name, sizes, order, tile in _ARRAY.findall(shape):
        dimensions = [int(size) for size in sizes.split(",") if size]
        # The order has the fastest dimension first, and a tile has it last.
        places = [int(each) for each in order.split(",") if each]
        tiles = [int(each) for each in tile.split(",") if each]
        for dimension, multiple in zip(places, reversed(tiles), strict=False):
            dimensions[dimension] = -(-dimensions[dimension] // multiple) * multiple
        total += math.prod(dimensions) * _BYTES[name]
    return total


def kernels(hlo: str) -> Iterator[tuple[int, str]]:
    """The instructions of a program's entry that move bytes: how many, and where they come from."""
    entry = hlo[hlo.index("\nENTRY") :]
    sizes: dict[str, int] = {}
    for line in entry[: entry.index("\n}")].split("\n"):
        if found := _INSTRUCTION.match(line):
            name, shape, operation, rest = found.groups()
            sizes[name] = array_bytes(shape)
            # What is fetched ahead counts where it is used.
            if operation in _FREE or operation.endswith(("-start", "-done")):
                continue
            operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
            source = _SOURCE.search(line)
            where = re.sub(r"_\d+\b", "", source.group(1)) if source else operation
            yield sizes[name] + sum(sizes.get(each, 0) for each in operands), where[-70:]


def account(
    target: Target,
    hlo: str,
    flops: float,
    seconds: float,
    arguments: int,
    temporaries: int,
    moved: float | None,
) -> list[str]:
    """The line of a program, and what its parts move most."""
    parts, counts = collections.Counter[str](), collections.Counter[str]()
    for size, where in kernels(hlo):
        parts[where] += size
        counts[where] += 1
    moved = moved or sum(parts.values())
    least = max(moved / target.bytes_per_second, flops / target.peak)
    fits = "" if arguments + temporaries < target.memory else " TOO MUCH"
    return [
        f"{sum(counts.values()):,} kernels, {moved / 1e9:.2f} GB moved: "
        f"{moved / target.bytes_per_second * 1e3:.1f} ms; products {flops / 1e12:.3g} TFLOP: "
        f"{flops / target.peak * 1e3:.1f} ms, MFU {flops / target.peak / least:.0%} at most; "
        f"{arguments / 1e9:.2f} GB variables and batch, {temporaries / 1e9:.2f} temporaries{fits}; "
        f"compiled in {seconds:.0f} s of a processor",
        *(
            f"  {size / 1e9:7.2f} GB {counts[where]:4}  {where}"
            for where, size in parts.most_common(8)
        ),
    ]


def measure(name: str, program: str, python: str, folder: pathlib.Path) -> list[str]:
    """Lowers and compiles a program for a target, and accounts for it."""
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
    words = [python, __file__, "--compile", str(path), name, str(hlo_file)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return [f"the compiler ended with status {done.returncode}: {last}"]
    found = json.loads(done.stdout.splitlines()[-1])
    return account(target, hlo_file.read_text(), flops, *found)


def main() -> None:
    if sys.argv[1:2] == ["--compile"]:
        compile_program(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", default="v5e,h100", help=f"some of {', '.join(TARGETS)}")
    parser.add_argument("--programs", default="tiny:32x128")
    parser.add_argument("--python", default="", help="TARGET=PATH of interpreters with a compiler")
    parser.add_argument("--keep", help="a folder for the programs")
    given = parser.parse_args()
    pythons: Mapping[str, str] = dict(
        each.partition("=")[::2] for each in given.python.split(",") if each
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(given.keep or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.targets.split(","):
            for program in given.programs.split(","):
                lines = measure(name, program, pythons.get(name, sys.executable), folder)
                print(f"{name} {program}: " + "\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
