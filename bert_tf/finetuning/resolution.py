"""From the flags that are given to a fine-tuning's settings: what is left out, what is read."""

from collections.abc import Mapping
from typing import Any

from absl import flags

from bert_tf.cli import flag_fields
from bert_tf.cli.flag_rules import check
from bert_tf.readers.tables import SUFFIXES, TableFile, check_delimiter
from bert_tf.tasks.options import GLUE_NAMES
from bert_tf.tasks.registry import KINDS, tasks
from bert_tf.tasks.task import Task

from .settings import FineTuningSettings, flag_defaults, tasks_having

# The settings that every kind has.
_COMMON = frozenset(FineTuningSettings.__dataclass_fields__)


def settings_from_flags(values: flags.FlagValues = flags.FLAGS) -> FineTuningSettings:
    """The settings that the parsed flags ask for."""
    given = {name for name in values if values[name].present}
    return resolve({name: values[name].value for name in flag_defaults() if name in given})


def resolve(given: Mapping[str, Any]) -> FineTuningSettings:
    """The settings of a run for which some flags are given; flags that contradict are an error."""
    values = {**flag_defaults(), **given}
    values["task"] = task = _task(values["task"], values["tfds"])
    kind = tasks()[task]
    for name in given:
        if task not in (known := tasks_having(name)):
            raise ValueError(
                f"--{name} means nothing to --task={task}: leave it out (it is for "
                f"{', '.join(known)})."
            )
    check(FineTuningSettings, values, given)
    check(kind.Options, values, given)
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
    options = {
        name: values.get(name, field.default) for name, field in kind.option_fields().items()
    }
    common = {name: values[name] for name in values if name in _COMMON}
    return FineTuningSettings(**common, options=kind.settled(kind.Options(**options)))


def _task(task: str | None, tfds: str | None) -> str:
    if task is None and tfds:
        task = tfds.removeprefix("glue/").split("_")[0]
    if not task:
        raise ValueError(f"--task is missing: expected one of {', '.join(tasks())}.")
    plain = task.lower()
    if plain.replace("-", "") in GLUE_NAMES:
        plain = plain.replace("-", "")
    if plain not in tasks():
        raise ValueError(
            f"--task={task} is unknown{flag_fields.nearest(plain, tasks())}: expected one of "
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
    if kind.reads_own_form and not kind.is_table(values["train_file"] or ""):
        columns_of = {"text_columns", "label_column", "id_column", *kind.table_options()}
        for name in sorted(columns_of & given.keys()):
            raise ValueError(
                f"--{name} names a column, and {values['train_file']} is no table: expected a "
                f"name that ends in {', '.join(SUFFIXES)}."
            )
        return
    columns = list(values["text_columns"] or kind.default_texts)
    label = values["label_column"] or kind.default_label
    least, most = kind.num_texts
    if not least <= len(columns) <= most:
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
    if fault := kind.table_fault(values, TableFile(values["train_file"])):
        raise ValueError(fault)
    values["text_columns"], values["label_column"] = columns, label
    values["delimiter"] = check_delimiter(values["delimiter"])
