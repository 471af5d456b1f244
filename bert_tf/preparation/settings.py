"""The flags of the two commands here, checked as far as is possible without the text."""

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from bert_tf.choices import INPUT_FORMATS
from bert_tf.cli.flag_fields import choice, defaults, integer, number, string, switch, words
from bert_tf.cli.flag_rules import Given, Values, check, required, within

from .scripts import SCRIPTS

_NEEDED = required("prepare needs --input and --output")
_A_FILE = "it has to name a file"
_INPUT_FORMAT = "How documents are told apart; by default recognised by suffix and first lines."


def _are_scripts(name: str, values: Values, given: Given) -> str:
    wrong = next((script for script in values[name] if script not in SCRIPTS), "")
    return wrong and f"--{name}={wrong}: expected some of {', '.join(SCRIPTS)}."


@dataclasses.dataclass(frozen=True)
class PreparationSettings:
    """Every flag of ``bert_tf.prepare`` but those of Apache Beam, its value resolved."""

    input: tuple[str, ...] = words(
        (),
        "Text files, with globs and commas, on any file system TensorFlow reads; gzip allowed.",
        rules=[_NEEDED],
    )
    input_format: str | None = choice(None, INPUT_FORMATS, _INPUT_FORMAT)
    output: str = string(
        None,
        "The directory to write, or to resume. Every worker has to see it, and the input: with "
        "several machines, a shared disk or gs://. Until the run has finished, it takes about "
        "twice the space of the text.",
        rules=[_NEEDED],
    )
    min_characters: int = integer(
        200, "Leave out documents that have fewer characters when cleaned.", least=1
    )
    min_sentences: int = integer(
        2,
        "Leave out documents that have fewer sentences: next-sentence prediction learns nothing "
        "from a single one.",
        least=1,
    )
    scripts: tuple[str, ...] = words(
        (),
        "Keep only documents in these scripts, separated by commas, such as latin or "
        f"han,hiragana,katakana. Default: any script. The scripts are {', '.join(SCRIPTS)}.",
        rules=[_are_scripts],
    )
    min_script_share: float = number(
        0.5,
        "The share of a document's letters that has to be of --scripts.",
        rules=[within(lambda share: 0 < share <= 1, "above 0, at most 1")],
    )
    near_duplicates: float = number(
        0.8,
        "Leave out near duplicates: of two documents with at least this Jaccard similarity (the "
        "share of their runs of five words that both have), the one whose text has the larger hash "
        "is left out, even if the other one is left out as well. 1 leaves out only documents with "
        "the same words. 0 leaves out only documents with the same text, and is the fastest.",
        rules=[within(lambda share: share == 0 or 0.5 <= share <= 1, "from 0.5 to 1, or 0")],
    )
    held_out_fraction: float = number(
        0.01,
        "The share of the documents to hold out (1,000 documents at most), the same ones that "
        "bert_tf.pretrain would hold out. 0 holds out none.",
        rules=[within(lambda share: 0 <= share < 1, "from 0 to below 1")],
    )
    shard_mb: int = integer(
        256,
        "About how many megabytes of the input go into one file of the output; a worker holds as "
        "much in memory.",
        least=1,
    )
    seed: int = integer(0, "The seed of the documents' order.")


def resolve(**given: Any) -> PreparationSettings:
    """Checks flags, and fills in what is not given."""
    wanted = {**defaults(PreparationSettings), **given}
    check(PreparationSettings, wanted)
    for flag in ("input", "scripts"):
        wanted[flag] = tuple(wanted[flag])
    return PreparationSettings(**wanted)


@dataclasses.dataclass(frozen=True)
class RecordFlags:
    """Every flag of ``bert_tf.create_pretraining_data`` but those of Apache Beam."""

    input: Sequence[str] = words(
        (), "Text files, with globs and commas; gzip allowed.", rules=[required(_A_FILE)]
    )
    input_format: str | None = choice(None, INPUT_FORMATS, _INPUT_FORMAT)
    vocab_file: str = string(
        None,
        "The vocabulary, one piece a line.",
        rules=[required(f"{_A_FILE}; python -m bert_tf.vocab learns one")],
    )
    output_file: Sequence[str] = words(
        (),
        "The TFRecord files to write, with commas; they take the examples in turn. Or NAME@N: N "
        "files NAME-00000-of-N and so on, each with a share of the text.",
        rules=[required(_A_FILE)],
    )
    runner: str | None = string(
        None,
        "Write NAME@N on Apache Beam, by this runner of it, such as DirectRunner or "
        "DataflowRunner. Every worker has to see the input, --vocab_file, --output_file and "
        "--cache_dir.",
    )
    do_lower_case: bool = switch(True, "Lower-case the text and strip accents.")
    max_seq_length: int = integer(128, "Tokens in a row.")
    max_predictions_per_seq: int = integer(20, "The most masked tokens in a row.")
    masked_lm_prob: float = number(0.15, "The share of a row's tokens to mask.")
    short_seq_prob: float = number(0.1, "The share of documents cut shorter.")
    do_whole_word_mask: bool = switch(False, "Mask whole words.")
    num_epochs: int = integer(10, "Passes over the text, each paired and masked anew.", least=1)
    seed: int = integer(12345, "The seed of everything random.")
    cache_dir: str | None = string(
        None,
        "Where blocks of JSON lines and large gzip files are kept; by default a temporary folder.",
    )


#: Names of Google's script.
RECORD_ALIASES = MappingProxyType(
    {"input_file": "input", "dupe_factor": "num_epochs", "random_seed": "seed"}
)
