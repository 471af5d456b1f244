"""The settings of a fine-tuning: the flags of ``python -m bert_tf.finetune`` and what they mean.

``FineTuningSettings`` is the table of flags: each field's default and help. ``resolve`` makes
settings of the flags that are given, on the command line or from Python.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from bert_tf import flag_fields
from bert_tf.choices import PRECISIONS, STRATEGIES
from bert_tf.tasks.judging import CLASS_METRICS
from bert_tf.tasks.tables import SUFFIXES, holds_values

from .grid import NAMES, combinations
from .kinds import (
    CONLL_TASKS,
    GLUE_NAMES,
    KINDS,
    LABELLED_TESTS,
    TASKS,
    Kind,
    having_flag,
    tasks_of,
)

# Settings that do not change data, model or schedule.
MAY_DIFFER = frozenset(
    {
        *("model_dir", "strategy", "eval_batch_size", "save_checkpoints_minutes"),
        *("allow_pickle", "export", "max_search_hours", "language", "license"),
    }
)
# Settings that name files whose contents a run keeps the fingerprints of.
PATHS = frozenset({"data_dir", "train_file", "dev_file", "test_file", "init_checkpoint", "teacher"})

_ALIASES = {
    "task_name": "task",
    "output_dir": "model_dir",
    "predict_file": "dev_file",
    "predict_batch_size": "eval_batch_size",
    "random_seed": "seed",
}

# Flags of Google's scripts that are accepted, and what stands in for them here.
_WITHOUT_MEANING = {
    "do_train": "a run trains, evaluates and predicts",
    "do_eval": "a run trains, evaluates and predicts",
    "do_predict": "a run trains, evaluates and predicts",
    "use_tpu": "fine-tuning runs on GPUs or the CPU",
    "bert_config_file": "--init_checkpoint has its config beside it",
    "vocab_file": "--init_checkpoint has its vocabulary beside it",
    "do_lower_case": "--init_checkpoint says its casing",
    "save_checkpoints_steps": "every epoch is saved, and --save_checkpoints_minutes between",
    "iterations_per_loop": "every step is a call",
}


# The variants of ``modeling.feature_based``, which would load Keras, and their F1.
# Source: Devlin et al. 2019, table 7: CoNLL-2003's dev set, BERT-base, cased; the mean of 5 runs.
PAPERS_F1 = {
    "embeddings": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "weighted_sum_last_four": 95.9,
    "concat_last_four": 96.1,
    "weighted_sum_all": 95.5,
}
_ALL = "all"
# The paper does not say how the BiLSTM was trained.
_DEFAULTS = {"learning_rate": 1e-3, "num_train_epochs": 10, "lstm_units": 768}
# What fine-tuning does to an encoder.
_OF_FINE_TUNING = (
    *("freeze", "sweep", "layer_decay"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
)


_FILES = tuple(task for task in TASKS if task not in GLUE_NAMES)
# The tasks that a flag means something to; all others mean something to every task.
_MEANT_FOR = {
    **dict.fromkeys(("data_dir", "tfds"), tuple(GLUE_NAMES)),
    **dict.fromkeys(
        ("train_file", "dev_file", "test_file", "test_has_labels", "dev_fraction"), _FILES
    ),
    **dict.fromkeys(("text_columns", "label_column", "id_column", "delimiter"), tuple(KINDS)),
    "encoding": (*KINDS, *CONLL_TASKS),
    "document_context": CONLL_TASKS,
    **{
        flag: tuple(task for kind in having_flag(flag) for task in tasks_of(kind.name))
        for kind in KINDS.values()
        for flag in kind.all_flags
    },
}
_NEED_EVALUATION = ("early_stopping_epochs", "eval_steps", "metric", "sweep", "grid")
_SWEPT = ("train_batch_size", "learning_rate", "num_train_epochs")


_RATE = (lambda value: value is None or 0 <= value < 1, "from 0 to below 1")


@dataclasses.dataclass(frozen=True)
class FineTuningSettings:
    """Every flag, its value resolved."""

    task: str = flag_fields.string(
        None,
        "What to train for. Published data: cola, sst2, mrpc, stsb, qqp, mnli (which predicts ax "
        "too), qnli, rte, wnli (GLUE: with --data_dir or --tfds); squad, swag, codah, ner (CoNLL's "
        "column files). Your own tables: classification, multilabel, regression, tagging, "
        "multiple_choice, squad.",
    )
    data_dir: str | None = flag_fields.string(
        None, "GLUE's files: the task's folder, or the one with a folder for each task."
    )
    tfds: str | None = flag_fields.string(
        None, "Instead of --data_dir: glue/mrpc, by TensorFlow Datasets."
    )
    train_file: str | None = flag_fields.string(
        None,
        "What to train on: a .csv, .tsv, .jsonl, .json or .parquet table (.gz too), SQuAD's .json, "
        "SWAG's .csv, CODAH's .tsv, CoNLL's columns; ARCHIVE.zip/MEMBER for ner.",
    )
    dev_file: str | None = flag_fields.string(
        None,
        "What to evaluate on, of the same form; without it a part of --train_file is held out.",
    )
    test_file: str | None = flag_fields.string(None, "What to predict when the training has ended.")
    test_has_labels: bool = flag_fields.switch(
        None,
        "Whether --test_file has labels, so that its scores are told too; true by default for ner "
        "and codah.",
    )
    dev_fraction: float = flag_fields.number(
        0.1,
        "The share held out without a --dev_file; of squad whole articles. 0: none, and the last "
        "epoch counts as the best.",
        least=0.0,
        most=0.9,
    )
    skip_bad_rows: bool = flag_fields.switch(
        False, "Leave out bad rows, count and list them, instead of an error at the first."
    )
    text_columns: Sequence[str] = flag_fields.words(
        None,
        "The columns of a table of your own: one text or two; tagging: the words; multiple_choice: "
        "the context and the choices (in .jsonl: one list of them); squad: question,context.",
    )
    label_column: str | None = flag_fields.string(
        None,
        "The column of the class, classes, number, tags, right choice (counted from 0), or answers "
        "(a list as SQuAD has it, or with --answer_start_column one text).",
    )
    id_column: str | None = flag_fields.string(
        None, "The column of ids; rows are counted without it."
    )
    label_separator: str = flag_fields.string(",", "What parts the classes of multilabel.")
    answer_start_column: str | None = flag_fields.string(
        None,
        "squad: the column with the number of the context's character where the answer begins.",
    )
    title_column: str | None = flag_fields.string(
        None, "squad: the column of the article's title, by which questions are held out."
    )
    delimiter: str | None = flag_fields.string(
        None,
        "What separates the columns of your own .csv or .tsv: one character, such as ';', or tab.",
    )
    encoding: str = flag_fields.string(
        "utf-8",
        "The encoding of your own .csv, .tsv or .jsonl, and of ner's files, of which "
        "CoNLL-2002's own are latin-1.",
    )
    document_context: bool = flag_fields.switch(
        False, "ner: fill a row with the sentences round the one that is tagged, as the paper did."
    )
    doc_stride: int = flag_fields.integer(
        128, "squad: tokens between the starts of two windows of a context.", least=1
    )
    max_query_length: int = flag_fields.integer(
        64, "squad: the most tokens of a question.", least=1
    )
    n_best_size: int = flag_fields.integer(
        20, "squad: how many answers are kept of a question.", least=1, most=1000
    )
    max_answer_length: int = flag_fields.integer(
        30, "squad: the most tokens of an answer.", least=1
    )
    version_2_with_negative: bool | None = flag_fields.switch(
        None, "squad: whether a question may have no answer; by default as in --train_file."
    )
    null_score_diff_threshold: float | None = flag_fields.number(
        None,
        'squad: answer "" where its score is this much over the best answer\'s; by default what '
        "is best on the evaluated set.",
    )
    init_checkpoint: str = flag_fields.string(
        None,
        "The weights to start from, their config and vocabulary beside them: a directory of this "
        "library, of Hugging Face, Google, Model Garden or KerasHub, a .keras file, or "
        "hf://OWNER/NAME of the Hugging Face hub.",
    )
    allow_pickle: bool = flag_fields.switch(
        False, "Read an --init_checkpoint that is a pytorch_model.bin; a pickle can run any code."
    )
    max_seq_length: int = flag_fields.integer(
        None,
        "Tokens of a row, [CLS] and [SEP] included; 128 by default, 384 for squad. Shorter rows "
        "are not padded to it.",
        least=5,
    )
    train_batch_size: int = flag_fields.integer(
        32, "Examples of a step, over all devices.", least=1
    )
    gradient_accumulation_steps: int = flag_fields.integer(
        1,
        "In so many parts a step's examples are computed, one after the other, which takes less "
        "memory; the update is that of the whole.",
        least=1,
    )
    learning_rate: float = flag_fields.number(5e-5, "The highest rate. The paper's: 5e-5 to 2e-5.")
    num_train_epochs: int = flag_fields.number(3, "How often each example is seen; whole.")
    max_steps: int | None = flag_fields.integer(
        None,
        "Train so many steps, whatever epochs these are, instead of --num_train_epochs.",
        least=1,
    )
    warmup_proportion: float = flag_fields.number(
        0.1,
        "The share of the steps until the full rate; from there it falls to 0.",
        least=0.0,
        most=1.0,
    )
    optimizer: str = flag_fields.choice(
        "adamw",
        ["adamw", "adam"],
        "adam: Google's, which leaves the moments' bias uncorrected, so that early steps are "
        "larger and small data sets sometimes fail; adamw: the same, corrected.",
    )
    weight_decay: float = flag_fields.number(
        0.01,
        "The decay of matrices and embeddings in each step, as a share of the rate.",
        least=0.0,
    )
    layer_decay: float = flag_fields.number(
        1.0,
        "Each block's rate, as a share of that of the block above; the head has the full rate, "
        "the embeddings the lowest. 0.9 often helps where there are few examples; 1: all alike.",
        within=(lambda value: 0 < value <= 1, "above 0 and at most 1"),
    )
    hidden_dropout_prob: float | None = flag_fields.number(
        None,
        "The share of hidden values that dropout sets to 0; by default the checkpoint's.",
        within=_RATE,
    )
    attention_probs_dropout_prob: float | None = flag_fields.number(
        None, "The same of the attention's weights.", within=_RATE
    )
    classifier_dropout: float | None = flag_fields.number(
        None, "The same of what the head reads; by default as --hidden_dropout_prob.", within=_RATE
    )
    label_smoothing: float = flag_fields.number(
        0.0,
        "Train towards 1 - SHARE + SHARE / CLASSES of the right class, and SHARE / CLASSES of each "
        "other.",
        within=(lambda value: 0 <= value < 1, "from 0 to below 1"),
    )
    init_layers: Sequence[int] | None = flag_fields.words(
        None,
        "The blocks of --init_checkpoint to take, counted from 0, as 0,5: a student of so many "
        "blocks. By default all.",
    )
    teacher: str | None = flag_fields.string(
        None,
        "A fine-tuned model's directory, of the same task and classes, from which the model that "
        "is trained learns besides the labels (distillation).",
    )
    distillation_weight: float = flag_fields.number(
        0.5,
        "--teacher: what its answers count in the loss; the labels count the rest of 1.",
        least=0.0,
        most=1.0,
    )
    distillation_temperature: float = flag_fields.number(
        2.0,
        "--teacher: what both models' outputs are divided by before they are compared; over 1 the "
        "less probable classes count more.",
        within=(lambda value: 0 < value < float("inf"), "above 0"),
    )
    freeze: int = flag_fields.integer(
        0, "Leave the embeddings and so many of the lowest blocks as they are.", least=0
    )
    class_weights: str | None = flag_fields.string(
        None,
        "What a class counts in the loss: balanced (each class as much as any other), or "
        "NAME:WEIGHT,NAME:WEIGHT, 1 for those not named. multilabel: what an example counts that "
        "has the class, to one that has not; tagging: of tags.",
    )
    feature_based: str | None = flag_fields.words(
        None,
        "ner, tagging: train a two-layer BiLSTM on the frozen encoder's features, a run for each "
        f"choice of layers, and compare: {', '.join(PAPERS_F1)}, several of them, or {_ALL}. "
        f"--learning_rate is {_DEFAULTS['learning_rate']:g} then by default, and "
        f"--num_train_epochs {_DEFAULTS['num_train_epochs']}.",
    )
    lstm_units: int | None = flag_fields.integer(
        None,
        "--feature_based: the width of each direction of the BiLSTM; by default the paper's "
        f"{_DEFAULTS['lstm_units']}.",
        least=1,
    )
    metric: str | None = flag_fields.string(
        None,
        "The score on the dev set by which the kept weights, and of several runs the best, are "
        "chosen; by default the task's own. loss, accuracy, macro_f1, f1_CLASS, recall_CLASS, ...: "
        "docs/evaluation.md lists those of each task.",
    )
    eval_steps: int = flag_fields.integer(
        0, "Evaluate every so many steps besides the end of each epoch.", least=0
    )
    early_stopping_epochs: int = flag_fields.integer(
        0,
        "Stop at the first evaluation that comes this many epochs after the best one, or later, "
        "without being better; 0: never.",
        least=0,
    )
    seed: int = flag_fields.integer(
        12345,
        "What the new head, dropout, the order and what is held out are drawn from.",
        least=0,
        most=2**32 - 1,
    )
    sweep: str | None = flag_fields.choice(
        None,
        ["paper"],
        "paper: every batch size of 16 and 32, rate of 5e-5, 3e-5 and 2e-5, and 2 to 4 epochs.",
    )
    grid: str | None = flag_fields.string(
        None,
        "Train with every combination of some values and keep the best: "
        "'learning_rate=1e-5,3e-5;train_batch_size=16,32'. It varies " + ", ".join(NAMES) + ".",
    )
    trials: int | None = flag_fields.integer(
        None,
        "Train with so many combinations of --grid, drawn by --seed; learning_rate=1e-5..1e-4 is "
        "then drawn from all between.",
        least=1,
    )
    max_search_hours: float | None = flag_fields.number(
        None,
        "Of several runs, begin none after so many hours; the best so far is kept.",
        within=(lambda value: value is None or value > 0, "above 0"),
    )
    restarts: int = flag_fields.integer(
        1, "Train with so many seeds, from --seed on; the best on the dev set is kept.", least=1
    )
    precision: str = flag_fields.choice(
        "float32",
        PRECISIONS,
        "bfloat16: matrix products in bfloat16, weights and sums in float32.",
    )
    model_dir: str = flag_fields.string(None, "Where everything is kept; runs/TASK by default.")
    strategy: str = flag_fields.choice("auto", STRATEGIES, flag_fields.STRATEGY)
    eval_batch_size: int = flag_fields.integer(
        64, "Examples of an evaluation's batch, over all devices.", least=1
    )
    save_checkpoints_minutes: float = flag_fields.number(
        10.0, "Minutes between two saves within an epoch.", least=0.0
    )
    export: bool = flag_fields.switch(
        True,
        "Write a SavedModel of the kept weights to MODEL_DIR/export/1, for TensorFlow Serving.",
    )
    language: Sequence[str] | None = flag_fields.words(
        None,
        "The texts' language, or several, as ISO codes such as en, for the model card "
        "(MODEL_DIR/README.md); it names none without.",
    )
    license: str | None = flag_fields.string(
        None,
        "What the weights may be used under, as hubs spell it (apache-2.0), for the model card; it "
        "names none without.",
    )

    @property
    def glue(self) -> str | None:
        """GLUE's own name of the task, ``None`` where it is none of GLUE's."""
        return GLUE_NAMES.get(self.task)

    @property
    def kind(self) -> Kind:
        """What the task is, whosever data it has."""
        return KINDS[TASKS[self.task]]

    @property
    def reads_table(self) -> bool:
        """Whether the files are tables whose columns the flags name."""
        return _reads_table(self.task, self.train_file)

    @property
    def variants(self) -> tuple[str, ...]:
        """The choices of layers to train on frozen features of; () to fine-tune the encoder."""
        return tuple(self.feature_based.split(",")) if self.feature_based else ()

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The combinations of ``--grid`` to train with; [] without it."""
        if self.grid is None:
            return []
        return combinations(self.grid, self.trials, self.seed, _parse_setting)

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


