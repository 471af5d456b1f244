"""A command's flags as the fields of a dataclass: name, default, bounds and help are said once.

Both the command line and a call from Python start from the fields.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags


def _field(define: Callable[..., Any], default: Any, help: str) -> Any:
    return dataclasses.field(default=default, metadata={"define": define, "help": help})


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
    default: float | None, help: str, *, least: float | None = None, most: float | None = None
) -> Any:
    """A field of any number."""
    define = functools.partial(flags.DEFINE_float, lower_bound=least, upper_bound=most)
    return _field(define, default, help)


def define_flags(settings: type, values: flags.FlagValues) -> None:
    """Defines a flag for each field."""
    for field in dataclasses.fields(settings):
        define, help = field.metadata["define"], field.metadata["help"]
        define(name=field.name, default=field.default, help=help, flag_values=values)


def defaults(settings: type) -> dict[str, Any]:
    """Every flag's default by its name."""
    return {field.name: field.default for field in dataclasses.fields(settings)}
