"""The settings of a fine-tuning: the flags of ``python -m bert_tf.finetune`` and what they mean.

``FineTuningSettings`` is the table of flags: each field's default and help; ``resolve`` makes
settings of the flags that are given.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from absl import flags

from bert_tf.choices import FREELY, HEAD_POOLINGS, PATH, STRATEGIES, XLA_CHOICES
from bert_tf.cli import flag_fields as flag
from bert_tf.evaluation.scores import CLASS_METRICS
from bert_tf.io.wording import did_you_mean
from bert_tf.readers.tables import SUFFIXES, check_delimiter
from bert_tf.tasks.kinds import is_table_file, option_fields, table_options
from bert_tf.tasks.options import FRACTION, GLUE_NAMES, NEEDS_DEV_SET, evaluates
from bert_tf.tasks.registry import KINDS, tasks
from bert_tf.tasks.task import NoOptions, Task

# How settings may change when a run resumes: those that do not change data, model or schedule, and
# those that name files whose contents a run keeps the fingerprints of. Others stay.
MAY_CHANGE = {
    FREELY: {
        *("model_dir", "strategy", "eval_batch_size", "save_checkpoints_minutes"),
        *("export", "remat", "jit_compile"),
    },
    PATH: {"data_dir", "train_file", "dev_file", "test_file", "init_checkpoint"},
}

# Units (hidden_size) of the weights to start from, or fewer, and the rate and the epochs that such
# weights learn best with. Google's 24 miniatures were released with rates from 3e-4 to 3e-5.
SCHEDULE_BY_HIDDEN_SIZE = ((128, 1e-3, 10), (256, 3e-4, 3), (512, 1e-4, 3))
DEFAULT_SCHEDULE = (5e-5, 3)  # of all larger ones, and of the paper

# === Rules: what is wrong with a flag, in a sentence, or "" ===

_ONE_SOURCE = flag.rule(
    lambda data_dir, values: (
        values["task"] in GLUE_NAMES and (data_dir is None) == (values["tfds"] is None)
    ),
    "--task={task} reads its files from --data_dir=FOLDER or by --tfds=glue/{task}: give one of "
    "them.",
)
_NEEDS_TRAIN_FILE = flag.rule(
    lambda path, values: values["task"] not in GLUE_NAMES and not path,
    "--task={task} needs a --{flag} to train on.",
)
_IS_INTEGER = flag.rule(
    lambda number, _: number is not None and not (number >= 1 and number % 1 == 0),
    "--{flag}={value:g}: expected a whole number of 1 or more.",
)
_NEEDS_DEV = flag.rule(
    lambda runs, values: runs > 1 and not evaluates(values),
    "--{flag} keeps the best on a dev set: give --dev_file, or a --dev_fraction above 0.",
)


def _changes_shapes(option: Callable[[str], Any]) -> bool:
    """True where a step's shapes follow from its texts: XLA would compile each step anew."""
    return option("long_text") == "windows" or bool(option("feature_based"))


_NEEDS_STATIC_SHAPES = flag.rule(
    lambda value, values: value == "true" and _changes_shapes(values.get),
    "--{flag}=true: XLA cannot compile --long_text=windows or --feature_based: leave it out.",
)


def _is_score(name: str, values: flag.Values, given: flag.Given) -> str:
    """The kind has the score; whether it has the class, only the data say."""
    score, kind = values[name], tasks()[values["task"]]
    if score is None or score in kind.metrics:
        return ""
    class_scores = [f"{metric}_CLASS" for metric in CLASS_METRICS] if kind.class_metrics else []
    if any(score.startswith(metric.removesuffix("CLASS")) for metric in class_scores):
        return ""
    return (
        f"--{name}={score} is no score of --task={values['task']}"
        f"{did_you_mean(score, dict.fromkeys(kind.metrics))}: expected one of "
        f"{', '.join((*kind.metrics, *class_scores))}."
    )


# === The settings ===


