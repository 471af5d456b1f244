"""The rules of pre-training's flags, each named where ``settings`` has its flag.

A rule is as ``cli.flag_rules`` says: what is wrong, in a sentence, or "".
"""

from collections.abc import Sequence

from bert_tf.cli.flag_rules import Given, Values, refuses
from bert_tf.config import PRESETS, BertConfig
from bert_tf.untrusted import quote

# Settings that may differ where --change names them: those under which a run's weights, moments and
# place in the data still mean the same.
BY_CHANGE = frozenset(
    {
        *("num_train_steps", "num_warmup_steps", "learning_rate", "train_batch_size", "precision"),
        *("weight_decay", "clip_norm", "adam_beta_2", "adam_epsilon", "config_overrides"),
    }
)
OF_MASKS = ("max_predictions_per_seq", "masked_lm_prob", "masking", "mask_split")
# What TFRecords were made with, and say themselves.
OF_ROWS = ("masked_lm_prob", "masking", "mask_split", "short_seq_prob")
# What in a config the shapes of the weights follow from.
_SIZES = frozenset(name for name, value in vars(BertConfig()).items() if type(value) is int)


def overridden(texts: Sequence[str]) -> dict[str, str]:
    """The values that ``--config_overrides`` names."""
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def one_direction(name: str, values: Values, given: Given) -> str:
    """From one side nothing is masked, and nothing follows."""
    if (objective := values[name]) == "mlm":
        return ""
    if values["input_format"] == "tfrecord":
        return (
            f"--objective={objective} reads text, and --input_format=tfrecord holds masked rows: "
            "give --input the text that they were made of."
        )
    if values["nsp"] and "nsp" in given:
        return (
            f"--objective={objective} goes without next-sentence prediction, as in the paper "
            "(section 5.1, LTR & No NSP): leave --nsp out."
        )
    masks = " and ".join(f"--{flag}" for flag in OF_MASKS if flag in given)
    return masks and (
        f"--objective={objective} masks nothing, every token predicts the one beside it: leave "
        f"{masks} out."
    )


def pairs(name: str, values: Values, given: Given) -> str:
    """Rows of one text have no next sentences, and records have their rows."""
    if values[name]:
        return ""
    if values["input_format"] == "tfrecord":
        without = "leave the flag out"
        if name not in given:
            without = f"give --pairs=true, as --recipe={values['recipe']} sets it"
        return (
            "--pairs=false makes rows of text, and --input_format=tfrecord holds rows: give "
            f"--input the text that they were made of, or {without}."
        )
    if values["nsp"] and "nsp" in given:
        return "--pairs=false leaves no next sentences to predict: leave --nsp out."
    return ""


IS_TEXT = refuses(
    lambda name, values: name is not None and values["input_format"] == "tfrecord",
    "--{flag}={value} is text, and --input_format=tfrecord holds rows: leave one of them out, or "
    "give --input the text that the rows were made of.",
)
HAS_LENGTHS = refuses(
    lambda phases, values: (
        values["input_format"] == "tfrecord"
        and len({part.partition(":")[0] for part in (phases or "").split(",")}) > 1
    ),
    "--{flag}={value} has several lengths, and rows of --input_format=tfrecord have one: give it "
    "by --max_seq_length, and train on records of each length in a run of their own.",
)
NEEDS_HOURS = refuses(
    lambda recipe, values: recipe == "budget" and not values["max_hours"],
    "--recipe=budget needs --max_hours, the time that the run may take.",
)
WITHIN_STEPS = refuses(
    lambda steps, values: steps is not None and steps > values["num_train_steps"],
    "--{flag}={value} is more than --num_train_steps={num_train_steps}.",
)
IS_PRESET = refuses(
    lambda config, values: (
        not (values["init_checkpoint"] or config in PRESETS or config.endswith(".json"))
    ),
    "--{flag}={value} is neither a preset (bert-tiny, bert-base, bert-L4-H256 ...) nor a .json "
    "file.",
)


def sets_schedule(name: str, values: Values, given: Given) -> str:
    """Hours and steps both set the schedule; a change may name its own."""
    others = {"num_train_steps", "num_warmup_steps"}.intersection(given).difference(
        values["change"]
    )
    if not (values[name] and others):
        return ""
    return f"--{name} and --{min(others)} both set the schedule: give one of them."


def has_sizes(name: str, values: Values, given: Given) -> str:
    """A checkpoint has its own sizes."""
    sizes = overridden(values[name]).keys() & _SIZES
    if not (values["init_checkpoint"] and sizes):
        return ""
    return (
        f"--{name}={','.join(values[name])}: --init_checkpoint says its own {min(sizes)}, which "
        "its weights have: leave it out."
    )


def may_change(name: str, values: Values, given: Given) -> str:
    """Only some flags may change, and each has its new value."""
    known = BY_CHANGE.intersection(given)
    wrong = next((flag for flag in values[name] if flag not in known), "")
    # What a run keeps of an earlier start is none that a user gives now.
    if name not in given or not wrong:
        return ""
    return (
        f"--{name}={','.join(values[name])}: expected flags out of {', '.join(sorted(BY_CHANGE))}, "
        f"each with its new value on the command line (--{wrong}=...), got {quote(wrong)}."
    )
