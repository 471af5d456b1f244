"""Reads the data of a fine-tuning run and creates the run's task.

This module does not import TensorFlow until it creates a task.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bert_tf.choices import PAIR_MARK
from bert_tf.io import paths
from bert_tf.io.messages import listed, quote
from bert_tf.readers.examples import BadRows, ExampleSet, TextExample, label_of, quoted
from bert_tf.readers.glue import glue_task, has_glue_file, is_labelled, read_glue, read_glue_tfds
from bert_tf.readers.tables import TableFile, read_columns, read_rows
from bert_tf.tasks.task import TEST, FormReader, Task

from .settings import FineTuningSettings

if TYPE_CHECKING:
    from bert_tf.modeling.pooling import SentenceEmbedding

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class DataSplits:
    """Examples for training, and the dev and test splits by name.

    ``notes`` contains warnings about the data; ``columns`` contains the keyword arguments of the
    table reader, and is empty for other formats.
    """

    train: ExampleSet[Any]
    dev: dict[str, ExampleSet[Any]]
    test: dict[str, ExampleSet[Any]]
    notes: list[str]
    columns: dict[str, Any]

    @functools.cached_property
    def skipped(self) -> list[str]:
        """One message per skipped row."""
        examples = self._all().values()
        return list(dict.fromkeys(message for each in examples for message in each.skipped))

    def fingerprints(self) -> dict[str, str]:
        """Returns a hash of each split's examples, to detect changes when a run resumes."""
        return {name: _fingerprint(examples) for name, examples in self._all().items()}

    def _all(self) -> dict[str, ExampleSet[Any]]:
        return {"train": self.train, **self.dev, **self.test}


def _fingerprint(examples: ExampleSet[Any]) -> str:
    digest = hashlib.sha256(repr(examples.labels).encode())
    for item in examples.items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:32]


def read_splits(settings: FineTuningSettings) -> DataSplits:
    """Reads and checks all splits."""
    splits = _read_glue_splits(settings) if settings.glue else _read_files(settings)
    splits.notes.extend(splits.train.notes)
    splits.notes.extend(_contradiction_notes(settings.kind, splits))
    splits.notes.extend(_shared_notes(settings.kind, splits))
    if skipped := splits.skipped:
        splits.notes.append(f"Bad rows skipped: {len(skipped):,}. The first: {skipped[0]}")
    return splits


# === GLUE ===


def _read_glue_splits(settings: FineTuningSettings) -> DataSplits:
    task, folder = glue_task(str(settings.glue)), settings.data_dir

    def read(split: str, name: str = task.name) -> ExampleSet[TextExample]:
        if folder is None:
            return read_glue_tfds(name, split)
        return read_glue(name, folder, split, skip_bad_rows=settings.skip_bad_rows)

    train_split, *other_splits = task.splits
    dev = {split: read(split) for split in other_splits if is_labelled(split)}
    unlabelled = [split for split in other_splits if not is_labelled(split)]
    sources = {split: (task.name, split, f"split {split}") for split in unlabelled}
    if task.name == "MNLI":
        sources["ax"] = ("AX", "test", "the diagnostic set AX")
    test, notes = {}, []
    for set_name, (name, split, description) in sources.items():
        if folder is None or has_glue_file(name, folder, split):
            test[set_name] = read(split, name)
        else:
            notes.append(f"{folder} has no file for {description}, so there are no predictions.")
    train = read(train_split)
    columns = {"text_columns": list(task.text_columns), "label_column": None}
    return DataSplits(train, dev, test, notes, columns)


# === Files ===


