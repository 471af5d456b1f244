"""Options and rules shared by several task types."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import Given, Values, rule, within
from bert_tf.io.messages import listed
from bert_tf.io.untrusted import parse_json_object
from bert_tf.readers.glue import GLUE_TASKS, glue_task

# Names of the GLUE tasks by their names on the command line.
GLUE_NAMES = {task.tfds_config: name for name, task in GLUE_TASKS.items()}

FRACTION = within(lambda value: 0 <= value < 1, "from 0 to below 1")


def evaluates(values: Values) -> bool:
    """Returns whether a training run has data for evaluation."""
    return bool(values["task"] in GLUE_NAMES or values["dev_file"] or values["dev_fraction"] > 0)


NEEDS_DEV_SET = rule(
    lambda value, values: bool(value) and not evaluates(values),
    "--{flag} requires evaluation data. Pass --dev_file or a --dev_fraction above 0.",
)


def requires_single_texts(name: str, values: Values, given_flags: Given) -> str:
    """Rejects flags for single texts if the data are text pairs."""
    value, glue = values[name], GLUE_NAMES.get(values["task"])
    columns: Sequence[str] = glue_task(glue).text_columns if glue else values["text_columns"] or ()
    if value in (False, LONG_TEXTS[0]) or len(columns) < 2:
        return ""
    flag = name if value is True else f"{name}={value}"
    return (
        f"--{flag} is only for single texts, but there are two text columns: "
        f"{', '.join(columns)}. Remove the flag."
    )


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """Options of task types that read texts or text pairs."""

    long_text: str = flag_fields.choice(
        LONG_TEXTS[0],
        LONG_TEXTS,
        "Part of a single text to read if it exceeds --max_seq_length: the beginning (head), the "
        "beginning and the end (head_tail), or everything in up to 16 overlapping windows whose "
        "outputs are averaged (windows).",
        rules=[requires_single_texts],
        saved_in_task_file=True,
        heading="Classification and regression",
    )


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """Options of task types with classes or choices as labels."""

    label_smoothing: float = flag_fields.number(
        0.0,
        "Label smoothing E: the target is 1 - E + E / CLASSES for the true class and E / CLASSES "
        "for every other class.",
        rules=[FRACTION],
        advanced=True,
    )


# === Class weights ===

BALANCED = "balanced"


@dataclasses.dataclass(frozen=True)
class ClassWeights(Smoothing):
    """Options of task types with classes as labels."""

    class_weights: str | None = flag_fields.string(
        None,
        "Class weights in the loss: balanced (all classes have the same total weight), or "
        'NAME:WEIGHT,NAME:WEIGHT or {"NAME": WEIGHT}, where classes not named have weight 1.',
    )


def parse_class_weights(
    text: str, labels: Sequence[str], counts: Mapping[str, int]
) -> dict[str, float]:
    """Returns the weight of each class by name, as specified by ``--class_weights``.

    Balanced weights are inversely proportional to the ``counts`` of the training examples, with a
    mean of 1 over the examples. Another mean would scale the loss, because Keras divides the sum of
    weighted losses by the number of examples.
    """
    if text == BALANCED:
        present = [label for label in labels if counts.get(label)]
        mean_count = sum(counts.values()) / len(present)
        # Classes without examples do not affect the loss.
        return {label: mean_count / counts[label] if label in present else 1.0 for label in labels}
    weights = dict.fromkeys(labels, 1.0)
    seen = set()
    pairs: Iterable[tuple[str, Any]] = (part.rpartition(":")[::2] for part in text.split(","))
    if text.startswith("{"):
        pairs = parse_json_object(text, "--class_weights", unique_keys=True).items()
    for name, number in pairs:
        if name not in labels or name in seen:
            raise ValueError(
                f"--class_weights={text}: expected balanced, or each class at most once as "
                f'NAME:WEIGHT or {{"NAME": WEIGHT}}, got {name or number!r}. The classes are '
                f"{listed(labels)}."
            )
        seen.add(name)
        try:
            weight = float(number)
        except (TypeError, ValueError):
            weight = 0.0
        if not 0 < weight < float("inf"):
            raise ValueError(
                f"--class_weights={text}: expected a positive weight for {name}, got {number!r}."
            )
        weights[name] = weight
    return weights
