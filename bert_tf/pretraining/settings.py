"""Flags of ``python -m bert_tf.pretrain``, and the settings they resolve to."""

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

# Settings that may change when a run resumes; docs/guides/resuming.md has the same table.
MAY_CHANGE = {
    # These change results by rounding at most.
    choices.FREELY: {
        *("model_dir", "strategy", "tpu", "deterministic", "max_eval_steps", "remat"),
        *("save_checkpoints_steps", "keep_checkpoints", "cache_dir", "jit_compile"),
        *("worker_hosts", "task_index", "worker_wait_minutes"),
        *("eval_batch_size", "export", "dry_run"),
    },
    # Changing these invalidates neither the weights, the optimizer's moments nor the position in
    # the data; changes are printed and recorded.
    choices.SCHEDULE: {
        *("num_train_steps", "num_warmup_steps", "learning_rate", "gradient_accumulation_steps"),
    },
    # These are paths to files that are compared by fingerprint.
    choices.PATH: {"input", "eval_input", "vocab_file", "bert_config", "init_checkpoint"},
}

_MASKING_FLAGS = ("max_predictions_per_seq", "masked_lm_prob", "masking", "mask_split")
# Flags with no effect on TFRecords, which were written with their own values.
_RECORD_FLAGS = ("masked_lm_prob", "masking", "mask_split", "short_seq_prob")


def _reads_records(values: flag.Values) -> bool:
    return bool(values["input_format"] == "tfrecord")


def _conflicts_with_left_to_right(name: str, values: flag.Values, given: flag.Given) -> str:
    """Rejects next-sentence and masking flags for the left-to-right objective."""
    if (objective := values[name]) == "mlm":
        return ""
    if values["nsp"] and "nsp" in given:
        return (
            f"--objective={objective} excludes next-sentence prediction, as in the paper (section "
            "5.1, LTR & No NSP). Remove --nsp."
        )
    masks = " and ".join(f"--{mask}" for mask in _MASKING_FLAGS if mask in given)
    return masks and (
        f"--objective={objective} masks no tokens; each token predicts the next one. Remove "
        f"{masks}."
    )


def _predicts_without_pairs(name: str, values: flag.Values, given: flag.Given) -> str:
    if values[name] or not (values["nsp"] and "nsp" in given):
        return ""
    return "--pairs=false excludes next-sentence prediction. Remove --nsp."


def _needs_text(reads: Callable[[Any], bool], named: str = "--{flag}={value}") -> flag.Rule:
    """Rejects values that need text if the input is TFRecords."""
    return flag.rule(
        lambda value, values: reads(value) and _reads_records(values),
        f"{named} needs text, but TFRecord files (--input_format=tfrecord) contain rows that are "
        "already masked. Pass the original text as --input, or remove the flag.",
    )