def _read_files(settings: FineTuningSettings) -> DataSplits:
    columns = _table_columns(settings)
    form = None if columns else settings.kind.native_reader(settings.task, {})
    read = _reader(settings, columns, form)
    train = read(str(settings.train_file), None)
    labels = train.labels or None
    dev: dict[str, ExampleSet[Any]] = {}
    notes: list[str] = []
    if settings.dev_file:
        dev["dev"] = read(settings.dev_file, labels)
    elif settings.dev_fraction > 0:
        items, fraction = train.items, settings.dev_fraction
        key, groups = settings.kind.grouping(items, fraction)
        kept, held_out, groups = hold_out(items, fraction, settings.seed, key, groups)
        dev["dev"] = dataclasses.replace(train, items=held_out)
        train = dataclasses.replace(train, items=kept)
        notes.append(
            f"No --dev_file: {len(held_out):,} of {len(items):,} examples of "
            f"{settings.train_file} are held out for evaluation ({groups})."
        )
        if shared := _count_shared_texts(kept, held_out):
            notes.append(
                f"{shared:,} of {len(held_out):,} held-out pairs share one text with a training "
                "pair. Only identical pairs are kept in the same split."
            )
    else:
        notes.append("No dev set: the weights of the last epoch are kept.")
    test: dict[str, ExampleSet[Any]] = {}
    if settings.test_file:
        labelled = _has_labels(settings, settings.test_file, form)
        (dev if labelled else test)[TEST] = read(settings.test_file, labels, labelled)
    return DataSplits(train, dev, test, notes, columns)


def _count_shared_texts(train: Sequence[Any], held_out: Sequence[Any]) -> int:
    """Returns the number of held-out pairs that share a text with the training set."""
    train_pairs, pairs = (
        [{item.text_a, item.text_b} - {None, ""} for item in items if isinstance(item, TextExample)]
        for items in (train, held_out)
    )
    train_texts = set().union(*train_pairs)
    return sum(len(pair) > 1 and not train_texts.isdisjoint(pair) for pair in pairs)


def _has_labels(settings: FineTuningSettings, path: str, form: FormReader | None) -> bool:
    """Returns whether a file contains labels."""
    if form is not None:
        return form.is_labelled(path)
    rows = read_rows(TableFile(path, settings.encoding, settings.delimiter))
    return next(filter(None, rows), {}).get(settings.label_column or "") is not None


def _reader(
    settings: FineTuningSettings, columns: Mapping[str, Any], form: FormReader | None
) -> Callable[..., ExampleSet[Any]]:
    """Returns a function that reads a table or a file in the task type's native format.

    The function's ``labels`` are the possible classes, by default those in the file.
    """
    kind, encoding = settings.kind, settings.encoding
    options = {**columns, "skip_bad_rows": settings.skip_bad_rows}

    def read(path: str, labels: Sequence[str] | None, labelled: bool = True) -> ExampleSet[Any]:
        if form is not None:
            return form.read(path, labels=labels, labelled=labelled, encoding=encoding, **options)
        changes: dict[str, Any] = {"labels": labels} if kind.classes else {}
        if not labelled:
            changes["label_column"] = None
        return kind.read(TableFile(path, encoding, settings.delimiter), **{**options, **changes})

    return read


# === The held-out split ===


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
        ``items``; and ``groups``, with a remark if the split is stratified or a group is too large.
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
        groups += ", stratified by class"
    else:
        chosen = _draw(ranked, sizes, fraction * len(items))
    # If every group is too large, use the smallest.
    chosen = chosen or {min(ranked, key=sizes.__getitem__)}
    held_out = [item for item in items if key(item) in chosen]
    if len(held_out) < fraction * len(items) / 2:
        largest = max(sizes.values())
        groups += f"; {largest:,} share a text or an article and cannot be split: pass --dev_file"
    return [item for item in items if key(item) not in chosen], held_out, groups


def _hash(seed: int, value: Hashable) -> bytes:
    return hashlib.sha256(f"{seed} {value!r}".encode()).digest()


def _draw(ranked: Sequence[Hashable], sizes: Mapping[Any, int], target: float) -> set[Hashable]:
    """Draws groups until about the target number of examples is reached, but never all groups."""
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
    """Returns the class of each group, or its rarest class; {} if examples have no classes."""
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


# === Duplicate texts ===


