"""A command's flags as the fields of a dataclass: name, default, bounds and help are said once.

Both the command line and a call from Python start from the fields.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from absl import flags

# A flag is listed in --help under the module that calls ``define_flags``.
flags.disclaim_key_flags()
_NONE: Mapping[str, str] = MappingProxyType({})

STRATEGY = (
    "mirrored: every GPU of this machine shares each batch. one_device: the first GPU, or the CPU. "
    "auto: mirrored where there are several GPUs."
)
ALLOW_PICKLE = "Read pytorch_model.bin. A pickle can run any code: only from someone you trust."


def _field(define: Callable[..., Any], default: Any, help: str, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"define": define, "help": help, **more})


def string(default: str | None, help: str) -> Any:
    """A field of text."""
    return _field(flags.DEFINE_string, default, help)


def switch(default: bool | None, help: str) -> Any:
    """A field that is true or false."""
    return _field(flags.DEFINE_bool, default, help)


def words(default: Sequence[str] | None, help: str) -> Any:
    """A field of texts that commas separate."""
    return _field(flags.DEFINE_list, default, help)


def choice(default: str | None, choices: Sequence[str], help: str) -> Any:
    """A field of one of some texts."""
    return _field(functools.partial(flags.DEFINE_enum, enum_values=list(choices)), default, help)


def integer(
    default: int | None, help: str, *, least: int | None = None, most: int | None = None
) -> Any:
    """A field of a whole number."""
    define = functools.partial(flags.DEFINE_integer, lower_bound=least, upper_bound=most)
    return _field(define, default, help)


def number(
    default: float | None,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    within: tuple[Callable[[float], bool], str] | None = None,
) -> Any:
    """A field of any number.

    ``within`` is a condition, and a text that says it, for ``check_ranges``: the bounds of absl
    include both ends and let NaN pass.
    """
    define = functools.partial(flags.DEFINE_float, lower_bound=least, upper_bound=most)
    return _field(define, default, help, within=within)


def define_flags(
    settings: type,
    values: flags.FlagValues,
    aliases: Mapping[str, str] = _NONE,
    without_meaning: Mapping[str, str] = _NONE,
) -> None:
    """Defines a flag for each field, its aliases, and flags of other programs, ignored here.

    ``without_meaning`` says of each ignored flag what takes its place.
    """
    for field in dataclasses.fields(settings):
        define, help = field.metadata["define"], field.metadata["help"]
        define(name=field.name, default=field.default, help=help, flag_values=values)
    for alias, name in aliases.items():
        flags.DEFINE_alias(alias, name, flag_values=values)
    for name, reason in without_meaning.items():
        is_switch = name.startswith(("use_", "do_"))
        define = flags.DEFINE_bool if is_switch else flags.DEFINE_string
        define(name, None, f"Accepted and ignored: {reason}.", flag_values=values)


def defaults(settings: type) -> dict[str, Any]:
    """Every flag's default by its name."""
    return {field.name: field.default for field in dataclasses.fields(settings)}


def check_ranges(settings: type, values: Mapping[str, Any]) -> None:
    """Refuses a number that is not ``within`` its field's range."""
    for field in dataclasses.fields(settings):
        is_within, expected = field.metadata.get("within") or (None, "")
        if is_within and not is_within(values[field.name]):
            raise ValueError(f"--{field.name}={values[field.name]}: expected a number {expected}.")


def ignored(values: flags.FlagValues, without_meaning: Mapping[str, str]) -> list[str]:
    """A sentence for each ignored flag that is given."""
    return [
        f"--{name} is ignored: {reason}."
        for name, reason in without_meaning.items()
        if values[name].present
    ]
