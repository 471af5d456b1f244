"""The tasks of GLUE: their labels, columns, files, test sets and metrics, as published.

Sources: the published files' header lines; the GLUE site's sample submission; the labels' order is
that of ``get_labels`` in Google's ``run_classifier.py``. GLUE's paper (Wang et al. 2018, table 1)
names the metrics. Its leaderboard averages the two of MRPC, QQP and STS-B; the headline is the one
that BERT's paper prints (under its table 1). MNLI's is reported for the matched and for the
mismatched set.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """One task."""

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
    # For each test split, the name of its file in a submission; by default the task's name.
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The first is for training, except of AX, which has only a test set.
    splits: tuple[str, ...] = ("train", "dev", "test")

    def __post_init__(self) -> None:
        if not self.tfds_text_features:
            object.__setattr__(self, "tfds_text_features", self.text_columns)
        if not self.submissions:
            object.__setattr__(self, "submissions", {"test": f"{self.name}.tsv"})

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
