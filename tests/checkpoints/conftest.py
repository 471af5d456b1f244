"""Fixtures for the checkpoint tests."""

import dataclasses

import pytest

from bert_tf.checkpoints import conversion, model_directory
from tests.checkpoints.small_checkpoints import MODELS, SMALL, make_checkpoint


@pytest.fixture
def save(tmp_path):
    """Returns a function that saves a checkpoint and returns it with its path.

    The function omits the tensors in `without` and replaces those in `changed`.
    """

    def write(name, *, config=SMALL, without=(), changed=(), **fields):
        checkpoint = make_checkpoint(MODELS[name], config, **fields)
        tensors = {**checkpoint.tensors, **dict(changed)}
        tensors = {key: t for key, t in tensors.items() if not key.startswith(tuple(without))}
        checkpoint = dataclasses.replace(checkpoint, tensors=tensors)
        model_directory.write(checkpoint, str(tmp_path / "m"))
        return checkpoint, str(tmp_path / "m")

    return write


@pytest.fixture
def without_comparison(monkeypatch):
    """Skips the comparison of outputs, for tests that only inspect the files."""
    monkeypatch.setattr(conversion, "compare", lambda *samples: {"logits": 0.0})
