"""Command flags, declared as dataclass fields with a default, rules and a help text.

The command line and the Python functions use the same fields. The class variable ``other_names`` of
a dataclass maps flag aliases to field names.
"""

import copy
import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from absl import flags

from bert_tf.choices import PRECISIONS
from bert_tf.io.messages import did_you_mean, quote
from bert_tf.io.untrusted import check_model_name

from .foreign_flags import foreign_flag_hints

_MAX_INT32 = 2**31 - 1
# --help lists a flag under the module that calls ``define_flags``.
flags.disclaim_key_flags()
_NO_NAMES: Mapping[str, Any] = MappingProxyType({})

MODEL = "a run, a checkpoint in any format of bert_tf.load, hf://OWNER/NAME, or tiny"
WEIGHTS = (
    "a directory of bert_tf, Hugging Face, Google, Model Garden or KerasHub, a .keras file, "
    "hf://OWNER/NAME, or tiny, which is installed with bert_tf"
)
STRATEGY = (
    "Distribution strategy: mirrored splits each batch across all GPUs of this machine, one_device "
    "uses the first GPU or else the CPU, and auto selects mirrored if there are several GPUs."
)
_PRECISION = "Precision of matrix products; weights, sums and all other operations stay in float32."
REMAT = (
    "Recompute the activations of each block in the backward pass, which takes less than half the "
    "memory and about a third more time."
)
JIT_COMPILE = "Compile the training step with XLA, by default only on a GPU"

# === Rules ===

# A rule maps the name of a flag, the values of all flags and the names of the flags that the user
# passed to an error message, or "" if the value is valid.
Values = Mapping[str, Any]
Given = Collection[str]
Rule = Callable[[str, Values, Given], str]
Rules = Sequence[Rule]


def rule(
    is_invalid: Callable[[Any, Values], bool], message: str, *, only_if_named: bool = False
) -> Rule:
    """Returns a rule that rejects values for which ``is_invalid(value, values)`` is true.

    Args:
        is_invalid: Function of the flag's value and the values of all flags.
        message: Error message: a format string with ``{flag}``, ``{value}`` and flag names.
        only_if_named: Whether to check only values that the user passed, not defaults or values
            saved by a run.
    """

    def problem(name: str, values: Values, given: Given) -> str:
        value = values[name]
        if (only_if_named and name not in given) or not is_invalid(value, values):
            return ""
        return message.format(**{**values, "flag": name, "value": value})

    return problem


def required(hint: str) -> Rule:
    """Rejects a missing value; ``hint`` ends the error message."""
    return rule(lambda value, _: not value, f"--{{flag}} is missing: {hint}.")


def names_a_model(name: str, values: Values, given: Given) -> str:
    """Rejects a name that cannot be part of a URL and the name of a directory."""
    if values[name] is not None:
        check_model_name(values[name])
    return ""


def within(is_valid: Callable[[Any], bool], expected: str) -> Rule:
    """Rejects numbers for which ``is_valid`` is false; ``expected`` describes the range."""
    return rule(
        lambda value, _: value is not None and not is_valid(value),
        f"--{{flag}}={{value}}: expected a number {expected}.",
    )


# Adam and LAMB change a weight by about the learning rate, whatever the gradient is. Weights are
# about 0.02, and float32 loses updates that are smaller by a factor of 1e8.
IS_RATE = within(
    lambda rate: 1e-12 <= rate < 1, "from 1e-12 to below 1, typically between 5e-5 and 1e-3"
)


def requires_flag(other: str, message: str = "") -> Rule:
    """Rejects a flag that a user passed if the other flag has no value."""
    return rule(
        lambda value, values: value is not None and not values[other],
        message or f"--{{flag}} requires --{other}. Pass --{other} or remove --{{flag}}.",
        only_if_named=True,
    )


def divided_by(other: str) -> Rule:
    """Rejects a number that is not a multiple of another flag's value."""
    return rule(
        lambda value, values: value % values[other] != 0,
        f"--{{flag}}={{value}} is not a multiple of --{other}={{{other}}}.",
    )


def conflicts_with(*others: str, message: str) -> Rule:
    """Rejects other flags that a user passed together with this flag.

    ``message`` is a format string with ``{flag}``, ``{value}`` and ``{other}``.
    """

    def problem(name: str, values: Values, given: Given) -> str:
        conflicting = (other for other in others if other in given and values[other] is not None)
        other = next(conflicting, "") if values[name] else ""
        return other and message.format(flag=name, value=values[name], other=other)

    return problem


def mutually_exclusive(effect: str, *others: str) -> Rule:
    """Rejects several flags with the same effect, which the verb phrase ``effect`` describes."""
    return conflicts_with(
        *others, message=f"--{{flag}} and --{{other}} both {effect}. Pass only one of them."
    )


