"""The flags of ``python -m bert_tf.predict``: each one's default and help."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from bert_tf.choices import PRECISIONS, STRATEGIES
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_rules import required
from bert_tf.readers.tables import FORMS

STANDARD_INPUT = "-"
_NEEDED = required("predict needs --model and --input")


@dataclasses.dataclass(frozen=True)
class PredictionSettings:
    """Every flag."""

    model: str = flag_fields.string(
        None,
        "The fine-tuned model: a run, another checkpoint with a task's head, or hf://OWNER/NAME.",
        rules=[_NEEDED],
        other_name="model_dir",
    )
    input: str = flag_fields.string(
        None,
        "The file to predict; - is standard input, whose form --input_format says.",
        rules=[_NEEDED],
    )
    output: str | None = flag_fields.string(
        None,
        "The file to write, replaced where it exists: .tsv, .csv or .jsonl; tagging: .conll too, "
        "squad: .json too. Standard output, tab-separated, without it.",
    )
    text_columns: Sequence[str] | None = flag_fields.words(
        None,
        "The columns to read, by default the training's: one text or two; tagging: the words; "
        "multiple_choice: the context and the choices (in .jsonl: one list of them); squad: "
        "question,context.",
    )
    id_column: str | None = flag_fields.string(
        None,
        "The column of ids; by default the training's where the file has it, else rows are counted "
        "from 0.",
    )
    input_format: str | None = flag_fields.choice(
        None,
        FORMS,
        "What --input is, in place of what the end of its name says; lines: a text on each line, "
        "and no line of names.",
    )
    delimiter: str | None = flag_fields.delimiter("a")
    encoding: str = flag_fields.encoding("a .csv, .tsv or .jsonl, and of a file in CoNLL's columns")
    keep_columns: bool = flag_fields.switch(
        False,
        "Also write the input's columns, before the predictions and instead of the ids. Columns "
        "of an earlier prediction are replaced.",
    )
    skip_bad_rows: bool = flag_fields.switch(
        False,
        "List bad rows instead of an error at the first: the output has them without a prediction, "
        "and says why. Rows without text are always listed.",
    )
    threshold: float | None = flag_fields.number(
        None,
        "Instead of the model's own. multilabel: the least probability at which a class is "
        'predicted; squad: answer "" where its score exceeds the best answer\'s by this much.',
    )
    top_k: int | None = flag_fields.integer(
        None,
        "One class a row: write this many of the likeliest classes with their probabilities "
        "(prediction, "
        "probability, prediction_2, ...) instead of a column for each class.",
        least=1,
    )
    max_seq_length: int | None = flag_fields.integer(
        None, "The most tokens of a row; by default the training's, else all positions."
    )
    batch_size: int = flag_fields.integer(64, "Examples at once, over all devices.", least=1)
    precision: str = flag_fields.choice(
        "float32",
        PRECISIONS,
        "bfloat16: matrix products in bfloat16, weights and sums in float32.",
    )
    strategy: str = flag_fields.choice("auto", STRATEGIES, flag_fields.STRATEGY)


def settings_of_call(**values: Any) -> PredictionSettings:
    """The settings of a call from Python, which has a model and data of its own."""
    call = {"model": "memory", "input": "memory", **values}
    define = functools.partial(flag_fields.define_flags, PredictionSettings)
    return flag_fields.checked(PredictionSettings, flag_fields.flags_of_call(define, call))
