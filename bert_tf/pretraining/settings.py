"""The flags of ``python -m bert_tf.pretrain``, and the settings that they resolve to."""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, get_args

from absl import flags

from bert_tf.choices import INPUT_FORMATS, OPTIMIZERS, PRECISIONS, STRATEGIES, Masking, Objective
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import choice, integer, number, string, switch, words
from bert_tf.cli.flag_rules import (
    Given,
    Rule,
    Values,
    check,
    divided_by,
    one_of,
    refuses,
    within,
    without,
)
from bert_tf.config import PRESETS, BertConfig

from .recipes import EQUAL_TOKENS, RECIPES, Phase, from_recipe, parse_phases

# Settings that do not change data, model or schedule, or by rounding alone. All that are neither
# here, nor in PATHS, nor in SCHEDULE, stay as a run began. docs/resuming.md has the same tables.
MAY_DIFFER = frozenset(
    {
        *("model_dir", "strategy", "tpu", "deterministic", "max_eval_steps", "remat"),
        *("save_checkpoints_steps", "keep_checkpoints", "cache_dir", "jit_compile"),
        *("worker_hosts", "task_index", "eval_batch_size", "export", "dry_run"),
    }
)

# Settings under which a run's weights, moments and place in the data still mean the same: they may
# differ from the newest checkpoint on, which is said and kept.
SCHEDULE = frozenset(
    {"num_train_steps", "num_warmup_steps", "learning_rate", "gradient_accumulation_steps"}
)

# Settings that name files whose contents a run keeps the fingerprints of.
PATHS = frozenset({"input", "eval_input", "vocab_file", "bert_config", "init_checkpoint"})

_ALIASES = {
    "input_file": "input",
    "output_dir": "model_dir",
    "bert_config_file": "bert_config",
    "tpu_name": "tpu",
    "random_seed": "seed",
}
_OF_MASKS = ("max_predictions_per_seq", "masked_lm_prob", "masking", "mask_split")
# Flags that TFRecords were made with, and tell themselves.
_OF_ROWS = ("masked_lm_prob", "masking", "mask_split", "short_seq_prob")


def _holds_records(values: Values) -> bool:
    return bool(values["input_format"] == "tfrecord")


def _contradicts_one_direction(name: str, values: Values, given: Given) -> str:
    """From one side nothing is masked, and nothing follows."""
    if (objective := values[name]) == "mlm":
        return ""
    if values["nsp"] and "nsp" in given:
        return (
            f"--objective={objective} goes without next-sentence prediction, as in the paper "
            "(section 5.1, LTR & No NSP): leave --nsp out."
        )
    masks = " and ".join(f"--{flag}" for flag in _OF_MASKS if flag in given)
    return masks and (
        f"--objective={objective} masks nothing, every token predicts the one beside it: leave "
        f"{masks} out."
    )


def _predicts_without_pairs(name: str, values: Values, given: Given) -> str:
    if values[name] or not (values["nsp"] and "nsp" in given):
        return ""
    return "--pairs=false leaves no next sentences to predict: leave --nsp out."


def _needs_text(reads: Callable[[Any], bool], named: str = "--{flag}={value}") -> Rule:
    """The flag's value does not contradict rows that were made of text before."""
    return refuses(
        lambda value, values: reads(value) and _holds_records(values),
        f"{named} reads text, and --input_format=tfrecord holds masked rows: give --input the text "
        "that they were made of, or leave the flag out.",
    )


