"""``--class_weights``: what each class counts in the loss."""

from collections.abc import Mapping, Sequence

from bert_tf.untrusted import listed


def class_weights(
    text: str | None, labels: Sequence[str], counts: Mapping[str, int]
) -> dict[str, float] | None:
    """The weight of each class, by its name.

    Args:
        text: ``balanced`` for weights inverse to the counts, whose mean over the examples is 1; or
            ``NAME:WEIGHT,NAME:WEIGHT``, 1 for the classes not named.
        labels: the classes' names in the order of their ids.
        counts: how many training examples each class has.

    Returns:
        Weights by name; ``None`` where there is no text. Keras divides the weighted losses of a
        batch by its number of examples, so weights of another mean than 1 change the loss' size.

    Raises:
        ValueError: a class is unknown or named twice, or a weight is no positive number.

    >>> class_weights("balanced", ["0", "1"], {"0": 30, "1": 10})
    {'0': 0.6666666666666666, '1': 2.0}
    >>> class_weights("1:2.5", ["0", "1"], {})
    {'0': 1.0, '1': 2.5}
    """
    if text is None:
        return None
    if text == "balanced":
        present = [label for label in labels if counts.get(label)]
        each = sum(counts.values()) / len(present)
        # A class without an example has no loss to weigh.
        return {label: each / counts[label] if label in present else 1.0 for label in labels}
    weights = dict.fromkeys(labels, 1.0)
    named = set()
    for part in text.split(","):
        name, _, number = part.rpartition(":")
        if name not in labels or name in named:
            raise ValueError(
                f"--class_weights={text}: expected each class once as NAME:WEIGHT, or balanced; "
                f"got {part!r}, and the classes are {listed(labels)}."
            )
        named.add(name)
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not 0 < weight < float("inf"):
            raise ValueError(
                f"--class_weights={text}: expected a positive number as the weight of {name}, got "
                f"{number!r}."
            )
        weights[name] = weight
    return weights