def _reads_table(task: str, train_file: str | None) -> bool:
    return task in KINDS and (
        not KINDS[task].reads_own_form or KINDS[task].is_table(train_file or "")
    )


# === Flags ===


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(FineTuningSettings, values, _ALIASES, _WITHOUT_MEANING)


def flag_defaults() -> dict[str, Any]:
    """The flags' defaults by name."""
    return flag_fields.defaults(FineTuningSettings)


def settings_from_flags(
    values: flags.FlagValues = flags.FLAGS,
) -> tuple[FineTuningSettings, list[str]]:
    """The settings that the parsed flags ask for, and a sentence for each flag that is ignored."""
    given = {name for name in values if values[name].present}
    settings = resolve({name: values[name].value for name in flag_defaults() if name in given})
    return settings, flag_fields.ignored(values, _WITHOUT_MEANING)


def resolve(given: Mapping[str, Any]) -> FineTuningSettings:
    """The settings of a run for which some flags are given; flags that contradict are an error."""
    wanted = {**flag_defaults(), **given}
    wanted["task"] = task = _task(wanted["task"], wanted["tfds"])
    if not wanted["init_checkpoint"]:
        raise ValueError(
            "--init_checkpoint is missing: name the weights to start from, a directory of Hugging "
            "Face, Google, Model Garden, KerasHub or this library, or hf://OWNER/NAME of the "
            "Hugging Face hub."
        )
    for name, tasks in _MEANT_FOR.items():
        if name in given and task not in tasks:
            raise ValueError(
                f"--{name} means nothing to --task={task}: leave it out (it is for "
                f"{', '.join(tasks)})."
            )
    _resolve_data(wanted, given)
    _resolve_feature_based(wanted, given)
    _resolve_training(wanted, given)
    _resolve_student(wanted, given)
    wanted["model_dir"] = wanted["model_dir"] or f"runs/{task}"
    return FineTuningSettings(**wanted)


