"""From the settings to a task on its data: which files, which reader, what is held out.

Nothing here loads TensorFlow before a task is made.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.choices import PAIR_MARK
from bert_tf.io import paths
from bert_tf.io.wording import listed, quote
from bert_tf.readers.examples import BadRows, ExampleSet, TextExample, label_of, quoted
from bert_tf.readers.glue import glue_task, has_glue_file, is_labelled, read_glue, read_glue_tfds
from bert_tf.readers.tables import TableFile, read_columns, read_rows
from bert_tf.tasks.kinds import table_options
from bert_tf.tasks.task import TEST, FormReader, Task

from .held_out import hold_out
from .settings import FineTuningSettings

if TYPE_CHECKING:
    from bert_tf.modeling.base import SentenceEmbedding


@dataclasses.dataclass(frozen=True)
class DataSplits:
    """Examples by the names of their sets, and notes on held-out, missing and left-out rows.

    ``columns`` are the arguments by which the kind read its tables, {} for files of another form.
    """

    train: ExampleSet[Any]
    dev: dict[str, ExampleSet[Any]]
    test: dict[str, ExampleSet[Any]]
    notes: list[str]
    columns: dict[str, Any]

    @functools.cached_property
    def skipped(self) -> list[str]:
        """A sentence for each row that was left out."""
        every = (examples.skipped for examples in self._all().values())
        return list(dict.fromkeys(message for skipped in every for message in skipped))

    def fingerprints(self) -> dict[str, str]:
        """Hash of the examples of each set, to notice data that changed since the run started."""
        return {name: _fingerprint(examples) for name, examples in self._all().items()}

    def _all(self) -> dict[str, ExampleSet[Any]]:
        return {"train": self.train, **self.dev, **self.test}


def _fingerprint(examples: ExampleSet[Any]) -> str:
    digest = hashlib.sha256(repr(examples.labels).encode())
    for item in examples.items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:32]


def read_splits(settings: FineTuningSettings) -> DataSplits:
    """Reads and checks all data."""
    splits = _read_glue_splits(settings) if settings.glue else _read_files(settings)
    splits.notes.extend(splits.train.notes)
    splits.notes.extend(_contradiction_notes(settings.kind, splits))
    splits.notes.extend(_shared_notes(settings.kind, splits))
    if skipped := splits.skipped:
        splits.notes.append(f"Left out bad rows: {len(skipped):,}; the first: {skipped[0]}")
    return splits


# === GLUE ===


def _read_glue_splits(settings: FineTuningSettings) -> DataSplits:
    task, folder = glue_task(str(settings.glue)), settings.data_dir

    def read(split: str, name: str = task.name) -> ExampleSet[TextExample]:
        if folder is None:
            return read_glue_tfds(name, split)
        return read_glue(name, folder, split, skip_bad_rows=settings.skip_bad_rows)

    train_split, *others = task.splits
    dev = {split: read(split) for split in others if is_labelled(split)}
    unlabelled = [split for split in others if not is_labelled(split)]
    sources = {split: (task.name, split, f"the split {split}") for split in unlabelled}
    if task.name == "MNLI":
        sources["ax"] = ("AX", "test", "AX, GLUE's diagnostic set")
    test, notes = {}, []
    for set_name, (name, split, what) in sources.items():
        if folder is None or has_glue_file(name, folder, split):
            test[set_name] = read(split, name)
        else:
            notes.append(f"{folder} has no file of {what}: not predicted.")
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
        whole = train
        share, seed = settings.dev_fraction, settings.seed
        key, what = settings.kind.grouping(whole.items, share)
        rest, held_out, what = hold_out(whole.items, share, seed, key, what)
        train = dataclasses.replace(whole, items=rest)
        dev["dev"] = dataclasses.replace(whole, items=held_out)
        notes.append(
            f"No --dev_file: {len(held_out):,} of the {len(whole.items):,} examples of "
            f"{settings.train_file} ({what}) are held out to evaluate on."
        )
        if half := _count_shared_texts(rest, held_out):
            notes.append(
                f"{half:,} of the {len(held_out):,} pairs held out have one text that a pair of "
                "the training set has, too: equal pairs alone stay together."
            )
    else:
        notes.append("Nothing decides which epoch is best: the last one is kept.")
    test: dict[str, ExampleSet[Any]] = {}
    if settings.test_file:
        labelled = _has_labels(settings, settings.test_file, form)
        (dev if labelled else test)[TEST] = read(settings.test_file, labels, labelled)
    return DataSplits(train, dev, test, notes, columns)


def _count_shared_texts(train: Sequence[Any], held_out: Sequence[Any]) -> int:
    """How many pairs that are held out have one of their texts in the training set."""
    known, *others = (
        [{item.text_a, item.text_b} - {None, ""} for item in items if isinstance(item, TextExample)]
        for items in (train, held_out)
    )
    seen = set().union(*known)
    return sum(len(pair) > 1 and not seen.isdisjoint(pair) for pair in others[0])


def _has_labels(settings: FineTuningSettings, path: str, form: FormReader | None) -> bool:
    """True if a file has labels, a table a column of labels."""
    if form is not None:
        return form.is_labelled(path)
    rows = read_rows(TableFile(path, settings.encoding, settings.delimiter))
    return next(filter(None, rows), {}).get(settings.label_column or "") is not None


def _reader(
    settings: FineTuningSettings, columns: Mapping[str, Any], form: FormReader | None
) -> Callable[..., ExampleSet[Any]]:
    """Reads a file, by the labels that there may be (``None``: those that there are).

    The file is of the kind's own ``form`` or, without one, a table.
    """
    kind, encoding = settings.kind, settings.encoding
    how = {**columns, "skip_bad_rows": settings.skip_bad_rows}

    def read(path: str, labels: Sequence[str] | None, labelled: bool = True) -> ExampleSet[Any]:
        if form is not None:
            return form.read(path, labels=labels, labelled=labelled, encoding=encoding, **how)
        changes: dict[str, Any] = {"labels": labels} if kind.classes else {}
        if not labelled:
            changes["label_column"] = None
        return kind.read(TableFile(path, encoding, settings.delimiter), **{**how, **changes})

    return read


# === Texts that occur more than once ===


def _contradiction_notes(kind: type[Task], splits: DataSplits) -> Iterator[str]:
    """Yields a note on texts that have different labels, within a set or across sets."""
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
        if not isinstance(label_of(item), tuple):  # the tags of a sentence would fill the line
            names = sorted(quoted(sorted(x) if isinstance(x, frozenset) else x) for x in labels)
            example += f" ({listed(names, 2)})"
        yield (
            f"Texts with different labels: {len(conflicts):,}, such as {example}; no model can "
            "predict all of them. Correct the labels."
        )


def _shared_notes(kind: type[Task], splits: DataSplits) -> Iterator[str]:
    """Yields notes on examples that dev or test share with training, or test with dev."""
    field = kind.unshared_text
    also = f"have a {field} that also occurs" if field else "also occur"

    def keys(examples: ExampleSet[Any]) -> list[int]:
        every = map(kind.all_texts, examples.items)
        texts = ([each[field]] if field else each.values() for each in every)
        # A pair in the other order, or in upper case, is no new example.
        return [hash(tuple(sorted(_plain(text).casefold() for text in each))) for each in texts]

    known = {"training": {*keys(splits.train)}} if splits.dev else {}
    for name, examples in splits.dev.items():
        own = keys(examples)
        for other, seen in known.items():
            count = sum(key in seen for key in own)
            # Only a test set must also differ from the sets on which epochs are chosen.
            if count and (other == "training" or name == TEST):
                yield (
                    f"{count:,} of {len(own):,} {name} examples {also} in the {other} set "
                    f"(ignoring case and spaces), so the scores on {name} are too high. Remove the "
                    "duplicates."
                )
        known[name] = {*own}


def _plain(text: str) -> str:
    """Returns a text without the differences in white space, which no tokenizer keeps."""
    return " ".join(text.split())


# === The task ===


def read_task(
    settings: FineTuningSettings, embedding: SentenceEmbedding | None = None
) -> tuple[Task, DataSplits]:
    """Makes the task of the settings from its data; returns both."""
    splits = read_splits(settings)
    if settings.option("few_shot") and len({item.label for item in splits.train.items}) < 2:
        raise ValueError(
            f"All texts left to train on have the class {quote(splits.train.items[0].label)}, and "
            "--few_shot learns from pairs of two classes: give texts of another class, a "
            "--dev_file, or --dev_fraction=0."
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
    """The kind's arguments of reading a table; {} for files of a form of their own."""
    if not settings.text_columns:
        return {}
    columns = {
        "text_columns": settings.text_columns,
        "label_column": settings.label_column,
        "id_column": settings.id_column,
    }
    return columns | {name: settings.option(name) for name in table_options(settings.kind)}


def check_tables(settings: FineTuningSettings) -> None:
    """Refuses a table that is empty or lacks a column, before anything that takes seconds.

    Nothing is refused here with ``skip_bad_rows``, which leaves a row without a column out, and
    where the run's directory is there: a finished run is shown whatever became of its files.
    """
    columns = _table_columns(settings)
    is_new = not os.path.isdir(settings.model_dir)
    if not is_new or settings.skip_bad_rows or not columns:
        return
    ids = [*settings.text_columns, settings.id_column]
    # What else names columns, as where an answer starts, may be of labelled files alone.
    others = [name for name in table_options(settings.kind) if name.endswith("_column")]
    labelled = [*ids, settings.label_column, *(settings.option(name) for name in others)]
    tables = [
        (settings.train_file, labelled),
        (settings.dev_file, labelled),
        (settings.test_file, ids),
    ]
    for path, names in tables:
        if path and paths.local_path(path) is not None and paths.is_file(path):
            table = TableFile(path, settings.encoding, settings.delimiter)
            next(read_columns(table, names, BadRows(path, skip=False)), None)
