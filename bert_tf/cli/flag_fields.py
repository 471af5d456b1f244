"""A command's flags as the fields of a dataclass: name, default, bounds and help are said once.

Both the command line and a call from Python start from the fields.
"""

import copy
import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from absl import flags

from bert_tf.choices import PRECISIONS
from bert_tf.wording import did_you_mean, quote

from .flag_rules import Rule, among, at_least, check, refuses
from .other_scripts import instead

_LARGEST = 2**31 - 1  # that TensorFlow's int32 holds

# A flag is listed in --help under the module that calls ``define_flags``.
flags.disclaim_key_flags()
_NONE: Mapping[str, Any] = MappingProxyType({})
Rules = Sequence[Rule]
T = TypeVar("T")

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
# The bounds of absl let NaN pass.
_IS_NUMBER = refuses(
    lambda value, _: value is not None and math.isnan(value),
    "--{flag}={value}: expected a number.",
)


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
    is_kept: bool = False,
    is_rare: bool = False,
) -> Any:
    """A field of any type, whose good values are ``expected``; ``help`` is one sentence.

    ``rules`` are what its value keeps to. ``heading`` stands above it, and what follows, in
    ``--help``, which does not show its ``other_name``, and only as ``--help=all`` what is rare. Of
    a fine-tuning ``only`` names the data that have the option (``tables`` of a user's own,
    ``published`` data, ``files`` of either but ``glue``), and ``is_kept`` says that ``task.json``
    keeps it for predictions and exports.
    """
    metadata = {
        **{"define": define, "check": (expected, is_good), "help": help, "heading": heading},
        **{"rules": tuple(rules), "other_name": other_name, "only": only, "is_kept": is_kept},
        "is_rare": is_rare,
    }
    return dataclasses.field(default=default, metadata=metadata)


def string(default: str | None, help: str, **more: Any) -> Any:
    """A field of text; ``more`` is as in ``_field``."""
    return _field(flags.DEFINE_string, "a text", _is_text, default, help, **more)


def switch(default: bool | None, help: str, **more: Any) -> Any:
    """A field that is true or false."""
    return _field(flags.DEFINE_bool, "true or false", _is_switch, default, help, **more)


def special_tokens(otherwise: str) -> Any:
    """The field of what becomes of special tokens that are written in texts."""
    return switch(
        None,
        "Find special tokens that are written in a text, such as [SEP], as one token each, or part "
        f"them like other text; by default as {otherwise}.",
        is_rare=True,
    )


def from_data() -> Any:
    """A switch that is no flag: the examples of a training set it, and ``task.json`` keeps it."""
    return _field(None, "true or false", _is_switch, None, "", is_kept=True)


def words(default: Sequence[str] | None, help: str, **more: Any) -> Any:
    """A field of texts that commas separate."""
    return _field(flags.DEFINE_list, "a list of texts", _are_texts, default, help, **more)


def choice(
    default: str | None, choices: Sequence[str], help: str, *, rules: Rules = (), **more: Any
) -> Any:
    """A field of one of some texts."""
    define = functools.partial(flags.DEFINE_enum, enum_values=list(choices))
    expected, rules = f"one of {', '.join(choices)}", [*rules, among(choices)]
    return _field(
        define, expected, lambda value: value in choices, default, help, rules=rules, **more
    )


def integer(
    default: int | None,
    help: str,
    *,
    least: int | None = None,
    most: int | None = None,
    rules: Rules = (),
    **more: Any,
) -> Any:
    """A field of a whole number."""
    define = functools.partial(flags.DEFINE_integer, lower_bound=least, upper_bound=most)
    low, high = least or 0, most or _LARGEST
    if least is not None:
        rules = [*rules, at_least(least)]

    def is_good(value: Any) -> bool:
        return type(value) is int and low <= value <= high

    expected = f"a whole number from {low} to {high:,}"
    return _field(define, expected, is_good, default, help, rules=rules, **more)


def number(
    default: float | None,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    rules: Rules = (),
    **more: Any,
) -> Any:
    """A field of any number; ``flag_rules.within`` is for bounds that exclude an end."""
    define = functools.partial(flags.DEFINE_float, lower_bound=least, upper_bound=most)
    rules = [*rules, _IS_NUMBER]
    return _field(define, "a number", _is_number, default, help, rules=rules, **more)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


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


def flags_of(settings: type) -> list[dataclasses.Field[Any]]:
    """The fields that are flags, with the flags' defaults: a dataclass may have other fields.

    Flags of a dataclass that ``follows_model`` have no defaults: one that is not given is as the
    model's directory says. There what ``task.json`` keeps is no flag.
    """
    fields = [copy.copy(f) for f in dataclasses.fields(settings) if f.metadata.get("define")]
    if hasattr(settings, "follows_model"):
        fields = [field for field in fields if not field.metadata["is_kept"]]
        for field in fields:
            field.default = None
    return fields


def define_flags(
    settings: type,
    values: flags.FlagValues,
    aliases: Mapping[str, str] = _NONE,
) -> None:
    """Defines a flag for each field that is one and has none yet."""
    for field in flags_of(settings):
        if field.name in values:
            continue
        define, help = field.metadata["define"], field.metadata["help"]
        define(name=field.name, default=field.default, help=help, flag_values=values)
        if other_name := field.metadata["other_name"]:
            flags.DEFINE_alias(other_name, field.name, flag_values=values)
            values[other_name].help = ""
        present(values[field.name], field.metadata["heading"], field.metadata["is_rare"])
    define_aliases(aliases, values)


def define_aliases(aliases: Mapping[str, str], values: flags.FlagValues) -> None:
    """Defines other names of flags."""
    heading = "Other names"
    for alias, name in aliases.items():
        flags.DEFINE_alias(alias, name, flag_values=values)
        present(values[alias], heading, is_rare=True)
        heading = ""  # it stands above the first


def present(flag: Any, heading: str, is_rare: bool = False) -> None:
    """Says how ``--help`` shows a flag: what stands above it, and whether --help=all alone does."""
    flag.heading, flag.is_rare = heading, is_rare


def flags_of_call(
    define: Callable[[flags.FlagValues], None], given: Mapping[str, Any]
) -> flags.FlagValues:
    """The flags of a command that a call from Python gives, parsed and checked as in the shell.

    ``None`` is a flag that is not given. A name that is none is a ``TypeError``, a value that a
    flag cannot have a ``ValueError``.
    """
    values = flags.FlagValues()
    define(values)
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


def checked(settings: type[T], values: flags.FlagValues) -> T:
    """The settings of a command whose fields are as its parsed flags; see ``flag_rules.check``."""
    fields = {name: values[name].value for name in defaults(settings)}
    check(settings, fields, {name for name in fields if values[name].present})
    return settings(**fields)


def given(settings: type, values: flags.FlagValues) -> dict[str, Any]:
    """Values of the flags that a user named, of a dataclass that ``follows_model``."""
    fields = {field.name: values[field.name].value for field in flags_of(settings)}
    return {name: value for name, value in fields.items() if value is not None}
