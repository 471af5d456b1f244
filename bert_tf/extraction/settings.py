"""The flags of an extraction, checked as far as is possible without a model."""

import dataclasses
from collections.abc import Sequence
from typing import Any

_GOOGLES_LAYERS: tuple[int, ...] = (-1, -2, -3, -4)
_LAST: tuple[int, ...] = (-1,)
_LINES_PER_SHARD = {True: 10_000, False: 1_000}  # pooled or not; many have 30 MB, or 90 MB


@dataclasses.dataclass(frozen=True)
class ExtractionSettings:
    """The resolved flags of ``bert_tf.extract_features``.

    Attributes:
        input: paths and globs of text files.
        init_checkpoint: what ``bert_tf.load`` takes.
        output: the directory to write.
        format: a key of ``output.WRITERS``.
        layers: the blocks to read, 0 the lowest and -1 the last; () if a variant is given.
        variant: one of ``feature_based.UNLEARNED_VARIANTS``, or ``None``.
        pooling: one of ``pooling.POOLINGS``.
        normalize: whether each vector is scaled to length 1.
        max_seq_length: the most tokens of a line, [CLS] and [SEP] included; ``None`` for 128, or
            the model's positions if they are fewer.
        batch_size: the most lines of a batch.
        precision: one of ``distribution.PRECISIONS``.
        lines_per_shard: how many lines a file of the output has.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled.
    """

    input: tuple[str, ...]
    init_checkpoint: str
    output: str
    layers: tuple[int, ...]
    lines_per_shard: int
    variant: str | None = None
    pooling: str = "none"
    normalize: bool = False
    format: str = "jsonl"
    max_seq_length: int | None = None
    batch_size: int = 32
    precision: str = "float32"
    allow_pickle: bool = False

    @property
    def is_pooled(self) -> bool:
        """Whether a line has one vector, not one for each token."""
        return self.pooling != "none"


def resolve(
    *,
    input: Sequence[str],
    init_checkpoint: str | None,
    output: str | None,
    layers: Sequence[str] | None = None,
    variant: str | None = None,
    pooling: str = "none",
    normalize: bool = False,
    lines_per_shard: int | None = None,
    **others: Any,
) -> ExtractionSettings:
    """Checks flags against each other, and fills in what is not given.

    By default the layers are Google's, -1,-2,-3,-4, or with one vector a line the last; a shard has
    10,000 lines with one vector each, or 1,000 with one for each token.

    Raises:
        ValueError: a flag is missing, is no number, or does not go with another.

    >>> resolve(input=["a.txt"], init_checkpoint="bert", output="out", pooling="mean").layers
    (-1,)
    """
    for flag, value in (("input", input), ("init_checkpoint", init_checkpoint), ("output", output)):
        if not value:
            raise ValueError(
                f"--{flag} is missing: extract_features needs --init_checkpoint, --input and "
                "--output."
            )
    if variant is not None and layers is not None:
        raise ValueError(
            f"--variant={variant} and --layers={','.join(layers)} both say which layers to read: "
            "give one of them."
        )
    if normalize and pooling == "none":
        raise ValueError(
            "--normalize is for one vector a line: give --pooling=mean, cls or max with it."
        )
    if layers is None:
        numbers = _LAST if pooling != "none" else _GOOGLES_LAYERS
    else:
        numbers = _parse_layers(layers)
    return ExtractionSettings(
        input=tuple(input),
        init_checkpoint=str(init_checkpoint),
        output=str(output),
        layers=() if variant is not None else numbers,
        variant=variant,
        pooling=pooling,
        normalize=normalize,
        lines_per_shard=lines_per_shard or _LINES_PER_SHARD[pooling != "none"],
        **others,
    )


def _parse_layers(layers: Sequence[str]) -> tuple[int, ...]:
    try:
        numbers = tuple(int(layer) for layer in layers)
    except ValueError:
        numbers = ()
    if not numbers:
        raise ValueError(
            f"--layers={','.join(layers)}: expected numbers with commas between them, -1 for the "
            "last block and 0 for the lowest."
        )
    return numbers