@dataclasses.dataclass(frozen=True)
class FineTuningSettings:
    """Every flag, its value resolved."""

    task: str = flag.string(
        None,
        "Learn this task: classification, multilabel, regression, tagging, multiple_choice, "
        "similarity (embeddings) or squad on a table of your own, or from published files cola, "
        "sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli (GLUE), squad, swag or ner.",
        heading="What every run needs",
    )
    train_file: str | None = flag.string(
        None,
        "Train on this file: a .csv, .tsv, .jsonl, .json, .parquet or .arrow table, SQuAD's "
        ".json, SWAG's .csv, or CoNLL's columns.",
        rules=[_NEEDS_TRAIN_FILE],
        only="files",
    )
    text_columns: Sequence[str] = flag.words(
        None,
        "Read these columns: one text or two; tagging: the words; multiple_choice: the context "
        "and the choices; similarity: two texts, or anchor,positive,negative; squad: "
        "question,context.",
        only="tables",
    )
    label_column: str | None = flag.string(
        None,
        "Learn this column: the class, the classes, the number, the tags, the right choice "
        "(counted from 0), the answers; similarity: the score, if there is one.",
        only="tables",
    )
    init_checkpoint: str = flag.string(
        None,
        f"Start from these weights, with their config and vocabulary: {flag.WEIGHTS}.",
        rules=[flag.required(f"name the weights to start from, {flag.WEIGHTS}")],
    )
    model_dir: str = flag.string(
        None, "Keep the run in this directory, runs/TASK by default; the same command resumes it."
    )
    dev_file: str | None = flag.string(
        None,
        "Evaluate on this file, in the same form, instead of on a part held out of --train_file.",
        rules=[
            flag.conflicts_with(
                "dev_fraction", message="--{flag} is what is evaluated on: leave --{other} out."
            )
        ],
        only="files",
        heading="More data",
    )
    dev_fraction: float = flag.number(
        0.1,
        "Hold out this share where there is no --dev_file; with 0 nothing is held out, and the "
        "last epoch counts as the best.",
        min_value=0.0,
        max_value=0.9,
        only="files",
    )
    test_file: str | None = flag.string(
        None,
        "Predict this file after the training, and score it where it has labels.",
        only="files",
    )
    skip_bad_rows: bool = flag.switch(
        False, "Leave bad rows out, and count and list them, instead of ending at the first one."
    )
    data_dir: str | None = flag.string(
        None,
        "Read GLUE's files from this folder, the task's own or the one that has a folder for each "
        "task.",
        rules=[_ONE_SOURCE],
        only="glue",
    )
    tfds: str | None = flag.string(
        None, "Load GLUE with TensorFlow Datasets, such as glue/mrpc, instead of from --data_dir."
    )
    id_column: str | None = flag.string(
        None,
        "Take the rows' ids from this column instead of counting the rows.",
        only="tables",
        heading="Tables of your own",
        advanced=True,
    )
    delimiter: str | None = flag.delimiter("your own", only="tables")
    encoding: str = flag.encoding(
        "your own .csv, .tsv or .jsonl, and ner's files (CoNLL-2002's own are latin-1),",
        only="files",
    )
    max_seq_length: int = flag.integer(
        None,
        "Cut texts so that a row has at most this many tokens, with [CLS] and [SEP]: 128 by "
        "default, 384 for squad.",
        min_value=5,
    )
    special_tokens_in_texts: bool | None = flag.special_tokens("--init_checkpoint does")
    train_batch_size: int = flag.integer(
        32,
        "Take this many examples in a step, over all devices.",
        min_value=1,
        heading="Training",
        rules=[flag.divided_by("gradient_accumulation_steps")],
    )
    gradient_accumulation_steps: int = flag.integer(
        1,
        "Compute a step in this many parts, one after the other: less memory, the same update.",
        min_value=1,
    )
    remat: bool = flag.switch(False, flag.REMAT)
    learning_rate: float = flag.number(
        None,
        "Let the rate rise to this (the paper's: 5e-5 to 2e-5), by default by hidden_size: "
        + "".join(f"{rate:g} up to {units} units, " for units, rate, _ in SCHEDULE_BY_HIDDEN_SIZE)
        + f"{DEFAULT_SCHEDULE[0]:g} above.",
        rules=[flag.IS_RATE],
    )
    num_train_epochs: int = flag.number(
        None,
        f"See each example this many times, a whole number: by default {DEFAULT_SCHEDULE[1]}, and "
        f"{SCHEDULE_BY_HIDDEN_SIZE[0][2]} with weights of up to "
        f"{SCHEDULE_BY_HIDDEN_SIZE[0][0]} units.",
        rules=[_IS_INTEGER],
    )
    max_steps: int | None = flag.integer(
        None,
        "Train for this many steps instead of --num_train_epochs.",
        min_value=1,
        rules=[flag.mutually_exclusive("set the schedule", "num_train_epochs", "sweep")],
    )
    warmup_proportion: float = flag.number(
        0.1,
        "Let the rate rise over this share of the steps, and then fall to 0.",
        min_value=0.0,
        max_value=1.0,
        advanced=True,
    )
    optimizer: str = flag.choice(
        "adamw",
        ["adamw", "adam"],
        "adamw is Adam with bias correction, and adam Google's, without it, with which training "
        "on small data sets sometimes fails.",
        advanced=True,
    )
    weight_decay: float = flag.number(
        0.01,
        "Let matrices and embeddings decay by this share of the rate in each step.",
        min_value=0.0,
        advanced=True,
    )
    hidden_dropout_prob: float | None = flag.number(
        None,
        "Drop this share of hidden values, of attention weights and of the head's inputs, instead "
        "of the checkpoint's share.",
        rules=[FRACTION],
        advanced=True,
    )
    freeze: int = flag.integer(
        0,
        "Leave the embeddings and this many of the lowest blocks as they are; with 0 everything "
        "is trained.",
        min_value=0,
        heading="What is trained",
        advanced=True,
    )
    pooling: str | None = flag.choice(
        None,
        HEAD_POOLINGS,
        "Let the head read [CLS] through the pooler (cls), or the mean or the maximum over all "
        "tokens; by default what --init_checkpoint was trained for.",
        advanced=True,
    )
    metric: str | None = flag.string(
        None,
        "Keep the weights, and the run of several, that are best by this dev score, such as loss, "
        "macro_f1 or f1_CLASS; docs/guides/evaluation.md lists those of each task.",
        heading="Evaluation",
        rules=[NEEDS_DEV_SET, _is_score],
    )
    early_stopping_epochs: int = flag.integer(
        0,
        "Stop at the first evaluation that comes at least this many epochs after the best one and "
        "is no better; 0 never does.",
        min_value=0,
        rules=[NEEDS_DEV_SET],
    )
    seed: int = flag.integer(
        12345,
        "Draw the new head, dropout, the order, and what is held out, from this seed.",
        min_value=0,
        max_value=2**32 - 1,
        heading="Several runs",
    )
    sweep: str | None = flag.choice(
        None,
        ["paper"],
        "Train with each combination of the paper's batch sizes (16, 32), rates (5e-5, 3e-5, "
        "2e-5) and epochs (2, 3, 4), and keep the best.",
        rules=[
            NEEDS_DEV_SET,
            flag.conflicts_with(
                *("train_batch_size", "learning_rate", "num_train_epochs"),
                message="--{flag}={value} chooses --{other} itself: leave it out.",
            ),
        ],
    )
    restarts: int = flag.integer(
        1,
        "Train with this many seeds, from --seed on, and keep the best on the dev set.",
        min_value=1,
        rules=[_NEEDS_DEV],
    )
    precision: str = flag.precision(heading="Machine")
    strategy: str = flag.choice("auto", STRATEGIES, flag.STRATEGY)
    jit_compile: str = flag.choice(
        "auto",
        XLA_CHOICES,
        f"{flag.JIT_COMPILE}; rows are padded to one of four lengths.",
        rules=[_NEEDS_STATIC_SHAPES],
        advanced=True,
    )
    eval_batch_size: int = flag.integer(
        64, "Evaluate this many examples at once, over all devices.", min_value=1, advanced=True
    )
    save_checkpoints_minutes: float = flag.number(
        10.0,
        "Save after so many minutes within an epoch, too.",
        min_value=0.0,
        heading="What is kept",
        advanced=True,
    )
    export: bool = flag.switch(
        True,
        "Write a SavedModel of the kept weights to MODEL_DIR/export/1, for TensorFlow Serving.",
    )

    # Those of the task's kind, its ``Options``.
    options: Any = dataclasses.field(default_factory=NoOptions)

    @property
    def glue(self) -> str | None:
        """GLUE's own name of the task, ``None`` where it is none of GLUE's."""
        return GLUE_NAMES.get(self.task)

    @property
    def kind(self) -> type[Task]:
        """Kind of the task, for published and own data."""
        return tasks()[self.task]

    @property
    def variants(self) -> tuple[str, ...]:
        """The choices of layers to train on frozen features of; () to fine-tune the encoder."""
        return getattr(self.options, "variants", ())

    def changes_shapes(self, replicas: int) -> bool:
        """True where XLA cannot know a step's shapes: its texts make them, or replicas share it."""
        return replicas > 1 or _changes_shapes(self.option)

    def option(self, name: str) -> Any:
        """An option of some kinds, ``None`` where the task's kind does not have it."""
        return getattr(self.options, name, None)

    @property
    def files(self) -> dict[str, str | None]:
        """The paths to read, by flag."""
        return {f"--{name}": getattr(self, name) for name in sorted(MAY_CHANGE[PATH])}

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        values = {**vars(self), **vars(self.options)}
        return {name: value for name, value in values.items() if name in flag_defaults()}

    def replaced(self, **values: Any) -> "FineTuningSettings":
        """The settings with other values of some flags."""
        own = {name: values.pop(name) for name in [*values] if hasattr(self.options, name)}
        return dataclasses.replace(self, **values, options=dataclasses.replace(self.options, **own))


