"""GLUE: its tasks, its published files, its sets in TensorFlow Datasets, its submissions.

Sources: GLUE (Wang et al., 2018; table 1 names the metrics); the published files' header lines; the
site's sample submission. The labels' order is that of ``get_labels`` in Google's
``run_classifier.py``. Of two metrics, which GLUE's leaderboard averages, the headline is the one
that BERT's paper prints (under its table 1).

The files are tab-separated, quotes are text, and a first line names the columns. Exceptions: CoLA's
train and dev files have no such line; STS-B is known in GLUE's form and in that of the original
benchmark; QQP's train and dev files hold a few rows cut in two by a line break, which are left out
and listed. Nothing here loads TensorFlow before a file is read or written.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bert_tf.io import paths
from bert_tf.io.wording import reason

from . import examples as read
from .examples import BadRowError, BadRows, ExampleSet, Location, TextExample, quoted
from .tables import Row, TableFile, read_columns

_HIGHEST_SCORE = 5.0  # STS-B's scale begins at 0
_TFDS_EXAMPLES_PER_READ = 1024
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")
# The columns of files that do not name them; "mark" is the linguists' own.
_COLA = ("source", "label", "mark", "sentence")
# The original STS-B's, of which some rows have two notes on the licence.
_STS_BENCHMARK = (
    *("genre", "file", "year", "number", "score", "sentence1", "sentence2"),
    *("licence1", "licence2"),
)


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """One of GLUE's tasks: its columns, labels, metrics and splits."""

    name: str  # as GLUE spells it, which is its folder's name too
    # The classes' names, as the files and a submission spell them, in the order of their ids; ()
    # where the label is a number (from 0 to 5).
    labels: tuple[str, ...]
    text_columns: tuple[str, ...]
    label_column: str = "label"  # of train and dev files
    id_column: str = "index"  # of test files
    ids_in_train: bool = False  # whether train and dev files have that column too
    metrics: tuple[str, ...] = ("accuracy",)  # what it reports, the headline last
    tfds_text_features: tuple[str, ...] = ()  # in TensorFlow Datasets; by default the columns
    # For each test split, the name of its file in a submission, where that is not the task's.
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The first is for training, except of AX, which has only a test set.
    splits: tuple[str, ...] = ("train", "dev", "test")

    @property
    def headline(self) -> str:
        """The metric by which runs are compared; higher is better for all."""
        return self.metrics[-1]

    @property
    def tfds_config(self) -> str:
        """The task's name in TensorFlow Datasets."""
        return _plain(self.name)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


_SENTENCES = ("sentence1", "sentence2")
_MATTHEWS = ("matthews_correlation",)
_ACCURACY_F1 = ("accuracy", "f1")

