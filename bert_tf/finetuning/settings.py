"""Settings of fine-tuning, which are the flags of ``python -m bert_tf.finetune``."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from absl import flags

from bert_tf.choices import FREELY, HEAD_POOLINGS, PATH, STRATEGIES, XLA_CHOICES
from bert_tf.cli import flag_fields as flag
from bert_tf.evaluation.metrics import CLASS_METRICS
from bert_tf.io.messages import did_you_mean
from bert_tf.readers.tables import SUFFIXES, check_delimiter
from bert_tf.tasks.registry import KINDS, tasks
from bert_tf.tasks.task import NoOptions, Task
from bert_tf.tasks.texts.task import DIAGNOSTIC
from bert_tf.tasks.training_options import FRACTION, GLUE_NAMES, NEEDS_DEV_SET, evaluates

# Settings that may change when a run resumes: those that do not affect data, model or schedule, and
# paths, if the contents match the saved fingerprints.
MAY_CHANGE = {
    FREELY: {
        *("model_dir", "strategy", "eval_batch_size", "save_checkpoints_minutes"),
        *("export", "remat", "jit_compile"),
    },
    PATH: {"data_dir", "train_file", "dev_file", "test_file", "init_checkpoint"},
}

# Maximum hidden_size, default learning rate and default number of epochs. Google released its 24
# small models with learning rates from 3e-5 to 3e-4.
SCHEDULE_BY_HIDDEN_SIZE = ((128, 1e-3, 10), (256, 3e-4, 3), (512, 1e-4, 3))
_SMALL_SIZE, _, _SMALL_EPOCHS = SCHEDULE_BY_HIDDEN_SIZE[0]
DEFAULT_SCHEDULE = (5e-5, 3)  # for larger models, as in the paper

# === Rules, which return an error message or "" ===

_ONE_SOURCE = flag.rule(
    lambda data_dir, values: (
        values["task"] in GLUE_NAMES and (data_dir is None) == (values["tfds"] is None)
    ),
    "--task={task} requires either --data_dir=FOLDER or --tfds=glue/{task}.",
)
_NEEDS_TRAIN_FILE = flag.rule(
    lambda path, values: values["task"] not in GLUE_NAMES and not path,
    "--task={task} requires --{flag}.",
)
_IS_INTEGER = flag.rule(
    lambda number, _: number is not None and not (number >= 1 and number % 1 == 0),
    "--{flag}={value:g}: expected an integer of at least 1.",
)
_NEEDS_DEV = flag.rule(
    lambda runs, values: runs > 1 and not evaluates(values),
    "--{flag}={value} requires a dev set. Pass --dev_file, or a --dev_fraction above 0.",
)


def _changes_shapes(option: Callable[[str], Any]) -> bool:
    """Returns whether shapes depend on the texts; if so, XLA would recompile every step."""
    return option("long_text") == "windows" or bool(option("feature_based"))


_NEEDS_STATIC_SHAPES = flag.rule(
    lambda value, values: value == "true" and _changes_shapes(values.get),
    "--{flag}=true does not support --long_text=windows or --feature_based. Remove --{flag}.",
)


def _is_score(name: str, values: flag.Values, given: flag.Given) -> str:
    """Checks that the task type has the metric; class names are checked when data are read."""
    score, kind = values[name], tasks()[values["task"]]
    if score is None or score in kind.metrics:
        return ""
    class_scores = [f"{metric}_CLASS" for metric in CLASS_METRICS] if kind.class_metrics else []
    if any(score.startswith(metric.removesuffix("CLASS")) for metric in class_scores):
        return ""
    return (
        f"--{name}={score} is not a metric of --task={values['task']}"
        f"{did_you_mean(score, dict.fromkeys(kind.metrics))}: expected one of "
        f"{', '.join((*kind.metrics, *class_scores))}."
    )


# === The settings ===


@dataclasses.dataclass(frozen=True)
class FineTuningSettings:
    """Settings of a run; each field is a flag."""

    task: str = flag.string(
        None,
        "Task; for your own table, one of classification, multilabel, regression, tagging, "
        "multiple_choice, similarity (embeddings) and squad; for published files, one of cola, "
        "sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli (GLUE), squad, swag and ner.",
        heading="Task and data",
    )
    train_file: str | None = flag.string(
        None,
        "Path to the training file: a .csv, .tsv, .jsonl, .json, .parquet or .arrow table, "
        "SQuAD's .json, SWAG's .csv, or a CoNLL file.",
        rules=[_NEEDS_TRAIN_FILE],
        only="files",
    )
    text_columns: Sequence[str] = flag.words(
        None,
        "Columns that contain the texts: one or two columns of texts; for tagging, the words; for "
        "multiple_choice, the context and the choices; for similarity, two texts or "
        "anchor,positive,negative; for squad, question,context.",
        only="tables",
    )
    label_column: str | None = flag.string(
        None,
        "Column that contains the label; depending on the task, this is one class, several "
        "classes, a number, a list of tags, the index of the correct choice, answers, or (for "
        "similarity, optional) a score.",
        only="tables",
    )
    init_checkpoint: str = flag.string(
        None,
        f"Weights to start from, with their config and vocabulary: {flag.WEIGHTS}.",
        rules=[flag.required(f"pass the weights to start from, {flag.WEIGHTS}")],
    )
    model_dir: str = flag.string(
        None, "Run directory, by default runs/TASK; the same command resumes the run."
    )
    dev_file: str | None = flag.string(
        None,
        "Path to the evaluation file, in the format of --train_file; by default, a part of "
        "--train_file is held out.",
        rules=[
            flag.conflicts_with(
                "dev_fraction",
                message="--{flag} and --{other} are mutually exclusive. Remove one of them.",
            )
        ],
        only="files",
        heading="More data",
    )
    dev_fraction: float = flag.number(
        0.1,
        "Fraction of the training examples to hold out for evaluation without --dev_file; with 0, "
        "the run keeps the weights of the last epoch.",
        min_value=0.0,
        max_value=0.9,
        only="files",
    )
    test_file: str | None = flag.string(
        None,
        "Path to a file to predict after training; if it has labels, it is also evaluated.",
        only="files",
    )
    skip_bad_rows: bool = flag.switch(
        False, "Skip and list bad rows instead of stopping at the first one."
    )
    data_dir: str | None = flag.string(
        None,
        "Folder with GLUE's files: the task's folder, or a folder that contains one folder per "
        "task.",
        rules=[_ONE_SOURCE],
        only="glue",
    )
    tfds: str | None = flag.string(
        None, "Name of a GLUE task in TensorFlow Datasets, such as glue/mrpc; replaces --data_dir."
    )
    id_column: str | None = flag.string(
        None,
        "Column that contains the ids; by default, ids are row indices.",
        only="tables",
        heading="Your own tables",
        advanced=True,
    )
    delimiter: str | None = flag.delimiter("your own", only="tables")
    encoding: str = flag.encoding(
        "your own .csv, .tsv, .jsonl or CoNLL files (latin-1 for CoNLL-2002)",
        only="files",
    )
    max_seq_length: int = flag.integer(
        None,
        "Maximum number of tokens per sequence, including [CLS] and [SEP] (default: 128; 384 for "
        "squad).",
        min_value=5,
    )
    special_tokens_in_texts: bool | None = flag.special_tokens("in --init_checkpoint")
    train_batch_size: int = flag.integer(
        32,
        "Number of examples per step, over all devices.",
        min_value=1,
        heading="Training",
        rules=[flag.divided_by("gradient_accumulation_steps")],
    )
    gradient_accumulation_steps: int = flag.integer(
        1,
        "Number of micro-batches per step; a larger number requires less memory for the same "
        "update.",
        min_value=1,
    )
    remat: bool = flag.switch(False, flag.REMAT)
    learning_rate: float = flag.number(
        None,
        "Peak learning rate (paper: 2e-5 to 5e-5); the default depends on hidden_size: "
        + "".join(f"{rate:g} up to {units}, " for units, rate, _ in SCHEDULE_BY_HIDDEN_SIZE)
        + f"{DEFAULT_SCHEDULE[0]:g} above.",
        rules=[flag.IS_RATE],
    )
    num_train_epochs: int = flag.number(
        None,
        f"Number of training epochs; by default {DEFAULT_SCHEDULE[1]}, or {_SMALL_EPOCHS} if "
        f"hidden_size is at most {_SMALL_SIZE}.",
        rules=[_IS_INTEGER],
    )
    max_steps: int | None = flag.integer(
        None,
        "Number of training steps; replaces --num_train_epochs.",
        min_value=1,
        rules=[flag.mutually_exclusive("set the schedule", "num_train_epochs", "sweep")],
    )
    warmup_proportion: float = flag.number(
        0.1,
        "Fraction of the steps in which the learning rate increases linearly, before it decays to "
        "0.",
        min_value=0.0,
        max_value=1.0,
        advanced=True,
    )
    optimizer: str = flag.choice(
        "adamw",
        ["adamw", "adam"],
        "Optimizer: adamw (with bias correction), or adam (as in Google's code, without bias "
        "correction; sometimes fails on small data sets).",
        advanced=True,
    )
    weight_decay: float = flag.number(
        0.01,
        "Weight decay of matrices and embeddings per step, relative to the learning rate.",
        min_value=0.0,
        advanced=True,
    )
    hidden_dropout_prob: float | None = flag.number(
        None,
        "Dropout rate of hidden states, attention weights and inputs of the head; by default the "
        "rate in the checkpoint.",
        rules=[FRACTION],
        advanced=True,
    )
    freeze: int = flag.integer(
        0,
        "Number of lowest blocks to freeze, together with the embeddings; 0 trains all weights.",
        min_value=0,
        heading="Model",
        advanced=True,
    )
    pooling: str | None = flag.choice(
        None,
        HEAD_POOLINGS,
        "Input of the head: the pooled [CLS] token (cls), or the mean or maximum over all tokens; "
        "by default as in --init_checkpoint.",
        advanced=True,
    )
    metric: str | None = flag.string(
        None,
        "Metric on the dev set that selects weights and runs, such as loss, macro_f1 or f1_CLASS; "
        "docs/guides/evaluation.md lists the metrics of each task.",
        heading="Evaluation",
        rules=[NEEDS_DEV_SET, _is_score],
    )
    early_stopping_epochs: int = flag.integer(
        0,
        "Number of epochs without improvement after which training stops; 0 disables early "
        "stopping.",
        min_value=0,
        rules=[NEEDS_DEV_SET],
    )
    seed: int = flag.integer(
        12345,
        "Random seed for the new head, dropout, shuffling and the held-out split.",
        min_value=0,
        max_value=2**32 - 1,
        heading="Several runs",
    )
    sweep: str | None = flag.choice(
        None,
        ["paper"],
        "Grid search; paper trains a run with each combination of batch size (16, 32), learning "
        "rate (5e-5, 3e-5, 2e-5) and number of epochs (2, 3, 4), and keeps the best run.",
        rules=[
            NEEDS_DEV_SET,
            flag.conflicts_with(
                *("train_batch_size", "learning_rate", "num_train_epochs"),
                message="--{flag}={value} sets --{other}. Remove --{other}.",
            ),
        ],
    )
    restarts: int = flag.integer(
        1,
        "Number of runs, with consecutive seeds starting at --seed; the run with the best dev "
        "score is kept.",
        min_value=1,
        rules=[_NEEDS_DEV],
    )
    precision: str = flag.precision(heading="Machine")
    strategy: str = flag.choice("auto", STRATEGIES, flag.STRATEGY)
    jit_compile: str = flag.choice(
        "auto",
        XLA_CHOICES,
        f"{flag.JIT_COMPILE}; with XLA, sequences are padded to one of four lengths.",
        rules=[_NEEDS_STATIC_SHAPES],
        advanced=True,
    )
    eval_batch_size: int = flag.integer(
        64, "Number of examples per evaluation batch, over all devices.", min_value=1, advanced=True
    )
    save_checkpoints_minutes: float = flag.number(
        10.0,
        "Number of minutes between checkpoints within an epoch; a checkpoint is also saved after "
        "each epoch.",
        min_value=0.0,
        heading="Output",
        advanced=True,
    )
    export: bool = flag.switch(
        True,
        "Write a SavedModel of the best weights to MODEL_DIR/export/1, for TensorFlow Serving.",
    )

    # Settings of the task type, an instance of its ``Options``.
    options: Any = dataclasses.field(default_factory=NoOptions)

    @property
    def glue(self) -> str | None:
        """Name of the GLUE task, or ``None`` for other tasks."""
        return GLUE_NAMES.get(self.task)

    @property
    def kind(self) -> type[Task]:
        """Class of the task type."""
        return tasks()[self.task]

    @property
    def variants(self) -> tuple[str, ...]:
        """Layers whose frozen features are inputs of the head; () to fine-tune the encoder."""
        return getattr(self.options, "variants", ())

    def changes_shapes(self, replicas: int) -> bool:
        """Returns whether shapes change between steps, due to the texts or several replicas."""
        return replicas > 1 or _changes_shapes(self.option)

    def option(self, name: str) -> Any:
        """Returns an option of the task type; ``None`` if it has no such option."""
        return getattr(self.options, name, None)

    @property
    def files(self) -> dict[str, str | None]:
        """Input paths by flag."""
        return {f"--{name}": getattr(self, name) for name in sorted(MAY_CHANGE[PATH])}

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings by flag name, for JSON."""
        values = {**vars(self), **vars(self.options)}
        return {name: value for name, value in values.items() if name in flag_defaults()}

    def replaced(self, **values: Any) -> "FineTuningSettings":
        """Returns a copy with changed values of some flags."""
        options = {name: values.pop(name) for name in [*values] if hasattr(self.options, name)}
        options = dataclasses.replace(self.options, **options)
        return dataclasses.replace(self, **values, options=options)