# === Fields ===


def _field(
    define: Callable[..., Any] | None,
    expected: str,
    is_valid: Callable[[Any], bool],
    default: Any,
    help: str,
    *,
    rules: Rules = (),
    heading: str = "",
    other_name: str = "",
    only: str = "",
    saved_in_task_file: bool = False,
    advanced: bool = False,
) -> Any:
    """Returns a field of any type.

    Args:
        define: Function of absl that defines the flag; ``None`` for a field that is not a flag.
        expected: Description of valid values.
        is_valid: Whether a value from a file is valid.
        default: Default value.
        help: One sentence for ``--help``.
        rules: Rules for the value.
        heading: Heading above this flag and the following ones in ``--help``.
        other_name: Alias that ``--help`` does not show.
        only: Data to which a fine-tuning flag applies: ``tables`` (a user's own), ``published``
            data, or ``files`` (both, except ``glue``).
        saved_in_task_file: Whether ``task.json`` stores the value for predictions and exports.
        advanced: Whether only ``--help=all`` shows the flag.
    """
    metadata = {
        **{"define": define, "check": (expected, is_valid), "rules": tuple(rules)},
        **{"help": help, "heading": heading, "other_name": other_name, "only": only},
        **{"saved_in_task_file": saved_in_task_file, "advanced": advanced},
    }
    return dataclasses.field(default=default, metadata=metadata)


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in types


def string(default: str | None, help: str, **more: Any) -> Any:
    """Returns a field for a string; for ``more``, see ``_field``."""
    return _field(flags.DEFINE_string, "a string", _is(str), default, help, **more)


def switch(default: bool | None, help: str, **more: Any) -> Any:
    """Returns a field for a Boolean."""
    return _field(flags.DEFINE_bool, "true or false", _is(bool), default, help, **more)


def from_data() -> Any:
    """Returns a Boolean field that is not a flag: the training data or ``task.json`` set it."""
    return _field(None, "true or false", _is(bool), None, "", saved_in_task_file=True)


def words(default: Sequence[str] | None, help: str, **more: Any) -> Any:
    """Returns a field for strings separated by commas."""

    def are_strings(value: Any) -> bool:
        return type(value) is list and all(map(_is(str), value))

    return _field(flags.DEFINE_list, "a list of strings", are_strings, default, help, **more)


# For flags, absl checks the bounds, but not NaN. The rules check calls from Python.


def choice(
    default: str | None, choices: Sequence[str], help: str, *, rules: Rules = (), **more: Any
) -> Any:
    """Returns a field for one of several strings."""
    expected = f"one of {', '.join(choices)}"
    is_choice = rule(
        lambda value, _: value is not None and value not in choices,
        f"{{flag}}={{value!r}}: expected {expected}.",
    )
    define = functools.partial(flags.DEFINE_enum, enum_values=list(choices))
    rules = [*rules, is_choice]
    return _field(define, expected, choices.__contains__, default, help, rules=rules, **more)


def integer(
    default: int | None,
    help: str,
    *,
    min_value: int | None = None,
    max_value: int | None = None,
    rules: Rules = (),
    **more: Any,
) -> Any:
    """Returns a field for an integer."""
    low, high = min_value or 0, max_value or _MAX_INT32

    def is_valid(value: Any) -> bool:
        return type(value) is int and low <= value <= high

    at_least = rule(
        lambda value, _: None not in (value, min_value) and value < min_value,
        f"{{flag}}={{value}}: expected {min_value} or more.",
    )
    define = functools.partial(flags.DEFINE_integer, lower_bound=min_value, upper_bound=max_value)
    expected, rules = f"an integer from {low} to {high:,}", [*rules, at_least]
    return _field(define, expected, is_valid, default, help, rules=rules, **more)


def number(
    default: float | None,
    help: str,
    *,
    min_value: float | None = None,
    max_value: float | None = None,
    rules: Rules = (),
    **more: Any,
) -> Any:
    """Returns a field for a float; for exclusive bounds, use ``within``."""
    is_number = rule(
        lambda value, _: value is not None and math.isnan(value),
        "--{flag}={value}: expected a number.",
    )
    define = functools.partial(flags.DEFINE_float, lower_bound=min_value, upper_bound=max_value)
    rules = [*rules, is_number]
    return _field(define, "a number", _is(int, float), default, help, rules=rules, **more)


# === Fields of several commands ===


def special_tokens(default: str) -> Any:
    """Returns the field that controls special tokens in texts; ``default`` ends the help text."""
    return switch(
        None,
        "Recognize special tokens in texts, such as [SEP], instead of splitting them like other "
        f"text; by default as {default}.",
        advanced=True,
    )


def precision(help: str = _PRECISION, **more: Any) -> Any:
    """Returns the field for the precision, with the same default for every command."""
    return choice("float32", PRECISIONS, help, **more)


