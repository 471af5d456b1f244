"""``--class_weights``: what a class counts in the loss."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_tf.cli import flag_fields
from bert_tf.untrusted import parse_json_object
from bert_tf.wording import listed

from .options import Smoothing

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
