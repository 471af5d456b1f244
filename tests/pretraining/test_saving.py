"""What a checkpoint says beside the variables."""

import dataclasses

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pretraining import saving
from bert_tf.pretraining.saving import Saving
from bert_tf.training import checkpoints, optimizers
from bert_tf.training.loop import PretrainingLoop
from bert_tf.training.run_directory import RunDirectory
from bert_tf.training.step import draw_on_tpu
from bert_tf.training.workers import Workers

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
        return loop, Saving(settings, directory, loop, Workers(), lambda path: None)

    return make


# What a run draws, by its device and the version that its checkpoint names, if any.
@pytest.mark.parametrize(
    ("device_type", "kept", "draw", "leaves_out_padding"),
    [
        ("TPU", {"draws": 3}, draw_on_tpu, False),
        ("TPU", {"draws": 2}, draw_on_tpu, False),
        ("TPU", {}, None, False),
        ("CPU", {"draws": 3}, None, True),
        ("CPU", {"draws": 2}, None, False),
        ("CPU", {}, None, False),
    ],
)
def test_a_run_keeps_the_draws_that_it_began_with(
    make_saving, tmp_path, device_type, kept, draw, leaves_out_padding
):
    folder = str(tmp_path / "run" / "checkpoints")
    loop, first = make_saving(device_type)
    with first.background:
        assert first.save()
    assert checkpoints.find_latest(folder).extra["draws"] == 3
    extra = {**saving.Position().to_json(), "trend": [0.0, 0.0, 0], **kept}
    checkpoints.save(folder, 3, loop.state(), extra, keep=1)
    loop, second = make_saving(device_type)
    assert second.restore()
    assert loop.replica_step._update.draw is draw
    assert loop.model.encoder.trains_without_padding is leaves_out_padding
    loop.optimizer.iterations.assign(4)
    with second.background:
        second.save()
    assert checkpoints.find_latest(folder).extra["draws"] == kept.get("draws", 1)