def delimiter(files: str, **more: Any) -> Any:
    """Returns the field for the column separator of a table."""
    help = f"Column separator of {files} .csv or .tsv file: one character, such as ';', or tab."
    return string(None, help, **more)


def encoding(files: str, **more: Any) -> Any:
    """Returns the field for the encoding of a table."""
    return string("utf-8", f"Encoding of {files}.", **more)


def expected_value(field: "dataclasses.Field[Any]", value: Any) -> str:
    """Describes the values that a field accepts, or returns "" if the field accepts ``value``."""
    expected, is_valid = field.metadata["check"]
    if field.default is None:
        expected += " or null"
    is_accepted = is_valid(value) or (value is None and field.default is None)
    return "" if is_accepted else str(expected)


# === Flags ===


def flags_of(settings: type) -> list[dataclasses.Field[Any]]:
    """Returns the fields that are flags, with the defaults of the flags.

    If a dataclass has ``follows_model``, its flags have no defaults, because the model's directory
    sets them. Fields that ``task.json`` stores are then not flags.
    """
    fields = [copy.copy(f) for f in dataclasses.fields(settings) if f.metadata.get("define")]
    if hasattr(settings, "follows_model"):
        fields = [field for field in fields if not field.metadata["saved_in_task_file"]]
        for field in fields:
            field.default = None
    return fields


def define_flags(values: flags.FlagValues, *declarations: type) -> None:
    """Defines those flags of dataclasses that are not defined yet.

    The flags of a dataclass precede those of its aliases in ``other_names``.
    """
    for declaration in declarations:
        for field in flags_of(declaration):
            if field.name in values:
                continue
            define, help = field.metadata["define"], field.metadata["help"]
            define(name=field.name, default=field.default, help=help, flag_values=values)
            if other_name := field.metadata["other_name"]:
                flags.DEFINE_alias(other_name, field.name, flag_values=values)
                values[other_name].help = ""
            flag: Any = values[field.name]
            flag.heading, flag.advanced = field.metadata["heading"], field.metadata["advanced"]
        heading = "Other names"
        for other_name, name in getattr(declaration, "other_names", _NO_NAMES).items():
            flags.DEFINE_alias(other_name, name, flag_values=values)
            flag = values[other_name]
            flag.heading, flag.advanced = heading, True
            heading = ""


def flags_of_call(given: Mapping[str, Any], *declarations: type) -> flags.FlagValues:
    """Parses the keyword arguments of a call from Python as the flags of dataclasses.

    ``None`` means that a flag is not passed.

    Raises:
        TypeError: If a name is not a flag.
        ValueError: If a value is invalid.
    """
    values = flags.FlagValues()
    define_flags(values, *declarations)
    for name, value in given.items():
        if name not in values:
            hints = foreign_flag_hints([name], values)
            hint = hints[0].replace("--", "") if hints else f"{name}{did_you_mean(name, values)}"
            raise TypeError(f"Unknown keyword argument {hint}.")
        if value is None:
            continue
        if isinstance(value, tuple | set | frozenset):
            value = list(value)
        if isinstance(value, Mapping):
            value = json.dumps(value, default=float)
        try:
            value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's
            values[name].parse(os.fspath(value) if isinstance(value, os.PathLike) else value)
        except (flags.Error, TypeError, ValueError) as error:
            problem = str(error).removeprefix(f"flag --{name}={value}: ").rstrip(".")
            raise ValueError(f"{name}={quote(value)} is invalid: {problem}.") from error
    values.mark_as_parsed()
    return values


def defaults(settings: type) -> dict[str, Any]:
    """Returns the flags' defaults by flag name."""
    return {field.name: field.default for field in dataclasses.fields(settings)}


def check(settings: type, values: Values, given: Given = ()) -> None:
    """Checks the values against the rules; ``given`` are the flags that the user passed.

    Raises:
        ValueError: If a value is invalid, with the message of the first violated rule.
    """
    for field in dataclasses.fields(settings):
        for find_problem in field.metadata.get("rules", ()):
            if problem := find_problem(field.name, values, given):
                raise ValueError(problem)


def settings_of(values: flags.FlagValues, *declarations: type) -> list[Any]:
    """Returns an instance of each dataclass with the values of parsed flags, after checking them.

    For a dataclass with ``follows_model`` it returns a dict of the flags that the user passed.
    """
    settings: list[Any] = []
    for declaration in declarations:
        fields = {field.name: values[field.name].value for field in flags_of(declaration)}
        if hasattr(declaration, "follows_model"):
            settings.append({name: value for name, value in fields.items() if value is not None})
            continue
        check(declaration, fields, {name for name in fields if values[name].present})
        settings.append(declaration(**fields))
    return settings
