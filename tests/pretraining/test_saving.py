"""What a checkpoint says beside the variables."""

import dataclasses
import math

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.dropout import draw_in_pairs
from bert_tf.pretraining.saving import Saving
from bert_tf.pretraining.settings import Phase
from bert_tf.training import checkpoints, optimizers
from bert_tf.training.background_saving import BackgroundSaving
from bert_tf.training.bad_steps import BadStep, BadStepError
from bert_tf.training.pretraining import PretrainingLoop
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
        return loop, Saving(
            *(settings, directory, loop, Workers(), BackgroundSaving()), lambda path: None
        )

    return make


@pytest.mark.parametrize(
    ("device_type", "draw", "leaves_out_padding"),
    [("TPU", draw_on_tpu, False), ("CPU", draw_in_pairs, True)],
)
def test_how_dropout_draws(make_saving, device_type, draw, leaves_out_padding):
    loop, _ = make_saving(device_type)
    assert loop.model.encoder.seed_generator.draw is draw
    assert loop.model.encoder.trains_without_padding is leaves_out_padding


def test_a_rewind_goes_back_further_where_nothing_is_gained(make_saving, tmp_path):
    loop, saving = make_saving("CPU")
    phase = Phase(32, 0, 9)

    def steps():
        return sorted(checkpoints.finished(str(tmp_path / "run" / "checkpoints")))

    def save(*steps):
        for step in steps:
            loop.optimizer.iterations.assign(step)
            saving.position = saving.position.behind([(0, 0, step)])
            saving.save()

    def rewind(step):
        bad = BadStep(step, ((0, 1, step),), math.nan, 1.0)
        saving.rewind(0, phase, BadStepError(bad))
        assert list(saving.position.reached[0]) == [(0, 1, step + 1)]
        return loop.step

    with saving.background:
        save(2, 4, 6)
        assert rewind(6) == 6
        save(8)
        assert rewind(8) == 8  # it got further
        assert (rewind(8), steps()) == (6, [4, 6])
        loop.optimizer.iterations.assign(7)
        save(7)
        assert (rewind(7), steps()) == (4, [4])
        save(6)
        with pytest.raises(BadStepError):
            rewind(8)
        assert steps() == [4]  # what a restart restores


def test_so_many_rewinds_without_a_checkpoint_beyond(make_saving):
    loop, saving = make_saving("CPU")
    saving._settings = dataclasses.replace(saving._settings, max_bad_steps=1)
    with saving.background:
        saving.save()
        bad = BadStepError(BadStep(3, ((0, 0, 1),), math.nan, 1.0))
        saving.rewind(0, Phase(32, 0, 9), bad)
        loop.optimizer.iterations.assign(3)
        saving.save()  # of no use: not beyond the bad step
        with pytest.raises(BadStepError):
            saving.rewind(0, Phase(32, 0, 9), BadStepError(bad.bad._replace(step=5)))