# === Flags ===


@dataclasses.dataclass
class _OtherNames:
    """Names of google-research/bert's scripts."""

    other_names: ClassVar = {
        "task_name": "task",
        "output_dir": "model_dir",
        "predict_file": "dev_file",
        "predict_batch_size": "eval_batch_size",
        "random_seed": "seed",
    }


def declarations() -> list[type]:
    """The dataclasses whose fields are flags: the settings of all tasks, then each kind's."""
    return [FineTuningSettings, *(kind.Options for kind in KINDS.values()), _OtherNames]


def fields() -> dict[str, "dataclasses.Field[Any]"]:
    """Every flag's field by its name."""
    return {field.name: field for one in declarations() for field in flag.flags_of(one)}


def flag_defaults() -> dict[str, Any]:
    """The flags' defaults by name."""
    return {name: field.default for name, field in fields().items()}


def tasks_with_flag(name: str) -> list[str]:
    """Each ``--task`` that a flag means something to."""
    kinds = [kind for kind in KINDS.values() if name in option_fields(kind)]
    every = {task for task, kind in tasks().items() if kind in kinds or not kinds}
    known = {
        "": every,
        "tables": every & KINDS.keys(),
        "published": every - KINDS.keys(),
        "files": every - GLUE_NAMES.keys(),
        "glue": every & GLUE_NAMES.keys(),
    }[fields()[name].metadata["only"]]
    return [task for task in tasks() if task in known]


