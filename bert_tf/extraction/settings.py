"""The flags of an extraction, checked as far as is possible without a model."""

import dataclasses
import re
from typing import Any

from bert_tf.choices import POOLINGS, PRECISIONS
from bert_tf.cli.flag_fields import choice, defaults, integer, string, switch, words
from bert_tf.cli.flag_rules import check, refuses, required

FORMATS = ("jsonl", "numpy", "parquet")
_GOOGLES_LAYERS = (-1, -2, -3, -4)
_NEEDED = required("extract_features needs --model, --input and --output")
_OF_ONE_VECTOR = refuses(
    lambda normalize, values: normalize and values["pooling"] in (None, "none"),
    "--{flag} is for one vector a line: give --pooling=mean, cls, max or last with it.",
)
_OF_NUMBERS = refuses(
    lambda layers, _: (
        layers is not None and not re.fullmatch(r"-?\d+(,-?\d+)*", ",".join(map(str, layers)))
    ),
    "--{flag}: expected numbers with commas between them, -1 for the last block and 0 for the "
    "lowest, got {value}.",
)


@dataclasses.dataclass(frozen=True)
class ExtractionSettings:
    """Every flag; ``layers`` and ``pooling`` are ``None`` until the model decides (``decide``)."""

    model: str = string(
        None,
        "The model: a run, a checkpoint of any format that bert_tf.load takes, hf://OWNER/NAME, or "
        "tiny.",
        rules=[_NEEDED],
        other_name="init_checkpoint",
    )
    input: tuple[str, ...] = words(
        (),
        "Text files, with globs and commas, on any file system TensorFlow reads; gzip allowed.",
        rules=[_NEEDED],
    )
    output: str = string(None, "The directory to write, or to resume.", rules=[_NEEDED])
    format: str = choice(
        "jsonl",
        FORMATS,
        "jsonl: Google's, a JSON object a line. numpy: .npz files. parquet: needs pyarrow.",
    )
    layers: tuple[int, ...] = words(
        None,
        "The blocks to read, -1 for the last and 0 for the lowest. Default: -1,-2,-3,-4, or as "
        "many of these as the model has; -1 where lines are pooled.",
        rules=[_OF_NUMBERS],
    )
    pooling: str | None = choice(
        None,
        POOLINGS,
        "One vector a line: that of [CLS] or of the last token, or the mean or the maximum over "
        "all tokens, [CLS] and [SEP] included. none: one vector for each token. Default: none; a "
        "directory of sentence-transformers gives the embedding that it describes, unless --layers "
        "is given.",
    )
    normalize: bool = switch(
        False, "Scale the vectors of --pooling to length 1.", rules=[_OF_ONE_VECTOR]
    )
    max_seq_length: int | None = integer(
        None,
        "The most tokens of a line; a longer one loses its end. Default: what a directory of "
        "sentence-transformers says, else 128, or the model's number of positions if that is less.",
    )
    batch_size: int = integer(32, "The most lines of a batch, over all devices.", least=1)
    precision: str = choice("float32", PRECISIONS, "The arithmetic of the model.")

    @property
    def is_pooled(self) -> bool:
        """True if a line has one vector, not one for each token."""
        return self.pooling not in (None, "none")

    def decide(
        self, blocks: int, pooling: str = "none", normalize: bool = False
    ) -> "ExtractionSettings":
        """Fills in what depends on the model, which has ``blocks`` and pools like this."""
        if self.pooling is not None:
            pooling, normalize = self.pooling, self.normalize
        layers = self.layers or ((-1,) if pooling != "none" else _GOOGLES_LAYERS[:blocks])
        return dataclasses.replace(self, layers=layers, pooling=pooling, normalize=normalize)


def resolve(**flags: Any) -> ExtractionSettings:
    """Checks flags against each other, and fills in what is not given."""
    values = {**defaults(ExtractionSettings), **flags}
    check(ExtractionSettings, values, flags)
    if values["layers"] is not None:
        values["layers"] = tuple(int(layer) for layer in values["layers"])
        values["pooling"] = values["pooling"] or "none"
    values["input"] = tuple(values["input"])
    return ExtractionSettings(**values)
