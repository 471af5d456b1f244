"""Shared fixtures: a tiny checkpoint, tables and finished runs."""

import types

import pytest

import bert_tf
from bert_tf.checkpoints import conversion
from bert_tf.finetuning.run import run
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.training.run_directory import FineTuningDirectory

from .small_runs import settings, write_inputs


@pytest.fixture(scope="session", autouse=True)
def delete_state():
    """Makes finished runs keep their last state, so that tests can compare it.

    Yields the original method.
    """
    before = FineTuningDirectory.delete_state
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FineTuningDirectory, "delete_state", lambda self: None)
        yield before


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """Directory of input files; see ``write_inputs``."""
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="session")
def finished(inputs, tmp_path_factory):
    """Directory of an uninterrupted run of 3 epochs of 6 steps."""
    model_dir = tmp_path_factory.mktemp("finished") / "run"
    run(settings(inputs, model_dir, test_file=inputs / "test.tsv"))
    return model_dir


@pytest.fixture(scope="session")
def sentence_model(inputs, tmp_path_factory):
    """A sentence-transformers model with mean pooling and an untrained pooler."""
    path = tmp_path_factory.mktemp("sentence") / "model"
    model = bert_tf.load(inputs / "tiny")
    model.sentence_embedding = SentenceEmbedding("mean", normalize=True, max_seq_length=16)
    bert_tf.save(model, path.with_name("ours"))
    conversion.convert(str(path.with_name("ours")), str(path), "huggingface")
    assert (path / "1_Pooling" / "config.json").is_file()
    return path


@pytest.fixture(scope="session")
def flagged_run(inputs, sentence_model, tmp_path_factory):
    """A run of 8 steps with rarely used flags: its directory and these flags."""
    model_dir = tmp_path_factory.mktemp("asked") / "run"
    flags = {"max_steps": 8, "hidden_dropout_prob": 0.25, "metric": "loss"}
    flags |= {"learning_rate": 3e-2, "weight_decay": 0.0, "init_checkpoint": sentence_model}
    flags |= {"freeze": 1}
    run(settings(inputs, model_dir, **flags))
    return types.SimpleNamespace(path=model_dir, flags=flags)
