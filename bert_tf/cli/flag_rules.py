"""Rules of flags, each beside its flag in the settings, and the loop that checks them.

A rule looks at a flag by its name, all values, and which flags are given, and returns what is
wrong in a sentence, or "". Nothing here loads TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bert_tf.untrusted import check_model_name

Values = Mapping[str, Any]
Given = Collection[str]
Rule = Callable[[str, Values, Given], str]


def refuses(
    broken: Callable[[Any, Values], bool], says: str, *, only_if_named: bool = False
) -> Rule:
    """The rule that is ``broken`` by the flag's value among all values.

    ``says`` is the sentence for the ``{flag}``, its ``{value}``, and other flags' values by their
    names. ``only_if_named``: only what a user named breaks it, no default and no run's kept value.
    """

    def rule(name: str, values: Values, given: Given) -> str:
        value = values[name]
        if (only_if_named and name not in given) or not broken(value, values):
            return ""
        return says.format(**{**values, "flag": name, "value": value})

    return rule


def required(what: str) -> Rule:
    """The flag has a value; ``what`` says which, or what else the command needs."""
    return refuses(lambda value, _: not value, f"--{{flag}} is missing: {what}.")


def names_a_model(name: str, values: Values, given: Given) -> str:
    """Refuses what cannot be a model's name, in an address and as a folder."""
    if values[name] is not None:
        check_model_name(values[name])
    return ""


def within(holds: Callable[[Any], bool], expected: str) -> Rule:
    """A number keeps to a condition, which ``expected`` says."""
    return refuses(
        lambda value, _: value is not None and not holds(value),
        f"--{{flag}}={{value}}: expected a number {expected}.",
    )


# Of an optimizer whose updates are about as large as the rate, whatever the gradients are. Weights
# are about 0.02, and in float32 take no update below a 1e-8th of that.
IS_RATE = within(
    lambda rate: 1e-12 <= rate < 1,
    "from 1e-12 to below 1, about what a step changes a weight by; 5e-5 and 1e-3 are usual",
)


def at_least(least: float) -> Rule:
    """A number is not below the least; absl checks flags itself: this is for callers in Python."""
    return refuses(
        lambda value, _: value is not None and value < least,
        f"{{flag}} is {{value}}: expected {least} or more.",
    )


def among(choices: Collection[str]) -> Rule:
    """A text is one of some; absl checks flags itself: this is for callers in Python."""
    return refuses(
        lambda value, _: value is not None and value not in choices,
        f"{{flag}} is {{value!r}}: expected one of {', '.join(choices)}.",
    )


def needs(other: str, says: str = "") -> Rule:
    """A user names the flag only where the other has a value."""
    return refuses(
        lambda value, values: value is not None and not values[other],
        says or f"--{{flag}} is for --{other}, which is not given: leave it out.",
        only_if_named=True,
    )


def divided_by(other: str) -> Rule:
    """The number is a multiple of another flag's."""
    return refuses(
        lambda value, values: value % values[other] != 0,
        f"--{{flag}}={{value}} is not a multiple of --{other}={{{other}}}.",
    )


def without(*others: str, says: str) -> Rule:
    """Where the flag has a value, none of the others is given.

    ``says`` is the sentence for the ``{flag}``, its ``{value}``, and the ``{other}`` flag.
    """

    def rule(name: str, values: Values, given: Given) -> str:
        wrong = (other for other in others if other in given and values[other] is not None)
        other = next(wrong, "") if values[name] else ""
        return other and says.format(flag=name, value=values[name], other=other)

    return rule


def one_of(what: str, *others: str) -> Rule:
    """The flag and the others set the same thing: only one of them may be given."""
    return without(*others, says=f"--{{flag}} and --{{other}} both {what}: give one of them.")


def check(settings: type, values: Values, given: Given = ()) -> None:
    """Refuses values that break a rule of a flag; ``given`` are the flags that a user named.

    Raises:
        ValueError: the sentence of the first rule that is broken.
    """
    for field in dataclasses.fields(settings):
        for rule in field.metadata.get("rules", ()):
            if sentence := rule(field.name, values, given):
                raise ValueError(sentence)
