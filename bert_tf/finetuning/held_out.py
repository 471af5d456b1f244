"""Held-out split, which depends only on the contents of the examples and the seed."""

import collections
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from bert_tf.readers.examples import TextExample

T = TypeVar("T")


def hold_out(
    items: Sequence[T], fraction: float, seed: int, key: Callable[[T], Hashable], groups: str
) -> tuple[list[T], list[T], str]:
    """Splits examples into training and held-out examples, stratified by class.

    Args:
        items: Examples.
        fraction: Fraction to hold out.
        seed: Random seed.
        key: Returns the group of an example; groups are not split.
        groups: Description of the groups.

    Returns:
        The training examples and the held-out examples, at least one group each, in the order of
        ``items``, and the description, extended if groups are too large.
    """
    sizes = collections.Counter(key(item) for item in items)
    if len(sizes) < 2:
        several = f"all {len(items):,} have the same text, context or article"
        raise ValueError(
            f"Cannot hold out examples: {'there is only one' if len(items) == 1 else several}. Add "
            "examples, or pass --dev_file or --dev_fraction=0."
        )
    ranked = sorted(sizes, key=lambda group: _hash(seed, group))
    classes = _classes(items, key)
    if len(set(classes.values())) > 1:
        chosen = _draw_by_class(ranked, sizes, classes, fraction, seed)
    else:
        chosen = _draw(ranked, sizes, fraction * len(items))
    # If each group is too large, use the smallest.
    chosen = chosen or {min(ranked, key=sizes.__getitem__)}
    held_out = [item for item in items if key(item) in chosen]
    if len(held_out) < fraction * len(items) / 2:
        largest = max(sizes.values())
        groups += f"; {largest:,} share a text or an article and are not split, pass --dev_file"
    return [item for item in items if key(item) not in chosen], held_out, groups


def _hash(seed: int, value: Hashable) -> bytes:
    return hashlib.sha256(f"{seed} {value!r}".encode()).digest()


def _draw(ranked: Sequence[Hashable], sizes: Mapping[Any, int], target: float) -> set[Hashable]:
    """Draws groups up to approximately the target number of examples, but never all groups."""
    chosen: set[Hashable] = set()
    count = 0
    for group in ranked[:-1]:
        if count + sizes[group] / 2 <= target:
            chosen.add(group)
            count += sizes[group]
        elif chosen and sizes[group] / 2 <= target:  # Groups that are too large are skipped.
            break
    return chosen


def _classes(items: Sequence[Any], key: Callable[[Any], Hashable]) -> dict[Hashable, str]:
    """Returns the class of each group, the rarest if there are several; {} without classes."""
    if not all(isinstance(item, TextExample) and isinstance(item.label, str) for item in items):
        return {}
    counts = collections.Counter(item.label for item in items)
    classes: dict[Hashable, str] = {}
    for item in items:
        label = classes.get(key(item), item.label)
        classes[key(item)] = min(label, item.label, key=lambda name: (counts[name], name))
    return classes


def _draw_by_class(
    ranked: Sequence[Hashable],
    sizes: Mapping[Any, int],
    classes: Mapping[Hashable, str],
    fraction: float,
    seed: int,
) -> set[Hashable]:
    """Draws the same fraction of each class, rounded by the largest remainder method."""
    parts: dict[str, list[Hashable]] = {}
    for group in ranked:
        parts.setdefault(classes[group], []).append(group)
    totals = {name: sum(sizes[group] for group in part) for name, part in parts.items()}
    counts = {name: int(fraction * total) for name, total in totals.items()}
    rest = int(fraction * sum(totals.values()) + 0.5) - sum(counts.values())
    by_remainder = sorted(
        (name for name, part in parts.items() if len(part) > 1),
        key=lambda name: (counts[name] - fraction * totals[name], _hash(seed, name)),
    )
    for name in by_remainder[:rest]:
        counts[name] += 1
    drawn = (_draw(part, sizes, counts[name]) for name, part in parts.items() if counts[name])
    return set().union(*drawn)
