"""Options for serving a model, importable without TensorFlow.

The fields are also flags of ``python -m bert_tf.export`` and keywords of ``bert_tf.api.export``,
except the fields that are stored in the directory of a fine-tuned model. ``tasks.signatures``
defines which options apply only to some model classes.
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
    "{flag}={value}: expected integers of 1 or more in ascending order.",
)
_FITS_REQUESTS = rule(
    lambda sizes, values: bool(sizes and values["max_rows"] and sizes[-1] > values["max_rows"]),
    "{flag}={value}: expected batch sizes of at most max_rows={max_rows}.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Question answering options for training, prediction and export."""

    doc_stride: int = flag_fields.integer(
        128,
        "squad: number of tokens between the starts of consecutive windows of a context.",
        min_value=1,
        saved_in_task_file=True,
        heading="Questions",
        advanced=True,
    )
    max_query_length: int = flag_fields.integer(
        64,
        "squad: maximum number of tokens per question; longer questions are truncated.",
        min_value=1,
        saved_in_task_file=True,
        advanced=True,
    )
    # Memory use grows with the square of the number of answers.
    n_best_size: int = flag_fields.integer(
        20,
        "squad: number of answers to keep per question.",
        min_value=1,
        max_value=1000,
        saved_in_task_file=True,
        advanced=True,
    )
    max_answer_length: int = flag_fields.integer(
        30,
        "squad: maximum number of tokens per answer.",
        min_value=1,
        saved_in_task_file=True,
        advanced=True,
    )


@dataclasses.dataclass(frozen=True)
class ExportOptions(QuestionOptions):
    """Options for serving a model: the flags of ``python -m bert_tf.export`` and further settings.

    Raises:
        ValueError: If a value is out of range.

    >>> ExportOptions(n_best_size=0)
    Traceback (most recent call last):
    ...
    ValueError: n_best_size=0: expected 1 or more.
    """

    follows_model: ClassVar[bool] = True

    max_seq_length: int | None = flag_fields.integer(
        None,
        "Maximum number of tokens per row, including [CLS] and [SEP]; by default as in training, "
        "else the model's maximum.",
    )
    pair: bool = flag_fields.switch(
        False,
        "Classification and regression: accept text pairs (text and text_pair) in "
        "serving_default; by default as in fine-tuning.",
        advanced=True,
    )
    long_text: str = flag_fields.choice(
        LONG_TEXTS[0],
        LONG_TEXTS,
        "Classification and regression: part of a long single text to read: the beginning "
        "(head), the beginning and the end (head_tail), or everything in windows (windows).",
        saved_in_task_file=True,
    )
    normalize: bool = flag_fields.switch(False, "Embeddings: scale vectors to length 1.")
    transformers_signature: bool = flag_fields.switch(
        False,
        "Use the inputs and outputs of transformers' TFBert SavedModels in serving_default, for "
        "existing clients; the signature strings then takes texts.",
    )
    precision: str = flag_fields.precision(
        "Precision of the computation; bfloat16 is faster on machines that support it."
    )
    max_rows: int | None = flag_fields.integer(
        None,
        "Maximum number of rows per request; by default no limit, but a batching server allows "
        "at most 64.",
        min_value=1,
        advanced=True,
    )
    max_bytes: int | None = flag_fields.integer(
        None,
        "Maximum number of bytes of text per row; by default no limit.",
        min_value=256,  # enough for the regular sample texts
        advanced=True,
    )
    allowed_batch_sizes: tuple[int, ...] = flag_fields.words(
        (),
        "Batch sizes to which a server pads, such as 8,16,32,64; by default none.",
        rules=[_ASCENDING, _FITS_REQUESTS],
    )

    def __post_init__(self) -> None:
        check(ExportOptions, vars(self))

    @property
    def largest_batch(self) -> int:
        """Maximum number of rows per batch on a server that batches requests."""
        if self.allowed_batch_sizes:
            return self.allowed_batch_sizes[-1]
        return min(_LARGEST_BATCH, self.max_rows or _LARGEST_BATCH)


ExportOptions.__doc__ = f"{ExportOptions.__doc__}\n    Attributes:\n" + "\n".join(
    f"        {field.name}: {field.metadata['help']}" for field in dataclasses.fields(ExportOptions)
)
