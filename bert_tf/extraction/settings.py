"""The flags of an extraction, checked as far as is possible without a model."""

import dataclasses
import re
from typing import Any

from bert_tf.choices import POOLINGS
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_fields import (
    check,
    choice,
    defaults,
    integer,
    required,
    rule,
    string,
    switch,
    words,
)

FORMATS = ("jsonl", "numpy", "parquet")
_DEFAULT_LAYERS = (-1, -2, -3, -4)
_REQUIRED = required("extract_features needs --model, --input and --output")
_REQUIRES_POOLING = rule(
    lambda normalize, values: normalize and values["pooling"] in (None, "none"),
    "--{flag} is for one vector a line: give --pooling=mean, cls, max or last with it.",
)
_INTEGER_LAYERS = rule(
    lambda layers, _: (
        layers is not None and not re.fullmatch(r"-?\d+(,-?\d+)*", ",".join(map(str, layers)))
    ),
    "--{flag}: expected numbers with commas between them, -1 for the last block and 0 for the "
    "lowest, got {value}.",
)


@dataclasses.dataclass(frozen=True)
class ExtractionSettings:
    """The flags. ``with_model_defaults`` replaces ``None`` in ``layers`` and ``pooling``."""

    model: str = string(
        None,
        f"Take the hidden states of this model: {flag_fields.MODEL}.",
        rules=[_REQUIRED],
        other_name="init_checkpoint",
    )
    input: tuple[str, ...] = words(
        (),
        "Read these text files, with globs and commas, on any file system that TensorFlow reads, "
        "gzip too.",
        rules=[_REQUIRED],
    )
    output: str = string(None, "Write this directory, or resume it.", rules=[_REQUIRED])
    format: str = choice(
        "jsonl",
        FORMATS,
        "Write jsonl (Google's, a JSON object a line), numpy (.npz files) or parquet (with "
        "pyarrow).",
    )
    layers: tuple[int, ...] = words(
        None,
        "Read these blocks, -1 the last and 0 the lowest: by default the last four, or the last "
        "one where lines are pooled.",
        rules=[_INTEGER_LAYERS],
    )
    pooling: str | None = choice(
        None,
        POOLINGS,
        "Write one vector a line, that of [CLS] (cls) or of the last token (last), or the mean or "
        "the maximum over all tokens, instead of one a token (none, the default but for models of "
        "sentence-transformers).",
    )
    normalize: bool = switch(
        False, "Scale the vectors of --pooling to length 1.", rules=[_REQUIRES_POOLING]
    )
    max_seq_length: int | None = integer(
        None,
        "Cut lines to this many tokens, by default as a directory of sentence-transformers says, "
        "else to 128, or to the model's positions if it has fewer.",
    )
    batch_size: int = integer(
        32, "Compute at most this many lines at once, over all devices.", min_value=1, advanced=True
    )
    precision: str = flag_fields.precision()

    @property
    def is_pooled(self) -> bool:
        """True if a line has one vector, not one for each token."""
        return self.pooling not in (None, "none")

    def with_model_defaults(
        self, blocks: int, pooling: str = "none", normalize: bool = False
    ) -> "ExtractionSettings":
        """Fills in what depends on the model, which has ``blocks`` and pools like this."""
        if self.pooling is not None:
            pooling, normalize = self.pooling, self.normalize
        layers = self.layers or ((-1,) if pooling != "none" else _DEFAULT_LAYERS[:blocks])
        return dataclasses.replace(self, layers=layers, pooling=pooling, normalize=normalize)


def resolve(**flags: Any) -> ExtractionSettings:
    """Checks flags against each other, and fills in what is not given."""
    values = {**defaults(ExtractionSettings), **flags}
    check(ExtractionSettings, values, flags)
    if values["layers"] is not None:
        values["layers"] = tuple(int(layer) for layer in values["layers"])
        # Layers that are asked for are given token by token, whatever the model pools.
        values["pooling"] = values["pooling"] or "none"
    values["input"] = tuple(values["input"])
    return ExtractionSettings(**values)
