"""Fixtures of the tests of checkpoints."""

import dataclasses

import pytest

from bert_tf.checkpoints import conversion, model_directory
from tests.checkpoints.small_checkpoints import MODELS, SMALL, make_checkpoint


@pytest.fixture
def save(tmp_path):
    """Writes a checkpoint, some of its tensors left out or changed; gives it and its path."""

    def write(name, *, config=SMALL, without=(), changed=(), **fields):
        checkpoint = make_checkpoint(MODELS[name], config, **fields)
        tensors = {**checkpoint.tensors, **dict(changed)}
        tensors = {key: t for key, t in tensors.items() if not key.startswith(tuple(without))}
        checkpoint = dataclasses.replace(checkpoint, tensors=tensors)
        model_directory.write(checkpoint, str(tmp_path / "m"))
        return checkpoint, str(tmp_path / "m")

    return write


@pytest.fixture
def unverified(monkeypatch):
    """Both models run in other tests; here it is the files that count."""
    monkeypatch.setattr(conversion, "compare", lambda *samples: {"logits": 0.0})