def _contradiction_notes(kind: type[Task], splits: DataSplits) -> Iterator[str]:
    """Yields a note if identical texts have different labels."""
    first: dict[int, Hashable] = {}
    conflicts: dict[int, tuple[Any, set[Hashable]]] = {}
    for examples in (splits.train, *splits.dev.values()):
        for item in examples.items:
            label = label_of(item)
            key = hash(tuple(map(_plain, kind.all_texts(item).values())))
            if label is not None and first.setdefault(key, label) != label:
                conflicts.setdefault(key, (item, {first[key]}))[1].add(label)
    if conflicts:
        item, labels = next(iter(conflicts.values()))
        example = quoted(PAIR_MARK.join(kind.display_texts(item).values()))
        if not any(isinstance(x, tuple) for x in labels):  # Tags are too long for a note.
            names = sorted(quoted(sorted(x) if isinstance(x, frozenset) else x) for x in labels)
            example += f" ({listed(names, 2)})"
        yield (
            f"Identical texts with different labels: {len(conflicts):,}, such as {example}. "
            "Correct the labels."
        )


def _shared_notes(kind: type[Task], splits: DataSplits) -> Iterator[str]:
    """Yields notes on dev and test examples that also occur in another split."""
    field = kind.unshared_text
    also = f"have a {field} that also occurs" if field else "also occur"

    def keys(examples: ExampleSet[Any]) -> list[int]:
        columns = map(kind.all_texts, examples.items)
        texts = ([column[field]] if field else column.values() for column in columns)
        # The order of the texts in a pair and their case do not matter.
        return [hash(tuple(sorted(_plain(text).casefold() for text in each))) for each in texts]

    known = {"training": {*keys(splits.train)}} if splits.dev else {}
    for name, examples in splits.dev.items():
        set_keys = keys(examples)
        for other, other_keys in known.items():
            count = sum(key in other_keys for key in set_keys)
            # Only a test set must also differ from the dev sets.
            if count and (other == "training" or name == TEST):
                yield (
                    f"{count:,} of {len(set_keys):,} {name} examples {also} in the {other} set "
                    f"(ignoring case and spaces), so the scores on {name} are too high. Remove the "
                    "duplicates."
                )
        known[name] = {*set_keys}


def _plain(text: str) -> str:
    """Normalizes white space, which tokenizers ignore."""
    return " ".join(text.split())


# === The task ===


def read_task(
    settings: FineTuningSettings, embedding: SentenceEmbedding | None = None
) -> tuple[Task, DataSplits]:
    """Reads the data, and returns the task and the data."""
    splits = read_splits(settings)
    if settings.option("few_shot") and len({item.label for item in splits.train.items}) < 2:
        raise ValueError(
            f"--few_shot requires two classes, but all training texts have the class "
            f"{quote(splits.train.items[0].label)}. Add texts of another class, or pass --dev_file "
            "or --dev_fraction=0."
        )
    task = settings.kind(
        settings.glue or settings.task,
        *(splits.train, splits.dev, splits.test),
        metric=settings.metric,
        options=settings.options,
        folder=settings.model_dir,
        embedding=embedding,
    )
    return task, splits


# === Tables ===


def _table_columns(settings: FineTuningSettings) -> dict[str, Any]:
    """Returns the keyword arguments of the table reader; {} for native formats."""
    if not settings.text_columns:
        return {}
    columns = {
        "text_columns": settings.text_columns,
        "label_column": settings.label_column,
        "id_column": settings.id_column,
    }
    return columns | {
        name: settings.option(name) for name in settings.kind.option_fields(only="tables")
    }


def check_tables(settings: FineTuningSettings) -> None:
    """Checks early that tables are not empty and contain the columns.

    Does nothing with ``skip_bad_rows``, which allows rows without a column, and for existing runs,
    because a finished run does not need its input files.
    """
    columns = _table_columns(settings)
    is_new = not os.path.isdir(settings.model_dir)
    if not is_new or settings.skip_bad_rows or not columns:
        return
    ids = [*settings.text_columns, settings.id_column]
    # Other columns, such as the start of an answer, may exist only in labeled files.
    options = [
        name for name in settings.kind.option_fields(only="tables") if name.endswith("_column")
    ]
    labelled = [*ids, settings.label_column, *(settings.option(name) for name in options)]
    tables = [
        (settings.train_file, labelled),
        (settings.dev_file, labelled),
        (settings.test_file, ids),
    ]
    for path, names in tables:
        if path and paths.local_path(path) is not None and paths.is_file(path):
            table = TableFile(path, settings.encoding, settings.delimiter)
            next(read_columns(table, names, BadRows(path, skip=False)), None)
