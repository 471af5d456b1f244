"""``python -m benchmarks.gpu`` without a card: its sentence, and a trial from end to end."""

import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks.gpu import describe_card, known_peak

ROOT = pathlib.Path(__file__).parent.parent


def _run(*arguments):
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("card", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA H100 80GB HBM3", 989.0),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA A1000", None),
    ],
)
def test_a_card_is_known_by_its_longest_name(card, peak):
    assert known_peak(card) == peak


def test_without_a_card_one_sentence():
    if describe_card()[0]:
        pytest.skip("This machine has a card.")
    done = _run()
    assert done.returncode == 1
    assert done.stderr.startswith("No NVIDIA card answers nvidia-smi")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_trial_on_the_cpu_prints_a_line_for_each_contender():
    done = _run("--device=cpu", "--sizes=tiny", "--lengths=16", "--rows=2", "--rounds=1")
    assert done.returncode == 0, done.stderr[-3000:]
    rows = re.findall(r"^tiny +16 bfloat16 +(.+?)  +2 rows +([\d.]+) s/step", done.stdout, re.M)
    assert [name for name, _ in rows][:2] == ["bert_tf", "bert_tf XLA"]
    assert all(float(seconds) > 0 for _, seconds in rows)
    assert "measured by a matrix product" in done.stdout
