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
    assert 3500 < len(operations) < 4000
    assert "rng_bit_generator" not in lowered


@pytest.mark.slow
@pytest.mark.skipif(
    not COMPILER, reason="BERT_TF_CUDA_COMPILER names no interpreter with a compiler"
)
def test_an_h100_runs_nine_hundred_kernels(tmp_path):
    said, _ = _measured("base:256x128", tmp_path, COMPILER)
    found = re.match(
        r"h100 base:256x128: ([\d,]+) kernels, ([\d.]+) GB moved.* batch, ([\d.]+) temporaries",
        said,
    )
    kernels, moved, temporaries = (float(each.replace(",", "")) for each in found.groups())
    assert kernels < 900 and moved < 105.5 and temporaries < 14
