"""The settings of a fine-tuning: what the flags of ``python -m bert_tf.finetune`` resolve to."""

import dataclasses
import difflib
from typing import Any, Literal

from absl import flags

from .feature_based_flags import resolve_feature_based
from .flag_definitions import GLUE_NAMES, OWN_DATA, TASKS, WITHOUT_MEANING, define_flags

Kind = Literal["classification", "multilabel", "regression", "tagging", "multiple_choice", "squad"]

# Settings that do not change data, model or schedule.
MAY_DIFFER = frozenset(
    {"model_dir", "eval_batch_size", "save_checkpoints_minutes", "allow_pickle", "export"}
)
# Settings that name files whose contents a run keeps the fingerprints of.
PATHS = frozenset({"data_dir", "train_file", "dev_file", "test_file", "init_checkpoint"})

_GLUE = tuple(GLUE_NAMES)
_FILES = tuple(task for task in TASKS if task not in GLUE_NAMES)
_CLASSES = (*(task for task in _GLUE if task != "stsb"), "classification")
# The tasks that a flag means something to; all others mean something to every task.
_MEANT_FOR = {
    "data_dir": _GLUE,
    "tfds": _GLUE,
    **dict.fromkeys(
        ("train_file", "dev_file", "test_file", "test_has_labels", "dev_fraction"), _FILES
    ),
    **dict.fromkeys(("text_columns", "label_column", "id_column"), OWN_DATA),
    "label_separator": ("multilabel",),
    **dict.fromkeys(("encoding", "document_context"), ("ner",)),
    **dict.fromkeys(("feature_based", "lstm_units"), ("ner", "tagging")),
    "class_weights": _CLASSES,
    **dict.fromkeys(
        (
            "answer_start_column",
            "title_column",
            "doc_stride",
            "max_query_length",
            "n_best_size",
            "max_answer_length",
            "version_2_with_negative",
            "null_score_diff_threshold",
        ),
        ("squad",),
    ),
}
_TABLES = (".csv", ".tsv", ".jsonl")
_SWEPT = ("train_batch_size", "learning_rate", "num_train_epochs")


@dataclasses.dataclass(frozen=True)
class FineTuningSettings:
    """Every flag's value, resolved; each field is documented by its flag's help."""

    task: str
    data_dir: str | None
    tfds: str | None
    train_file: str | None
    dev_file: str | None
    test_file: str | None
    test_has_labels: bool
    dev_fraction: float
    skip_bad_rows: bool
    text_columns: list[str]
    label_column: str | None
    id_column: str | None
    label_separator: str
    answer_start_column: str | None
    title_column: str | None
    encoding: str
    document_context: bool
    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    version_2_with_negative: bool | None
    null_score_diff_threshold: float | None
    init_checkpoint: str
    allow_pickle: bool
    max_seq_length: int
    train_batch_size: int
    learning_rate: float
    num_train_epochs: int
    warmup_proportion: float
    optimizer: str
    freeze: int
    class_weights: str | None
    feature_based: str | None
    lstm_units: int | None
    eval_steps: int
    early_stopping_epochs: int
    seed: int
    sweep: str | None
    restarts: int
    precision: str
    model_dir: str
    eval_batch_size: int
    save_checkpoints_minutes: float
    export: bool

    @property
    def glue(self) -> str | None:
        """GLUE's own name of the task, ``None`` where it is none of GLUE's."""
        return GLUE_NAMES.get(self.task)

    @property
    def kind(self) -> Kind:
        """What the task is, whosever data it has."""
        if self.task == "stsb":
            return "regression"
        if self.task in GLUE_NAMES or self.task == "classification":
            return "classification"
        if self.task in ("swag", "codah", "multiple_choice"):
            return "multiple_choice"
        if self.task in ("ner", "tagging"):
            return "tagging"
        return "squad" if self.task == "squad" else _text_kind(self.task)

    @property
    def reads_table(self) -> bool:
        """Whether the files are tables whose columns the flags name."""
        return self.task in OWN_DATA and (self.task != "squad" or is_table(self.train_file or ""))

    @property
    def variants(self) -> tuple[str, ...]:
        """The choices of layers to train on frozen features of; () to fine-tune the encoder."""
        return tuple(self.feature_based.split(",")) if self.feature_based else ()

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


def _text_kind(task: str) -> Literal["multilabel", "regression"]:
    return "multilabel" if task == "multilabel" else "regression"


def is_table(path: str) -> bool:
    """Whether a path's name is that of a table.

    >>> is_table("a.jsonl.gz"), is_table("train-v2.0.json")
    (True, False)
    """
    return path.lower().removesuffix(".gz").endswith(_TABLES)


def settings_from_flags(
    values: flags.FlagValues = flags.FLAGS,
) -> tuple[FineTuningSettings, list[str]]:
    """The settings that the parsed flags ask for, and a sentence for each flag that is ignored.

    Raises:
        ValueError: a flag is missing, flags contradict each other or the task, or a value is out
            of its range.
    """
    given = {name for name in values if values[name].present}
    wanted: dict[str, Any] = {
        field.name: values[field.name].value for field in dataclasses.fields(FineTuningSettings)
    }
    wanted["task"] = task = _task(wanted["task"], wanted["tfds"])
    if not wanted["init_checkpoint"]:
        raise ValueError(
            "--init_checkpoint is missing: name the weights to start from, a directory of Hugging "
            "Face, Google, Model Garden, KerasHub or this library."
        )
    for name, tasks in _MEANT_FOR.items():
        if name in given and task not in tasks:
            raise ValueError(
                f"--{name} means nothing to --task={task}: leave it out (it is for "
                f"{', '.join(tasks)})."
            )
    _resolve_data(wanted, given)
    resolve_feature_based(wanted, given)
    _resolve_training(wanted, given)
    wanted["model_dir"] = wanted["model_dir"] or f"runs/{task}"
    ignored = [
        f"--{name} is ignored: {reason}."
        for name, reason in WITHOUT_MEANING.items()
        if name in given
    ]
    return FineTuningSettings(**wanted), ignored


