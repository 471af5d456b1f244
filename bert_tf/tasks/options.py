"""Options that several kinds of task share, and the rules that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import Given, Values, rule, within
from bert_tf.io.untrusted import parse_json_object
from bert_tf.io.wording import listed
from bert_tf.readers.glue import GLUE_TASKS, glue_task

# GLUE's tasks as the command line spells them, with their published spellings.
GLUE_NAMES = {task.tfds_config: name for name, task in GLUE_TASKS.items()}

FRACTION = within(lambda value: 0 <= value < 1, "from 0 to below 1")


def evaluates(values: Values) -> bool:
    """True if a training has something to evaluate on."""
    return bool(values["task"] in GLUE_NAMES or values["dev_file"] or values["dev_fraction"] > 0)


NEEDS_DEV_SET = rule(
    lambda value, values: bool(value) and not evaluates(values),
    "--{flag} needs something to evaluate on: give --dev_file, or a --dev_fraction above 0.",
)


def requires_single_texts(name: str, values: Values, given_flags: Given) -> str:
    """Refuses pairs of texts, where the flag asks for what is of single ones."""
    value, glue = values[name], GLUE_NAMES.get(values["task"])
    columns: Sequence[str] = glue_task(glue).text_columns if glue else values["text_columns"] or ()
    if value in (False, LONG_TEXTS[0]) or len(columns) < 2:
        return ""
    flag = name if value is True else f"{name}={value}"
    return (
        f"--{flag} is for single texts, and here are two ({', '.join(columns)}): leave it out; of "
        "a pair that is too long the longer text is cut at its end."
    )


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """The option of kinds that read texts or pairs of texts."""

    long_text: str = flag_fields.choice(
        LONG_TEXTS[0],
        LONG_TEXTS,
        "Of a single text longer than --max_seq_length read the beginning (head), the beginning "
        "and the end (head_tail), or everything, in at most 16 overlapping windows whose outputs "
        "are averaged (windows).",
        rules=[requires_single_texts],
        saved_in_task_file=True,
        heading="Texts with classes or numbers",
    )


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """The option of kinds whose labels are classes or choices."""

    label_smoothing: float = flag_fields.number(
        0.0,
        "Train towards 1 - SHARE + SHARE / CLASSES for the right class, and SHARE / CLASSES for "
        "each other one.",
        rules=[FRACTION],
        advanced=True,
    )


# === ``--class_weights``: what a class counts in the loss ===

BALANCED = "balanced"


@dataclasses.dataclass(frozen=True)
class ClassWeights(Smoothing):
    """Options of kinds whose labels are classes."""

    class_weights: str | None = flag_fields.string(
        None,
        "Weigh classes in the loss: balanced (each counts the same in total), or "
        'NAME:WEIGHT,NAME:WEIGHT or {"NAME": WEIGHT}, where other classes count 1.',
    )


def parse_class_weights(
    text: str, labels: Sequence[str], counts: Mapping[str, int]
) -> dict[str, float]:
    """The weight of each class, by its name, as ``--class_weights`` asks for them.

    ``balanced`` weights are inverse to ``counts`` of the training examples, and their mean over the
    examples is 1. Keras divides the weighted losses of a batch by its number of examples, so
    weights of another mean change the size of the loss.
    """
    if text == BALANCED:
        present = [label for label in labels if counts.get(label)]
        each = sum(counts.values()) / len(present)
        # A class without an example has no loss to weigh.
        return {label: each / counts[label] if label in present else 1.0 for label in labels}
    weights = dict.fromkeys(labels, 1.0)
    seen = set()
    pairs: Iterable[tuple[str, Any]] = (part.rpartition(":")[::2] for part in text.split(","))
    if text.startswith("{"):
        pairs = parse_json_object(text, "--class_weights", unique_keys=True).items()
    for name, number in pairs:
        if name not in labels or name in seen:
            raise ValueError(
                f"--class_weights={text}: expected each class once as NAME:WEIGHT (where names "
                f'have commas, as {{"NAME": WEIGHT}}), or balanced; got {name or number!r}, and '
                f"the classes are {listed(labels)}."
            )
        seen.add(name)
        try:
            weight = float(number)
        except (TypeError, ValueError):
            weight = 0.0
        if not 0 < weight < float("inf"):
            raise ValueError(
                f"--class_weights={text}: expected a positive number as the weight of {name}, got "
                f"{number!r}."
            )
        weights[name] = weight
    return weights
