"""GLUE tasks, their published files, TensorFlow Datasets and submissions.

Sources: Wang et al. 2018, "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
Understanding", table 1 (metrics); the headers of the published files; the sample submission of the
website; ``get_labels`` in Google's ``run_classifier.py`` (order of the labels). If the leaderboard
averages two metrics, the main metric is the one in BERT's table 1.

The files are tab-separated, with a header and without quoting. Exceptions: the train and dev files
of CoLA have no header; STS-B may have the format of the original benchmark; the train and dev files
of QQP contain a few rows with line breaks, which are skipped. This module loads TensorFlow only
when a file is read or written.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bert_tf.io import paths
from bert_tf.io.messages import reason

from . import examples as read
from .examples import BadRowError, BadRows, ExampleSet, Location, TextExample, quoted
from .tables import Row, TableFile, read_columns

_HIGHEST_SCORE = 5.0  # STS-B scores range from 0 to 5.
_TFDS_EXAMPLES_PER_READ = 1024
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")
# Columns of the CoLA files without a header; "mark" is the judgment in the original source.
_COLA = ("source", "label", "mark", "sentence")
# Columns of the original STS benchmark; the last two, on the license, are optional.
_STS_BENCHMARK = (
    *("genre", "file", "year", "number", "score", "sentence1", "sentence2"),
    *("licence1", "licence2"),
)


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """Columns, labels, metrics and splits of a GLUE task."""

    name: str  # also the name of the folder
    # Class names in the order of their ids; () if the label is a number.
    labels: tuple[str, ...]
    text_columns: tuple[str, ...]
    label_column: str = "label"  # in train and dev files
    id_column: str = "index"  # in test files
    ids_in_train: bool = False  # whether train and dev files have the id column
    metrics: tuple[str, ...] = ("accuracy",)  # reported metrics, the main one last
    tfds_text_features: tuple[str, ...] = ()  # in TensorFlow Datasets; by default text_columns
    # Names of submission files by test split; by default the name of the task.
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The first split is the training set, except for AX, which has only a test set.
    splits: tuple[str, ...] = ("train", "dev", "test")

    @property
    def headline(self) -> str:
        """Main metric, which is maximized."""
        return self.metrics[-1]

    @property
    def tfds_config(self) -> str:
        """Name of the task in TensorFlow Datasets."""
        return _plain(self.name)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


_SENTENCES = ("sentence1", "sentence2")
_MATTHEWS = ("matthews_correlation",)
_ACCURACY_F1 = ("accuracy", "f1")

#: The nine tasks and the diagnostic task AX, by name.
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
    """Returns a task by name, ignoring case, hyphens and underscores."""
    task = next((task for task in GLUE_TASKS.values() if _plain(name) == task.tfds_config), None)
    if task is None:
        raise ValueError(f"Unknown GLUE task {name!r}: expected one of {', '.join(GLUE_TASKS)}.")
    if split is not None and split not in task.splits:
        raise ValueError(
            f"{task.name} has no split {split!r}: expected one of {', '.join(task.splits)}."
        )
    return task


def is_labelled(split: str) -> bool:
    """Returns whether the published file of a split contains labels."""
    return not split.startswith("test")


# === Files ===


def read_glue(
    task: str, data_dir: str, split: str, *, skip_bad_rows: bool = False
) -> ExampleSet[TextExample]:
    """Reads a published GLUE file, plain or compressed (``.tsv.gz``).

    Args:
        task: Name of the task.
        data_dir: Folder with the files of the task, or with one folder per task.
        split: Name of the split; examples of test splits have no labels.
        skip_bad_rows: Whether to skip bad rows instead of raising an error.

    Returns:
        The examples, with the ids in the file or, if it has none, row indices.
    """
    definition = glue_task(task, split)
    path = _look_for(definition, str(data_dir), split)
    if path is None:
        raise ValueError(
            f"{data_dir} has no file for the split {split!r} of {definition.name}: expected "
            f"{' or '.join(_file_names(definition, split))}, optionally with .gz."
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
    """Returns whether a folder contains the file of a split."""
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
    """Returns the possible file names of a split, in order of precedence."""
    if task.name == "AX":
        inside = ["AX/AX.tsv", "AX/test.tsv", "diagnostic/diagnostic.tsv"]
        names = [*inside, "AX.tsv", "diagnostic.tsv"]
        # The folder may be the MNLI folder, next to the AX folder.
        return names + [f"../{name}" for name in names]
    names = [f"{split}.tsv"]
    if task.name == "STS-B":
        names.append(f"sts-{split}.csv")
    return [f"{task.name}/{name}" for name in names] + names


def _rows(task: GlueTask, path: str, split: str, bad: BadRows) -> Iterator[tuple[Location, Row]]:
    """Yields rows of id, first text, second text and label; None for missing columns."""
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
        return read.known_name(value, f"the label of {task.name}", task.labels)
    score = read.number(value, "the score")
    if not 0 <= score <= _HIGHEST_SCORE:
        raise BadRowError(f"expected a score from 0 to 5, got {quoted(value)}")
    return score


def read_glue_tfds(
    task: str, split: str, *, data_dir: str | None = None
) -> ExampleSet[TextExample]:
    """Reads a split of a GLUE task with TensorFlow Datasets, and downloads it if necessary.

    Args:
        task: Name of the task.
        split: Name of the split.
        data_dir: Folder of the datasets; by default the folder that TensorFlow Datasets uses.

    Returns:
        The examples, sorted by id.
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
            f"({reason(error, 200)}). Check the network connection and the data folder."
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
    """Returns a function that converts ids of TensorFlow Datasets to labels."""
    if not task.labels:
        # Scores have three decimals in the published file, but TensorFlow Datasets stores float32.
        return lambda score: round(float(score), 3)
    names: Sequence[str] = feature.names
    # If names differ from the published labels, such as "unacceptable", the ids are the labels.
    if set(names) != set(task.labels):
        names = task.labels
    return lambda label: names[label]


def write_glue_submission(
    folder: str, task: str, split: str, predictions: Mapping[str, str | float]
) -> str:
    """Writes the submission file of a test set.

    Args:
        folder: Folder of the file.
        task: Name of the task.
        split: Name of the test split.
        predictions: Class names by example id; for STS-B, numbers, which are clipped to [0, 5].

    Returns:
        The path, such as ``folder/MNLI-m.tsv``.
    """
    lines = ["index\tprediction"]
    for example_id, prediction in predictions.items():
        if not isinstance(prediction, str):
            prediction = f"{min(max(prediction, 0.0), _HIGHEST_SCORE):.3f}"
        lines.append(f"{example_id}\t{prediction}")
    definition = glue_task(task, split)
    path = os.path.join(folder, definition.submissions.get(split, f"{definition.name}.tsv"))
    from bert_tf.io.files import atomic_write  # imports TensorFlow

    with atomic_write(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return path
