"""What a checkpoint says beside the variables."""

import pytest
import tensorflow as tf

from bert_tf.pretraining import saving
from bert_tf.pretraining.saving import Saving
from bert_tf.training import checkpoints, optimizers
from bert_tf.training.loop import PretrainingLoop
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.step import draw_on_tpu
from bert_tf.training.workers import Workers
from tests.training.conftest import small_model

from .commands import arguments, parse


@pytest.fixture
def make_saving(inputs, tmp_path):
    def make():
        model = small_model()
        optimizer = optimizers.create_optimizer("adam", 1e-3, model.trainable_variables)
        strategy = tf.distribute.get_strategy()
        loop = PretrainingLoop(model, optimizer, strategy, seed=0, device_type="TPU")
        settings = parse(*arguments(inputs, tmp_path / "run"))[0]
        directory = RunDirectory(str(tmp_path / "run"))
        return loop, Saving(settings, directory, loop, Workers(), lambda path: None)

    return make


def test_a_run_keeps_the_draws_that_it_began_with(make_saving, tmp_path):
    folder = str(tmp_path / "run" / "checkpoints")
    loop, first = make_saving()
    assert loop.replica_step._update.draw is draw_on_tpu
    with first.background:
        assert first.save()
    assert checkpoints.find_latest(folder).extra["draws"] == 2
    loop, second = make_saving()
    assert second.restore() and loop.replica_step._update.draw is draw_on_tpu
    # As an earlier version saved it.
    extra = {**saving.Position().to_json(), "trend": [0.0, 0.0, 0]}
    checkpoints.save(folder, 3, loop.state(), extra, keep=1)
    loop, third = make_saving()
    assert third.restore() and loop.replica_step._update.draw is None
    loop.optimizer.iterations.assign(4)
    with third.background:
        third.save()
    assert checkpoints.find_latest(folder).extra["draws"] == 1
