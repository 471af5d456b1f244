"""The flags of ``python -m bert_tf.pretrain``, and the settings that they resolve to."""

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any, Literal

from absl import flags

from bert_tf.config import PRESETS


@dataclasses.dataclass(frozen=True)
class Phase:
    """A run of steps, from ``first_step`` to before ``last_step``, at one sequence length."""

    max_seq_length: int
    first_step: int
    last_step: int


def parse_phases(text: str, num_steps: int) -> list[Phase]:
    """Divides the steps of a run among ``LENGTH:SHARE`` pairs, whose shares add up to 1.

    ``128:0.9,512:0.1`` is the paper's schedule (Devlin et al. 2019, appendix A.2): the first 90% of
    the steps at length 128, the rest at 512, under one learning-rate curve. The phases have no
    gaps; those left without a step are left out.

    >>> for phase in parse_phases("128:0.9,512:0.1", 1000):
    ...     print(phase)
    Phase(max_seq_length=128, first_step=0, last_step=900)
    Phase(max_seq_length=512, first_step=900, last_step=1000)
    >>> parse_phases("128:0.9,512:0.2", 1000)
    Traceback (most recent call last):
    ...
    ValueError: --phases=128:0.9,512:0.2: the shares add up to 1.1, expected 1.
    """
    lengths: list[int] = []
    shares: list[float] = []
    for part in text.split(","):
        length, separator, share = part.partition(":")
        try:
            lengths.append(int(length))
            shares.append(float(share) if separator else 1.0)
        except ValueError:
            raise ValueError(
                f"--phases={text}: expected LENGTH:SHARE pairs such as 128:0.9,512:0.1, "
                f"got {part!r}."
            ) from None
        if lengths[-1] < 1 or not 0.0 <= shares[-1] <= 1.0:
            raise ValueError(
                f"--phases={text}: expected a positive length and a share between 0 and 1, "
                f"got {part!r}."
            )
    total = math.fsum(shares)
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise ValueError(f"--phases={text}: the shares add up to {total:g}, expected 1.")
    phases = []
    first, passed = 0, 0.0
    for max_seq_length, phase_share in zip(lengths, shares, strict=True):
        passed += phase_share
        last = round(passed * num_steps)
        if last > first:
            phases.append(Phase(max_seq_length, first, last))
        first = last
    return phases


_F = flags.FLAGS

# --- Data -----------------------------------------------------------------------------------
flags.DEFINE_list(
    "input",
    [],
    "Text files, with globs and commas, on any file system TensorFlow reads; gzip allowed. Without "
    "it, the documentation that every Python installation has becomes a sample corpus.",
)
flags.DEFINE_enum(
    "input_format",
    None,
    ["google", "wikiextractor", "prose", "jsonl", "tfrecord"],
    "google: one sentence a line, a blank line ends a document. wikiextractor: <doc> elements. "
    "prose: a file is a document, a blank line ends a paragraph. jsonl: a document a line, in its "
    "'text'. tfrecord: examples that Google's create_pretraining_data made. By default told from "
    "the names (.tfrecord) and, of text, the first lines.",
)
flags.DEFINE_string("tfds", None, "Instead of --input: a text dataset of TensorFlow Datasets.")
flags.DEFINE_list(
    "eval_input", [], "Files to evaluate on, instead of documents held out of the input."
)
flags.DEFINE_float(
    "held_out_fraction",
    0.01,
    "The share of documents held out for evaluation, at least one document; 0: none.",
)
flags.DEFINE_string(
    "vocab_file", None, "A vocabulary, one piece a line. Without it one is learned from the input."
)
flags.DEFINE_integer(
    "vocab_size",
    None,
    "How many pieces to learn, without --vocab_file; by default 8,000, or what a JSON "
    "--bert_config has room for.",
    lower_bound=6,
)
flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Lower-case the text and strip accents (uncased); true by default, or as --init_checkpoint is.",
)
flags.DEFINE_integer(
    "max_seq_length", 128, "Tokens in a row, [CLS] and [SEP] included. See also --phases."
)
flags.DEFINE_integer(
    "max_predictions_per_seq",
    None,
    "The most masked tokens in a row; by default what --masked_lm_prob of a full row comes to.",
    lower_bound=1,
)
flags.DEFINE_float(
    "masked_lm_prob",
    0.15,
    "The share of a row's tokens to mask.",
)
flags.DEFINE_float(
    "short_seq_prob",
    0.1,
    "The share of documents cut to a random shorter length.",
)
flags.DEFINE_enum(
    "masking",
    "token",
    ["token", "whole_word", "span"],
    "What is masked at once: single pieces as in the paper, words, or spans of words.",
)
flags.DEFINE_bool("do_whole_word_mask", False, "Google's name for --masking=whole_word.")
flags.DEFINE_bool("nsp", True, "Train next-sentence prediction on pairs; --nsp=false: one segment.")

