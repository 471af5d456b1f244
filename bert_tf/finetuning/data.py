"""From the settings to a task on its data: which files, which reader, what is held out."""

import collections
import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from bert_tf.readers.examples import (
    ChoiceExample,
    ExampleSet,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from bert_tf.readers.glue import has_glue_file, read_glue, read_glue_tfds
from bert_tf.readers.glue_tasks import glue_task, is_labelled
from bert_tf.readers.tables import TableFile

from .settings import FineTuningSettings

T = TypeVar("T")
_TEST = "test"
# The set of texts that only a teacher labels.
UNLABELLED = "unlabelled"
# Reads a file: its path, the labels that there may be (None: those that are there), and whether it
# has labels.
_Reader = Callable[[str, Sequence[str] | None, bool], ExampleSet[Any]]


@dataclasses.dataclass(frozen=True)
class Sets:
    """What was read: by the sets' names, and sentences on what was held out or is missing."""

    train: ExampleSet[Any]
    dev: dict[str, ExampleSet[Any]]
    test: dict[str, ExampleSet[Any]]
    notes: list[str]
    unlabelled: ExampleSet[TextExample] | None = None

    def all(self) -> dict[str, ExampleSet[Any]]:
        """Every set by its name."""
        unlabelled = {} if self.unlabelled is None else {UNLABELLED: self.unlabelled}
        return {"train": self.train, **unlabelled, **self.dev, **self.test}

    def of_task(self, settings: FineTuningSettings) -> tuple[Any, ...]:
        """The first arguments of a ``Task``."""
        return settings.glue or settings.task, self.train, self.dev, self.test

    def skipped(self) -> list[str]:
        """A sentence for each row that was left out."""
        every = (examples.skipped for examples in self.all().values())
        return list(dict.fromkeys(sentence for skipped in every for sentence in skipped))

    def fingerprints(self) -> dict[str, str]:
        """By set, what tells whether the data are those of the run's start."""
        return {name: _fingerprint(examples) for name, examples in self.all().items()}


def _fingerprint(examples: ExampleSet[Any]) -> str:
    digest = hashlib.sha256(repr(examples.labels).encode())
    for item in examples.items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:32]


def read_sets(settings: FineTuningSettings) -> Sets:
    """Reads and checks all data."""
    sets = _read_glue_sets(settings) if settings.glue else _read_files(settings)
    if settings.unlabelled_file:
        sets = dataclasses.replace(sets, unlabelled=_read_unlabelled(settings, sets))
    skipped = sets.skipped()
    sets.notes.extend(sets.train.notes)
    if skipped:
        sets.notes.append(f"Left out {len(skipped):,} bad rows; the first: {skipped[0]}")
    return sets


# === GLUE ===


def _read_glue_sets(settings: FineTuningSettings) -> Sets:
    task, folder = glue_task(str(settings.glue)), settings.data_dir

    def read(split: str, name: str = task.name) -> ExampleSet[TextExample]:
        if folder is None:
            return read_glue_tfds(name, split)
        return read_glue(name, folder, split, skip_bad_rows=settings.skip_bad_rows)

    train_split, *others = task.splits
    dev = {split: read(split) for split in others if is_labelled(split)}
    unlabelled = [split for split in others if not is_labelled(split)]
    wanted = {split: (task.name, split, f"the split {split}") for split in unlabelled}
    if task.name == "MNLI":
        wanted["ax"] = ("AX", "test", "AX, GLUE's diagnostic set")
    test, notes = {}, []
    for set_name, (name, split, what) in wanted.items():
        if folder is None or has_glue_file(name, folder, split):
            test[set_name] = read(split, name)
        else:
            notes.append(f"{folder} has no file of {what}: not predicted.")
    return Sets(read(train_split), dev, test, notes)


# === Files ===


