"""Rules of flags: what each maker refuses, and the bounds of every number of every command."""

import dataclasses
import math
import sys

import pytest
from absl import flags

from bert_tf.cli import flag_fields
from bert_tf.cli.command import help_text
from bert_tf.cli.flag_fields import (
    check,
    divided_by,
    mutually_exclusive,
    required,
    requires_flag,
    rule,
    within,
)
from bert_tf.convert import ConvertSettings
from bert_tf.export import ExportSettings
from bert_tf.extraction.settings import ExtractionSettings
from bert_tf.finetuning.settings import FineTuningSettings
from bert_tf.predicting.settings import PredictionSettings
from bert_tf.pretraining.settings import PretrainingSettings
from bert_tf.tasks.training_options import Smoothing


@dataclasses.dataclass
class Settings:
    """A few flags with a rule of each maker."""

    path: str = flag_fields.string("p", "", rules=[required("name one")])
    rate: float = flag_fields.number(0.5, "", rules=[within(lambda rate: rate > 0, "above 0")])
    size: int = flag_fields.integer(4, "", rules=[divided_by("parts")])
    parts: int = flag_fields.integer(2, "")
    steps: int = flag_fields.integer(
        None, "", rules=[mutually_exclusive("set the time", "hours", "days")]
    )
    hours: int = flag_fields.integer(None, "", rules=[requires_flag("name")])
    days: int = flag_fields.integer(None, "")
    name: str = flag_fields.string(
        "n", "", rules=[rule(lambda _, all: all["parts"] == 9, "no {flag}", only_if_named=True)]
    )


def sentence(given=(), **values):
    """What is wrong with the values, of which some are given; "" where nothing is."""
    try:
        check(Settings, {**flag_fields.defaults(Settings), **values}, given)
    except ValueError as error:
        return str(error)
    return ""


def test_each_rule_refuses_with_its_sentence():
    assert sentence() == sentence(("name", "steps", "hours"), steps=3) == ""
    assert sentence(path="") == "--path is missing: name one."
    assert sentence(rate=0.0) == "--rate=0.0: expected a number above 0."
    assert sentence(rate=math.nan) == "--rate=nan: expected a number above 0."
    assert sentence(rate=None) == ""
    assert sentence(size=5) == "--size=5 is not a multiple of --parts=2."
    both = "--steps and --days both set the time. Pass only one of them."
    assert sentence(("days",), steps=3, days=4) == both
    lonely = "--hours requires --name. Pass --name or remove --hours."
    assert sentence(("hours",), hours=1, name="") == lonely
    assert sentence(("hours",), hours=1) == sentence(("hours",), name="") == ""
    # A default, or what a run has kept, contradicts nothing.
    assert sentence((), hours=1, name="") == ""
    assert sentence((), steps=3, days=4) == sentence(("days",), days=4) == ""
    assert sentence(("name",), parts=1) == sentence((), parts=1, size=9) == ""
    assert sentence(("name",), parts=9, size=9) == "no name"
    assert sentence((), parts=9, size=9) == ""


# Of each number with a rule of its own, values that are just outside, and one at the edge within.
BOUNDS = {
    FineTuningSettings: {
        "learning_rate": ((0.0, 1e-30, 1.0, math.inf), 1e-9),
        "hidden_dropout_prob": ((-0.1, 1.0), 0.0),
    },
    Smoothing: {"label_smoothing": ((-0.1, 1.0), 0.0)},
    PretrainingSettings: {
        "held_out_fraction": ((-0.1, 1.0), 0.0),
        "masked_lm_prob": ((0.0, 1.1), 1.0),
        "short_seq_prob": ((-0.1, 1.1), 1.0),
        "learning_rate": ((0.0, 1e-30, 1.0, 1e4, math.inf), 1e-9),
        "weight_decay": ((-0.1, math.inf), 0.0),
        "adam_beta_2": ((-0.1, 1.0), 0.0),
    },
    PredictionSettings: {},
    ExtractionSettings: {},
}


def refusals(settings, name, value):
    (field,) = (field for field in dataclasses.fields(settings) if field.name == name)
    values = {**flag_fields.defaults(settings), "task": "classification", name: value}
    return [rule(name, values, ()) for rule in field.metadata.get("rules", ())]


@pytest.mark.parametrize("settings", BOUNDS)
def test_bounds_and_that_no_number_is_nan(settings):
    for name, (outside, edge) in BOUNDS[settings].items():
        for value in outside:
            start = f"--{name}={value}: expected a number "
            assert any(said.startswith(start) for said in refusals(settings, name, value)), start
        assert not any("expected a number" in said for said in refusals(settings, name, edge)), name
    values = flags.FlagValues()
    flag_fields.define_flags(values, settings)
    for name in values:
        if values[name].flag_type() == "float":
            assert any(refusals(settings, name, math.nan)), name


@pytest.mark.parametrize(
    "settings, other_name",
    [
        (PredictionSettings, "model_dir"),
        (ExportSettings, "checkpoint"),
        (ExtractionSettings, "init_checkpoint"),
        (ConvertSettings, "input"),
    ],
)
def test_the_model_has_another_name_that_help_does_not_show(settings, other_name, monkeypatch):
    values = flags.FlagValues()
    flag_fields.define_flags(values, settings)
    values(["p", f"--{other_name}=runs/a"])
    assert values["model"].value == "runs/a" and values["model"].present
    monkeypatch.setattr(sys, "argv", [__name__])  # whose flags --help shows
    shown = help_text("p", values, with_advanced=True)
    assert "--model: " in shown and f"--{other_name}: " not in shown
