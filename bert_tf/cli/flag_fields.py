"""A command's flags as the fields of a dataclass: name, default, rules and help are said once.

Both the command line and a call from Python start from the fields. A dataclass with a class
variable ``other_names``, from names to those of fields, gives flags these names, too.
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
from bert_tf.io.untrusted import check_model_name
from bert_tf.io.wording import did_you_mean, quote

from .other_scripts import instead

_LARGEST = 2**31 - 1  # that TensorFlow's int32 holds
# A flag is listed in --help under the module that calls ``define_flags``.
flags.disclaim_key_flags()
_NONE: Mapping[str, Any] = MappingProxyType({})

MODEL = "a run, a checkpoint of any format that bert_tf.load takes, hf://OWNER/NAME, or tiny"
WEIGHTS = (
    "a directory of this library, Hugging Face, Google, Model Garden or KerasHub, a .keras file, "
    "hf://OWNER/NAME of the Hugging Face hub, or tiny, which bert_tf ships"
)
STRATEGY = (
    "Share each batch among all GPUs of this machine (mirrored), or use the first GPU, or else the "
    "CPU, alone (one_device); auto is mirrored where there are several GPUs."
)
_BFLOAT16 = "bfloat16 computes matrix products in bfloat16, and keeps weights and sums in float32."
REMAT = (
    "Keep only each layer's input, and compute the rest again for the backward pass: less than "
    "half the memory, about a third more time."
)
JIT_COMPILE = (
    "Compile the step with XLA, by default on a GPU and not on a CPU, where nothing is gained"
)

# === Rules ===

# A rule looks at a flag by its name, all values, and which flags are given, and returns what is
# wrong in a sentence, or "".
Values = Mapping[str, Any]
Given = Collection[str]
Rule = Callable[[str, Values, Given], str]
Rules = Sequence[Rule]


def rule(broken: Callable[[Any, Values], bool], says: str, *, only_if_named: bool = False) -> Rule:
    """The rule that is ``broken`` by the flag's value among all values.

    ``says`` is the sentence for the ``{flag}``, its ``{value}``, and other flags' values by their
    names. ``only_if_named``: only what a user named breaks it, no default and no run's kept value.
    """

    def problem(name: str, values: Values, given: Given) -> str:
        value = values[name]
        if (only_if_named and name not in given) or not broken(value, values):
            return ""
        return says.format(**{**values, "flag": name, "value": value})

    return problem


def required(what: str) -> Rule:
    """The flag has a value; ``what`` says which, or what else the command needs."""
    return rule(lambda value, _: not value, f"--{{flag}} is missing: {what}.")


def names_a_model(name: str, values: Values, given: Given) -> str:
    """Refuses what cannot be a model's name, in an address and as a folder."""
    if values[name] is not None:
        check_model_name(values[name])
    return ""


def within(holds: Callable[[Any], bool], expected: str) -> Rule:
    """A number keeps to a condition, which ``expected`` says."""
    return rule(
        lambda value, _: value is not None and not holds(value),
        f"--{{flag}}={{value}}: expected a number {expected}.",
    )


# Of an optimizer whose updates are about as large as the rate, whatever the gradients are. Weights
# are about 0.02, and in float32 take no update below a 1e-8th of that.
IS_RATE = within(
    lambda rate: 1e-12 <= rate < 1,
    "from 1e-12 to below 1, about what a step changes a weight by; 5e-5 and 1e-3 are usual",
)


def requires_flag(other: str, says: str = "") -> Rule:
    """A user names the flag only where the other has a value."""
    return rule(
        lambda value, values: value is not None and not values[other],
        says or f"--{{flag}} is for --{other}, which is not given: leave it out.",
        only_if_named=True,
    )


def divided_by(other: str) -> Rule:
    """The number is a multiple of another flag's."""
    return rule(
        lambda value, values: value % values[other] != 0,
        f"--{{flag}}={{value}} is not a multiple of --{other}={{{other}}}.",
    )


