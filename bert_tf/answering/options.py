"""Options of serving a model, each declared once; nothing here loads TensorFlow.

A field is also a flag of ``python -m bert_tf.export``, and a keyword of ``bert_tf.api.export``, but
for those that a fine-tuned model's directory keeps. ``tasks.signatures`` says which options apply
to models of some classes alone.
"""

import dataclasses
import itertools
from typing import ClassVar

from bert_tf.choices import LONG_TEXTS
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import check, rule

_LARGEST_BATCH = 64
_ASCENDING = rule(
    lambda sizes, _: any(a >= b for a, b in itertools.pairwise((0, *sizes))),
    "{flag} is {value}: expected whole numbers of 1 or more, ascending.",
)
_FITS_REQUESTS = rule(
    lambda sizes, values: bool(sizes and values["max_rows"] and sizes[-1] > values["max_rows"]),
    "{flag} is {value}, and max_rows is {max_rows}: expected no batch of more rows than a request "
    "may have.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Options of questions about contexts, for training, predictions and exports."""

    doc_stride: int = flag_fields.integer(
        128,
        "squad: begin the windows of a context so many tokens apart.",
        min_value=1,
        saved_in_task_file=True,
        heading="Questions",
        advanced=True,
    )
    max_query_length: int = flag_fields.integer(
        64,
        "squad: cut questions to this many tokens.",
        min_value=1,
        saved_in_task_file=True,
        advanced=True,
    )
    # The memory grows with the square of a question's answers.
    n_best_size: int = flag_fields.integer(
        20,
        "squad: keep this many answers for each question.",
        min_value=1,
        max_value=1000,
        saved_in_task_file=True,
        advanced=True,
    )
    max_answer_length: int = flag_fields.integer(
        30,
        "squad: give answers of at most this many tokens.",
        min_value=1,
        saved_in_task_file=True,
        advanced=True,
    )


@dataclasses.dataclass(frozen=True)
class ExportOptions(QuestionOptions):
    """Options of serving a model, which are the flags of ``python -m bert_tf.export``, and more.

    Raises:
        ValueError: a value is out of its range.

    >>> ExportOptions(n_best_size=0)
    Traceback (most recent call last):
    ...
    ValueError: n_best_size is 0: expected 1 or more.
    """

    follows_model: ClassVar[bool] = True

    max_seq_length: int | None = flag_fields.integer(
        None,
        "Read rows of at most this many tokens, [CLS] and [SEP] included, by default as the model "
        "was trained, else all of its positions.",
    )
    pair: bool = flag_fields.switch(
        False,
        "Classes and numbers: let serving_default take text and text_pair, by default as the "
        "model was fine-tuned.",
        advanced=True,
    )
    long_text: str = flag_fields.choice(
        LONG_TEXTS[0],
        LONG_TEXTS,
        "Classes and numbers: what is read of single texts of more tokens than a row: the "
        "beginning (head), the beginning and the end (head_tail), or everything (windows).",
        saved_in_task_file=True,
    )
    normalize: bool = flag_fields.switch(False, "Embeddings: scale them to length 1.")
    transformers_signature: bool = flag_fields.switch(
        False,
        "Give serving_default the inputs and outputs that SavedModels of transformers' TFBert "
        "classes had, so that their clients go on, and the signature strings the texts.",
    )
    precision: str = flag_fields.precision(
        "bfloat16 computes in bfloat16, faster on a machine that has it."
    )
    max_rows: int | None = flag_fields.integer(
        None,
        "Refuse requests of more rows; by default no limit, but a server that batches refuses "
        "more than 64.",
        min_value=1,
        advanced=True,
    )
    max_bytes: int | None = flag_fields.integer(
        None,
        "Refuse requests with more bytes of text in a row; by default no limit.",
        min_value=256,  # the ordinary samples are shorter
        advanced=True,
    )
    allowed_batch_sizes: tuple[int, ...] = flag_fields.words(
        (),
        "Have a server pad its batches to these sizes, such as 8,16,32,64; by default none.",
        rules=[_ASCENDING, _FITS_REQUESTS],
    )

    def __post_init__(self) -> None:
        check(ExportOptions, vars(self))

    @property
    def largest_batch(self) -> int:
        """The most rows of a batch that a server makes of requests."""
        if self.allowed_batch_sizes:
            return self.allowed_batch_sizes[-1]
        return min(_LARGEST_BATCH, self.max_rows or _LARGEST_BATCH)


ExportOptions.__doc__ = f"{ExportOptions.__doc__}\n    Attributes:\n" + "\n".join(
    f"        {field.name}: {field.metadata['help']}" for field in dataclasses.fields(ExportOptions)
)
