"""From the settings to examples: which reader, which files, what is held out."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.tasks.conll import read_conll
from bert_tf.tasks.examples import Examples, TextExample
from bert_tf.tasks.glue import has_glue_file, read_glue, read_glue_tfds
from bert_tf.tasks.glue_tasks import glue_task, is_labelled
from bert_tf.tasks.multiple_choice import read_choices, read_codah, read_swag
from bert_tf.tasks.own_data import (
    read_classification,
    read_multilabel,
    read_regression,
    read_tagging,
)
from bert_tf.tasks.squad import read_questions, read_squad

from .held_out import hold_out
from .settings import FineTuningSettings
from .task import TEST

# Reads a file: its path, the labels that there may be (None: those that are there), and whether it
# has labels.
_Reader = Callable[[str, Sequence[str] | None, bool], Examples[Any]]


@dataclasses.dataclass(frozen=True)
class Sets:
    """What was read.

    Attributes:
        train: to train on.
        dev: by the set's name, labelled.
        test: by the set's name, to predict.
        notes: sentences on what was held out and what is not there.
    """

    train: Examples[Any]
    dev: dict[str, Examples[Any]]
    test: dict[str, Examples[Any]]
    notes: list[str]

    def all(self) -> dict[str, Examples[Any]]:
        """Every set by its name."""
        return {"train": self.train, **self.dev, **self.test}


def read_sets(settings: FineTuningSettings, *, by_class: bool = True) -> Sets:
    """Reads and checks the files that the settings name; ``by_class`` as for ``hold_out``.

    Raises:
        ValueError: a file is missing, a row is bad (and bad rows are not to be skipped), or nothing
            can be held out.
        OSError: a file cannot be read.
    """
    return _read_glue_sets(settings) if settings.glue else _read_files(settings, by_class)


# === GLUE ===


def _read_glue_sets(settings: FineTuningSettings) -> Sets:
    task = glue_task(str(settings.glue))

    def read(split: str) -> Examples[TextExample]:
        if settings.data_dir is None:
            return read_glue_tfds(task.name, split)
        return read_glue(task.name, settings.data_dir, split, skip_bad_rows=settings.skip_bad_rows)

    train_split, *others = task.splits
    dev = {split: read(split) for split in others if is_labelled(split)}
    test, notes = {}, []
    for split in others:
        if is_labelled(split):
            continue
        if settings.data_dir is None or has_glue_file(task.name, settings.data_dir, split):
            test[split] = read(split)
        else:
            notes.append(f"{settings.data_dir} has no file of the split {split}: not predicted.")
    if task.name == "MNLI":
        if settings.data_dir is None:
            test["ax"] = read_glue_tfds("AX", "test")
        elif has_glue_file("AX", settings.data_dir, "test"):
            test["ax"] = read_glue(
                "AX", settings.data_dir, "test", skip_bad_rows=settings.skip_bad_rows
            )
        else:
            notes.append(
                f"{settings.data_dir} has no file of AX, GLUE's diagnostic set: not predicted."
            )
    return Sets(read(train_split), dev, test, notes)


# === Files ===


def _read_files(settings: FineTuningSettings, by_class: bool) -> Sets:
    read = _reader(settings)
    train = read(str(settings.train_file), None, True)
    labels = train.labels or None
    dev: dict[str, Examples[Any]] = {}
    notes: list[str] = []
    if settings.dev_file:
        dev["dev"] = read(settings.dev_file, labels, True)
    elif settings.dev_fraction > 0:
        whole = train
        kept, held_out, what = hold_out(
            whole.items, settings.dev_fraction, settings.seed, by_class=by_class
        )
        train = dataclasses.replace(whole, items=kept)
        dev["dev"] = dataclasses.replace(whole, items=held_out)
        notes.append(
            f"No --dev_file: {len(held_out):,} of the {len(whole.items):,} examples of "
            f"{settings.train_file} ({what}) are held out to evaluate on."
        )
    else:
        notes.append("Nothing decides which epoch is best: the last one counts as it.")
    test: dict[str, Examples[Any]] = {}
    if settings.test_file:
        examples = read(settings.test_file, labels, settings.test_has_labels)
        (dev if settings.test_has_labels else test)[TEST] = examples
    return Sets(train, dev, test, notes)


def table_columns(settings: FineTuningSettings) -> dict[str, Any]:
    """The arguments that name columns, of the reader of the task's tables; {} without a table."""
    columns, label, ids = settings.text_columns, settings.label_column, settings.id_column
    if settings.glue:
        return {"text_columns": list(glue_task(settings.glue).text_columns), "label_column": None}
    if not settings.reads_table:
        return {}
    match settings.kind:
        case "tagging":
            return {"words_column": columns[0], "tags_column": label, "id_column": ids}
        case "multiple_choice":
            return {
                "context_column": columns[0],
                "choice_columns": columns[1:],
                "label_column": label,
                "id_column": ids,
            }
        case "squad":
            return {
                "question_column": columns[0],
                "context_column": columns[1],
                "answers_column": label,
                "answer_start_column": settings.answer_start_column,
                "title_column": settings.title_column,
                "id_column": ids,
            }
        case "multilabel":
            separator = settings.label_separator
            named = {"text_columns": columns, "label_column": label, "id_column": ids}
            return {**named, "separator": separator}
        case _:
            return {"text_columns": columns, "label_column": label, "id_column": ids}


_LABEL_ARGUMENTS = ("label_column", "tags_column", "answers_column")


def _reader(settings: FineTuningSettings) -> _Reader:
    skip = settings.skip_bad_rows
    readers: dict[str, Callable[..., Examples[Any]]] = {
        "classification": read_classification,
        "multilabel": read_multilabel,
        "regression": read_regression,
        "tagging": read_tagging,
        "multiple_choice": read_choices,
        "squad": read_questions,
    }

    def read(path: str, labels: Sequence[str] | None, labelled: bool) -> Examples[Any]:
        match settings.task:
            case "swag":
                return read_swag(path, labelled=labelled, skip_bad_rows=skip)
            case "codah":
                return read_codah(path, skip_bad_rows=skip)
            case "ner":
                return read_conll(
                    path,
                    encoding=settings.encoding,
                    convert_to="IOB2",
                    labels=labels,
                    labelled=labelled,
                    skip_bad_rows=skip,
                )
        if not settings.reads_table:
            return read_squad(path, labelled=labelled, skip_bad_rows=skip)
        arguments = table_columns(settings)
        if not labelled:
            arguments |= {name: None for name in _LABEL_ARGUMENTS if name in arguments}
        if settings.kind in ("classification", "multilabel", "tagging"):
            arguments["labels"] = labels
        return readers[settings.kind](path, skip_bad_rows=skip, **arguments)

    return read
