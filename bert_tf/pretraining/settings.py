"""The flags of ``python -m bert_tf.pretrain``, and the settings that they resolve to."""

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, get_args

from absl import flags

from bert_tf import choices
from bert_tf.cli import flag_fields as flag
from bert_tf.cli.flag_fields import choice, integer, number, string, switch, words
from bert_tf.config import PRESETS, BertConfig

from .recipes import RECIPES, recipe_flags

# How settings may change when a run resumes; others stay as the run began. docs/guides/resuming.md
# has the same table.
MAY_CHANGE = {
    # They do not change data, model or schedule, or by rounding alone.
    choices.FREELY: {
        *("model_dir", "strategy", "tpu", "deterministic", "max_eval_steps", "remat"),
        *("save_checkpoints_steps", "keep_checkpoints", "cache_dir", "jit_compile"),
        *("worker_hosts", "task_index", "worker_wait_minutes"),
        *("eval_batch_size", "export", "dry_run"),
    },
    # A run's weights, moments and place in the data still mean the same: that is said and kept.
    choices.SCHEDULE: {
        *("num_train_steps", "num_warmup_steps", "learning_rate", "gradient_accumulation_steps"),
    },
    # They name files whose contents a run keeps the fingerprints of.
    choices.PATH: {"input", "eval_input", "vocab_file", "bert_config", "init_checkpoint"},
}

_MASKING_FLAGS = ("max_predictions_per_seq", "masked_lm_prob", "masking", "mask_split")
# Flags that TFRecords were made with, and tell themselves.
_RECORD_FLAGS = ("masked_lm_prob", "masking", "mask_split", "short_seq_prob")


def _reads_records(values: flag.Values) -> bool:
    return bool(values["input_format"] == "tfrecord")


def _conflicts_with_left_to_right(name: str, values: flag.Values, given: flag.Given) -> str:
    """From one side nothing is masked, and nothing follows."""
    if (objective := values[name]) == "mlm":
        return ""
    if values["nsp"] and "nsp" in given:
        return (
            f"--objective={objective} goes without next-sentence prediction, as in the paper "
            "(section 5.1, LTR & No NSP): leave --nsp out."
        )
    masks = " and ".join(f"--{each}" for each in _MASKING_FLAGS if each in given)
    return masks and (
        f"--objective={objective} masks nothing, every token predicts the one beside it: leave "
        f"{masks} out."
    )


def _predicts_without_pairs(name: str, values: flag.Values, given: flag.Given) -> str:
    if values[name] or not (values["nsp"] and "nsp" in given):
        return ""
    return "--pairs=false leaves no next sentences to predict: leave --nsp out."


def _needs_text(reads: Callable[[Any], bool], named: str = "--{flag}={value}") -> flag.Rule:
    """The flag's value does not contradict rows that were made of text before."""
    return flag.rule(
        lambda value, values: reads(value) and _reads_records(values),
        f"{named} reads text, and --input_format=tfrecord holds masked rows: give --input the text "
        "that they were made of, or leave the flag out.",
    )


