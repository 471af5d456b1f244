"""From the flags that are given to a fine-tuning's settings: what is left out, what contradicts."""

import itertools
from collections.abc import Mapping
from typing import Any

from absl import flags

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli import flag_fields
from bert_tf.metrics.formulas import CLASS_METRICS
from bert_tf.readers.glue_tasks import glue_task
from bert_tf.readers.tables import SUFFIXES, holds_values

from .grid import combinations
from .kinds import CONLL_TASKS, GLUE_NAMES, KINDS, LABELLED_TESTS, TASKS, having_flag, tasks_of
from .settings import (
    ALL_FEATURES,
    FEATURES_DEFAULTS,
    PAPERS_F1,
    WITHOUT_MEANING,
    FineTuningSettings,
    flag_defaults,
    is_in_tables,
    parse_setting,
)

# What fine-tuning does to an encoder.
_OF_FINE_TUNING = (
    *("freeze", "sweep", "layer_decay", "lora_rank", "bilstm", "pooling"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
)


_FILES = tuple(task for task in TASKS if task not in GLUE_NAMES)
# The tasks that a flag means something to; all others mean something to every task.
_MEANT_FOR = {
    **dict.fromkeys(("data_dir", "tfds"), tuple(GLUE_NAMES)),
    **dict.fromkeys(
        ("train_file", "dev_file", "test_file", "test_has_labels", "dev_fraction", "folds"), _FILES
    ),
    **dict.fromkeys(("text_columns", "label_column", "id_column", "delimiter"), tuple(KINDS)),
    "encoding": (*KINDS, *CONLL_TASKS),
    "document_context": CONLL_TASKS,
    **{
        flag: tuple(task for kind in having_flag(flag) for task in tasks_of(kind.name))
        for kind in KINDS.values()
        for flag in kind.all_flags
    },
    # Only tables of a user's own are read in a way that is said.
    **{
        flag: tuple(kind.name for kind in having_flag(flag))
        for kind in KINDS.values()
        for flag, _ in kind.others.values()
    },
}
_NEED_EVALUATION = ("early_stopping_epochs", "eval_steps", "metric", "sweep", "grid")
_SWEPT = ("train_batch_size", "learning_rate", "num_train_epochs")


def settings_from_flags(
    values: flags.FlagValues = flags.FLAGS,
) -> tuple[FineTuningSettings, list[str]]:
    """The settings that the parsed flags ask for, and a sentence for each flag that is ignored."""
    given = {name for name in values if values[name].present}
    settings = resolve({name: values[name].value for name in flag_defaults() if name in given})
    return settings, flag_fields.ignored(values, WITHOUT_MEANING)


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
    _check_long_text(wanted)
    _resolve_feature_based(wanted, given)
    _resolve_training(wanted, given)
    _resolve_student(wanted, given)
    wanted["model_dir"] = wanted["model_dir"] or f"runs/{task}"
    settings = FineTuningSettings(**wanted)
    if "max_search_hours" in given and not settings.is_search:
        raise ValueError(
            "--max_search_hours is for several runs, and one is asked for: leave it out, or give "
            "--grid, --restarts or --folds."
        )
    return settings


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
    if wanted["folds"]:
        for name in ("dev_file", "dev_fraction", "teacher", "feature_based"):
            if given.get(name) is not None:
                raise ValueError(
                    f"--folds evaluates on each part of --train_file, and --{name} is not for "
                    "that: leave one of the two out."
                )
    if "dev_fraction" in given and wanted["dev_file"]:
        raise ValueError("--dev_file is what is evaluated on: leave --dev_fraction out.")
    if task in KINDS:
        _resolve_columns(wanted, given)
    wanted["text_columns"] = wanted["text_columns"] or []


def _resolve_columns(wanted: dict[str, Any], given: Mapping[str, Any]) -> None:
    task, kind = wanted["task"], KINDS[wanted["task"]]
    if not is_in_tables(task, wanted["train_file"]):
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
        if wanted["character_spans"]:
            raise ValueError(
                f"--character_spans reads lists of entities, and {wanted['train_file']} holds "
                "texts: expected a table in .jsonl, .json or .parquet."
            )
        for name, what in kind.needed_of_texts.items():
            if not wanted[name]:
                raise ValueError(
                    f"--task={task} needs --{name}, the column of {wanted['train_file']} {what}."
                )
    wanted["text_columns"], wanted["label_column"] = columns, label
    wanted["delimiter"] = check_delimiter(wanted["delimiter"])


def _check_long_text(wanted: Mapping[str, Any]) -> None:
    task, form = wanted["task"], wanted["long_text"]
    glue = GLUE_NAMES.get(task)
    columns = glue_task(glue).text_columns if glue else wanted["text_columns"]
    if form != LONG_TEXTS[0] and wanted["explain_errors"]:
        raise ValueError(
            "--explain_errors explains texts that are read from their beginning: leave it out, or "
            f"--long_text={form}."
        )
    if form != LONG_TEXTS[0] and len(columns) > 1:
        raise ValueError(
            f"--long_text={form} is for single texts, and here are two ({', '.join(columns)}): "
            "leave it out; of a pair that is too long the longer text is cut at its end."
        )


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
    for name, default in (("freeze", 0), ("layer_decay", 1.0)):
        if wanted["lora_rank"] and wanted[name] != default:
            raise ValueError(
                f"--{name} is for training the blocks, which --lora_rank leaves as they are: leave "
                "one of the two out."
            )
    if wanted["bilstm"] and wanted["pooling"]:
        raise ValueError("--pooling and --bilstm both say what the head reads: leave one out.")
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


def _check_grid(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Whether every combination is one that a run could have."""
    if wanted["grid"] is None:
        if wanted["trials"] is not None:
            raise ValueError("--trials are drawn from --grid, which is not given.")
        return
    if wanted["sweep"]:
        raise ValueError("--grid and --sweep both choose settings: give one of them.")
    found = combinations(wanted["grid"], wanted["trials"], wanted["seed"], parse_setting)
    for name in found[0]:
        if name in given:
            raise ValueError(f"--grid chooses --{name} itself: leave it out.")
        if name == "num_train_epochs" and wanted["max_steps"]:
            raise ValueError("--max_steps and --grid both set the schedule: give one of them.")
        if wanted["task"] not in _MEANT_FOR.get(name, TASKS) or (
            name.startswith("distillation") and not wanted["teacher"]
        ):
            raise ValueError(
                f"--grid: {name} means nothing to --task={wanted['task']} without what it is for: "
                "leave it out."
            )
        if name in _OF_FINE_TUNING and wanted["feature_based"]:
            raise ValueError(f"--grid: {name} is for fine-tuning, not for --feature_based.")
    for values in found:
        own = {**wanted, **values, "grid": None, "trials": None}
        _resolve_training(own, {})
        _check_unlabelled(own)


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
        for name in ("distillation_weight", "distillation_temperature", "unlabelled_file"):
            if name in given:
                raise ValueError(f"--{name} is for --teacher, which is not given: leave it out.")
    _check_unlabelled(wanted)


def _check_unlabelled(wanted: Mapping[str, Any]) -> None:
    if wanted["unlabelled_file"] and not wanted["distillation_weight"]:
        raise ValueError(
            "--distillation_weight=0: nothing would be learned of --unlabelled_file: leave it out, "
            "or give a weight above 0."
        )


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
        if name not in (*PAPERS_F1, ALL_FEATURES):
            raise ValueError(
                f"--feature_based={name} is unknown{flag_fields.nearest(name, PAPERS_F1)}: "
                f"expected {', '.join(PAPERS_F1)}, several of them, or {ALL_FEATURES}."
            )
    if not names:
        raise ValueError(
            f"--feature_based is empty: expected {', '.join(PAPERS_F1)} or {ALL_FEATURES}."
        )
    for name in _OF_FINE_TUNING:
        if name in given:
            raise ValueError(
                f"--{name} is for fine-tuning, and with --feature_based the whole encoder is "
                "frozen: leave it out."
            )
    wanted["feature_based"] = ",".join(
        name for name in PAPERS_F1 if name in names or ALL_FEATURES in names
    )
    for name, value in FEATURES_DEFAULTS.items():
        if name not in given:
            wanted[name] = value
    if "export" in given and wanted["export"]:
        raise ValueError(
            "--export writes no SavedModel of --feature_based's BiLSTM: leave it out, and use "
            "python -m bert_tf.predict or bert_tf.load."
        )
    wanted["export"] = False