_HAS_ONE_LENGTH = flag.rule(
    lambda phases, values: (
        _reads_records(values)
        and len({part.partition(":")[0] for part in (phases or "").split(",")}) > 1
    ),
    "--{flag}={value} has several lengths, but TFRecord files (--input_format=tfrecord) have one. "
    "Pass --max_seq_length, and train on the records of each length in a separate run.",
)
_IS_WITHIN_STEPS = flag.rule(
    lambda steps, values: steps is not None and steps > values["num_train_steps"],
    "--{flag}={value}: expected at most --num_train_steps={num_train_steps}.",
)
_IS_DIVIDED_BY_WORKERS = flag.rule(
    lambda rows, values: bool(rows % max(1, len(values["worker_hosts"] or ()))),
    "--{flag}={value}: expected a multiple of the number of --worker_hosts.",
)
_IS_PRESET = flag.rule(
    lambda config, values: (
        not (values["init_checkpoint"] or config in PRESETS or config.endswith(".json"))
    ),
    "--{flag}={value}: expected a preset such as bert-tiny, bert-base or bert-L4-H256, or a .json "
    "file.",
)


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """Resolved values of all flags except ``max_seq_length``.

    With ``init_checkpoint``, ``bert_config`` is empty and ``do_lower_case`` may be ``None``; the
    checkpoint defines both.
    """

    # Flag names of google-research/bert.
    other_names: ClassVar = {
        "input_file": "input",
        "output_dir": "model_dir",
        "bert_config_file": "bert_config",
        "tpu_name": "tpu",
        "random_seed": "seed",
    }

    input: Sequence[str] = words(
        (),
        "Text files to train on, plain or gzip: paths and globs, separated by commas, on any file "
        "system that TensorFlow supports; without --input and --tfds, the documentation of this "
        "Python installation is used.",
        heading="Basic options",
    )
    recipe: str = choice(
        "default",
        list(RECIPES),
        "Values for flags that you do not pass: default (the defaults listed here), bert_base or "
        "bert_large (the paper's values), five_minutes (used if you pass neither data nor weights) "
        "or hour (trains for about an hour on one core).",
    )
    bert_config: str = string(
        "bert-tiny",
        "Preset of the model (bert-tiny, -mini, -small, -medium, -base, -large, or one of the 24 "
        "miniatures, such as bert-L4-H256), or path to a bert_config.json.",
        rules=[_IS_PRESET],
    )
    init_checkpoint: str | None = string(
        None,
        f"Checkpoint with the initial weights, config, vocabulary and casing: {flag.WEIGHTS}.",
        rules=[
            flag.conflicts_with(
                *("bert_config", "vocab_size"),
                message="--{flag} sets --{other}. Remove --{other}.",
            )
        ],
    )
    model_dir: str = string("runs/pretrain", "Run directory; the same command resumes the run.")
    dry_run: bool = switch(False, "Print the cost of the run without training or writing files.")
    input_format: str | None = choice(
        None,
        (*choices.INPUT_FORMATS, "tfrecord"),
        "Format of the input: google (one sentence per line, blank lines between documents), "
        "wikiextractor (<doc> elements), prose (one document per file), jsonl (one document per "
        "line, under 'text') or tfrecord (Google's examples); by default detected from the file "
        "name and the first lines.",
        heading="Data",
    )
    tfds: str | None = string(
        None,
        "Text dataset from TensorFlow Datasets to train on, instead of or in addition to --input.",
        rules=[_needs_text(lambda name: name is not None)],
        advanced=True,
    )
    eval_input: Sequence[str] = words(
        (), "Files to evaluate on, instead of documents held out from the input."
    )
    held_out_fraction: float = number(
        0.01,
        "Fraction of the documents to hold out for evaluation, at least one document; 0 disables "
        "the evaluation unless --eval_input is passed.",
        rules=[flag.within(lambda fraction: 0 <= fraction < 1, "from 0 to below 1")],
        advanced=True,
    )
    vocab_file: str | None = string(
        None,
        "Vocabulary file, one piece per line, to use instead of learning a vocabulary.",
        rules=[
            flag.conflicts_with(
                "vocab_size", message="--{flag} defines the vocabulary size. Remove --{other}."
            )
        ],
    )
    vocab_size: int | None = integer(
        None,
        "Number of pieces to learn; by default 8,000, or the vocab_size of a JSON --bert_config.",
        min_value=6,
    )
    do_lower_case: bool | None = switch(
        None,
        "Lower-case the text and strip accents (uncased); by default true, or as in "
        "--init_checkpoint.",
    )
    special_tokens_in_texts: bool | None = flag.special_tokens("in --init_checkpoint, else false")
    max_predictions_per_seq: int | None = integer(
        None,
        "Maximum number of predictions per row; by default --masked_lm_prob times the row length.",
        min_value=1,
        heading="Rows and masks",
        advanced=True,
    )
    masked_lm_prob: float = number(
        0.15,
        "Fraction of the tokens in a row to mask.",
        rules=[flag.within(lambda fraction: 0 < fraction <= 1, "above 0 and at most 1")],
        advanced=True,
    )
    short_seq_prob: float = number(
        0.1,
        "Fraction of the documents to split into shorter rows of random length.",
        rules=[flag.within(lambda fraction: 0 <= fraction <= 1, "from 0 to 1")],
        advanced=True,
    )
    masking: choices.Masking = choice(  # noqa: RUF009
        "token",
        get_args(choices.Masking),
        "Unit to mask: single pieces, as in the paper (token), or all pieces of a word "
        "(whole_word).",
    )
    mask_split: str = string(
        ",".join(map(str, choices.MASK_SPLIT)),
        "Percentages of predicted tokens to replace with [MASK], replace with a random token, and "
        "leave unchanged.",
        advanced=True,
    )
    nsp: bool = switch(
        True, "Train next-sentence prediction; --nsp=false keeps the pairs but drops this loss."
    )
    pairs: bool = switch(
        True,
        "Create rows of two texts, of which about half have a random second text; --pairs=false "
        "creates rows of one text, without next-sentence prediction.",
        rules=[_needs_text(lambda pairs: not pairs, "--pairs=false"), _predicts_without_pairs],
        advanced=True,
    )
    objective: choices.Objective = choice(  # noqa: RUF009
        "mlm",
        get_args(choices.Objective),
        "Training objective: mlm predicts masked tokens from both sides; ltr predicts each token "
        "from the preceding tokens, without masks or next-sentence prediction.",
        rules=[_needs_text(lambda objective: objective != "mlm"), _conflicts_with_left_to_right],
        advanced=True,
    )
    config_overrides: Sequence[str] = words(
        (),
        "Config values to change, such as hidden_dropout_prob=0,num_attention_heads=8.",
        heading="Model",
        advanced=True,
    )
    precision: str = flag.precision(
        "Precision of matrix products; bfloat16 is faster on hardware that supports it; weights "
        "and sums stay in float32."
    )
    num_train_steps: int = integer(
        3600, "Total number of training steps.", min_value=1, heading="Training"
    )
    num_warmup_steps: int = integer(
        None,
        "Number of steps with a rising learning rate; by default a tenth of all steps.",
        min_value=0,
        rules=[_IS_WITHIN_STEPS],
        advanced=True,
    )
    train_batch_size: int = integer(
        16,
        "Number of rows per step, over all replicas.",
        min_value=1,
        rules=[flag.divided_by("gradient_accumulation_steps"), _IS_DIVIDED_BY_WORKERS],
    )
    gradient_accumulation_steps: int = integer(
        1, "Number of micro-batches per step; more need less memory.", min_value=1
    )
    learning_rate: float = number(
        1e-3,
        "Peak learning rate; the paper uses 1e-4 for bert-base.",
        rules=[flag.IS_RATE],
    )
    optimizer: str = choice(
        "adam",
        choices.OPTIMIZERS,
        "Optimizer: adam (Google's, without bias correction), adamw (with it), or lamb (for "
        "batches of thousands of rows).",
        advanced=True,
    )
    weight_decay: float = number(
        0.01,
        "Weight decay, relative to the learning rate; biases and LayerNorm are excluded.",
        rules=[flag.within(lambda decay: 0 <= decay < math.inf, "of at least 0")],
        advanced=True,
    )
    adam_beta_2: float = number(
        0.999,
        "Decay rate of the optimizer's second moments.",
        rules=[flag.within(lambda beta: 0 <= beta < 1, "from 0 to below 1")],
        advanced=True,
    )
    phases: str = string(
        None,
        "Row lengths, each with its fraction of the steps, such as the paper's 128:0.9,512:0.1; "
        "128:0.9:20,512:0.1:76 also sets the maximum number of predictions per row.",
        rules=[flag.mutually_exclusive("set the length", "max_seq_length"), _HAS_ONE_LENGTH],
    )
    equal_tokens: bool = switch(
        False,
        "Increase the batch size of shorter --phases, so that all steps have about the same "
        "number of tokens.",
        advanced=True,
    )
    seed: int = integer(12345, "Random seed.", min_value=0, max_value=2**32 - 1)

    # Hardware, saving and logging, which may change when a run resumes.
    strategy: str = choice(
        "auto",
        (*choices.STRATEGIES, "multi_worker"),
        "Devices: all GPUs of this machine (mirrored), one device (one_device), or the GPUs of the "
        "workers in --worker_hosts or TF_CONFIG (multi_worker); auto selects multi_worker if there "
        "are workers, mirrored if there are several GPUs, and else one_device.",
        heading="Machines",
    )
    worker_hosts: Sequence[str] = words(
        (),
        "HOST:PORT of each worker, separated by commas, the chief first; or slurm or slurm:PORT "
        "(default port 2222) to use the hosts of the srun tasks; anyone who can reach these ports "
        "can read and write files as this user.",
    )
    task_index: int | None = integer(
        None, "Index of this process in --worker_hosts, from 0.", min_value=0
    )
    worker_wait_minutes: float = number(
        10,
        "Maximum number of minutes to wait for the other workers.",
        rules=[flag.within(lambda minutes: 0 < minutes < math.inf, "above 0")],
        advanced=True,
    )
    tpu: str | None = string(
        None, "TPU to train on: its name, grpc://HOST:PORT, or local on a TPU VM."
    )
    deterministic: bool = switch(
        False, "Use deterministic GPU operations, which are slower.", advanced=True
    )
    jit_compile: str = choice(
        "auto",
        choices.XLA_CHOICES,
        f"{flag.JIT_COMPILE}; on a TPU, everything is compiled.",
        advanced=True,
    )
    remat: bool = switch(False, flag.REMAT)
    save_checkpoints_steps: int = integer(
        1000,
        "Number of steps between checkpoints; a checkpoint is also saved every 10 minutes.",
        min_value=1,
        heading="Saving and evaluation",
        advanced=True,
    )
    keep_checkpoints: int = integer(
        3, "Number of recent checkpoints to keep.", min_value=1, advanced=True
    )
    eval_batch_size: int = integer(
        64, "Number of rows per evaluation batch.", min_value=1, advanced=True
    )
    max_eval_steps: int = integer(
        200, "Maximum number of batches in the final evaluation.", min_value=1, advanced=True
    )
    export: bool = switch(True, "Write a SavedModel to MODEL_DIR/export/1, for TensorFlow Serving.")
    cache_dir: str | None = string(
        None,
        "Directory for the index of the input and for copies of JSON lines and large gzip files, "
        "instead of MODEL_DIR/corpus.",
        advanced=True,
    )

    @property
    def replacement(self) -> tuple[float, float]:
        """Fractions of predicted tokens to replace with [MASK] and with a random token."""
        try:
            mask, random, same = map(float, self.mask_split.split(","))
        except ValueError:
            mask = random = same = math.nan
        if not (min(mask, random, same) >= 0 and math.isclose(mask + random + same, 100)):
            raise ValueError(
                f"--mask_split={self.mask_split}: expected percentages of [MASK], random and "
                "unchanged tokens that add up to 100, such as 80,10,10."
            )
        return mask / 100, random / 100

    @property
    def overrides(self) -> dict[str, Any]:
        """Config fields in ``config_overrides``, converted to their types."""
        types = {name: type(value) for name, value in BertConfig().to_dict().items()}
        del types["vocab_size"]  # set by the vocabulary
        values = {}
        for text in self.config_overrides:
            name, _, value = text.partition("=")
            try:
                values[name] = types[name](value)
            except (KeyError, ValueError):
                raise ValueError(
                    f"--config_overrides={','.join(self.config_overrides)}: expected NAME=VALUE "
                    f"with a name out of {', '.join(types)}, got {text!r}."
                ) from None
            if self.init_checkpoint and types[name] is int:
                raise ValueError(
                    f"--config_overrides={','.join(self.config_overrides)}: --init_checkpoint "
                    f"defines {name}. Remove the override."
                )
        return values

    @property
    def files(self) -> dict[str, str | Sequence[str] | None]:
        """Paths to read, by flag."""
        names = MAY_CHANGE[choices.PATH] - (
            {"bert_config"} if self.bert_config in PRESETS else set()
        )
        return {f"--{name}": getattr(self, name) for name in sorted(names)}

    def may_change(self, is_finished: bool) -> Mapping[str, Collection[str]]:
        """Returns the names of the settings that may change, by kind of change."""
        freely, paths = MAY_CHANGE[choices.FREELY], MAY_CHANGE[choices.PATH]
        if self.input_format == "tfrecord":  # contents are not compared
            paths = paths - {"input", "eval_input"}
        if is_finished:  # a schedule has no effect on a finished run
            return {choices.FREELY: freely | {"gradient_accumulation_steps"}, choices.PATH: paths}
        return {**MAY_CHANGE, choices.PATH: paths}

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class RowLength:
    """Flag that ``phases`` replaces."""

    max_seq_length: int = integer(
        128,
        "Number of tokens per row, including [CLS] and [SEP]; --phases sets several lengths.",
        heading="Row length",
    )