def _task(task: str | None, tfds: str | None) -> str:
    if task is None and tfds:
        task = tfds.removeprefix("glue/").split("_")[0]
    if not task:
        raise ValueError(f"--task is missing: expected one of {', '.join(TASKS)}.")
    plain = task.lower()
    if plain.replace("-", "") in GLUE_NAMES:
        plain = plain.replace("-", "")
    if plain not in TASKS:
        known = ", ".join(TASKS)
        raise ValueError(
            f"--task={task} is unknown{flag_fields.nearest(plain, TASKS)}: expected one of {known}."
        )
    if plain == "ax":
        raise ValueError(
            "--task=ax has no examples to train on: train --task=mnli, which predicts it too where "
            "--data_dir has its file."
        )
    if tfds is not None and tfds != f"glue/{plain}":
        raise ValueError(f"--tfds={tfds} contradicts --task={task}: expected --tfds=glue/{plain}.")
    return plain


# === Data ===


def _resolve_data(wanted: dict[str, Any], given: Mapping[str, Any]) -> None:
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
        wanted["test_has_labels"] = task in LABELLED_TESTS
    if "dev_fraction" in given and wanted["dev_file"]:
        raise ValueError("--dev_file is what is evaluated on: leave --dev_fraction out.")
    if task in KINDS:
        _resolve_columns(wanted, given)
    wanted["text_columns"] = wanted["text_columns"] or []


