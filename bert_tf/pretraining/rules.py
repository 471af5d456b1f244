"""The rules of pre-training's flags, each named where ``settings`` has its flag.

A rule is as ``cli.flag_rules`` says: what is wrong, in a sentence, or "".
"""

from collections.abc import Sequence

from bert_tf.cli.flag_rules import Given, Values, refuses
from bert_tf.config import PRESETS, BertConfig

OF_MASKS = ("max_predictions_per_seq", "masked_lm_prob", "masking", "mask_split")
# Flags that TFRecords were made with, and tell themselves.
OF_ROWS = ("masked_lm_prob", "masking", "mask_split", "short_seq_prob")
# Keys of a config that decide the shapes of the weights.
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


def has_sizes(name: str, values: Values, given: Given) -> str:
    """A checkpoint has its own sizes."""
    sizes = overridden(values[name]).keys() & _SIZES
    if not (values["init_checkpoint"] and sizes):
        return ""
    return (
        f"--{name}={','.join(values[name])}: --init_checkpoint says its own {min(sizes)}, which "
        "its weights have: leave it out."
    )