#: Dataclasses that declare the flags.
DECLARATIONS = (PretrainingSettings, RowLength)


def settings_from_flags(
    parsed: flags.FlagValues = flags.FLAGS,
) -> tuple[PretrainingSettings, list[str]]:
    """Returns the settings from parsed flags, and messages about flags with unexpected effects."""
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
    _ = settings.replacement, settings.overrides, make_phases(settings)  # validates them
    notes = []
    if settings.input_format == "tfrecord":
        notes += [
            f"--{name} has no effect: the rows of --input_format=tfrecord are already masked."
            for name in _RECORD_FLAGS
            # Without max_predictions_per_seq, masked_lm_prob sets the predictions per row.
            if name in given and (name != "masked_lm_prob" or settings.max_predictions_per_seq)
        ]
    rate = defaults["learning_rate"]
    if settings.init_checkpoint and settings.learning_rate == rate:
        notes.append(
            f"--learning_rate={rate:g}, the default, is intended for random initial weights. For "
            "pre-trained weights, use a lower value such as 5e-5."
        )
    return settings, notes


# === Phases: ranges of steps with one sequence length each ===


@dataclasses.dataclass(frozen=True)
class Phase:
    """Range of steps with one sequence length.

    Attributes:
        max_seq_length: Number of tokens per row.
        first_step: First step.
        last_step: End of the range, exclusive.
        rows: Number of rows per step, over all replicas.
        max_predictions: Maximum number of predictions per row, if ``--phases`` sets it.
    """

    max_seq_length: int
    first_step: int
    last_step: int
    rows: int
    max_predictions: int | None = None