def _resolve_columns(wanted: dict[str, Any], given: Mapping[str, Any]) -> None:
    task, kind = wanted["task"], KINDS[wanted["task"]]
    if not _reads_table(task, wanted["train_file"]):
        named = {"text_columns", "label_column", "id_column", *(f for f, _ in kind.others.values())}
        for name in sorted(named & given.keys()):
            raise ValueError(
                f"--{name} names a column, and {wanted['train_file']} is no table: expected a "
                f"name that ends in {', '.join(SUFFIXES)}."
            )
        return
    columns = list(wanted["text_columns"] or kind.default_texts)
    label = wanted["label_column"] or kind.default_label
    least, most = kind.num_texts
    if not least <= len(columns) <= most:
        raise ValueError(
            f"--task={task} needs --text_columns={kind.text_form}, the columns of "
            f"{wanted['train_file']} to read; got {','.join(columns) or 'none'}."
        )
    if not label:
        raise ValueError(
            f"--task={task} needs --label_column, the column of {wanted['train_file']} to learn."
        )
    if not holds_values(wanted["train_file"]):
        for name, what in kind.needed_of_texts.items():
            if not wanted[name]:
                raise ValueError(
                    f"--task={task} needs --{name}, the column of {wanted['train_file']} {what}."
                )
    wanted["text_columns"], wanted["label_column"] = columns, label
    wanted["delimiter"] = check_delimiter(wanted["delimiter"])


