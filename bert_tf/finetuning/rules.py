"""The rules of fine-tuning's flags, each named where ``settings`` has its flag.

A rule is as ``cli.flag_rules`` says: what is wrong, in a sentence, or "".
"""

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli.flag_fields import nearest
from bert_tf.cli.flag_rules import Rule, within
from bert_tf.metrics.formulas import CLASS_METRICS
from bert_tf.readers.glue_tasks import glue_task

from .kinds import GLUE_NAMES, KINDS, TASKS, having_flag, tasks_of

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
ALL_FEATURES = "all"

Values = Mapping[str, Any]
Given = Collection[str]
SHARE = within(lambda value: 0 <= value < 1, "from 0 to below 1")
TABLES = tuple(KINDS)
FILES = tuple(task for task in TASKS if task not in GLUE_NAMES)
_LEAVE = " means nothing to --task={task}: leave it out (it is for {tasks})."


def for_tasks(*tasks: str) -> Rule:
    """The flag means something only to some tasks."""

    def rule(name: str, values: Values, given: Given) -> str:
        task = values["task"]
        if name not in given or task in tasks:
            return ""
        return f"--{name}" + _LEAVE.format(task=task, tasks=", ".join(tasks))

    return rule


def for_kinds(name: str, values: Values, given: Given) -> str:
    """The flag means something only to the kinds whose rows name it."""
    kinds = having_flag(name)
    # Only tables of a user's own are read in a way that is said.
    is_of_tables = any(name == flag for kind in kinds for flag, _ in kind.others.values())
    tasks = [kind.name for kind in kinds]
    if not is_of_tables:
        tasks = [task for kind in kinds for task in tasks_of(kind.name)]
    return for_tasks(*tasks)(name, values, given)


def evaluates(values: Values) -> bool:
    """Whether there is something to evaluate on."""
    return bool(values["task"] in GLUE_NAMES or values["dev_file"] or values["dev_fraction"] > 0)


def on_dev(name: str, values: Values, given: Given) -> str:
    """The flag needs something to evaluate on."""
    if not values[name] or evaluates(values):
        return ""
    return f"--{name} needs something to evaluate on: give --dev_file, or a --dev_fraction above 0."


def keeps_best(name: str, values: Values, given: Given) -> str:
    """Several runs need something to evaluate on."""
    if values[name] == 1 or evaluates(values):
        return ""
    return f"--{name} keeps the best on a dev set: give --dev_file, or a --dev_fraction above 0."


def one_source(name: str, values: Values, given: Given) -> str:
    """GLUE's files come from one place."""
    task = values["task"]
    if task not in GLUE_NAMES or (values["data_dir"] is None) != (values["tfds"] is None):
        return ""
    return (
        f"--task={task} reads its files from --data_dir=FOLDER or by --tfds=glue/{task}: give one "
        "of them."
    )


def to_train_on(name: str, values: Values, given: Given) -> str:
    """A user's own task has a file to train on."""
    task = values["task"]
    if task in GLUE_NAMES or values[name]:
        return ""
    return f"--task={task} needs a --{name} to train on."


def whole(name: str, values: Values, given: Given) -> str:
    """The number is whole, and at least 1."""
    number = values[name]
    if number == int(number) and number >= 1:
        return ""
    return f"--{name}={number:g}: expected a whole number of 1 or more."


def of_single_texts(name: str, values: Values, given: Given) -> str:
    """Only single texts are read otherwise than from their beginning."""
    form, glue = values[name], GLUE_NAMES.get(values["task"])
    columns = glue_task(glue).text_columns if glue else values["text_columns"] or ()
    if form == LONG_TEXTS[0] or len(columns) < 2:
        return ""
    return (
        f"--{name}={form} is for single texts, and here are two ({', '.join(columns)}): leave it "
        "out; of a pair that is too long the longer text is cut at its end."
    )


