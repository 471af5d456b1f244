"""Options that several kinds of task share, and the rules that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import Given, Values, refuses, within
from bert_tf.readers.glue import GLUE_TASKS, glue_task

# GLUE's tasks as the command line spells them, with their published spellings.
GLUE_NAMES = {task.tfds_config: name for name, task in GLUE_TASKS.items()}

SHARE = within(lambda value: 0 <= value < 1, "from 0 to below 1")


def evaluates(values: Values) -> bool:
    """True if a training has something to evaluate on."""
    return bool(values["task"] in GLUE_NAMES or values["dev_file"] or values["dev_fraction"] > 0)


ON_DEV = refuses(
    lambda value, values: bool(value) and not evaluates(values),
    "--{flag} needs something to evaluate on: give --dev_file, or a --dev_fraction above 0.",
)


def of_single_texts(name: str, values: Values, given_flags: Given) -> str:
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
        rules=[of_single_texts],
        is_kept=True,
        heading="Texts with classes or numbers",
    )


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """The option of kinds whose labels are classes or choices."""

    label_smoothing: float = flag_fields.number(
        0.0,
        "Train towards 1 - SHARE + SHARE / CLASSES for the right class, and SHARE / CLASSES for "
        "each other one.",
        rules=[SHARE],
        is_rare=True,
    )
