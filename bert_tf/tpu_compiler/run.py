"""The step that ``TPUStrategy`` would run, lowered by TensorFlow, compiled, and its account."""

import dataclasses
import heapq
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile

import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.files import check_new
from bert_tf.pretraining.cost import estimate_step
from bert_tf.pretraining.data import predictions_per_row
from bert_tf.pretraining.model import build_loop, open_start, sized_config
from bert_tf.pretraining.settings import Phase, PretrainingSettings, phases_of
from bert_tf.pretraining.timing import choose_precision
from bert_tf.training.distribution import Distribution

from . import compiler, report

JAX = "0.10.2"
_SHOWN = 10


def run(settings: PretrainingSettings, topology: str, cores: int, hlo_file: str | None) -> None:
    """Compiles the step of each phase, for one of some cores that share the batch."""
    chip = report.CHIPS.get(topology.split(":")[0])
    if chip is None:
        raise ValueError(
            f"--topology={topology}: expected {', '.join(report.CHIPS)} with the numbers of chips, "
            "such as v5e:2x2."
        )
    if settings.train_batch_size % cores:
        raise ValueError(
            f"--train_batch_size={settings.train_batch_size} cannot be shared by {cores} --cores."
        )
    phases = phases_of(settings)
    if hlo_file and len(phases) > 1:
        raise ValueError(
            f"--hlo_file={hlo_file} takes one program, and --phases has {len(phases)}: give the "
            "length of one by --max_seq_length."
        )
    _check_installed()
    if hlo_file:
        check_new(hlo_file)
    settings = dataclasses.replace(settings, train_batch_size=settings.train_batch_size // cores)
    settings, start = open_start(settings)
    config = sized_config(settings, start)
    devices = Distribution(tf.distribute.get_strategy(), "TPU", f"a core of {topology}")
    settings = choose_precision(settings, config, devices)
    for phase in phases:
        length = phase.max_seq_length
        print(
            f"{settings.bert_config or settings.init_checkpoint}, {phase.rows(settings)} rows of "
            f"{length} tokens, {settings.precision}, on {devices.description}:",
            flush=True,
        )
        program = _lower(settings, config, phase, devices)
        print("Compiling; bert-base takes minutes.", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            found, hlo = _compile(program, topology, folder)
            if hlo_file:
                tf.io.gfile.copy(os.path.join(folder, "hlo"), hlo_file)
        model_flops = estimate_step(
            config,
            batch_size=phase.rows(settings),
            max_seq_length=length,
            max_predictions_per_seq=predictions_per_row(settings, length),
            nsp=settings.nsp,
        ).flops
        largest = heapq.nlargest(_SHOWN, report.instructions(hlo))
        print("\n".join([*report.lines(found, chip, model_flops), *report.table(largest)]))


def _check_installed() -> None:
    try:
        version = importlib.metadata.version("jax")
        importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(
            f"compile_tpu needs the TPU's compiler, which the package {error.name} brings: pip "
            "install 'bert_tf[tpu-compiler]'."
        ) from error
    if version != JAX:
        raise ImportError(
            f"compile_tpu needs jax {JAX}, and {version} is installed: pip install "
            "'bert_tf[tpu-compiler]'."
        )


def _lower(
    settings: PretrainingSettings, config: BertConfig, phase: Phase, devices: Distribution
) -> str:
    """The step of one replica as a StableHLO program: its forward and backward pass, its update."""
    loop = build_loop(settings, config, devices)
    sizes = {
        "B": phase.rows(settings),
        "S": phase.max_seq_length,
        "P": predictions_per_row(settings, phase.max_seq_length),
    }
    batch = {
        key: tf.zeros([sizes[letter] for letter in feature.dimensions], feature.dtype)
        for key, feature in features.PRETRAINING_FEATURES.items()
    }
    batch[features.CURSOR] = tf.zeros([sizes["B"], 4], tf.int32)
    step = tf.function(loop.replica_step, jit_compile=True)
    # No TPU is there to lower for; the program is the same.
    program: str = step.experimental_get_compiler_ir(batch)(stage="stablehlo", platform_name="CPU")
    return program


def _compile(program: str, topology: str, folder: str) -> tuple[report.Compiled, str]:
    path, hlo_file = os.path.join(folder, "program"), os.path.join(folder, "hlo")
    with open(path, "w", encoding="utf-8") as file:
        file.write(program)
    done = subprocess.run(
        [sys.executable, "-m", compiler.__name__, path, topology, hlo_file],
        env={**os.environ, **compiler.ENVIRONMENT},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise ValueError(
            f"The TPU's compiler ended with status {done.returncode} on {topology}: {last}"
        )
    with open(hlo_file, encoding="utf-8") as file:
        return report.Compiled(**json.loads(done.stdout.splitlines()[-1])), file.read()
