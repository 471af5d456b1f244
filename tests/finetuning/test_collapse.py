import dataclasses
import json

import pytest

from bert_tf.finetuning.training import DivergedError, LossCurve, describe_collapse


def curve(losses, planned=None):
    made = LossCurve(planned or len(losses))
    for step, loss in enumerate(losses):
        made.add(step, loss)
    return made


def test_a_loss_counts_as_falling_from_two_percent_on():
    # Means of the first and of the last ten of a hundred.
    assert not curve([1.0] * 10 + [5.0] * 80 + [0.979] * 10).is_flat()
    assert curve([1.0] * 10 + [0.1] * 80 + [0.981] * 10).is_flat()


def test_a_few_steps_tell_nothing():
    assert not curve([1.0] * 49).is_flat()
    assert curve([1.0] * 50).is_flat()


def test_a_run_that_stopped_early_is_judged_by_its_last_tenth():
    stopped = curve([1.0] * 60, planned=100)
    assert stopped.is_flat() and stopped.fall() == "from 1.000 to 1.000"
    assert not curve([1.0] * 50 + [0.5] * 10, planned=100).is_flat()


def test_a_curve_survives_json():
    made = curve([0.1 * step for step in range(1, 30)], planned=90)
    again = LossCurve(**json.loads(json.dumps(dataclasses.asdict(made))))
    for one in (made, again):
        one.add(29, 0.7)
    assert made == again


def test_a_loss_that_is_no_number():
    with pytest.raises(DivergedError, match="The loss of step 8 is nan: start again with a lower"):
        curve([1.0] * 7 + [float("nan")])


def test_collapses_are_named():
    flat, falling = curve([1.0] * 50), curve([1.0 / step for step in range(1, 51)])
    assert describe_collapse(falling, constant=None, set_name="dev") is None
    same = "every prediction is the same"
    assert describe_collapse(falling, constant=same, set_name="dev") == f"on dev {same}"
    assert describe_collapse(flat, constant=same, set_name="dev") == (
        f"on dev {same} and the training loss did not fall (from 1.000 to 1.000)"
    )
