"""TensorFlow 2.14, of 2023, gives the answers recorded with exports of today's.

It is installed into an environment of its own, of Python 3.11, the last that it knows: once per
run, or for good in the folder that ``BERT_TF_OLD_TENSORFLOW`` names.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from bert_tf.saved_models import verification

from .head_exports import TOLERANCES, exported, heads
from .test_operations import OPERATIONS

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PACKAGE = "tensorflow-text==2.14.0"  # which brings TensorFlow 2.14.1
ASK_REGISTRY = """
import importlib.util, glob, json, os, sys
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

root = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
for library in glob.glob(os.path.join(root, "python", "ops", "*.so")):
    tf.load_op_library(library)
print(json.dumps([name for name in sys.argv[1:] if op_def_registry.get(name) is None]))
"""


@pytest.fixture(scope="module")
def old_python(tmp_path_factory):
    """The interpreter of an environment with TensorFlow 2.14."""
    base = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")
    if base is None:
        pytest.skip("TensorFlow 2.14 needs Python 3.11, and python3.11 is not on the PATH")
    kept = os.environ.get("BERT_TF_OLD_TENSORFLOW")
    folder = pathlib.Path(kept) if kept else tmp_path_factory.mktemp("tensorflow_2_14")
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", PACKAGE]
        installed = subprocess.run(pip, capture_output=True, text=True)
        if installed.returncode:
            said = (installed.stderr.strip().splitlines() or ["nothing"])[-1]
            pytest.skip(f"pip could not install {PACKAGE}: {said}")
        done.touch()
    return str(python)


@pytest.mark.parametrize(
    "name",
    # Whether all operations are there, the next test asks.
    heads("pretrainer", "span_predictor", "bfloat16"),
)
def test_recorded_answers(old_python, tmp_path_factory, name):
    export = exported(name, tmp_path_factory)
    tolerance = TOLERANCES.get(name, 1e-4)
    found = verification.verify(export, python=old_python, tolerance=tolerance)
    assert found.tensorflow == "2.14.1" and found.tensorflow_text == "2.14.0"
    assert found.problems == ()


def test_every_operation_is_there(old_python):
    command = [old_python, "-I", "-c", ASK_REGISTRY, *OPERATIONS, "NoSuchOperation"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == '["NoSuchOperation"]', done.stderr
