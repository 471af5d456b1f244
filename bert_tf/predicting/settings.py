"""Flags of ``python -m bert_tf.predict``."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_tf.choices import STRATEGIES
from bert_tf.cli import flag_fields as flag
from bert_tf.readers.tables import TABLE_FORMATS

STANDARD_INPUT = "-"
_REQUIRED = flag.required("predict requires --model and --input")


@dataclasses.dataclass(frozen=True)
class PredictionSettings:
    """Settings of a prediction; each field is a flag."""

    model: str = flag.string(
        None,
        "Path to a run or another checkpoint with a task head, or hf://OWNER/NAME.",
        rules=[_REQUIRED],
        other_name="model_dir",
    )
    input: str = flag.string(
        None,
        "Path to the file to predict; - is standard input and requires --input_format.",
        rules=[_REQUIRED],
    )
    output: str | None = flag.string(
        None,
        "Path to the output file, which is overwritten: .tsv, .csv or .jsonl, also .conll for "
        "tagging and .json for squad; by default, a .tsv is written to standard output.",
    )
    text_columns: Sequence[str] | None = flag.words(
        None,
        "Columns that contain the texts; by default as in training, else text or text_a,text_b; "
        "for tagging, words; for multiple_choice, context,choices; for squad, question,context.",
    )
    id_column: str | None = flag.string(
        None,
        "Column that contains the ids; by default the training data's id column if the file "
        "contains it, else ids are row indices.",
        advanced=True,
    )
    input_format: str | None = flag.choice(
        None,
        TABLE_FORMATS,
        "Format of --input, by default detected from its suffix; lines means one text per line "
        "without a header.",
    )
    delimiter: str | None = flag.delimiter("a")
    encoding: str = flag.encoding("a .csv, .tsv, .jsonl or CoNLL file")
    keep_columns: bool = flag.switch(
        False, "Write the input columns, instead of the ids, to the left of the predictions."
    )
    skip_bad_rows: bool = flag.switch(
        False,
        "Write records with an error message for bad rows instead of stopping at the first one; "
        "rows without text always get one.",
    )
    threshold: float | None = flag.number(
        None,
        "Threshold that replaces the model's threshold; for multilabel, the minimum probability of "
        'a predicted class; for squad, the margin by which the score of no answer ("") must exceed '
        "that of the best answer.",
        advanced=True,
    )
    top_k: int | None = flag.integer(
        None,
        "Number of most probable classes to write, with their probabilities, instead of all "
        "classes.",
        min_value=1,
    )
    max_seq_length: int | None = flag.integer(
        None,
        "Maximum number of tokens per sequence; by default as in training, else the model's "
        "maximum.",
    )
    batch_size: int = flag.integer(
        64, "Number of examples per batch, over all devices.", min_value=1, advanced=True
    )
    precision: str = flag.precision()
    strategy: str = flag.choice("auto", STRATEGIES, flag.STRATEGY)


def settings_of_call(**values: Any) -> PredictionSettings:
    """Returns the settings for a call from Python, with model and data in memory."""
    call = {"model": "memory", "input": "memory", **values}
    parsed = flag.flags_of_call(call, PredictionSettings)
    (settings,) = flag.settings_of(parsed, PredictionSettings)
    return settings
