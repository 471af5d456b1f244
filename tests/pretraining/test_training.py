"""Best weights of a training: saved and restored."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from bert_tf.pipelines.wordpiece import BertTokenizer
from bert_tf.pretraining.model import build_loop
from bert_tf.pretraining.training import Position, PretrainingInputs, PretrainingTrainer
from bert_tf.training import distribution, saved_states
from bert_tf.training.run_directory import RunDirectory

from .commands import arguments, parse


@pytest.fixture
def training(inputs, tmp_path):
    """A training of two phases, with a model, before its first step."""
    flags = {"max_seq_length": None, "phases": "16:0.5,32:0.5"}
    settings = parse(*arguments(inputs, tmp_path / "run", **flags))[0]
    config = BertConfig.from_preset("bert-tiny", vocab_size=len(SPECIAL_TOKENS))
    config = dataclasses.replace(config, hidden_size=4, intermediate_size=4)
    directory, devices = (
        RunDirectory(settings.model_dir),
        distribution.choose_strategy("one_device"),
    )
    tokenizer = BertTokenizer(SPECIAL_TOKENS)
    read = PretrainingInputs(settings, directory, devices, (), None, tokenizer, config)
    return PretrainingTrainer(read, build_loop(settings, config, devices))


def test_best_weights_of_phase_are_saved_and_restored(training, tmp_path, capsys):
    loop = training.loop
    folder = tmp_path / "run" / "best" / "checkpoints"
    weight = loop.model.trainable_variables[0]

    def evaluated(step, loss, phase=0):
        """Evaluates; returns the step of the saved weights."""
        loop.optimizer.iterations.assign(step)
        weight.assign(np.full(weight.shape, step))
        training.state = Position(phase)
        training.keep_best(loss)
        training.background.wait()
        found = saved_states.find_latest(str(folder))
        reader = tf.train.load_checkpoint(f"{found.path}/variables")
        assert (reader.get_tensor(f"model/{weight.path}") == found.step).all()
        assert found.extra == training.best
        return found.step

    assert [evaluated(3, 2.0), evaluated(6, 1.0), evaluated(9, 3.0)] == [3, 6, 6]
    assert evaluated(12, math.nan) == 6
    assert [evaluated(15, 5.0, phase=1), evaluated(18, 6.0, phase=1)] == [15, 15]
    best, training.best = training.best, {}
    training.restore_best()
    assert training.best == best == {"step": 15, "phase": 1, "loss": 5.0}
    # A training that resumes from an earlier step repeats this one, so it is deleted.
    loop.optimizer.iterations.assign(9)
    training.restore_best()
    assert training.best == {} and not folder.exists()
    assert evaluated(9, 4.0) == 9
    (folder / "step-00000009" / "variables.index").write_bytes(b"")
    training.restore_best()
    assert training.best == {}
    assert "best: the next evaluation will be the best" in capsys.readouterr().out
    assert evaluated(9, 7.0) == 9  # replaces the other one
    # A copy by the user is not deleted.
    saved_states.save(str(folder), 12, {"model/w": np.zeros(1)}, {}, keep=9)
    with pytest.raises(
        ValueError, match="best/checkpoints contains a checkpoint that was not saved as the best"
    ):
        training.restore_best()
    assert (folder / "step-00000012").is_dir()