_HAS_LENGTHS = refuses(
    lambda phases, values: (
        _holds_records(values)
        and len({part.partition(":")[0] for part in (phases or "").split(",")}) > 1
    ),
    "--{flag}={value} has several lengths, and rows of --input_format=tfrecord have one: give it "
    "by --max_seq_length, and train on records of each length in a run of their own.",
)
_IS_WITHIN_STEPS = refuses(
    lambda steps, values: steps is not None and steps > values["num_train_steps"],
    "--{flag}={value} is more than --num_train_steps={num_train_steps}.",
)
_IS_PRESET = refuses(
    lambda config, values: (
        not (values["init_checkpoint"] or config in PRESETS or config.endswith(".json"))
    ),
    "--{flag}={value} is neither a preset (bert-tiny, bert-base, bert-L4-H256 ...) nor a .json "
    "file.",
)


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """Every flag but two, its value resolved.

    With ``init_checkpoint``, ``bert_config`` is empty and ``do_lower_case`` may be ``None``: the
    checkpoint says both, once it is opened.
    """

    input: Sequence[str] = words(
        (),
        "Text files: names and globs, separated by commas, on any file system that TensorFlow "
        "reads; gzip allowed. Without it and --tfds, the documentation of this Python installation "
        "becomes a sample corpus.",
        heading="Data",
    )
    input_format: str | None = choice(
        None,
        (*INPUT_FORMATS, "tfrecord"),
        "google: one sentence a line, a blank line ends a document. wikiextractor: <doc> elements. "
        "prose: a file is a document, a blank line ends a paragraph. jsonl: a document a line, in "
        "its 'text'. tfrecord: examples that Google's create_pretraining_data made. By default "
        "recognised by the name (.tfrecord) or the first lines.",
    )
    tfds: str | None = string(
        None,
        "A text dataset of TensorFlow Datasets, alone or next to --input.",
        rules=[_needs_text(lambda name: name is not None)],
    )
    eval_input: Sequence[str] = words(
        (), "Files to evaluate on, instead of documents held out of the input."
    )
    held_out_fraction: float = number(
        0.01,
        "The share of documents held out for evaluation, at least one document; 0: no evaluation "
        "without --eval_input.",
        rules=[within(lambda share: 0 <= share < 1, "0 or more and below 1")],
    )
    vocab_file: str | None = string(
        None,
        "A vocabulary, one piece a line. Without it one is learned from the input.",
        rules=[without("vocab_size", says="--{flag} has a size of its own: leave --{other} out.")],
    )
    vocab_size: int | None = integer(
        None,
        "How many pieces to learn, without --vocab_file; by default 8,000, or what a JSON "
        "--bert_config has room for.",
        least=6,
    )
    do_lower_case: bool | None = switch(
        None,
        "Lower-case the text and strip accents (uncased); true by default, or what "
        "--init_checkpoint says.",
    )
    max_predictions_per_seq: int | None = integer(
        None,
        "The most masked tokens in a row; by default --masked_lm_prob of a full row.",
        least=1,
        heading="Rows and masks",
    )
    masked_lm_prob: float = number(
        0.15,
        "The share of a row's tokens to mask.",
        rules=[within(lambda share: 0 < share <= 1, "above 0 and not above 1")],
    )
    short_seq_prob: float = number(
        0.1,
        "The share of documents cut to a random shorter length.",
        rules=[within(lambda share: 0 <= share <= 1, "from 0 to 1")],
    )
    masking: Masking = choice(  # noqa: RUF009
        "token",
        get_args(Masking),
        "What is masked at once: single pieces as in the paper, or words.",
    )
    mask_split: str = string(
        "80,10,10",
        "What replaces the tokens to predict, in percent: [MASK], a random token, the token "
        "itself.",
    )
    nsp: bool = switch(
        True, "Train next-sentence prediction. --nsp=false keeps the pairs and drops this loss."
    )
    pairs: bool = switch(
        True,
        "Rows of two texts, the second one random in about half; --pairs=false: rows of one text, "
        "without next-sentence prediction. The embedding of segment B then stays untrained, "
        "though MRPC, QNLI and SQuAD use it.",
        rules=[_needs_text(lambda pairs: not pairs, "--pairs=false"), _predicts_without_pairs],
    )
    objective: Objective = choice(  # noqa: RUF009
        "mlm",
        get_args(Objective),
        "What is predicted. mlm: masked tokens, from both sides. ltr: each next token, from those "
        "before it only, without masks and next sentences (the ablation in section 5.1 of the "
        "paper).",
        rules=[_needs_text(lambda objective: objective != "mlm"), _contradicts_one_direction],
    )

    recipe: str = choice(
        "default",
        list(RECIPES),
        "The values of all flags that are not given. default: those listed here, for small models. "
        "bert_base, bert_large: the paper's pre-training. five_minutes, the default without a "
        "corpus or weights to start from: a small model that learns much in five minutes on two "
        "cores. hour: the same for text of your own and about an hour. What a recipe sets is "
        "printed.",
        heading="Model",
    )
    bert_config: str = string(
        "bert-tiny",
        "A preset (bert-tiny, -mini, -small, -medium, -base, -large, or any of the 24 miniatures, "
        "bert-L4-H256 for example), or a bert_config.json.",
        rules=[_IS_PRESET],
    )
    config_overrides: Sequence[str] = words(
        (),
        "Values of the config that differ from the preset's, for example "
        "hidden_dropout_prob=0,num_attention_heads=8.",
    )
    init_checkpoint: str | None = string(
        None,
        "Start from these weights instead of random ones, with their config, vocabulary and "
        "casing: a directory of this library, of Hugging Face, Google, Model Garden or KerasHub, "
        "a .keras file, hf://OWNER/NAME of the Hugging Face hub, or tiny, which bert_tf ships.",
        rules=[
            without(
                *("bert_config", "vocab_size"),
                says="--{flag} says its own --{other}: leave the flag out.",
            )
        ],
    )
    precision: str = choice(
        "float32",
        PRECISIONS,
        "bfloat16: matrix products in bfloat16, weights and sums in float32; faster where the "
        "processor or the card has it.",
    )

    num_train_steps: int = integer(3600, "Steps of the whole run.", least=1, heading="Training")
    num_warmup_steps: int = integer(
        None,
        "Steps until the rate is highest; by default a tenth of all.",
        least=0,
        rules=[_IS_WITHIN_STEPS],
    )
    train_batch_size: int = integer(
        16,
        "Rows in a step, over all replicas.",
        least=1,
        rules=[divided_by("gradient_accumulation_steps")],
    )
    gradient_accumulation_steps: int = integer(
        1, "How many parts to split a batch into, to save memory.", least=1
    )
    learning_rate: float = number(
        1e-3,
        "The highest rate. The paper's, for bert-base: 1e-4.",
        rules=[within(lambda rate: 0 < rate < math.inf, "above 0")],
    )
    optimizer: str = choice(
        "adam",
        OPTIMIZERS,
        "adam: Google's, without bias correction; lamb: for batches of thousands of rows.",
    )
    weight_decay: float = number(
        0.01,
        "The decay of the weights, except biases and LayerNorm, per unit of the rate. 0: none.",
        rules=[within(lambda decay: 0 <= decay < math.inf, "0 or more")],
    )
    phases: str = string(
        None,
        "Sequence lengths and their shares of the steps: 128:0.9,512:0.1 is the paper's schedule; "
        "128:0.9:20,512:0.1:76 says the most predictions of a row, too.",
        rules=[one_of("set the length", "max_seq_length"), _HAS_LENGTHS],
    )
    seed: int = integer(12345, "The seed of everything random.", least=0, most=2**32 - 1)

    # Hardware, saving, logging: free to differ when a run is started again
    strategy: str = choice(
        "auto",
        (*STRATEGIES, "multi_worker"),
        "mirrored: every GPU of this machine. multi_worker: the GPUs of all workers that "
        "--worker_hosts or TF_CONFIG names. auto: what the machine has, or the workers named.",
        heading="Machines",
    )
    worker_hosts: Sequence[str] = words(
        (),
        "For a run on several machines: HOST:PORT of every worker, separated by commas, the same "
        "list on each. The first one is the chief, which alone writes. --model_dir and the input "
        "must be on a disk that all of them share. Whoever reaches these ports can read and write "
        "files as this user: let only the workers reach them. TF_CONFIG does the same.",
    )
    task_index: int | None = integer(
        None, "Which of --worker_hosts this process is, from 0.", least=0
    )
    tpu: str | None = string(None, "A TPU's name, grpc://HOST:PORT, or local on a TPU VM.")
    deterministic: bool = switch(
        False, "On a GPU: use operations that repeat bit for bit, and are slower."
    )
    jit_compile: str = choice(
        "auto",
        ("auto", "true", "false"),
        "Compile the step with XLA. auto: on a GPU, not on a CPU, where nothing is gained; a "
        "TPU compiles everything. Results differ only by rounding and by dropout's draws, so a "
        "run that resumes with another setting is not the same bit for bit.",
    )
    remat: bool = switch(False, flag_fields.REMAT)
    model_dir: str = string("runs/pretrain", "Where the run keeps everything.")
    save_checkpoints_steps: int = integer(
        1000,
        "Steps between two checkpoints, where ten minutes do not pass before.",
        least=1,
        heading="Saving and evaluation",
    )
    keep_checkpoints: int = integer(3, "How many of the newest checkpoints to keep.", least=1)
    eval_batch_size: int = integer(64, "Rows in an evaluation batch.", least=1)
    max_eval_steps: int = integer(200, "The most batches of the final evaluation.", least=1)
    export: bool = switch(True, "Write a SavedModel to MODEL_DIR/export/1, for TensorFlow Serving.")
    cache_dir: str | None = string(
        None,
        "Where the index of the input is kept, with blocks of JSON lines and large gzip files.",
    )
    dry_run: bool = switch(False, "Print what the run would cost, and write nothing.")

    @property
    def replacement(self) -> tuple[float, float]:
        """The shares of the tokens to predict that become [MASK], and a random token."""
        try:
            mask, random, same = map(float, self.mask_split.split(","))
        except ValueError:
            mask = random = same = math.nan
        if not (min(mask, random, same) >= 0 and math.isclose(mask + random + same, 100)):
            raise ValueError(
                f"--mask_split={self.mask_split}: expected three percentages that add up to 100, "
                "of [MASK], of random tokens and of tokens that stay, such as 80,10,10."
            )
        return mask / 100, random / 100

    @property
    def overrides(self) -> dict[str, Any]:
        """The fields of the config that ``config_overrides`` names, of the fields' types."""
        types = {name: type(value) for name, value in BertConfig().to_dict().items()}
        del types["vocab_size"]  # the vocabulary's
        values = {}
        for text in self.config_overrides:
            name, _, value = text.partition("=")
            try:
                values[name] = types[name](value)
            except (KeyError, ValueError):
                raise ValueError(
                    f"--config_overrides={','.join(self.config_overrides)}: expected NAME=VALUE, "
                    f"such as hidden_dropout_prob=0, with a name out of {', '.join(types)}, got "
                    f"{text!r}."
                ) from None
            if self.init_checkpoint and types[name] is int:
                raise ValueError(
                    f"--config_overrides={','.join(self.config_overrides)}: --init_checkpoint says "
                    f"its own {name}, which its weights have: leave it out."
                )
        return values

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags; not on import, as a program in Python may have some of the same."""
    flag_fields.define_flags(PretrainingSettings, values, _ALIASES)
    # It becomes ``phases``.
    flags.DEFINE_integer(
        "max_seq_length",
        128,
        "Tokens in a row, [CLS] and [SEP] included. See also --phases.",
        flag_values=values,
    )
    flag_fields.HEADINGS["max_seq_length"] = "Short for --phases"


def settings_from_flags(
    parsed: flags.FlagValues = flags.FLAGS,
) -> tuple[PretrainingSettings, list[str]]:
    """The settings that the parsed flags ask for, and sentences on flags that are unusual."""
    defaults = flag_fields.defaults(PretrainingSettings)
    values = {name: parsed[name].value for name in defaults}
    given = {name for name in defaults if parsed[name].present}
    length = parsed["max_seq_length"]
    has_source = values["input"] or values["tfds"] or values["init_checkpoint"]
    if not (has_source or parsed["recipe"].present):
        values["recipe"] = "five_minutes"
    values |= from_recipe(values["recipe"], given | {"phases"} if length.present else given)
    names = [os.path.basename(path) for path in values["input"]]
    if values["input_format"] is None and names and all(".tfrecord" in name for name in names):
        values["input_format"] = "tfrecord"
    named = given | {"max_seq_length"} if length.present else given
    check(PretrainingSettings, {**values, "max_seq_length": length.value}, named)
    if values["phases"] is None:
        values["phases"] = f"{length.value}:1"
    values["nsp"] &= values["pairs"]
    if values["objective"] != "mlm":
        values |= {name: defaults[name] for name in _OF_MASKS} | {"nsp": False}
    if values["num_warmup_steps"] is None:
        values["num_warmup_steps"] = values["num_train_steps"] // 10
    if values["init_checkpoint"]:
        values["bert_config"] = ""
    elif values["do_lower_case"] is None:
        values["do_lower_case"] = True
    settings = PretrainingSettings(**values)
    _ = settings.replacement, settings.overrides, phases_of(settings)  # refuse what is no value
    notes = []
    if settings.input_format == "tfrecord":
        notes += [
            f"--{name} changes no row here: --input_format=tfrecord holds rows that are masked."
            for name in _OF_ROWS
            # Without a number of predictions the share says how many a row of the records has.
            if name in given and (name != "masked_lm_prob" or settings.max_predictions_per_seq)
        ]
    rate = defaults["learning_rate"]
    if settings.init_checkpoint and settings.learning_rate == rate:
        notes.append(
            f"--learning_rate={rate:g}, the default, is for weights that begin at random: trained "
            "weights mostly want less, such as 5e-5."
        )
    return settings, notes


def phases_of(settings: PretrainingSettings) -> list[Phase]:
    """The phases of a run; by a recipe of equal tokens the shorter ones have more rows."""
    phases = parse_phases(settings.phases, settings.num_train_steps, settings.train_batch_size)
    if settings.recipe not in EQUAL_TOKENS:
        return phases
    longest = max(phase.max_seq_length for phase in phases)
    return [
        dataclasses.replace(phase, rows=phase.rows * (longest // phase.max_seq_length))
        for phase in phases
    ]