def conflicts_with(*others: str, says: str) -> Rule:
    """Where the flag has a value, none of the others is given.

    ``says`` is the sentence for the ``{flag}``, its ``{value}``, and the ``{other}`` flag.
    """

    def problem(name: str, values: Values, given: Given) -> str:
        wrong = (other for other in others if other in given and values[other] is not None)
        other = next(wrong, "") if values[name] else ""
        return other and says.format(flag=name, value=values[name], other=other)

    return problem


def mutually_exclusive(what: str, *others: str) -> Rule:
    """The flag and the others set the same thing: only one of them may be given."""
    return conflicts_with(
        *others, says=f"--{{flag}} and --{{other}} both {what}: give one of them."
    )


# === Fields ===


def _field(
    define: Callable[..., Any] | None,
    expected: str,
    is_good: Callable[[Any], bool],
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
    """A field of any type, whose good values are ``expected``; ``help`` is one sentence.

    ``rules`` are what its value keeps to. ``heading`` stands above it, and what follows, in
    ``--help``, which does not show its ``other_name``, and only as ``--help=all`` what is rare. Of
    a fine-tuning ``only`` names the data that have the option: ``tables`` of a user, ``published``
    data, or ``files`` of either except ``glue``. With ``saved_in_task_file`` it is stored in
    ``task.json`` for predictions and exports.
    """
    metadata = {
        **{"define": define, "check": (expected, is_good), "help": help, "heading": heading},
        **{
            "rules": tuple(rules),
            "other_name": other_name,
            "only": only,
            "saved_in_task_file": saved_in_task_file,
        },
        "advanced": advanced,
    }
    return dataclasses.field(default=default, metadata=metadata)


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in types


def string(default: str | None, help: str, **more: Any) -> Any:
    """A field of text; ``more`` is as in ``_field``."""
    return _field(flags.DEFINE_string, "a text", _is(str), default, help, **more)


def switch(default: bool | None, help: str, **more: Any) -> Any:
    """A field that is true or false."""
    return _field(flags.DEFINE_bool, "true or false", _is(bool), default, help, **more)


def from_data() -> Any:
    """A switch that is no flag: the examples of a training set it, and ``task.json`` keeps it."""
    return _field(None, "true or false", _is(bool), None, "", saved_in_task_file=True)


def words(default: Sequence[str] | None, help: str, **more: Any) -> Any:
    """A field of texts that commas separate."""

    def are_texts(value: Any) -> bool:
        return type(value) is list and all(map(_is(str), value))

    return _field(flags.DEFINE_list, "a list of texts", are_texts, default, help, **more)


# absl checks bounds of flags itself, but for NaN: the rules are for callers in Python.


def choice(
    default: str | None, choices: Sequence[str], help: str, *, rules: Rules = (), **more: Any
) -> Any:
    """A field of one of some texts."""
    expected = f"one of {', '.join(choices)}"
    is_choice = rule(
        lambda value, _: value is not None and value not in choices,
        f"{{flag}} is {{value!r}}: expected {expected}.",
    )
    define, rules = (
        functools.partial(flags.DEFINE_enum, enum_values=list(choices)),
        [*rules, is_choice],
    )
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
    """A field of a whole number."""
    low, high = min_value or 0, max_value or _LARGEST

    def is_good(value: Any) -> bool:
        return type(value) is int and low <= value <= high

    at_least = rule(
        lambda value, _: None not in (value, min_value) and value < min_value,
        f"{{flag}} is {{value}}: expected {min_value} or more.",
    )
    define = functools.partial(flags.DEFINE_integer, lower_bound=min_value, upper_bound=max_value)
    expected, rules = f"a whole number from {low} to {high:,}", [*rules, at_least]
    return _field(define, expected, is_good, default, help, rules=rules, **more)


def number(
    default: float | None,
    help: str,
    *,
    min_value: float | None = None,
    max_value: float | None = None,
    rules: Rules = (),
    **more: Any,
) -> Any:
    """A field of any number; ``within`` is for bounds that exclude an end."""
    is_number = rule(
        lambda value, _: value is not None and math.isnan(value),
        "--{flag}={value}: expected a number.",
    )
    define = functools.partial(flags.DEFINE_float, lower_bound=min_value, upper_bound=max_value)
    rules = [*rules, is_number]
    return _field(define, "a number", _is(int, float), default, help, rules=rules, **more)


# === Fields of several commands ===


def special_tokens(otherwise: str) -> Any:
    """The field of what becomes of special tokens that are written in texts."""
    return switch(
        None,
        "Find special tokens that are written in a text, such as [SEP], as one token each, or part "
        f"them like other text; by default as {otherwise}.",
        advanced=True,
    )


def precision(help: str = _BFLOAT16, **more: Any) -> Any:
    """The field of the arithmetic's precision, whose default is the same for every command."""
    return choice("float32", PRECISIONS, help, **more)


def delimiter(of: str, **more: Any) -> Any:
    """The field of what separates the columns of a table."""
    help = f"Split the columns of {of} .csv or .tsv at this character, such as ';', or at tab."
    return string(None, help, **more)


def encoding(of: str, **more: Any) -> Any:
    """The field of a table's encoding."""
    return string("utf-8", f"Read {of} in this encoding.", **more)


def fault(field: "dataclasses.Field[Any]", value: Any) -> str:
    """The form that a field expects of a file's value, where the value has another; else ""."""
    expected, is_good = field.metadata["check"]
    if field.default is None:
        expected += " or null"
    is_right = is_good(value) or (value is None and field.default is None)
    return "" if is_right else str(expected)


# === Flags ===


def flags_of(settings: type) -> list[dataclasses.Field[Any]]:
    """The fields that are flags, with the flags' defaults: a dataclass may have other fields.

    Flags of a dataclass that ``follows_model`` have no defaults: one that is not given is as the
    model's directory says. There what ``task.json`` keeps is no flag.
    """
    fields = [copy.copy(f) for f in dataclasses.fields(settings) if f.metadata.get("define")]
    if hasattr(settings, "follows_model"):
        fields = [field for field in fields if not field.metadata["saved_in_task_file"]]
        for field in fields:
            field.default = None
    return fields


def define_flags(values: flags.FlagValues, *declarations: type) -> None:
    """Defines a flag for each field of some dataclasses that is one and has none yet.

    The ``other_names`` of a dataclass come after its fields.
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
        for other_name, name in getattr(declaration, "other_names", _NONE).items():
            flags.DEFINE_alias(other_name, name, flag_values=values)
            flag = values[other_name]
            flag.heading, flag.advanced = heading, True
            heading = ""  # it stands above the first


def flags_of_call(given: Mapping[str, Any], *declarations: type) -> flags.FlagValues:
    """The flags of dataclasses that a call from Python gives, parsed and checked as in the shell.

    ``None`` is a flag that is not given. A name that is none is a ``TypeError``, a value that a
    flag cannot have a ``ValueError``.
    """
    values = flags.FlagValues()
    define_flags(values, *declarations)
    for name, value in given.items():
        if name not in values:
            others = instead([name], values)
            unknown = f"{name} is no setting{did_you_mean(name, values)}"
            raise TypeError(f"{others[0].replace('--', '') if others else unknown}.")
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
            what = str(error).removeprefix(f"flag --{name}={value}: ").rstrip(".")
            raise ValueError(f"{name}={quote(value)} cannot be: {what}.") from error
    values.mark_as_parsed()
    return values


def defaults(settings: type) -> dict[str, Any]:
    """Every flag's default by its name."""
    return {field.name: field.default for field in dataclasses.fields(settings)}


def check(settings: type, values: Values, given: Given = ()) -> None:
    """Refuses values that break a rule of a flag; ``given`` are the flags that a user named.

    Raises:
        ValueError: the sentence of the first rule that is broken.
    """
    for field in dataclasses.fields(settings):
        for find_problem in field.metadata.get("rules", ()):
            if problem := find_problem(field.name, values, given):
                raise ValueError(problem)


def settings_of(values: flags.FlagValues, *declarations: type) -> list[Any]:
    """The settings that parsed flags ask for, one of each dataclass, which are checked.

    Of a dataclass that ``follows_model`` they are the values that a user named.
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