def _read_files(settings: FineTuningSettings) -> Sets:
    read = _reader(settings)
    train = read(str(settings.train_file), None, True)
    labels = train.labels or None
    dev: dict[str, ExampleSet[Any]] = {}
    notes: list[str] = []
    if settings.dev_file:
        dev["dev"] = read(settings.dev_file, labels, True)
    elif settings.folds:
        notes.append(
            f"{settings.train_file} is split in {settings.folds} folds, and each is evaluated on "
            "by a run that is trained on the others."
        )
    elif settings.dev_fraction > 0:
        whole = train
        share, seed = settings.dev_fraction, settings.seed
        kept, held_out, what = hold_out(whole.items, share, seed)
        train = dataclasses.replace(whole, items=kept)
        dev["dev"] = dataclasses.replace(whole, items=held_out)
        notes.append(
            f"No --dev_file: {len(held_out):,} of the {len(whole.items):,} examples of "
            f"{settings.train_file} ({what}) are held out to evaluate on."
        )
    else:
        notes.append("Nothing decides which epoch is best: the last one counts as it.")
    test: dict[str, ExampleSet[Any]] = {}
    if settings.test_file:
        examples = read(settings.test_file, labels, settings.test_has_labels)
        (dev if settings.test_has_labels else test)[_TEST] = examples
    return Sets(train, dev, test, notes)


def table_columns(settings: FineTuningSettings) -> dict[str, Any]:
    """The arguments that name columns, of the reader of the task's tables; {} without a table."""
    if settings.glue:
        return {"text_columns": list(glue_task(settings.glue).text_columns), "label_column": None}
    if not settings.reads_table:
        return {}
    kind = settings.kind
    return {
        **kind.named_texts(settings.text_columns),
        kind.label: settings.label_column,
        **{name: getattr(settings, flag) for name, (flag, _) in kind.others.items()},
        "id_column": settings.id_column,
    }


def _reader(settings: FineTuningSettings) -> _Reader:
    kind, columns = settings.kind, table_columns(settings)
    task_class = kind.task_class
    form = task_class.own_form(settings.task, columns)
    skip = settings.skip_bad_rows

    def read(path: str, labels: Sequence[str] | None, labelled: bool) -> ExampleSet[Any]:
        if form is not None and not columns:
            encoding = settings.encoding
            return form.read(
                path, labels=labels, labelled=labelled, encoding=encoding, skip_bad_rows=skip
            )
        known = {"labels": labels} if task_class.classes else {}
        unlabelled = {} if labelled else {kind.label: None}
        table = TableFile(path, settings.encoding, settings.delimiter)
        return task_class.read_table(
            table, skip_bad_rows=skip, **{**columns, **unlabelled}, **known
        )

    return read


def _read_unlabelled(settings: FineTuningSettings, sets: Sets) -> ExampleSet[TextExample]:
    """The texts that a teacher labels, without those that are evaluated on."""
    path, kind = str(settings.unlabelled_file), settings.kind
    columns = {**table_columns(settings), kind.label: None, "id_column": None}
    table = TableFile(path, settings.encoding, settings.delimiter)
    found: ExampleSet[TextExample] = kind.task_class.read_table(
        table, skip_bad_rows=settings.skip_bad_rows, **columns
    )
    dev = {(item.text_a, item.text_b) for one in sets.dev.values() for item in one.items}
    items = [item for item in found.items if (item.text_a, item.text_b) not in dev]
    if not items:
        raise ValueError(
            f"--unlabelled_file={path} has the texts alone that are evaluated on: expected others."
        )
    if len(items) < len(found.items):
        sets.notes.append(
            f"Left out {len(found.items) - len(items):,} of the {len(found.items):,} texts of "
            f"{path}: they are evaluated on."
        )
    return dataclasses.replace(found, items=items)


# === What is held out ===


