"""The account of a GPU's step, which no change is to make longer unseen."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import bert_tf

ROOT = pathlib.Path(bert_tf.__file__).parent.parent
# An interpreter with the compiler for NVIDIA's cards: benchmarks/compiled_step.py says which.
COMPILER = os.environ.get("BERT_TF_CUDA_COMPILER")


def _measured(program, folder, python):
    """What the benchmark prints of a program, and the program as it was lowered."""
    command = [sys.executable, "-m", "benchmarks.compiled_step", "--targets=h100"]
    command += [f"--programs={program}", f"--keep={folder}", f"--python=h100={python}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (lowered,) = folder.glob("*.mlir")
    return done.stdout, lowered.read_text()


@pytest.mark.slow
def test_what_xla_is_given_stays_small(tmp_path):
    """A whole step of bert-tiny; with Philox in place of the hash it is 6,600 operations."""
    _, lowered = _measured("tiny:32x128", tmp_path, sys.executable)
    operations = re.findall(r"\b(?:stablehlo|chlo|mhlo)\.", lowered)
    assert 3500 < len(operations) < 4100  # of which some 60 look whether ids have rows
    assert "rng_bit_generator" not in lowered


@pytest.mark.slow
@pytest.mark.skipif(
    not COMPILER, reason="BERT_TF_CUDA_COMPILER names no interpreter with a compiler"
)
@pytest.mark.parametrize(
    ("program", "most"),
    [("base:256x128", (950, 104.0, 12.0)), ("finetune:32x128", (420, 5.4, 0.6))],
)
def test_an_h100_runs_few_kernels(tmp_path, program, most):
    """Kernels, GB that they move, GB of temporaries."""
    said, _ = _measured(program, tmp_path, COMPILER)
    found = re.search(
        rf"h100 {program}: ([\d,]+) kernels, ([\d.]+) GB moved.* batch, ([\d.]+) temporaries", said
    )
    numbers = [float(each.replace(",", "")) for each in found.groups()]
    assert all(0.5 * limit < number < limit for number, limit in zip(numbers, most, strict=True))
