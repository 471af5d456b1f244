"""The flags of ``python -m bert_tf.predict``: each one's default and help."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_tf.choices import STRATEGIES
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import required
from bert_tf.readers.tables import TABLE_FORMATS

STANDARD_INPUT = "-"
_NEEDED = required("predict needs --model and --input")


@dataclasses.dataclass(frozen=True)
class PredictionSettings:
    """Every flag."""

    model: str = flag_fields.string(
        None,
        "Predict with this model: a run, another checkpoint with a task's head, or "
        "hf://OWNER/NAME.",
        rules=[_NEEDED],
        other_name="model_dir",
    )
    input: str = flag_fields.string(
        None,
        "Predict this file; - is standard input, whose form --input_format says.",
        rules=[_NEEDED],
    )
    output: str | None = flag_fields.string(
        None,
        "Write this file, and replace it where it exists: .tsv, .csv or .jsonl, for tags also "
        ".conll, for answers also .json; without it, write tab-separated standard output.",
    )
    text_columns: Sequence[str] | None = flag_fields.words(
        None,
        "Read these columns, by default the training's: one text or two; tagging: the words; "
        "multiple_choice: the context and the choices; squad: question,context.",
    )
    id_column: str | None = flag_fields.string(
        None,
        "Take ids from this column, by default the training's where the file has it, else count "
        "the rows from 0.",
        advanced=True,
    )
    input_format: str | None = flag_fields.choice(
        None,
        TABLE_FORMATS,
        "Read --input in this form instead of the one that its name ends in; lines is a text on "
        "each line, and no line of names.",
    )
    delimiter: str | None = flag_fields.delimiter("a")
    encoding: str = flag_fields.encoding("a .csv, .tsv or .jsonl, and a file in CoNLL's columns,")
    keep_columns: bool = flag_fields.switch(
        False, "Write the input's columns, too, before the predictions and instead of the ids."
    )
    skip_bad_rows: bool = flag_fields.switch(
        False,
        "List bad rows, and write them without a prediction and with the reason, instead of "
        "ending at the first one.",
    )
    threshold: float | None = flag_fields.number(
        None,
        "Replace the model's own threshold, for multilabel the least probability of a class that "
        'is predicted, for squad how much the score of "" exceeds the best answer\'s.',
        advanced=True,
    )
    top_k: int | None = flag_fields.integer(
        None,
        "Write this many of the likeliest classes with their probabilities, instead of a column "
        "for each class.",
        min_value=1,
    )
    max_seq_length: int | None = flag_fields.integer(
        None,
        "Read rows of at most this many tokens, by default as the model was trained, else all of "
        "its positions.",
    )
    batch_size: int = flag_fields.integer(
        64, "Predict this many examples at once, over all devices.", min_value=1, advanced=True
    )
    precision: str = flag_fields.precision()
    strategy: str = flag_fields.choice("auto", STRATEGIES, flag_fields.STRATEGY)


def settings_of_call(**values: Any) -> PredictionSettings:
    """The settings of a call from Python, which has a model and data of its own."""
    call = {"model": "memory", "input": "memory", **values}
    parsed = flag_fields.flags_of_call(call, PredictionSettings)
    (settings,) = flag_fields.settings_of(parsed, PredictionSettings)
    return settings