def fold_of(sets: Sets, settings: FineTuningSettings, number: int) -> Sets:
    """The sets with one of ``--folds`` of the training set held out, counted from 0."""
    whole = sets.train
    folds = split_folds(whole.items, int(settings.folds or 0), settings.seed)
    parts: tuple[list[Any], list[Any]] = ([], [])
    for item, fold in zip(whole.items, folds, strict=True):
        parts[fold == number].append(item)
    train, dev = (dataclasses.replace(whole, items=items) for items in parts)
    return dataclasses.replace(sets, train=train, dev={"dev": dev, **sets.dev})


def split_folds(items: Sequence[Any], count: int, seed: int) -> list[int]:
    """The fold, from 0, of each example.

    What ``hold_out`` keeps together stays together; every class of texts is dealt to the folds as
    evenly as that allows. A group's fold depends on the contents of all and the seed, not on their
    order.
    """
    key, what = _grouping(items, 1 / count)
    sizes = collections.Counter(key(item) for item in items)
    if len(sizes) < count:
        raise ValueError(
            f"--folds={count}: only {len(sizes):,} parts of the {len(items):,} examples do not "
            f"belong together ({what}): ask for fewer folds."
        )
    classes = _classes(items, key)
    found: dict[Hashable, int] = {}
    dealt: collections.Counter[tuple[int, str | None]] = collections.Counter()
    totals = [0] * count
    for group in sorted(sizes, key=lambda group: _hash(seed, group)):
        name = classes.get(group)
        fold = min(range(count), key=lambda number: (dealt[number, name], totals[number]))
        found[group] = fold
        dealt[fold, name] += sizes[group]
        totals[fold] += sizes[group]
    return [found[key(item)] for item in items]


def hold_out(items: Sequence[T], fraction: float, seed: int) -> tuple[list[T], list[T], str]:
    """Splits examples in two, where no set to evaluate on is given.

    ExampleSet that share what makes them alike stay together: questions of one article (or, without
    titles, of one paragraph), sentences of one document where there are enough documents, choices
    for one context, equal texts. Which of these groups are held out depends on their contents and
    the seed, not on their order. Every class of texts gives its share. At least one group is held
    out, and at least one is not. Returns what is left, what is held out, each in
    the order of ``items``, and what the groups are.
    """
    key, what = _grouping(items, fraction)
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
    return (
        [item for item in items if key(item) not in chosen],
        [item for item in items if key(item) in chosen],
        what,
    )


def _hash(seed: int, value: Hashable) -> bytes:
    return hashlib.sha256(f"{seed} {value!r}".encode()).digest()


def _draw(ranked: Sequence[Hashable], sizes: Mapping[Any, int], wanted: float) -> set[Hashable]:
    """Whole groups, as many as come nearest to the wanted number of examples, and never all."""
    chosen: set[Hashable] = set()
    count = 0
    for group in ranked[:-1]:
        if count + sizes[group] / 2 <= wanted:
            chosen.add(group)
            count += sizes[group]
        elif chosen:
            break
    return chosen


def _classes(items: Sequence[Any], key: Callable[[Any], Hashable]) -> dict[Hashable, str]:
    """The class of each group of texts, the rarest of several; {} without classes."""
    if not all(isinstance(item, TextExample) and isinstance(item.label, str) for item in items):
        return {}
    counts = collections.Counter(item.label for item in items)
    found: dict[Hashable, str] = {}
    for item in items:
        label = found.get(key(item), item.label)
        found[key(item)] = min(label, item.label, key=lambda name: (counts[name], name))
    return found


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
    wanted = {name: int(fraction * total) for name, total in totals.items()}
    rest = int(fraction * sum(totals.values()) + 0.5) - sum(wanted.values())
    by_remainder = sorted(
        (name for name, part in parts.items() if len(part) > 1),
        key=lambda name: (wanted[name] - fraction * totals[name], _hash(seed, name)),
    )
    for name in by_remainder[:rest]:
        wanted[name] += 1
    drawn = (_draw(part, sizes, wanted[name]) for name, part in parts.items() if wanted[name])
    return set().union(*drawn)


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
