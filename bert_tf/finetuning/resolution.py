"""From the flags that are given to a fine-tuning's settings: what is left out, what is read."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import flags

from bert_tf import paths
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_rules import check
from bert_tf.readers.examples import BadRows
from bert_tf.readers.glue import glue_task
from bert_tf.readers.tables import SUFFIXES, TableFile, check_delimiter, read_columns
from bert_tf.tasks.kinds import FEATURE_BASED, GLUE_NAMES, KINDS, TASKS

from .rules import ALL_FEATURES
from .settings import (
    FEATURES_DEFAULTS,
    FEW_SHOT_DEFAULTS,
    FineTuningSettings,
    flag_defaults,
    is_in_tables,
)


def settings_from_flags(values: flags.FlagValues = flags.FLAGS) -> FineTuningSettings:
    """The settings that the parsed flags ask for."""
    given = {name for name in values if values[name].present}
    return resolve({name: values[name].value for name in flag_defaults() if name in given})


def resolve(given: Mapping[str, Any]) -> FineTuningSettings:
    """The settings of a run for which some flags are given; flags that contradict are an error."""
    wanted = {**flag_defaults(), **given}
    wanted["task"] = task = _task(wanted["task"], wanted["tfds"])
    check(FineTuningSettings, wanted, given)
    if task in KINDS:
        _resolve_columns(wanted, given)
    wanted["text_columns"] = wanted["text_columns"] or []
    if wanted["max_seq_length"] is None:
        wanted["max_seq_length"] = KINDS[TASKS[task]].max_seq_length
    wanted["model_dir"] = wanted["model_dir"] or f"runs/{task}"
    if wanted["feature_based"]:
        wanted |= _on_frozen_features(wanted, given)
    if wanted["few_shot"]:
        wanted |= {name: v for name, v in FEW_SHOT_DEFAULTS.items() if name not in given}
    if wanted["num_train_epochs"] is not None:
        wanted["num_train_epochs"] = int(wanted["num_train_epochs"])
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
    if twice := next((name for name in columns if [*columns, label].count(name) > 1), None):
        raise ValueError(
            f"--text_columns and --label_column name {twice} twice: expected a column for each "
            "text, and another for the label."
        )
    if not label and not kind.label_is_optional:
        raise ValueError(
            f"--task={task} needs --label_column, the column of {wanted['train_file']} to learn."
        )
    if not TableFile(wanted["train_file"]).holds_values:
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


def _on_frozen_features(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that ``--feature_based`` changes; the flag becomes the names of its variants."""
    names = wanted["feature_based"]
    variants = [name for name in FEATURE_BASED if name in names or ALL_FEATURES in names]
    defaults = {name: value for name, value in FEATURES_DEFAULTS.items() if name not in given}
    return {**defaults, "feature_based": ",".join(variants)}


# === Tables ===


def table_columns(settings: FineTuningSettings) -> dict[str, Any]:
    """The arguments that name columns, of the reader of the task's tables; {} without a table."""
    if settings.glue:
        return {"text_columns": list(glue_task(settings.glue).text_columns), "label_column": None}
    if not settings.reads_table:
        return {}
    kind = settings.kind
    return {
        **kind.named_texts(settings.text_columns),
        kind.label: settings.label_column,
        **{name: getattr(settings, flag) for name, (flag, _) in kind.others.items()},
        "id_column": settings.id_column,
    }


def check_tables(settings: FineTuningSettings) -> None:
    """Refuses a table that is empty or lacks a column, before anything that takes seconds.

    Nothing is refused here with ``skip_bad_rows``, which leaves a row without a column out, and
    where the run's directory is there: a finished run is shown whatever became of its files.
    """
    columns = table_columns(settings)
    is_new = not os.path.isdir(settings.model_dir)
    if not is_new or settings.glue or settings.skip_bad_rows or not columns:
        return
    ids = [*_names(columns, settings.kind.texts), settings.id_column]
    # What else names columns, as where an answer starts, may be of labelled files alone.
    labelled = [*ids, *_names(columns, [settings.kind.label, *settings.kind.others])]
    tables = [
        (settings.train_file, labelled),
        (settings.dev_file, labelled),
        (settings.test_file, ids),
    ]
    for path, names in tables:
        if path and paths.local_path(path) is not None and paths.is_file(path):
            table = TableFile(path, settings.encoding, settings.delimiter)
            next(read_columns(table, names, BadRows(path, skip=False)), None)


def _names(columns: Mapping[str, Any], arguments: Iterable[str]) -> Iterator[str | None]:
    """The columns that some arguments of a reader name; of others, as a separator, nothing."""
    for argument in arguments:
        if argument.endswith("_column"):
            yield columns[argument]
        elif argument.endswith("_columns"):
            yield from columns[argument]