#: The nine tasks and the diagnostic set, by name.
GLUE_TASKS: Mapping[str, GlueTask] = MappingProxyType(
    {
        task.name: task
        for task in (
            GlueTask("CoLA", _BINARY, ("sentence",), metrics=_MATTHEWS),
            GlueTask("SST-2", _BINARY, ("sentence",)),
            GlueTask(
                "MRPC",
                _BINARY,
                ("#1 String", "#2 String"),
                label_column="Quality",
                metrics=_ACCURACY_F1,
                tfds_text_features=_SENTENCES,
            ),
            GlueTask(
                "STS-B",
                (),
                _SENTENCES,
                label_column="score",
                ids_in_train=True,
                metrics=("pearson", "spearman"),
            ),
            GlueTask(
                "QQP",
                _BINARY,
                ("question1", "question2"),
                label_column="is_duplicate",
                id_column="id",
                ids_in_train=True,
                metrics=_ACCURACY_F1,
            ),
            GlueTask(
                "MNLI",
                _INFERENCE,
                _SENTENCES,
                label_column="gold_label",
                ids_in_train=True,
                tfds_text_features=("premise", "hypothesis"),
                submissions={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
                splits=(
                    "train",
                    "dev_matched",
                    "dev_mismatched",
                    "test_matched",
                    "test_mismatched",
                ),
            ),
            GlueTask("QNLI", _ENTAILMENT, ("question", "sentence"), ids_in_train=True),
            GlueTask("RTE", _ENTAILMENT, _SENTENCES, ids_in_train=True),
            GlueTask("WNLI", _BINARY, _SENTENCES, ids_in_train=True),
            GlueTask(
                "AX",
                _INFERENCE,
                _SENTENCES,
                metrics=_MATTHEWS,
                tfds_text_features=("premise", "hypothesis"),
                splits=("test",),
            ),
        )
    }
)


def glue_task(name: str, split: str | None = None) -> GlueTask:
    """Finds a task by its name, whatever the case and with or without the hyphen."""
    task = next((task for task in GLUE_TASKS.values() if _plain(name) == task.tfds_config), None)
    if task is None:
        raise ValueError(f"Unknown GLUE task {name!r}: expected one of {', '.join(GLUE_TASKS)}.")
    if split is not None and split not in task.splits:
        raise ValueError(
            f"{task.name} has no split {split!r}: expected one of {', '.join(task.splits)}."
        )
    return task


def is_labelled(split: str) -> bool:
    """True if a split's published file has labels."""
    return not split.startswith("test")


# === Files ===


def read_glue(
    task: str, data_dir: str, split: str, *, skip_bad_rows: bool = False
) -> ExampleSet[TextExample]:
    """Reads one of GLUE's published files, as they are or with gzip (``.tsv.gz``).

    ``data_dir`` is the folder with the task's files, or the one with a folder for each task. Ids
    are those of the file, or else count the rows from 0. Test files have no labels.
    """
    definition = glue_task(task, split)
    path = _look_for(definition, str(data_dir), split)
    if path is None:
        raise ValueError(
            f"There is no file for {definition.name}'s split {split!r} in {data_dir}: expected "
            f"{' or '.join(_file_names(definition, split))}, plain or with .gz."
        )
    bad = BadRows(path, skip_bad_rows)

    def make_example(row: Row) -> TextExample:
        example_id, text_a, text_b, label = row.values
        return TextExample(
            str(row.number) if example_id is None else example_id,
            text_a,
            text_b,
            None if label is None else _label(definition, label),
        )

    items = bad.collect(_rows(definition, path, split, bad), make_example)
    return ExampleSet(items, definition.labels, bad.skipped)


def has_glue_file(task: str, data_dir: str, split: str) -> bool:
    """True if a folder has the file of a split; arguments and errors as for ``read_glue``."""
    definition = glue_task(task, split)
    return _look_for(definition, str(data_dir), split) is not None


def _look_for(task: GlueTask, data_dir: str, split: str) -> str | None:
    for name in _file_names(task, split):
        for suffix in ("", ".gz"):
            path = os.path.join(data_dir, name + suffix)
            if paths.is_file(path):
                return path
    return None


def _file_names(task: GlueTask, split: str) -> list[str]:
    """The names under which a split's file may be in a data folder, the first one wins."""
    if task.name == "AX":  # GLUE's download script calls it the diagnostic set
        inside = ["AX/AX.tsv", "AX/test.tsv", "diagnostic/diagnostic.tsv"]
        names = [*inside, "AX.tsv", "diagnostic.tsv"]
        # The folder may be MNLI's own, next to AX's.
        return names + [f"../{name}" for name in names]
    names = [f"{split}.tsv"]
    if task.name == "STS-B":
        names.append(f"sts-{split}.csv")
    return [f"{task.name}/{name}" for name in names] + names


def _rows(task: GlueTask, path: str, split: str, bad: BadRows) -> Iterator[tuple[Location, Row]]:
    """Yields rows of id, first text, second text and label, with None for what a file lacks."""
    labelled = is_labelled(split)
    table = TableFile(path, suffix=".tsv")
    if path.removesuffix(".gz").endswith(".csv"):
        table = dataclasses.replace(table, names=_STS_BENCHMARK, optional=2)
    elif task.name == "CoLA" and labelled:
        table = dataclasses.replace(table, names=_COLA)
    has_ids = not table.names and (task.ids_in_train or not labelled)
    columns = [
        task.id_column if has_ids else None,
        task.text_columns[0],
        task.text_columns[1] if len(task.text_columns) > 1 else None,
        task.label_column if labelled or table.names else None,
    ]
    skip_short_rows = task.name == "QQP" and labelled
    return read_columns(table, columns, bad, skip_short_rows=skip_short_rows)


def _label(task: GlueTask, value: str) -> str | float:
    if task.labels:
        return read.known_name(value, f"the column of {task.name}'s label", task.labels)
    score = read.number(value, "the column of the score")
    if not 0 <= score <= _HIGHEST_SCORE:
        raise BadRowError(f"expected a score from 0 to 5, got {quoted(value)}")
    return score


def read_glue_tfds(
    task: str, split: str, *, data_dir: str | None = None
) -> ExampleSet[TextExample]:
    """Reads one of GLUE's sets by TensorFlow Datasets, which downloads it if necessary.

    The examples are in the order of their ids. Without ``data_dir`` datasets are kept in TensorFlow
    Datasets' default folder.
    """
    import tensorflow_datasets as tfds  # takes seconds to import

    definition = glue_task(task, split)
    name = f"glue/{definition.tfds_config}"
    tfds_split = split.replace("dev", "validation")
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
        dataset = builder.as_dataset(split=tfds_split)
    except (KeyError, ValueError, NotImplementedError, tfds.core.DatasetNotFoundError) as error:
        raise ValueError(
            f"TensorFlow Datasets cannot read split {tfds_split!r} of {name!r} "
            f"({reason(error, 200)}): check the network and the data folder."
        ) from error
    label_of = _tfds_labels(definition, builder.info.features["label"])
    texts = definition.tfds_text_features or definition.text_columns
    examples: list[tuple[int, TextExample]] = []
    for batch in tfds.as_numpy(dataset.batch(_TFDS_EXAMPLES_PER_READ)):
        columns = [batch["idx"], batch["label"]]
        columns += [batch[feature] for feature in texts]
        for index, label, text_a, *text_b in zip(*columns, strict=True):
            example = TextExample(
                str(index),
                text_a.decode(),
                text_b[0].decode() if text_b else None,
                label_of(label) if is_labelled(split) else None,
            )
            examples.append((int(index), example))
    examples.sort(key=lambda pair: pair[0])
    return ExampleSet([example for _, example in examples], definition.labels, [])


def _tfds_labels(task: GlueTask, feature: Any) -> Callable[[Any], str | float]:
    """A function from the ids of TensorFlow Datasets to the task's labels."""
    if not task.labels:
        return lambda score: round(float(score), 3)  # as the file has it, of a float32
    names: Sequence[str] = feature.names
    # Where its names differ, such as "unacceptable", its ids are the published file's labels.
    if set(names) != set(task.labels):
        names = task.labels
    return lambda label: names[label]


def write_glue_submission(
    folder: str, task: str, split: str, predictions: Mapping[str, str | float]
) -> str:
    """Writes the predictions for one test set, and returns the path, such as ``folder/MNLI-m.tsv``.

    By the examples' ids: a class's name, or for STS-B a number, which is put between 0 and 5.
    """
    lines = ["index\tprediction"]
    for example_id, prediction in predictions.items():
        if not isinstance(prediction, str):
            prediction = f"{min(max(prediction, 0.0), _HIGHEST_SCORE):.3f}"
        lines.append(f"{example_id}\t{prediction}")
    definition = glue_task(task, split)
    path = os.path.join(folder, definition.submissions.get(split, f"{definition.name}.tsv"))
    from bert_tf.io.files import atomic_write  # loads TensorFlow

    with atomic_write(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return path
