"""What is evaluated on where no file for it is given: a part of the training set."""

import collections
import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from bert_tf.tasks.examples import ChoiceExample, QuestionExample, TaggedExample

T = TypeVar("T")


def hold_out(items: Sequence[T], fraction: float, seed: int) -> tuple[list[T], list[T], str]:
    """Splits examples in two, where no set to evaluate on is given.

    Examples that share what makes them alike stay together: questions of one article (or, without
    titles, of one paragraph), sentences of one document where there are enough of these, choices
    for one context, equal texts. Which of these groups are held out depends on their contents and
    the seed, not on their order.

    Args:
        items: a task's examples.
        fraction: the share to hold out; one group at least is, and one at least is not.
        seed: another seed holds out others.

    Returns:
        What is left, what is held out, each in the order of ``items``, and what the groups are.

    Raises:
        ValueError: there is one group alone.
    """
    key, what = _grouping(items, fraction)
    groups = collections.Counter(key(item) for item in items)
    if len(groups) < 2:
        raise ValueError(
            f"Nothing can be held out of {len(items):,} examples that belong together ({what}): "
            "give a --dev_file, or --dev_fraction=0."
        )
    ranked = sorted(groups, key=lambda group: hashlib.sha256(f"{seed} {group!r}".encode()).digest())
    wanted = fraction * len(items)
    chosen: set[Hashable] = set()
    count = 0
    for group in ranked[:-1]:
        # Whole groups: as many as come nearest to the share.
        if count + groups[group] / 2 <= wanted:
            chosen.add(group)
            count += groups[group]
        elif chosen:
            break
    # Where each alone is too much, the least.
    chosen = chosen or {min(ranked, key=groups.__getitem__)}
    return (
        [item for item in items if key(item) not in chosen],
        [item for item in items if key(item) in chosen],
        what,
    )


def _grouping(items: Sequence[Any], fraction: float) -> tuple[Callable[[Any], Hashable], str]:
    first = items[0]
    if isinstance(first, QuestionExample):
        if len({item.title for item in items}) > 1:
            return (lambda item: item.title), "whole articles"
        return (lambda item: item.context), "whole paragraphs"
    if isinstance(first, TaggedExample):
        documents = len({item.document for item in items})
        # Of a handful of documents one would be too much; and a table's rows are one each.
        if fraction * documents >= 1 and documents < len(items):
            return (lambda item: item.document), "whole documents"
        return (lambda item: item.words), "drawn by the seed"
    if isinstance(first, ChoiceExample):
        return (lambda item: item.context), "drawn by the seed"
    return (lambda item: (item.text_a, item.text_b)), "drawn by the seed"