# === Flags ===


@dataclasses.dataclass
class _OtherNames:
    """Names of the flags in the scripts of google-research/bert."""

    other_names: ClassVar = {
        "task_name": "task",
        "output_dir": "model_dir",
        "predict_file": "dev_file",
        "predict_batch_size": "eval_batch_size",
        "random_seed": "seed",
    }


def declarations() -> list[type]:
    """Returns the dataclasses that define flags: common settings, then those of task types."""
    return [FineTuningSettings, *(kind.Options for kind in KINDS.values()), _OtherNames]


def fields() -> dict[str, "dataclasses.Field[Any]"]:
    """Returns the fields of all flags by name."""
    return {field.name: field for settings in declarations() for field in flag.flags_of(settings)}


def flag_defaults() -> dict[str, Any]:
    """Returns the defaults of all flags by name."""
    return {name: field.default for name, field in fields().items()}


def tasks_with_flag(name: str) -> list[str]:
    """Returns the tasks that support a flag."""
    kinds = [kind for kind in KINDS.values() if name in kind.option_fields()]
    names = {task for task, kind in tasks().items() if kind in kinds or not kinds}
    supported = {
        "": names,
        "tables": names & KINDS.keys(),
        "published": names - KINDS.keys(),
        "files": names - GLUE_NAMES.keys(),
        "glue": names & GLUE_NAMES.keys(),
    }[fields()[name].metadata["only"]]
    return [task for task in _trained_tasks() if task in supported]


