"""What a checkpoint says beside the variables."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.pretraining.saving import Position, Saving
from bert_tf.training import optimizers, saved_states
from bert_tf.training.distribution import Workers
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.saved_states import BackgroundSaving

from .commands import arguments, parse


@pytest.fixture
def make_saving(inputs, tmp_path):
    def make(device_type):
        config = BertConfig.from_preset("bert-tiny", vocab_size=9)
        model = BertPretrainer(dataclasses.replace(config, hidden_size=4, intermediate_size=4))
        optimizer = optimizers.create_optimizer("adam", 1e-3, model.trainable_variables)
        strategy = tf.distribute.get_strategy()
        loop = PretrainingLoop(model, optimizer, strategy, seed=0, device_type=device_type)
        settings = parse(*arguments(inputs, tmp_path / "run"))[0]
        directory = RunDirectory(str(tmp_path / "run"))
        return loop, Saving(
            *(settings, directory, loop, Workers(), BackgroundSaving()), lambda path: None
        )

    return make


def test_the_best_of_a_phase_is_kept_and_found_again(make_saving, tmp_path, capsys):
    loop, saving = make_saving("CPU")
    folder = tmp_path / "run" / "best" / "checkpoints"
    weight = loop.model.trainable_variables[0]

    def evaluated(step, loss, phase=0):
        """The step whose weights are kept then, and what is known of it."""
        loop.optimizer.iterations.assign(step)
        weight.assign(np.full(weight.shape, step))
        saving.position = Position(phase)
        saving.keep_best(loss)
        saving.background.wait()
        found = saved_states.find_latest(str(folder))
        reader = tf.train.load_checkpoint(f"{found.path}/variables")
        assert (reader.get_tensor(f"model/{weight.path}") == found.step).all()
        assert found.extra == saving.best
        return found.step

    assert [evaluated(3, 2.0), evaluated(6, 1.0), evaluated(9, 3.0)] == [3, 6, 6]
    assert evaluated(12, math.nan) == 6
    assert [evaluated(15, 5.0, phase=1), evaluated(18, 6.0, phase=1)] == [15, 15]
    best, saving.best = saving.best, {}
    saving._restore_best()
    assert saving.best == best == {"step": 15, "phase": 1, "loss": 5.0}
    # Of a training that goes on from before it, it is not: it comes again.
    loop.optimizer.iterations.assign(9)
    saving._restore_best()
    assert saving.best == {} and not folder.exists()
    assert evaluated(9, 4.0) == 9
    (folder / "step-00000009" / "variables.index").write_bytes(b"")
    saving._restore_best()
    assert saving.best == {}
    assert "best is damaged: the next evaluation is the best" in capsys.readouterr().out
    assert evaluated(9, 7.0) == 9  # in its place
    # A copy that the user put there stays.
    saved_states.save(str(folder), 12, {"model/w": np.zeros(1)}, {}, keep=9)
    with pytest.raises(ValueError, match="best/checkpoints holds a checkpoint that is no run's be"):
        saving._restore_best()
    assert (folder / "step-00000012").is_dir()
