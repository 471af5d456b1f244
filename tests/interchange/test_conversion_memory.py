"""A conversion adds at most one and a half times the model to the bare process."""

import functools
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.interchange import FORMATS, hugging_face, keras_files
from bert_tf.interchange.checkpoint import Checkpoint, StoredTensor
from bert_tf.interchange.weights import expected_shapes
from tests.interchange.small_checkpoints import MODELS, make_checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not pathlib.Path("/proc/self/status").exists(), reason="Linux' /proc is missing"
    ),
]
PROGRAM = pathlib.Path(__file__).with_name("measure_conversion.py")
# 317 MB, of which the word embeddings are a quarter; BERT-base's are a fifth.
CONFIG = BertConfig(hidden_size=640, num_attention_heads=10, intermediate_size=2560)
SPEC = MODELS["pretrainer"]
MOST = 1.5


def _draw(name, shape):
    """A tensor when it is read, each time the same one."""
    random = np.random.default_rng(list(name.encode()))
    return random.normal(name.endswith("gamma"), 0.02, shape).astype("float32")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A tiny and a large model in both formats, and the large one's bytes."""
    folder = tmp_path_factory.mktemp("sources")
    tensors = {
        name: StoredTensor((name,), shape, "float32", functools.partial(_draw, name, shape))
        for name, shape in expected_shapes(CONFIG, SPEC).items()
    }
    large = Checkpoint("", "", CONFIG, SPEC, tensors)
    for name, checkpoint in (("tiny", make_checkpoint(SPEC)), ("large", large)):
        (folder / name).mkdir()
        hugging_face.write(checkpoint, str(folder / name))
        keras_files.write(checkpoint, str(folder / f"{name}.keras"))
    return folder, 4 * sum(math.prod(tensor.shape) for tensor in tensors.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "source, form",
    [
        *(("huggingface", form) for form in FORMATS),
        ("keras", "huggingface"),
    ],
)
def test_what_a_conversion_adds(sources, tmp_path, source, form):
    folder, model = sources
    end = ".keras" if source == "keras" else ""
    target = tmp_path / ("target.keras" if form == "keras" else "target")
    done = subprocess.run(
        [sys.executable, PROGRAM, folder / f"tiny{end}", folder / f"large{end}", target, form],
        capture_output=True,
        text=True,
        # Freed arrays go back to the system: what glibc keeps of them differs between machines.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"},
    )
    assert done.returncode == 0, done.stderr
    ratio = int(done.stdout) / model
    print(f"{source} to {form}: {ratio:.2f} times the model")
    assert 0.1 < ratio <= MOST
