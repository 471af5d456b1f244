"""Rules of flags, and the bounds of numeric flags of all commands."""

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
    """Flags that use each type of rule."""

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


def message(given=(), **values):
    """Returns the error message for the values, or "". `given` are the flags set by the user."""
    try:
        check(Settings, {**flag_fields.defaults(Settings), **values}, given)
    except ValueError as error:
        return str(error)
    return ""


def test_error_message_of_each_rule():
    assert message() == message(("name", "steps", "hours"), steps=3) == ""
    assert message(path="") == "--path is missing: name one."
    assert message(rate=0.0) == "--rate=0.0: expected a number above 0."
    assert message(rate=math.nan) == "--rate=nan: expected a number above 0."
    assert message(rate=None) == ""
    assert message(size=5) == "--size=5 is not a multiple of --parts=2."
    both = "--steps and --days both set the time. Pass only one of them."
    assert message(("days",), steps=3, days=4) == both
    missing = "--hours requires --name. Pass --name or remove --hours."
    assert message(("hours",), hours=1, name="") == missing
    assert message(("hours",), hours=1) == message(("hours",), name="") == ""
    # Defaults and values saved in a run do not conflict with other flags.
    assert message((), hours=1, name="") == ""
    assert message((), steps=3, days=4) == message(("days",), days=4) == ""
    assert message(("name",), parts=1) == message((), parts=1, size=9) == ""
    assert message(("name",), parts=9, size=9) == "no name"
    assert message((), parts=9, size=9) == ""


# Invalid values of each number with a custom rule, and a valid one at the bound.
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


def errors(settings, name, value):
    (field,) = (field for field in dataclasses.fields(settings) if field.name == name)
    values = {**flag_fields.defaults(settings), "task": "classification", name: value}
    return [rule(name, values, ()) for rule in field.metadata.get("rules", ())]


@pytest.mark.parametrize("settings", BOUNDS)
def test_out_of_bounds_values_and_nan_are_rejected(settings):
    for name, (invalid, valid) in BOUNDS[settings].items():
        for value in invalid:
            start = f"--{name}={value}: expected a number "
            assert any(error.startswith(start) for error in errors(settings, name, value)), start
        assert not any("expected a number" in error for error in errors(settings, name, valid)), (
            name
        )
    values = flags.FlagValues()
    flag_fields.define_flags(values, settings)
    for name in values:
        if values[name].flag_type() == "float":
            assert any(errors(settings, name, math.nan)), name


@pytest.mark.parametrize(
    "settings, alias",
    [
        (PredictionSettings, "model_dir"),
        (ExportSettings, "checkpoint"),
        (ExtractionSettings, "init_checkpoint"),
        (ConvertSettings, "input"),
    ],
)
def test_alias_of_model_flag_is_hidden_in_help(settings, alias, monkeypatch):
    values = flags.FlagValues()
    flag_fields.define_flags(values, settings)
    values(["p", f"--{alias}=runs/a"])
    assert values["model"].value == "runs/a" and values["model"].present
    monkeypatch.setattr(sys, "argv", [__name__])  # selects the flags in --help
    shown = help_text("p", values, with_advanced=True)
    assert "--model: " in shown and f"--{alias}: " not in shown
