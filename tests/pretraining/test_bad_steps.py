"""Batches that ruin a training: skipped, or rewound behind, as a run that never had them."""

import itertools

import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pretraining import run as pretraining_run
from bert_tf.training.bad_steps import BadStepError

from .commands import arguments, assert_bit_equal, parse, weights

pytestmark = pytest.mark.slow

_OF_THE_RUN = pretraining_run.training_batches


def _run(inputs, model_dir, monkeypatch, *, bad=(), without=(), only=None, **flags):
    """A run of which some batches, by their number, are not a number, or not there.

    ``only``: those of the phase of so long rows.
    """

    def batches(*settings, **shard):
        *rest, _ = settings
        if only not in (None, settings[3].max_seq_length):
            return _OF_THE_RUN(*settings, **shard)
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


@pytest.mark.parametrize(
    ("on_bad_step", "without"),
    [
        pytest.param("skip", [6], marks=pytest.mark.exhaustive),
        pytest.param("rewind", [4, 5, 6], marks=pytest.mark.exhaustive),
    ],
    ids=["skip", "rewind"],
)
def test_a_bad_batch_is_as_if_it_had_not_been_there(
    on_bad_step, without, inputs, tmp_path, monkeypatch, capsys
):
    _run(inputs, tmp_path / "bad", monkeypatch, bad=[6], on_bad_step=on_bad_step)
    printed = capsys.readouterr().out
    assert "The loss or its gradient became infinite or not a number at step 6 (loss nan" in printed
    assert ("Going on from the checkpoint at step 4." in printed) == (on_bad_step == "rewind")
    _run(inputs, tmp_path / "clean", monkeypatch, without=without)
    assert_bit_equal(weights(tmp_path / "bad", 12), weights(tmp_path / "clean", 12))


@pytest.mark.exhaustive
def test_a_phase_is_begun_again_where_the_one_before_ended(inputs, tmp_path, monkeypatch, capsys):
    flags = {"phases": "32:0.5,16:0.5", "max_seq_length": None}
    # Batch 1 of both phases: of the first one the run has nothing to go back to.
    bad = {"bad": [1], "on_bad_step": "rewind", "save_checkpoints_steps": 6}
    with pytest.raises(BadStepError):
        _run(inputs, tmp_path / "first", monkeypatch, **bad, **flags)
    _run(inputs, tmp_path / "clean", monkeypatch, without=[0, 1], only=16, **flags)
    _run(inputs, tmp_path / "bad", monkeypatch, only=16, **bad, **flags)
    assert "Going on from the checkpoint at step 6." in capsys.readouterr().out
    assert_bit_equal(weights(tmp_path / "bad", 12), weights(tmp_path / "clean", 12))


@pytest.mark.parametrize(
    ("bad", "flags", "step"),
    [
        pytest.param([6], {}, 6, marks=pytest.mark.exhaustive),
        # Nothing is there to go back to.
        pytest.param([1], {"on_bad_step": "rewind"}, 1, marks=pytest.mark.exhaustive),
        pytest.param(
            *([5, 8], {"on_bad_step": "rewind", "max_bad_steps": 1}, 6),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            *([5, 6], {"on_bad_step": "skip", "max_bad_steps": 1}, 5), marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_run_stops_at_a_bad_batch(bad, flags, step, inputs, tmp_path, monkeypatch):
    with pytest.raises(BadStepError) as raised:
        _run(inputs, tmp_path / "run", monkeypatch, bad=bad, **flags)
    assert raised.value.bad.step == step