def check_delimiter(delimiter: str | None) -> str | None:
    """What a flag says that separates the columns of a table, as one character."""
    found = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
    if found is not None and (len(found) != 1 or found in '"\r\n'):
        raise ValueError(
            f"--delimiter={delimiter}: expected one character, such as ';', or tab, and no quote."
        )
    return found


# === Training ===


def _resolve_training(wanted: dict[str, Any], given: Mapping[str, Any]) -> None:
    epochs = wanted["num_train_epochs"]
    if epochs != int(epochs) or epochs < 1:
        raise ValueError(f"--num_train_epochs={epochs:g}: expected a whole number of 1 or more.")
    wanted["num_train_epochs"] = int(epochs)
    if not wanted["learning_rate"] > 0:
        raise ValueError(f"--learning_rate={wanted['learning_rate']:g}: expected more than 0.")
    if wanted["max_seq_length"] is None:
        wanted["max_seq_length"] = KINDS[TASKS[wanted["task"]]].max_seq_length
    _resolve_schedule(wanted, given)
    evaluates = wanted["task"] in GLUE_NAMES or wanted["dev_file"] or wanted["dev_fraction"] > 0
    if not evaluates:
        for name in (*_NEED_EVALUATION, "feature_based"):
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
    _check_grid(wanted, given)
    _check_metric(wanted)
    if wanted["sweep"]:
        swept = [name for name in _SWEPT if name in given]
        if swept:
            raise ValueError(
                f"--sweep={wanted['sweep']} chooses --{swept[0]} itself: leave it out."
            )