_HAS_ONE_LENGTH = flag.rule(
    lambda phases, values: (
        _reads_records(values)
        and len({part.partition(":")[0] for part in (phases or "").split(",")}) > 1
    ),
    "--{flag}={value} has several lengths, and rows of --input_format=tfrecord have one: give it "
    "by --max_seq_length, and train on records of each length in a run of their own.",
)
_IS_WITHIN_STEPS = flag.rule(
    lambda steps, values: steps is not None and steps > values["num_train_steps"],
    "--{flag}={value} is more than --num_train_steps={num_train_steps}.",
)
_IS_PRESET = flag.rule(
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

    # Of google-research/bert's scripts.
    other_names: ClassVar = {
        "input_file": "input",
        "output_dir": "model_dir",
        "bert_config_file": "bert_config",
        "tpu_name": "tpu",
        "random_seed": "seed",
    }

    input: Sequence[str] = words(
        (),
        "Train on these text files, names and globs with commas, on any file system that "
        "TensorFlow reads, gzip too; without it and --tfds, on the documentation of this Python "
        "installation.",
        heading="What every run needs",
    )
    recipe: str = choice(
        "default",
        list(RECIPES),
        "Set the flags that are not given by a recipe, and print them: default (the defaults "
        "listed here), the paper's bert_base or bert_large, five_minutes (where there is neither a "
        "corpus nor weights) or hour.",
    )
    bert_config: str = string(
        "bert-tiny",
        "Train a model of this preset (bert-tiny, -mini, -small, -medium, -base, -large, or one "
        "of the 24 miniatures, such as bert-L4-H256) or bert_config.json.",
        rules=[_IS_PRESET],
    )
    init_checkpoint: str | None = string(
        None,
        "Start from these weights instead of random ones, with their config, vocabulary and "
        f"casing: {flag.WEIGHTS}.",
        rules=[
            flag.conflicts_with(
                *("bert_config", "vocab_size"),
                says="--{flag} says its own --{other}: leave the flag out.",
            )
        ],
    )
    model_dir: str = string(
        "runs/pretrain", "Keep the run in this directory; the same command resumes it."
    )
    dry_run: bool = switch(False, "Print what the run would cost, and write nothing.")
    input_format: str | None = choice(
        None,
        (*choices.INPUT_FORMATS, "tfrecord"),
        "Read the input as google (a sentence a line, a blank line ends a document), "
        "wikiextractor (<doc> elements), prose (a file is a document), jsonl (a document a line, "
        "in its 'text') or tfrecord (Google's examples), instead of as its name and first lines "
        "say.",
        heading="Data",
    )
    tfds: str | None = string(
        None,
        "Train on this text dataset of TensorFlow Datasets, alone or next to --input.",
        rules=[_needs_text(lambda name: name is not None)],
        advanced=True,
    )
    eval_input: Sequence[str] = words(
        (), "Evaluate on these files instead of on documents held out of the input."
    )
    held_out_fraction: float = number(
        0.01,
        "Hold out this share of the documents for the evaluation, at least one document; with 0 "
        "there is no evaluation without --eval_input.",
        rules=[flag.within(lambda share: 0 <= share < 1, "of 0 or more and below 1")],
        advanced=True,
    )
    vocab_file: str | None = string(
        None,
        "Use this vocabulary, one piece a line, instead of learning one from the input.",
        rules=[
            flag.conflicts_with(
                "vocab_size", says="--{flag} has a size of its own: leave --{other} out."
            )
        ],
    )
    vocab_size: int | None = integer(
        None,
        "Learn this many pieces, by default 8,000, or as many as a JSON --bert_config has room "
        "for.",
        min_value=6,
    )
    do_lower_case: bool | None = switch(
        None,
        "Lower-case the text and strip accents (uncased), by default true, or as "
        "--init_checkpoint says.",
    )
    special_tokens_in_texts: bool | None = flag.special_tokens(
        "--init_checkpoint does, else they are parted"
    )
    max_predictions_per_seq: int | None = integer(
        None,
        "Mask at most this many tokens of a row, by default --masked_lm_prob of a full row.",
        min_value=1,
        heading="Rows and masks",
        advanced=True,
    )
    masked_lm_prob: float = number(
        0.15,
        "Mask this share of a row's tokens.",
        rules=[flag.within(lambda share: 0 < share <= 1, "above 0 and not above 1")],
        advanced=True,
    )
    short_seq_prob: float = number(
        0.1,
        "Cut this share of the documents to a random shorter length.",
        rules=[flag.within(lambda share: 0 <= share <= 1, "from 0 to 1")],
        advanced=True,
    )
    masking: choices.Masking = choice(  # noqa: RUF009
        "token",
        get_args(choices.Masking),
        "Mask single pieces, as in the paper (token), or all pieces of a word (whole_word).",
    )
    mask_split: str = string(
        ",".join(map(str, choices.MASK_SPLIT)),
        "Replace so many percent of the tokens to predict by [MASK], by a random token, and by "
        "themselves.",
        advanced=True,
    )
    nsp: bool = switch(
        True, "Train next-sentence prediction; --nsp=false keeps the pairs and drops this loss."
    )
    pairs: bool = switch(
        True,
        "Make rows of two texts, the second one random in about half; --pairs=false makes rows of "
        "one text, without next-sentence prediction.",
        rules=[_needs_text(lambda pairs: not pairs, "--pairs=false"), _predicts_without_pairs],
        advanced=True,
    )
    objective: choices.Objective = choice(  # noqa: RUF009
        "mlm",
        get_args(choices.Objective),
        "Predict masked tokens from both sides (mlm), or each next token from those before it, "
        "without masks and next sentences (ltr).",
        rules=[_needs_text(lambda objective: objective != "mlm"), _conflicts_with_left_to_right],
        advanced=True,
    )
    config_overrides: Sequence[str] = words(
        (),
        "Change these values of the config, such as hidden_dropout_prob=0,num_attention_heads=8.",
        heading="Model",
        advanced=True,
    )
    precision: str = flag.precision(
        "bfloat16 computes matrix products in bfloat16, faster where the processor or the card "
        "has it, and keeps weights and sums in float32."
    )
    num_train_steps: int = integer(
        3600, "Train for this many steps in all.", min_value=1, heading="Training"
    )
    num_warmup_steps: int = integer(
        None,
        "Let the rate rise over this many steps, by default a tenth of all.",
        min_value=0,
        rules=[_IS_WITHIN_STEPS],
        advanced=True,
    )
    train_batch_size: int = integer(
        16,
        "Take this many rows in a step, over all replicas.",
        min_value=1,
        rules=[flag.divided_by("gradient_accumulation_steps")],
    )
    gradient_accumulation_steps: int = integer(
        1, "Compute a step in this many parts, one after the other, to save memory.", min_value=1
    )
    learning_rate: float = number(
        1e-3,
        "Let the rate rise to this, and then fall; the paper's for bert-base is 1e-4.",
        rules=[flag.IS_RATE],
    )
    optimizer: str = choice(
        "adam",
        choices.OPTIMIZERS,
        "adam is Google's, without bias correction; adamw has it; lamb is for batches of "
        "thousands of rows.",
        advanced=True,
    )
    weight_decay: float = number(
        0.01,
        "Let weights, except biases and LayerNorm, decay by this share of the rate in each step.",
        rules=[flag.within(lambda decay: 0 <= decay < math.inf, "of 0 or more")],
        advanced=True,
    )
    adam_beta_2: float = number(
        0.999,
        "Let the optimizer's mean of squared gradients forget all but this share in each step.",
        rules=[flag.within(lambda beta: 0 <= beta < 1, "of 0 or more and below 1")],
        advanced=True,
    )
    phases: str = string(
        None,
        "Train on these lengths of rows for these shares of the steps, as in the paper's "
        "128:0.9,512:0.1; 128:0.9:20,512:0.1:76 also says the most predictions of a row.",
        rules=[flag.mutually_exclusive("set the length", "max_seq_length"), _HAS_ONE_LENGTH],
    )
    equal_tokens: bool = switch(
        False,
        "Take more rows in the steps of shorter --phases, so that all steps have about as many "
        "tokens.",
        advanced=True,
    )
    seed: int = integer(
        12345, "Draw everything random from this seed.", min_value=0, max_value=2**32 - 1
    )

    # Hardware, saving, logging: free to differ when a run is started again
    strategy: str = choice(
        "auto",
        (*choices.STRATEGIES, "multi_worker"),
        "Use every GPU of this machine (mirrored), one device (one_device), the GPUs of all "
        "workers that --worker_hosts or TF_CONFIG names (multi_worker), or what the machine has "
        "or the workers named (auto).",
        heading="Machines",
    )
    worker_hosts: Sequence[str] = words(
        (),
        "Train on several machines, the HOST:PORT of each with commas, the first one the chief, or "
        "slurm (slurm:PORT, by default 2222) for those of srun's tasks; whoever reaches these "
        "ports can read and write files as this user.",
    )
    task_index: int | None = integer(
        None, "Be this one of the HOST:PORT of --worker_hosts, counted from 0.", min_value=0
    )
    worker_wait_minutes: float = number(
        10,
        "Wait so long for all workers to come.",
        rules=[flag.within(lambda minutes: 0 < minutes < math.inf, "above 0")],
        advanced=True,
    )
    tpu: str | None = string(
        None, "Train on this TPU: its name, grpc://HOST:PORT, or local on a TPU VM."
    )
    deterministic: bool = switch(
        False, "Use operations of a GPU that repeat bit for bit, and are slower.", advanced=True
    )
    jit_compile: str = choice(
        "auto",
        choices.XLA_CHOICES,
        f"{flag.JIT_COMPILE}; a TPU compiles everything.",
        advanced=True,
    )
    remat: bool = switch(False, flag.REMAT)
    save_checkpoints_steps: int = integer(
        1000,
        "Save a checkpoint every so many steps, where ten minutes do not pass before.",
        min_value=1,
        heading="Saving and evaluation",
        advanced=True,
    )
    keep_checkpoints: int = integer(
        3, "Keep this many of the newest checkpoints.", min_value=1, advanced=True
    )
    eval_batch_size: int = integer(
        64, "Evaluate this many rows at once.", min_value=1, advanced=True
    )
    max_eval_steps: int = integer(
        200, "End the final evaluation after this many batches.", min_value=1, advanced=True
    )
    export: bool = switch(True, "Write a SavedModel to MODEL_DIR/export/1, for TensorFlow Serving.")
    cache_dir: str | None = string(
        None,
        "Keep the index of the input here, with blocks of JSON lines and large gzip files, "
        "instead of in MODEL_DIR/corpus.",
        advanced=True,
    )

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

    @property
    def files(self) -> dict[str, str | Sequence[str] | None]:
        """The paths to read, by flag."""
        names = MAY_CHANGE[choices.PATH] - (
            {"bert_config"} if self.bert_config in PRESETS else set()
        )
        return {f"--{name}": getattr(self, name) for name in sorted(names)}

    def may_change(self, is_finished: bool) -> Mapping[str, Collection[str]]:
        """The settings that may change, by how; those of TFRecords, and of a finished run."""
        freely, paths = MAY_CHANGE[choices.FREELY], MAY_CHANGE[choices.PATH]
        if self.input_format == "tfrecord":  # of which no contents are compared
            paths = paths - {"input", "eval_input"}
        if is_finished:  # nothing is left to train by another schedule
            return {choices.FREELY: freely | {"gradient_accumulation_steps"}, choices.PATH: paths}
        return {**MAY_CHANGE, choices.PATH: paths}

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class RowLength:
    """The flag that becomes ``phases``."""

    max_seq_length: int = integer(
        128,
        "Make rows of this many tokens, [CLS] and [SEP] included; --phases has several lengths.",
        heading="Length of rows",
    )


#: What declares the flags.
DECLARATIONS = (PretrainingSettings, RowLength)


def settings_from_flags(
    parsed: flags.FlagValues = flags.FLAGS,
) -> tuple[PretrainingSettings, list[str]]:
    """The settings that the parsed flags ask for, and sentences on flags that are unusual."""
    defaults = flag.defaults(PretrainingSettings)
    values = {name: parsed[name].value for name in defaults}
    given = {name for name in defaults if parsed[name].present}
    length = parsed["max_seq_length"]
    has_source = values["input"] or values["tfds"] or values["init_checkpoint"]
    if not (has_source or parsed["recipe"].present):
        values["recipe"] = "five_minutes"
    values |= recipe_flags(values["recipe"], given | {"phases"} if length.present else given)
    names = [os.path.basename(path) for path in values["input"]]
    if values["input_format"] is None and names and all(".tfrecord" in name for name in names):
        values["input_format"] = "tfrecord"
    named = given | {"max_seq_length"} if length.present else given
    flag.check(PretrainingSettings, {**values, "max_seq_length": length.value}, named)
    if values["phases"] is None:
        values["phases"] = f"{length.value}:1"
    values["nsp"] &= values["pairs"]
    if values["objective"] != "mlm":
        values |= {name: defaults[name] for name in _MASKING_FLAGS} | {"nsp": False}
    if values["num_warmup_steps"] is None:
        values["num_warmup_steps"] = values["num_train_steps"] // 10
    if values["init_checkpoint"]:
        values["bert_config"] = ""
    elif values["do_lower_case"] is None:
        values["do_lower_case"] = True
    settings = PretrainingSettings(**values)
    _ = settings.replacement, settings.overrides, make_phases(settings)  # refuse what is no value
    notes = []
    if settings.input_format == "tfrecord":
        notes += [
            f"--{name} changes no row here: --input_format=tfrecord holds rows that are masked."
            for name in _RECORD_FLAGS
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


# === Phases: steps at one sequence length each, as --phases divides them ===


@dataclasses.dataclass(frozen=True)
class Phase:
    """A run of steps, from ``first_step`` to before ``last_step``, at one sequence length.

    A step has ``rows`` over all replicas, a row at most ``max_predictions``, where
    ``--phases`` names a number.
    """

    max_seq_length: int
    first_step: int
    last_step: int
    rows: int
    max_predictions: int | None = None


def make_phases(settings: PretrainingSettings) -> list[Phase]:
    """The phases of a run; with ``equal_tokens`` the shorter ones have more rows."""
    phases = parse_phases(settings.phases, settings.num_train_steps, settings.train_batch_size)
    if not settings.equal_tokens:
        return phases
    longest = max(phase.max_seq_length for phase in phases)
    return [
        dataclasses.replace(phase, rows=phase.rows * (longest // phase.max_seq_length))
        for phase in phases
    ]


def parse_phases(text: str, num_steps: int, rows: int) -> list[Phase]:
    """Divides the steps of a run among ``LENGTH:SHARE[:PREDICTIONS]``, whose shares add up to 1.

    The phases have no gaps; those left without a step are left out.
    """
    phases = []
    first, total = 0, 0.0
    for part in text.split(","):
        length, share, predictions = _parse_phase(text, part)
        total += share
        last = round(total * num_steps)
        if last > first:
            phases.append(Phase(length, first, last, rows, predictions))
        first = last
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise ValueError(f"--phases={text}: the shares add up to {total:g}, expected 1.")
    return phases


def _parse_phase(text: str, part: str) -> tuple[int, float, int | None]:
    length, *rest = part.split(":")
    share, *max_value = rest or ["1"]
    try:
        phase = int(length), float(share), int(":".join(max_value)) if max_value else None
        if phase[0] < 1 or not 0.0 <= phase[1] <= 1.0 or (max_value and int(max_value[0]) < 1):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"--phases={text}: expected LENGTH:SHARE pairs such as 128:0.9,512:0.1, or "
            "LENGTH:SHARE:PREDICTIONS, lengths and predictions of 1 or more and shares between 0 "
            f"and 1, got {part!r}."
        ) from None
    return phase