def flag_defaults() -> dict[str, Any]:
    """The flags' defaults by name."""
    values = flags.FlagValues()
    define_flags(values)
    return {
        field.name: values[field.name].default for field in dataclasses.fields(FineTuningSettings)
    }


def _task(task: str | None, tfds: str | None) -> str:
    if task is None and tfds:
        task = tfds.removeprefix("glue/").split("_")[0]
    if not task:
        raise ValueError(f"--task is missing: expected one of {', '.join(TASKS)}.")
    plain = task.lower()
    if plain.replace("-", "") in GLUE_NAMES:
        plain = plain.replace("-", "")
    if plain not in TASKS:
        near = difflib.get_close_matches(plain, TASKS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"--task={task} is unknown{hint}: expected one of {', '.join(TASKS)}.")
    if plain == "ax":
        raise ValueError(
            "--task=ax has no examples to train on: train --task=mnli, which predicts it too where "
            "--data_dir has its file."
        )
    if tfds is not None and tfds != f"glue/{plain}":
        raise ValueError(f"--tfds={tfds} contradicts --task={task}: expected --tfds=glue/{plain}.")
    return plain


# === Data ===


def _resolve_data(wanted: dict[str, Any], given: set[str]) -> None:
    task = wanted["task"]
    if task in GLUE_NAMES:
        if (wanted["data_dir"] is None) == (wanted["tfds"] is None):
            raise ValueError(
                f"--task={task} reads its files from --data_dir=FOLDER or by --tfds=glue/{task}: "
                "give one of them."
            )
    elif not wanted["train_file"]:
        raise ValueError(f"--task={task} needs a --train_file to train on.")
    if wanted["test_has_labels"] is None:
        wanted["test_has_labels"] = task in ("ner", "codah")
    if "dev_fraction" in given and wanted["dev_file"]:
        raise ValueError("--dev_file is what is evaluated on: leave --dev_fraction out.")
    table = task != "squad" or is_table(wanted["train_file"])
    if task in OWN_DATA:
        _resolve_columns(wanted, given, table)
    wanted["text_columns"] = wanted["text_columns"] or []


def _resolve_columns(wanted: dict[str, Any], given: set[str], table: bool) -> None:
    task, columns, label = wanted["task"], wanted["text_columns"], wanted["label_column"]
    if not table:
        named = sorted(
            given
            & {"text_columns", "label_column", "id_column", "title_column", "answer_start_column"}
        )
        if named:
            raise ValueError(
                f"--{named[0]} names a column, and {wanted['train_file']} is no table: expected a "
                "name that ends in .csv, .tsv or .jsonl."
            )
        return
    defaults = {"tagging": (["words"], "tags"), "squad": (["question", "context"], "answers")}
    default_columns, default_label = defaults.get(task, (None, None))
    columns = columns or default_columns
    counts = {"tagging": (1, 1), "squad": (2, 2), "multiple_choice": (2, 100)}
    least, most = counts.get(task, (1, 2))
    forms = {
        "tagging": "WORDS",
        "squad": "QUESTION,CONTEXT",
        "multiple_choice": "CONTEXT,CHOICE,...",
    }
    if not columns or not least <= len(columns) <= most:
        raise ValueError(
            f"--task={task} needs --text_columns={forms.get(task, 'A or A,B')}, the columns of "
            f"{wanted['train_file']} to read; got {','.join(columns or []) or 'none'}."
        )
    if not (label or default_label):
        raise ValueError(
            f"--task={task} needs --label_column, the column of {wanted['train_file']} to learn."
        )
    in_jsonl = wanted["train_file"].lower().removesuffix(".gz").endswith(".jsonl")
    if task == "squad" and not wanted["answer_start_column"] and not in_jsonl:
        raise ValueError(
            f"--task=squad needs --answer_start_column, the column of {wanted['train_file']} with "
            "the character of the context where the answer begins (a .jsonl may have SQuAD's "
            "lists of answers instead)."
        )
    wanted["text_columns"], wanted["label_column"] = list(columns), label or default_label


# === Training ===


def _resolve_training(wanted: dict[str, Any], given: set[str]) -> None:
    epochs = wanted["num_train_epochs"]
    if epochs != int(epochs) or epochs < 1:
        raise ValueError(f"--num_train_epochs={epochs:g}: expected a whole number of 1 or more.")
    wanted["num_train_epochs"] = int(epochs)
    if not wanted["learning_rate"] > 0:
        raise ValueError(f"--learning_rate={wanted['learning_rate']:g}: expected more than 0.")
    if wanted["max_seq_length"] is None:
        wanted["max_seq_length"] = 384 if wanted["task"] == "squad" else 128
    evaluates = wanted["task"] in GLUE_NAMES or wanted["dev_file"] or wanted["dev_fraction"] > 0
    if not evaluates:
        for name in ("early_stopping_epochs", "eval_steps", "sweep", "feature_based"):
            if wanted[name]:
                raise ValueError(
                    f"--{name} needs something to evaluate on: give --dev_file, or a "
                    "--dev_fraction above 0."
                )
        if wanted["restarts"] > 1:
            raise ValueError(
                "--restarts keeps the best on a dev set: give --dev_file, or a --dev_fraction "
                "above 0."
            )
    if wanted["sweep"]:
        swept = [name for name in _SWEPT if name in given]
        if swept:
            raise ValueError(
                f"--sweep={wanted['sweep']} chooses --{swept[0]} itself: leave it out."
            )
