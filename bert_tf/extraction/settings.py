"""Flags of ``extract_features``, and the checks that do not require a model."""

import dataclasses
import re
from typing import Any

from bert_tf.choices import POOLINGS
from bert_tf.cli import flag_fields as flag

FORMATS = ("jsonl", "numpy", "parquet")
_DEFAULT_LAYERS = (-1, -2, -3, -4)
_REQUIRED = flag.required("extract_features needs --model, --input and --output")
_REQUIRES_POOLING = (
    "--normalize requires one vector per line. Set --pooling to mean, cls, max or last."
)
_NORMALIZE_RULE = flag.rule(
    # Without --layers, the pooling may be that of the model.
    lambda normalize, values: (
        normalize and (values["pooling"] or (values["layers"] and "none")) == "none"
    ),
    _REQUIRES_POOLING,
)
_INTEGER_LAYERS = flag.rule(
    lambda layers, _: (
        layers is not None and not re.fullmatch(r"-?\d+(,-?\d+)*", ",".join(map(str, layers)))
    ),
    "--{flag}={value}: expected integers separated by commas, such as -1,-2.",
)


@dataclasses.dataclass(frozen=True)
class ExtractionSettings:
    """Values of the flags; ``with_model_defaults`` replaces None in ``layers`` and ``pooling``."""

    model: str = flag.string(
        None,
        f"Model that computes the vectors: {flag.MODEL}.",
        rules=[_REQUIRED],
        other_name="init_checkpoint",
    )
    input: tuple[str, ...] = flag.words(
        (),
        "Text files to read, plain or gzip: paths and globs, separated by commas, on any file "
        "system that TensorFlow supports.",
        rules=[_REQUIRED],
    )
    output: str = flag.string(
        None, "Output directory; an interrupted extraction resumes there.", rules=[_REQUIRED]
    )
    format: str = flag.choice(
        "jsonl",
        FORMATS,
        "File format: jsonl (as Google's script writes), numpy (.npz) or parquet (requires "
        "pyarrow).",
    )
    layers: tuple[int, ...] = flag.words(
        None,
        "Indices of the layers to write: 0 for the first, -1 for the last; by default the last "
        "four, or with --pooling the last one.",
        rules=[_INTEGER_LAYERS],
    )
    pooling: str | None = flag.choice(
        None,
        POOLINGS,
        "Pooling to one vector per line: the [CLS] token (cls), the last token (last), or the mean "
        "or maximum over all tokens; with none, one vector per token is written; by default none, "
        "or the pooling of a sentence-transformers model.",
    )
    normalize: bool = flag.switch(
        False, "Scale the pooled vectors to length 1.", rules=[_NORMALIZE_RULE]
    )
    max_seq_length: int | None = flag.integer(
        None,
        "Maximum number of tokens per line, to which longer lines are truncated; by default the "
        "value of a sentence-transformers model, else 128 or, if lower, the model's maximum.",
    )
    batch_size: int = flag.integer(
        32, "Number of lines per batch, over all devices.", min_value=1, advanced=True
    )
    precision: str = flag.precision()

    @property
    def is_pooled(self) -> bool:
        """Whether each line has one vector instead of one per token."""
        return self.pooling not in (None, "none")

    def with_model_defaults(
        self, blocks: int, pooling: str = "none", normalize: bool = False
    ) -> "ExtractionSettings":
        """Returns the settings with the defaults of a model that has ``blocks`` blocks."""
        if self.pooling is not None:
            pooling, normalize = self.pooling, False
        if self.normalize and pooling == "none":
            raise ValueError(_REQUIRES_POOLING)
        normalize |= self.normalize
        layers = self.layers or ((-1,) if pooling != "none" else _DEFAULT_LAYERS[:blocks])
        return dataclasses.replace(self, layers=layers, pooling=pooling, normalize=normalize)


def resolve(**flags: Any) -> ExtractionSettings:
    """Checks the flags against each other, and fills in the defaults."""
    values = {**flag.defaults(ExtractionSettings), **flags}
    flag.check(ExtractionSettings, values, flags)
    if values["layers"] is not None:
        values["layers"] = tuple(int(layer) for layer in values["layers"])
        # With --layers, the default is one vector per token for every model.
        values["pooling"] = values["pooling"] or "none"
    values["input"] = tuple(values["input"])
    return ExtractionSettings(**values)
