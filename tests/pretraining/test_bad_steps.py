"""Batches that ruin a training: skipped, or rewound behind, as a run that never had them."""

import itertools

import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pretraining import run as pretraining_run

from .commands import arguments, assert_bit_equal, parse, weights

pytestmark = pytest.mark.slow

_OF_THE_RUN = pretraining_run.training_batches


def _run(inputs, model_dir, monkeypatch, *, bad=(), without=(), **flags):
    """A run of which some batches, by their number, are not a number, or not there."""

    def batches(*settings, **shard):
        *rest, _ = settings
        cursors = [
            batch[features.CURSOR][-1].numpy().tolist()
            for batch in itertools.islice(_OF_THE_RUN(*rest, (0, 0, 0), **shard), 12)
        ]

        def is_among(batch, numbers):
            return tf.reduce_any(
                [tf.reduce_all(batch[features.CURSOR][-1] == cursors[number]) for number in numbers]
            )

        def poison(batch):
            weights = batch[features.MASKED_LM_WEIGHTS]
            weights = tf.where(is_among(batch, bad), float("nan"), weights) if bad else weights
            return {**batch, features.MASKED_LM_WEIGHTS: weights}

        dataset = _OF_THE_RUN(*settings, **shard).map(poison)
        return dataset.filter(lambda batch: ~is_among(batch, without)) if without else dataset

    monkeypatch.setattr(pretraining_run, "training_batches", batches)
    flags |= {"held_out_fraction": 0, "export": "false", "steps_per_loop": 2}
    pretraining_run.run(parse(*arguments(inputs, model_dir, **flags))[0])


def test_a_bad_batch_is_as_if_it_had_not_been_there(inputs, tmp_path, monkeypatch, capsys):
    """Behind the checkpoint at step 4; a batch that is skipped is in tests/training."""
    _run(inputs, tmp_path / "bad", monkeypatch, bad=[6], on_bad_step="rewind")
    printed = capsys.readouterr().out
    assert "The loss or its gradient became infinite or not a number at step 6 (loss nan" in printed
    assert "Continuing from the checkpoint at step 4." in printed
    _run(inputs, tmp_path / "clean", monkeypatch, without=[4, 5, 6])
    assert_bit_equal(weights(tmp_path / "bad", 12), weights(tmp_path / "clean", 12))
