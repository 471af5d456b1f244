"""The rules of fine-tuning's flags, each named where ``settings`` has its flag.

A rule is as ``cli.flag_rules`` says: what is wrong, in a sentence, or "".
"""

from collections.abc import Sequence

from bert_tf.choices import LONG_TEXTS, SIMILARITY_LOSSES
from bert_tf.cli.flag_fields import nearest
from bert_tf.cli.flag_rules import Given, Rule, Values, refuses, within, without
from bert_tf.evaluation.scores import CLASS_METRICS
from bert_tf.readers.glue import glue_task
from bert_tf.tasks.kinds import FEATURE_BASED, GLUE_NAMES, KINDS, TASKS, having_flag, tasks_of

ALL_FEATURES = "all"

SHARE = within(lambda value: 0 <= value < 1, "from 0 to below 1")
FILES = tuple(task for task in TASKS if task not in GLUE_NAMES)
_FIRST = LONG_TEXTS[0]


# === Which tasks a flag is for ===


def for_tasks(*tasks: str) -> Rule:
    """The flag means something only to some tasks."""
    return refuses(
        lambda _, values: values["task"] not in tasks,
        "--{flag} means nothing to --task={task}: leave it out "
        f"(it is for {', '.join(tasks)}).",
        if_given=True,
    )


def for_kinds(name: str, values: Values, given: Given) -> str:
    """The flag means something only to the kinds whose rows name it."""
    kinds = having_flag(name)
    # Only tables of a user's own are read in a way that is said.
    is_of_tables = any(name == flag for kind in kinds for flag, _ in kind.others.values())
    tasks = [kind.name for kind in kinds]
    if not is_of_tables:
        tasks = [task for kind in kinds for task in tasks_of(kind.name)]
    return for_tasks(*tasks)(name, values, given)


# === Data ===

ONE_SOURCE = refuses(
    lambda data_dir, values: (
        values["task"] in GLUE_NAMES and (data_dir is None) == (values["tfds"] is None)
    ),
    "--task={task} reads its files from --data_dir=FOLDER or by --tfds=glue/{task}: give one of "
    "them.",
)
TO_TRAIN_ON = refuses(
    lambda path, values: values["task"] in FILES and not path,
    "--task={task} needs a --{flag} to train on.",
)


def _text_columns(values: Values) -> Sequence[str]:
    glue = GLUE_NAMES.get(values["task"])
    return glue_task(glue).text_columns if glue else values["text_columns"] or ()


def of_single_texts(name: str, values: Values, given: Given) -> str:
    """No pairs of texts, where the flag asks for what is of single ones."""
    value, columns = values[name], _text_columns(values)
    if value in (False, _FIRST) or len(columns) < 2:
        return ""
    flag = name if value is True else f"{name}={value}"
    return (
        f"--{flag} is for single texts, and here are two ({', '.join(columns)}): leave it out; of "
        "a pair that is too long the longer text is cut at its end."
    )


# === Few examples ===

OF_MEANS = refuses(
    lambda is_on, values: is_on and values["pooling"] == "cls",
    "--{flag} reads the mean or the maximum over a text's tokens: leave --pooling=cls out.",
)
WITHOUT_OTHER_HEADS = without(
    *("class_weights", "label_smoothing"),
    says="--{flag} fits its own head, and --{other} is for a head that is trained: leave one of "
    "the two out.",
)


OF_HEADS = refuses(
    lambda is_on, values: is_on and values["long_text"] != _FIRST,
    "--{flag} learns from the beginnings of texts: leave --long_text={long_text} out.",
)


# === Training ===


def _compares_rows(values: Values) -> bool:
    """The error of a cosine is that of one pair."""
    is_error = values["similarity_loss"] == SIMILARITY_LOSSES[1]
    return KINDS[TASKS[values["task"]]].embeds and not is_error


HAS_OTHERS = refuses(
    # A triple has a wrong text of its own.
    lambda size, values: (
        size == 1 and _compares_rows(values) and len(values["text_columns"] or ()) < 3
    ),
    "--{flag}={value}: a pair of --task={task} is compared with the others of its step, and alone "
    "teaches nothing: expected 2 or more.",
)
COMPARES_NO_ROWS = refuses(
    lambda parts, values: parts > 1 and _compares_rows(values),
    "--{flag}={value}: the loss compares the rows of a batch with each other, which parts cannot: "
    "leave it out, and give a --train_batch_size that fits, or --remat.",
)
WHOLE = refuses(
    lambda number, _: number is not None and not (number >= 1 and number % 1 == 0),
    "--{flag}={value:g}: expected a whole number of 1 or more.",
)


# === Frozen features ===

NOT_FROZEN = refuses(
    lambda _, values: values["feature_based"] is not None,
    "--{flag} is for fine-tuning, and with --feature_based the whole encoder is frozen: leave it "
    "out.",
    if_given=True,
)


def are_variants(name: str, values: Values, given: Given) -> str:
    """The names are those of choices of layers."""
    variants = values[name]
    if variants is not None and not variants:
        return f"--{name} is empty: expected {', '.join(FEATURE_BASED)} or {ALL_FEATURES}."
    wrong = next((v for v in variants or () if v not in (*FEATURE_BASED, ALL_FEATURES)), "")
    return wrong and (
        f"--{name}={wrong} is unknown{nearest(wrong, FEATURE_BASED)}: expected "
        f"{', '.join(FEATURE_BASED)}, several of them, or {ALL_FEATURES}."
    )


# === Evaluation and several runs ===


def _evaluates(values: Values) -> bool:
    return bool(values["task"] in GLUE_NAMES or values["dev_file"] or values["dev_fraction"] > 0)


_GIVE_DEV = "give --dev_file, or a --dev_fraction above 0."
ON_DEV = refuses(
    lambda value, values: bool(value) and not _evaluates(values),
    f"--{{flag}} needs something to evaluate on: {_GIVE_DEV}",
)
KEEPS_BEST = refuses(
    lambda runs, values: runs > 1 and not _evaluates(values),
    f"--{{flag}} keeps the best on a dev set: {_GIVE_DEV}",
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