# --- Model ----------------------------------------------------------------------------------
flags.DEFINE_string(
    "bert_config",
    "bert-tiny",
    "A preset (bert-tiny, -mini, -small, -medium, -base, -large, or any of the 24 miniatures, "
    "bert-L4-H256 for example), or a bert_config.json.",
)
flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Start from these weights instead of random ones, with their config, vocabulary and casing: a "
    "directory of this library, of Hugging Face, Google, Model Garden or KerasHub, or a .keras "
    "file.",
)
flags.DEFINE_bool(
    "allow_pickle",
    False,
    "Read an --init_checkpoint that is a pytorch_model.bin; a pickle can run any code.",
)
flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16"],
    "bfloat16: matrix products in bfloat16, weights and sums in float32.",
)

# --- Schedule -------------------------------------------------------------------------------
flags.DEFINE_integer("num_train_steps", 3600, "Steps of the whole run.", lower_bound=1)
flags.DEFINE_integer(
    "num_warmup_steps",
    None,
    "Steps until the full rate; a tenth of all by default.",
    lower_bound=0,
)
flags.DEFINE_integer("train_batch_size", 16, "Rows in a step, over all replicas.", lower_bound=1)
flags.DEFINE_integer(
    "gradient_accumulation_steps", 1, "Parts a batch is cut into, to save memory.", lower_bound=1
)
flags.DEFINE_float(
    "learning_rate",
    1e-3,
    "The highest rate. The paper's, for bert-base: 1e-4.",
)
flags.DEFINE_enum(
    "optimizer", "adam", ["adam", "adamw"], "adam: Google's, without bias correction."
)
flags.DEFINE_string(
    "phases",
    None,
    "Sequence lengths and their shares of the steps: 128:0.9,512:0.1 is the paper's schedule.",
)
flags.DEFINE_integer(
    "seed",
    12345,
    "What all that is random is drawn from.",
    lower_bound=0,
    upper_bound=2**32 - 1,
)

# --- Hardware, saving, logging: free to differ when a run is started again -------------------
flags.DEFINE_string("model_dir", "runs/pretrain", "Where everything of the run is kept.")
flags.DEFINE_enum(
    "strategy",
    "auto",
    ["auto", "one_device", "mirrored"],
    "mirrored: every GPU of this machine. auto: what the machine has.",
)
flags.DEFINE_string("tpu", None, "A TPU's name, grpc://HOST:PORT, or local on a TPU VM.")
flags.DEFINE_bool("deterministic", False, "On a GPU: ops that repeat bit for bit, and are slower.")
flags.DEFINE_integer(
    "steps_per_loop", 0, "Steps between two reports; 0: a few seconds' worth.", lower_bound=0
)
flags.DEFINE_integer(
    "save_checkpoints_steps", 1000, "Steps between two checkpoints.", lower_bound=1
)
flags.DEFINE_float("save_checkpoints_minutes", 10.0, "Minutes after which one is due anyway.")
flags.DEFINE_integer("keep_checkpoints", 3, "How many of the newest are kept.", lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 64, "Rows in an evaluation batch.", lower_bound=1)
flags.DEFINE_integer(
    "max_eval_steps", 200, "The most batches of the last evaluation.", lower_bound=1
)
flags.DEFINE_bool(
    "export", True, "Write a SavedModel to MODEL_DIR/export/1, for TensorFlow Serving."
)
flags.DEFINE_string("cache_dir", None, "Where unpacked copies of large gzip files are kept.")
flags.DEFINE_bool("dry_run", False, "Say what the run would cost; write nothing.")

for _alias, _name in {
    "input_file": "input",
    "output_dir": "model_dir",
    "bert_config_file": "bert_config",
    "tpu_name": "tpu",
    "iterations_per_loop": "steps_per_loop",
    "random_seed": "seed",
}.items():
    flags.DEFINE_alias(_alias, _name)

# Flags of Google's scripts that are accepted, and what stands in for them here.
_WITHOUT_MEANING = {
    "dupe_factor": "every epoch pairs and masks the text anew",
    "use_tpu": "--tpu=NAME alone chooses a TPU",
    "do_train": "a run trains and then evaluates",
    "do_eval": "a run trains and then evaluates",
    "num_tpu_cores": "every core of the TPU is used",
    "master": "--tpu=grpc://HOST:PORT names the coordinator",
    "tpu_zone": "--tpu=NAME is looked up in the machine's own zone",
    "gcp_project": "--tpu=NAME is looked up in the machine's own project",
}
for _name, _reason in _WITHOUT_MEANING.items():
    _define = flags.DEFINE_bool if _name[:3] in ("use", "do_") else flags.DEFINE_string
    _define(_name, None, f"Accepted and ignored: {_reason}.")

# Bounds of the numbers with a fraction. absl's own include both ends, and let NaN pass.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "held_out_fraction": (lambda share: 0 <= share < 1, "0 or more and below 1"),
    "masked_lm_prob": (lambda share: 0 < share <= 1, "above 0 and not above 1"),
    "short_seq_prob": (lambda share: 0 <= share <= 1, "from 0 to 1"),
    "learning_rate": (lambda rate: 0 < rate < math.inf, "above 0"),
    "save_checkpoints_minutes": (lambda minutes: minutes >= 0, "0 or more"),
}

