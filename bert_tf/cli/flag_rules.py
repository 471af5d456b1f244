"""Rules of flags, each beside its flag in the settings, and the loop that checks them.

A rule looks at a flag by its name, all values, and which flags are given, and returns what is
wrong in a sentence, or "". Nothing here loads TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

Rule = Callable[[str, Mapping[str, Any], Collection[str]], str]


def required(what: str) -> Rule:
    """The flag has a value; ``what`` says which, or what else the command needs."""

    def rule(name: str, values: Mapping[str, Any], given: Collection[str]) -> str:
        return "" if values[name] else f"--{name} is missing: {what}."

    return rule


def within(holds: Callable[[Any], bool], expected: str) -> Rule:
    """A number keeps to a condition, which ``expected`` says; absl's bounds let NaN pass."""

    def rule(name: str, values: Mapping[str, Any], given: Collection[str]) -> str:
        value = values[name]
        if value is None or holds(value):
            return ""
        return f"--{name}={value}: expected a number {expected}."

    return rule


def needs(
    other: str, says: str = "--{name} is for --{other}, which is not given: leave it out."
) -> Rule:
    """The flag is given only where another one has a value."""

    def rule(name: str, values: Mapping[str, Any], given: Collection[str]) -> str:
        asks = name in given and values[name] is not None
        return "" if values[other] or not asks else says.format(name=name, other=other)

    return rule


def without(*others: str, says: str) -> Rule:
    """Where the flag has a value, none of the others is given.

    ``says`` is the sentence for ``{name}``, its ``{value}``, and the ``{other}`` flag.
    """

    def rule(name: str, values: Mapping[str, Any], given: Collection[str]) -> str:
        if not values[name]:
            return ""
        wrong = (other for other in others if other in given and values[other] is not None)
        found = next(wrong, None)
        return says.format(name=name, value=values[name], other=found) if found else ""

    return rule


def one_of(what: str, *others: str) -> Rule:
    """The flag and the others all say the same: one of them is given."""
    return without(*others, says=f"--{{name}} and --{{other}} both {what}: give one of them.")


def divided_by(other: str) -> Rule:
    """The number is a multiple of another flag's."""

    def rule(name: str, values: Mapping[str, Any], given: Collection[str]) -> str:
        if values[name] % values[other] == 0:
            return ""
        return f"--{name}={values[name]} is not a multiple of --{other}={values[other]}."

    return rule


def check(settings: type, values: Mapping[str, Any], given: Collection[str] = ()) -> None:
    """Refuses values that break a rule of a flag; ``given`` are the flags that a user named.

    Raises:
        ValueError: the sentence of the first rule that is broken.
    """
    for field in dataclasses.fields(settings):
        for rule in field.metadata["rules"]:
            if sentence := rule(field.name, values, given):
                raise ValueError(sentence)
