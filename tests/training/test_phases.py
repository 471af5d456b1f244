import itertools

import pytest

from bert_tf.training.phases import Phase, parse_phases


def test_the_papers_schedule():
    assert parse_phases("128:0.9,512:0.1", 1_000_000) == [
        Phase(128, 0, 900_000),
        Phase(512, 900_000, 1_000_000),
    ]


def test_phases_have_no_gap_and_no_overlap_whatever_the_rounding():
    for steps in range(1, 40):
        phases = parse_phases("32:0.3,64:0.3,128:0.4", steps)
        assert phases[0].first_step == 0 and phases[-1].last_step == steps
        for before, after in itertools.pairwise(phases):
            assert before.last_step == after.first_step
        assert all(phase.first_step < phase.last_step for phase in phases)


def test_one_length_alone():
    assert parse_phases("128:1", 7) == parse_phases("128", 7) == [Phase(128, 0, 7)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("128:0.5", "the shares add up to 0.5, expected 1"),
        ("long:1", "expected LENGTH:SHARE pairs such as 128:0.9,512:0.1, got 'long:1'"),
        ("", "got ''"),
        ("128:0.9,512:x", "got '512:x'"),
        ("0:1", "expected a positive length and a share between 0 and 1, got '0:1'"),
        ("128:1.5,512:-0.5", "got '128:1.5'"),
    ],
)
def test_errors(text, message):
    with pytest.raises(ValueError, match=message):
        parse_phases(text, 100)