# Settings that do not change data, model or schedule.
MAY_DIFFER = frozenset(
    {
        "model_dir",
        "strategy",
        "tpu",
        "deterministic",
        "steps_per_loop",
        "save_checkpoints_steps",
        "save_checkpoints_minutes",
        "keep_checkpoints",
        "eval_batch_size",
        "max_eval_steps",
        "allow_pickle",
        "export",
        "cache_dir",
        "dry_run",
    }
)

# Settings that name files whose contents a run keeps the fingerprints of.
PATHS = frozenset({"input", "eval_input", "vocab_file", "bert_config", "init_checkpoint"})


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """Every flag's value, resolved; each field is documented by its flag's help.

    With ``init_checkpoint``, ``bert_config`` is empty and ``do_lower_case`` may be ``None``: the
    checkpoint says both, once it is opened.
    """

    input: list[str]
    input_format: str | None
    tfds: str | None
    eval_input: list[str]
    held_out_fraction: float
    vocab_file: str | None
    vocab_size: int | None
    do_lower_case: bool | None
    max_predictions_per_seq: int | None
    masked_lm_prob: float
    short_seq_prob: float
    masking: Literal["token", "whole_word", "span"]
    nsp: bool
    bert_config: str
    init_checkpoint: str | None
    allow_pickle: bool
    precision: str
    num_train_steps: int
    num_warmup_steps: int
    train_batch_size: int
    gradient_accumulation_steps: int
    learning_rate: float
    optimizer: str
    phases: str
    seed: int
    model_dir: str
    strategy: str
    tpu: str | None
    deterministic: bool
    steps_per_loop: int
    save_checkpoints_steps: int
    save_checkpoints_minutes: float
    keep_checkpoints: int
    eval_batch_size: int
    max_eval_steps: int
    export: bool
    cache_dir: str | None
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


def flag_defaults() -> dict[str, Any]:
    """The flags' defaults by name."""
    return {field.name: _F[field.name].default for field in dataclasses.fields(PretrainingSettings)}


def settings_from_flags() -> tuple[PretrainingSettings, list[str]]:
    """The settings that the parsed flags ask for, and a sentence for each flag that is ignored.

    Raises:
        ValueError: flags contradict each other, or a value is out of its range.
    """
    values: dict[str, Any] = {
        field.name: _F[field.name].value for field in dataclasses.fields(PretrainingSettings)
    }
    for name, (is_within, expected) in _RANGES.items():
        if not is_within(values[name]):
            raise ValueError(f"--{name}={values[name]}: expected a number {expected}.")
    if values["input"] and values["tfds"]:
        raise ValueError("--input and --tfds both name a corpus: give one of them.")
    names = [os.path.basename(path) for path in values["input"]]
    if values["input_format"] is None and names and all(".tfrecord" in name for name in names):
        values["input_format"] = "tfrecord"
    if values["phases"] is None:
        values["phases"] = f"{_F['max_seq_length'].value}:1"
    elif _F["max_seq_length"].present:
        raise ValueError("--phases and --max_seq_length both set the length: give one of them.")
    if _F["do_whole_word_mask"].value:
        if values["masking"] not in ("token", "whole_word"):
            raise ValueError(
                f"--do_whole_word_mask contradicts --masking={values['masking']}: give one of them."
            )
        values["masking"] = "whole_word"
    if values["num_warmup_steps"] is None:
        values["num_warmup_steps"] = values["num_train_steps"] // 10
    if values["num_warmup_steps"] > values["num_train_steps"]:
        raise ValueError(
            f"--num_warmup_steps={values['num_warmup_steps']} is more than "
            f"--num_train_steps={values['num_train_steps']}."
        )
    if values["vocab_file"] and values["vocab_size"] is not None:
        raise ValueError("--vocab_file has a size of its own: leave --vocab_size out.")
    if values["train_batch_size"] % values["gradient_accumulation_steps"]:
        raise ValueError(
            f"--train_batch_size={values['train_batch_size']} is not a multiple of "
            f"--gradient_accumulation_steps={values['gradient_accumulation_steps']}."
        )
    if values["init_checkpoint"]:
        for name in ("bert_config", "vocab_size"):
            if _F[name].present:
                raise ValueError(f"--init_checkpoint says its own --{name}: leave the flag out.")
        values["bert_config"] = ""
    elif values["do_lower_case"] is None:
        values["do_lower_case"] = True
    bert_config = values["bert_config"]
    if bert_config and bert_config not in PRESETS and not bert_config.endswith(".json"):
        raise ValueError(
            f"--bert_config={bert_config} is neither a preset (bert-tiny, bert-base, bert-L4-H256 "
            "...) nor a .json file."
        )
    ignored = [
        f"--{name} is ignored: {reason}."
        for name, reason in _WITHOUT_MEANING.items()
        if _F[name].present
    ]
    return PretrainingSettings(**values), ignored