def of_beginnings(name: str, values: Values, given: Given) -> str:
    """Only texts that are read from their beginning are explained."""
    form = values["long_text"]
    if not values[name] or form == LONG_TEXTS[0]:
        return ""
    return (
        f"--{name} explains texts that are read from their beginning: leave it out, or "
        f"--long_text={form}."
    )


def is_score(name: str, values: Values, given: Given) -> str:
    """The kind has the score; whether it has the class, only the data say."""
    score, kind = values[name], KINDS[TASKS[values["task"]]]
    if score is None or score in kind.metrics:
        return ""
    of_class = [f"{metric}_CLASS" for metric in CLASS_METRICS] if kind.class_metrics else []
    if any(score.startswith(metric.removesuffix("CLASS")) for metric in of_class):
        return ""
    return (
        f"--{name}={score} is no score of --task={values['task']}"
        f"{nearest(score, dict.fromkeys(kind.metrics))}: expected one of "
        f"{', '.join((*kind.metrics, *of_class))}."
    )


def are_blocks(name: str, values: Values, given: Given) -> str:
    """The numbers of blocks ascend."""
    blocks = [str(number) for number in values[name] or ()]
    shown = f"--{name}={','.join(blocks)}"
    if not all(block.isdecimal() and block.isascii() and len(block) < 7 for block in blocks) or (
        name in given and not blocks
    ):
        return f"{shown}: expected numbers of blocks, counted from 0, as 0,5."
    if any(int(one) >= int(other) for one, other in itertools.pairwise(blocks)):
        return f"{shown}: expected each block once, ascending."
    return ""


def teaches(name: str, values: Values, given: Given) -> str:
    """A teacher that counts nothing teaches nothing."""
    if values["distillation_weight"] or not values[name]:
        return ""
    return (
        f"--distillation_weight=0: nothing would be learned of --{name}: leave it out, or give a "
        "weight above 0."
    )


def are_variants(name: str, values: Values, given: Given) -> str:
    """The names are those of choices of layers."""
    variants = values[name]
    if variants is None:
        return ""
    if not variants:
        return f"--{name} is empty: expected {', '.join(PAPERS_F1)} or {ALL_FEATURES}."
    for variant in variants:
        if variant not in (*PAPERS_F1, ALL_FEATURES):
            return (
                f"--{name}={variant} is unknown{nearest(variant, PAPERS_F1)}: expected "
                f"{', '.join(PAPERS_F1)}, several of them, or {ALL_FEATURES}."
            )
    return ""


def of_blocks(default: float) -> Rule:
    """With LoRA the blocks stay as they are, and the flag at its default."""

    def rule(name: str, values: Values, given: Given) -> str:
        if not values["lora_rank"] or values[name] == default:
            return ""
        return (
            f"--{name} is for training the blocks, which --lora_rank leaves as they are: leave one "
            "of the two out."
        )

    return rule


def not_frozen(name: str, values: Values, given: Given) -> str:
    """What fine-tuning does to an encoder."""
    if name not in given or values["feature_based"] is None:
        return ""
    return (
        f"--{name} is for fine-tuning, and with --feature_based the whole encoder is frozen: leave "
        "it out."
    )


def has_signatures(name: str, values: Values, given: Given) -> str:
    """A tagger on frozen features is not exported."""
    if name not in given or not values[name] or values["feature_based"] is None:
        return ""
    return (
        f"--{name} writes no SavedModel of --feature_based's BiLSTM: leave it out, and use python "
        "-m bert_tf.predict or bert_tf.load."
    )


def is_search(name: str, values: Values, given: Given) -> str:
    """The flag needs several runs."""
    searches = ("sweep", "grid", "folds", "feature_based")
    if values[name] is None or values["restarts"] > 1 or any(values[flag] for flag in searches):
        return ""
    return (
        f"--{name} is for several runs, and one is asked for: leave it out, or give --grid, "
        "--restarts or --folds."
    )