def _check_metric(wanted: Mapping[str, Any]) -> None:
    """Whether the kind has the score; whether it has the class, only the data say."""
    name, kind = wanted["metric"], KINDS[TASKS[wanted["task"]]]
    if name is None or name in kind.metrics:
        return
    of_class = [f"{metric}_CLASS" for metric in CLASS_METRICS] if kind.class_metrics else []
    if not any(name.startswith(metric.removesuffix("CLASS")) for metric in of_class):
        raise ValueError(
            f"--metric={name} is no score of --task={wanted['task']}"
            f"{flag_fields.nearest(name, dict.fromkeys(kind.metrics))}: expected one of "
            f"{', '.join((*kind.metrics, *of_class))}."
        )


def _resolve_schedule(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    flag_fields.check_ranges(FineTuningSettings, wanted)
    size, parts = wanted["train_batch_size"], wanted["gradient_accumulation_steps"]
    if size % parts:
        raise ValueError(
            f"--train_batch_size={size} is not a multiple of --gradient_accumulation_steps={parts}."
        )
    if wanted["max_steps"] is None:
        return
    for name in ("num_train_epochs", "sweep"):
        if name in given:
            raise ValueError(f"--max_steps and --{name} both set the schedule: give one of them.")


def _parse_setting(name: str, text: str) -> Any:
    values = flags.FlagValues()
    define_flags(values)
    return values[name].parser.parse(text)


def _check_grid(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Whether every combination is one that a run could have."""
    if wanted["grid"] is None:
        if wanted["trials"] is not None:
            raise ValueError("--trials are drawn from --grid, which is not given.")
        return
    if wanted["sweep"]:
        raise ValueError("--grid and --sweep both choose settings: give one of them.")
    found = combinations(wanted["grid"], wanted["trials"], wanted["seed"], _parse_setting)
    for name in found[0]:
        if name in given:
            raise ValueError(f"--grid chooses --{name} itself: leave it out.")
        if name == "num_train_epochs" and wanted["max_steps"]:
            raise ValueError("--max_steps and --grid both set the schedule: give one of them.")
    for values in found:
        _resolve_training({**wanted, **values, "grid": None, "trials": None}, {})


# === A smaller model ===


def _resolve_student(wanted: dict[str, Any], given: Mapping[str, Any]) -> None:
    """The layers become whole numbers, ascending."""
    names = [str(number) for number in wanted["init_layers"] or ()]
    if not all(name.isdecimal() and name.isascii() and len(name) < 7 for name in names) or (
        "init_layers" in given and not names
    ):
        raise ValueError(
            f"--init_layers={','.join(names)}: expected numbers of blocks, counted from 0, as 0,5."
        )
    layers = [int(name) for name in names]
    if any(one >= other for one, other in itertools.pairwise(layers)):
        raise ValueError(f"--init_layers={','.join(names)}: expected each block once, ascending.")
    wanted["init_layers"] = layers or None
    if not wanted["teacher"]:
        for name in ("distillation_weight", "distillation_temperature"):
            if name in given:
                raise ValueError(f"--{name} is for --teacher, which is not given: leave it out.")


# === Frozen features ===


def _resolve_feature_based(wanted: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Some defaults are others with ``--feature_based``; it becomes the variants, or ``None``."""
    names = wanted["feature_based"]
    if names is None:
        if "lstm_units" in given:
            raise ValueError(
                "--lstm_units is the width of --feature_based's BiLSTM, which is not asked for: "
                "leave it out."
            )
        return
    for name in names:
        if name not in (*PAPERS_F1, _ALL):
            raise ValueError(
                f"--feature_based={name} is unknown{flag_fields.nearest(name, PAPERS_F1)}: "
                f"expected {', '.join(PAPERS_F1)}, several of them, or {_ALL}."
            )
    if not names:
        raise ValueError(f"--feature_based is empty: expected {', '.join(PAPERS_F1)} or {_ALL}.")
    for name in _OF_FINE_TUNING:
        if name in given:
            raise ValueError(
                f"--{name} is for fine-tuning, and with --feature_based the whole encoder is "
                "frozen: leave it out."
            )
    wanted["feature_based"] = ",".join(name for name in PAPERS_F1 if name in names or _ALL in names)
    for name, value in _DEFAULTS.items():
        if name not in given:
            wanted[name] = value
    if "export" in given and wanted["export"]:
        raise ValueError(
            "--export writes no SavedModel of --feature_based's BiLSTM: leave it out, and use "
            "python -m bert_tf.predict or bert_tf.load."
        )
    wanted["export"] = False
