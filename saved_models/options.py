"""Options of serving a model, each declared once; nothing here loads TensorFlow.

A field made by ``flag_fields`` is also a flag of ``python -m bert_tf.export``, and a keyword of
``bert_tf.api.export``; the others are what a fine-tuned model's directory says. Which options mean
something to models of some classes alone stands in ``signatures.HEADS``.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from bert_tf.choices import LONG_TEXTS, PRECISIONS
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_rules import Rule, check, refuses

_LARGEST_BATCH = 64


def _at_least(least: int) -> Rule:
    return refuses(
        lambda value, _: value is not None and value < least,
        f"{{flag}} is {{value}}: expected {least} or more.",
    )


def _among(choices: Sequence[str]) -> Rule:
    return refuses(
        lambda value, _: value not in choices,
        f"{{flag}} is {{value!r}}: expected one of {', '.join(choices)}.",
    )


def _of_task(default: Any, help: str, rule: Rule) -> Any:
    """A field that is no flag."""
    return dataclasses.field(default=default, metadata={"help": help, "rules": (rule,)})


_ASCENDING = refuses(
    lambda sizes, _: any(a >= b for a, b in itertools.pairwise((0, *sizes))),
    "{flag} is {value}: expected whole numbers of 1 or more, ascending.",
)
_FITS_REQUESTS = refuses(
    lambda sizes, values: bool(sizes and values["max_rows"] and sizes[-1] > values["max_rows"]),
    "{flag} is {value}, and max_rows is {max_rows}: expected no batch of more rows than a request "
    "may have.",
)


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of serving a model, which are the flags of ``python -m bert_tf.export``, and more.

    Raises:
        ValueError: a value is out of its range.

    >>> ExportOptions(n_best_size=0)
    Traceback (most recent call last):
    ...
    ValueError: n_best_size is 0: expected 1 or more.
    """

    max_seq_length: int | None = flag_fields.integer(
        None,
        "The most tokens of a row, [CLS] and [SEP] included; by default the training's of a "
        "fine-tuned model, that of sentence embeddings, else all of the model's positions.",
    )
    pair: bool = flag_fields.switch(
        False,
        "Classes and numbers: whether serving_default takes text and text_pair; by default as the "
        "model was fine-tuned.",
    )
    long_text: str = _of_task(
        LONG_TEXTS[0],
        "Classes and numbers: what is read of single texts of more tokens than a row, one of "
        "LONG_TEXTS.",
        _among(LONG_TEXTS),
    )
    normalize: bool = flag_fields.switch(False, "Embeddings: scale them to length 1.")
    doc_stride: int = _of_task(
        128,
        "Questions: how many tokens after a window of the context the next begins.",
        _at_least(1),
    )
    max_query_length: int = _of_task(64, "The most tokens of a question.", _at_least(1))
    n_best_size: int = _of_task(20, "The answers to a question.", _at_least(1))
    max_answer_length: int = _of_task(30, "The most tokens of an answer.", _at_least(1))
    transformers_signature: bool = flag_fields.switch(
        False,
        "Give serving_default the inputs and outputs that SavedModels of transformers' TFBert "
        "classes had (input_ids, attention_mask, token_type_ids; logits), so that their clients "
        "go on, also those of int64_serving; the signature named strings then takes strings.",
    )
    precision: str = flag_fields.choice(
        "float32", PRECISIONS, "The arithmetic; float32 by default.", rules=[_among(PRECISIONS)]
    )
    max_rows: int | None = flag_fields.integer(
        None,
        "Refuse requests of more rows; by default no limit, but a server that batches refuses "
        "more than 64.",
        rules=[_at_least(1)],
    )
    max_bytes: int | None = flag_fields.integer(
        None,
        "Refuse requests with more bytes of text in a row; by default no limit.",
        rules=[_at_least(256)],  # the ordinary samples are shorter
    )
    allowed_batch_sizes: tuple[int, ...] = flag_fields.words(
        (),
        "The sizes that a server pads its batches to, as 8,16,32,64; by default none.",
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