def make_phases(settings: PretrainingSettings) -> list[Phase]:
    """Returns the phases of a run; ``equal_tokens`` adds rows to phases with shorter rows."""
    phases = parse_phases(settings.phases, settings.num_train_steps, settings.train_batch_size)
    if not settings.equal_tokens:
        return phases
    longest = max(phase.max_seq_length for phase in phases)
    return [
        dataclasses.replace(phase, rows=phase.rows * (longest // phase.max_seq_length))
        for phase in phases
    ]


def parse_phases(text: str, num_steps: int, rows: int) -> list[Phase]:
    """Parses ``LENGTH:FRACTION[:PREDICTIONS],...`` and divides the steps; omits empty phases."""
    phases = []
    first, total = 0, 0.0
    for part in text.split(","):
        length, fraction, predictions = _parse_phase(text, part)
        total += fraction
        last = round(total * num_steps)
        if last > first:
            phases.append(Phase(length, first, last, rows, predictions))
        first = last
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise ValueError(f"--phases={text}: expected fractions that add up to 1, got {total:g}.")
    return phases


def _parse_phase(text: str, part: str) -> tuple[int, float, int | None]:
    length, *rest = part.split(":")
    fraction, *predictions = rest or ["1"]
    try:
        phase = int(length), float(fraction), int(":".join(predictions)) if predictions else None
        if phase[0] < 1 or not 0.0 <= phase[1] <= 1.0 or (predictions and int(predictions[0]) < 1):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"--phases={text}: expected LENGTH:FRACTION or LENGTH:FRACTION:PREDICTIONS, such as "
            f"128:0.9,512:0.1, with fractions from 0 to 1, got {part!r}."
        ) from None
    return phase