def _trained_tasks() -> list[str]:
    """Returns the values of --task without the diagnostic set, which has no training examples."""
    return [task for task in tasks() if task != DIAGNOSTIC]


# === Conversion of flags ===


def settings_from_flags(values: flags.FlagValues = flags.FLAGS) -> FineTuningSettings:
    """Returns the settings that the parsed flags define."""
    return resolve({name: values[name].value for name in flag_defaults() if values[name].present})


def resolve(given: Mapping[str, Any]) -> FineTuningSettings:
    """Returns the settings for the given flags and the defaults of all others.

    Raises:
        ValueError: If a flag is invalid, or if flags contradict each other.
    """
    values = {**flag_defaults(), **given}
    values["task"] = task = _task(values["task"], values["tfds"])
    kind = tasks()[task]
    for name in given:
        if task not in (supported := tasks_with_flag(name)):
            remedy = "Remove it"
            if task in GLUE_NAMES and fields()[name].metadata["only"] in ("files", "tables"):
                task_type = "regression" if task == "stsb" else "classification"
                remedy = f"Pass --data_dir for GLUE's files, or --task={task_type} for a table"
            raise ValueError(
                f"--{name} is not supported for --task={task}, only for {', '.join(supported)}. "
                f"{remedy}."
            )
    flag.check(FineTuningSettings, values, given)
    flag.check(kind.Options, values, given)
    if task in KINDS:
        _resolve_columns(values, given, kind)
    values["text_columns"] = values["text_columns"] or []
    if values["max_seq_length"] is None:
        values["max_seq_length"] = kind.max_seq_length
    values["model_dir"] = values["model_dir"] or f"runs/{task}"
    changed = kind.changed_defaults(values)
    values |= {name: value for name, value in changed.items() if name not in given}
    if values["num_train_epochs"] is not None:
        values["num_train_epochs"] = int(values["num_train_epochs"])
    options = {name: values[name] for name in kind.option_fields() if name in values}
    common = {field.name: values[field.name] for field in flag.flags_of(FineTuningSettings)}
    return FineTuningSettings(**common, options=kind.Options(**options))


