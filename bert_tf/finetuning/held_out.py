"""Held-out examples, drawn by their contents and the seed alone."""

import collections
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from bert_tf.readers.examples import TextExample

T = TypeVar("T")


def hold_out(
    items: Sequence[T], fraction: float, seed: int, key: Callable[[T], Hashable], what: str
) -> tuple[list[T], list[T], str]:
    """Splits examples in two, where no set to evaluate on is given.

    Examples of one group, which have the same ``key``, stay together; ``what`` names the groups for
    people. Which groups are held out depends on their contents and the seed, not on their order.
    Every class of texts gives its share. Returns what is left (at least one group), what is held
    out (likewise), each in the order of ``items``, and what the groups are.
    """
    groups = collections.Counter(key(item) for item in items)
    if len(groups) < 2:
        several = f"{len(items):,} examples of one article, context or text, which stay together"
        raise ValueError(
            f"Nothing can be held out of {'one example' if len(items) == 1 else several}: give "
            "more of them, a --dev_file, or --dev_fraction=0."
        )
    ranked = sorted(groups, key=lambda group: _hash(seed, group))
    classes = _classes(items, key)
    if len(set(classes.values())) > 1:
        chosen = _draw_by_class(ranked, groups, classes, fraction, seed)
    else:
        chosen = _draw(ranked, groups, fraction * len(items))
    # Where each alone is too much, the least.
    chosen = chosen or {min(ranked, key=groups.__getitem__)}
    held_out = [item for item in items if key(item) in chosen]
    if len(held_out) < fraction * len(items) / 2:
        largest = max(groups.values())
        what += f"; {largest:,} that share a text or an article stay together: give a --dev_file"
    return [item for item in items if key(item) not in chosen], held_out, what


def _hash(seed: int, value: Hashable) -> bytes:
    return hashlib.sha256(f"{seed} {value!r}".encode()).digest()


def _draw(ranked: Sequence[Hashable], sizes: Mapping[Any, int], target: float) -> set[Hashable]:
    """Whole groups, as many as come nearest to the target number of examples, and never all."""
    chosen: set[Hashable] = set()
    count = 0
    for group in ranked[:-1]:
        if count + sizes[group] / 2 <= target:
            chosen.add(group)
            count += sizes[group]
        elif chosen and sizes[group] / 2 <= target:  # one that is larger is passed over
            break
    return chosen


def _classes(items: Sequence[Any], key: Callable[[Any], Hashable]) -> dict[Hashable, str]:
    """The class of each group of texts, the rarest of several; {} without classes."""
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
    """Draws each class' share, rounded so that all together are the whole's (largest remainder)."""
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