# === From the flags that are given to the settings ===


def settings_from_flags(values: flags.FlagValues = flags.FLAGS) -> FineTuningSettings:
    """The settings that the parsed flags ask for."""
    return resolve({name: values[name].value for name in flag_defaults() if values[name].present})


def resolve(given: Mapping[str, Any]) -> FineTuningSettings:
    """The settings of a run for which some flags are given; flags that contradict are an error."""
    values = {**flag_defaults(), **given}
    values["task"] = task = _task(values["task"], values["tfds"])
    kind = tasks()[task]
    for name in given:
        if task not in (known := tasks_with_flag(name)):
            todo = "leave it out"
            if task in GLUE_NAMES and fields()[name].metadata["only"] in ("files", "tables"):
                own = "regression" if task == "stsb" else "classification"
                todo += (
                    f" and name GLUE's folder by --data_dir, or train on a table by --task={own}, "
                    "--train_file, --text_columns and --label_column"
                )
            raise ValueError(
                f"--{name} means nothing to --task={task}: {todo} (it is for {', '.join(known)})."
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
    options = {name: values[name] for name in option_fields(kind) if name in values}
    common = {field.name: values[field.name] for field in flag.flags_of(FineTuningSettings)}
    return FineTuningSettings(**common, options=kind.Options(**options))


def _task(task: str | None, tfds: str | None) -> str:
    """The task's name in small letters, as --task or else --tfds says it."""
    if task is None and tfds:
        task = tfds.removeprefix("glue/").split("_")[0]
    if not task:
        raise ValueError(f"--task is missing: expected one of {', '.join(tasks())}.")
    plain = task.lower()
    if plain.replace("-", "") in GLUE_NAMES:
        plain = plain.replace("-", "")
    if plain not in tasks():
        raise ValueError(
            f"--task={task} is unknown{did_you_mean(plain, tasks())}: expected one of "
            f"{', '.join(tasks())}."
        )
    if plain == "ax":
        raise ValueError(
            "--task=ax has no examples to train on: train --task=mnli, which predicts it too where "
            "--data_dir has its file."
        )
    if tfds is not None and tfds != f"glue/{plain}":
        raise ValueError(f"--tfds={tfds} contradicts --task={task}: expected --tfds=glue/{plain}.")
    return plain


def _resolve_columns(values: dict[str, Any], given: Mapping[str, Any], kind: type[Task]) -> None:
    task = values["task"]
    if kind.reads_native_format and not is_table_file(kind, values["train_file"] or ""):
        columns_of = {"text_columns", "label_column", "id_column", *table_options(kind)}
        for name in sorted(columns_of & given.keys()):
            raise ValueError(
                f"--{name} names a column, and {values['train_file']} is no table: expected a "
                f"name that ends in {', '.join(SUFFIXES)}."
            )
        return
    columns = list(values["text_columns"] or kind.default_texts)
    label = values["label_column"] or kind.default_label
    min_value, max_value = kind.num_texts
    if not min_value <= len(columns) <= max_value:
        raise ValueError(
            f"--task={task} needs --text_columns={kind.text_form}, the columns of "
            f"{values['train_file']} to read; got {','.join(columns) or 'none'}."
        )
    if twice := next((name for name in columns if [*columns, label].count(name) > 1), None):
        raise ValueError(
            f"--text_columns and --label_column name {twice} twice: expected a column for each "
            "text, and another for the label."
        )
    if not label and not kind.label_is_optional:
        raise ValueError(
            f"--task={task} needs --label_column, the column of {values['train_file']} to learn."
        )
    values["text_columns"], values["label_column"] = columns, label
    values["delimiter"] = check_delimiter(values["delimiter"])