def _task(task: str | None, tfds: str | None) -> str:
    """Returns the name of the task in lower case, from --task or --tfds."""
    if task is None and tfds:
        task = tfds.removeprefix("glue/").split("_")[0]
    if not task:
        raise ValueError(f"--task is missing: expected one of {', '.join(_trained_tasks())}.")
    plain = task.lower()
    if plain.replace("-", "") in GLUE_NAMES:
        plain = plain.replace("-", "")
    if plain not in tasks():
        raise ValueError(
            f"--task={task} is unknown{did_you_mean(plain, _trained_tasks())}: expected one of "
            f"{', '.join(_trained_tasks())}."
        )
    if plain == DIAGNOSTIC:
        raise ValueError(
            "--task=ax has no training examples. Use --task=mnli, which also predicts ax if "
            "--data_dir contains its file."
        )
    if tfds is not None and tfds != f"glue/{plain}":
        raise ValueError(f"--tfds={tfds} contradicts --task={task}: expected --tfds=glue/{plain}.")
    return plain


def _resolve_columns(values: dict[str, Any], given: Mapping[str, Any], kind: type[Task]) -> None:
    task = values["task"]
    if kind.reads_native_format and not kind.is_table_file(values["train_file"] or ""):
        column_flags = {"text_columns", "label_column", "id_column"}
        column_flags |= kind.option_fields(only="tables").keys()
        for name in sorted(column_flags & given.keys()):
            raise ValueError(
                f"--{name} requires a table, got --train_file={values['train_file']}: expected the "
                f"suffix {', '.join(SUFFIXES)}."
            )
        return
    columns = list(values["text_columns"] or kind.default_texts)
    label = values["label_column"] or kind.default_label
    min_value, max_value = kind.num_texts
    if not min_value <= len(columns) <= max_value:
        raise ValueError(
            f"--task={task} requires --text_columns={kind.text_form}, columns of "
            f"{values['train_file']}; got {','.join(columns) or 'none'}."
        )
    if duplicate := next((name for name in columns if [*columns, label].count(name) > 1), None):
        raise ValueError(
            f"--text_columns and --label_column contain {duplicate} twice: expected different "
            "columns."
        )
    if not label and not kind.label_is_optional:
        raise ValueError(
            f"--task={task} requires --label_column, a column of {values['train_file']}."
        )
    values["text_columns"], values["label_column"] = columns, label
    values["delimiter"] = check_delimiter(values["delimiter"])
