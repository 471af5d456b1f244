"""Fixtures of the tests of checkpoints."""

import dataclasses
import gc

import pytest

from bert_tf.interchange import model_directory
from tests.interchange.small_checkpoints import MODELS, make_checkpoint


@pytest.fixture
def save(tmp_path):
    """Writes a checkpoint, some of its tensors left out or changed; gives it and its path."""

    def write(name, *, without=(), changed=(), **fields):
        checkpoint = make_checkpoint(MODELS[name], **fields)
        tensors = {**checkpoint.tensors, **dict(changed)}
        tensors = {key: t for key, t in tensors.items() if not key.startswith(tuple(without))}
        checkpoint = dataclasses.replace(checkpoint, tensors=tensors)
        model_directory.write(checkpoint, str(tmp_path / "m"))
        return checkpoint, str(tmp_path / "m")

    return write


@pytest.fixture(autouse=True, scope="session")
def _quick_collections():
    """Leaves what the imports made to itself when garbage is collected, as conversions do."""
    gc.freeze()
