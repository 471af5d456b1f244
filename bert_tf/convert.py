r"""Converts a BERT checkpoint to another format, and verifies that both have the same outputs.

    python -m bert_tf.convert --model=uncased_L-12_H-768_A-12 --output=bert-base \
        --format=huggingface

The format of --model is detected automatically. --output is created after the verification.
docs/concepts/checkpoints.md lists the formats.
"""

import dataclasses

from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import choice, required, string, switch
from bert_tf.io import paths
from bert_tf.io.checkpoint_formats import WRITTEN
from bert_tf.io.messages import listed

_REQUIRED = required("convert needs --model, --output and --format")


@dataclasses.dataclass(frozen=True)
class ConvertSettings:
    """Flags of the command."""

    model: str = string(
        None,
        f"Model to convert: {flag_fields.MODEL}.",
        rules=[_REQUIRED],
        other_name="input",
    )
    output: str = string(None, "New directory for the converted model.", rules=[_REQUIRED])
    format: str = choice(
        None,
        tuple(WRITTEN),
        "Output format: bert_tf, huggingface (config.json and model.safetensors) or google_tf1 "
        "(bert_model.ckpt).",
        rules=[_REQUIRED],
    )
    allow_pickle: bool = switch(
        False,
        "Read pytorch_model.bin, a pickle file, which can execute code; pass this flag only for "
        "files that you trust.",
    )


def main(settings: ConvertSettings) -> None:
    """Converts a checkpoint and prints the differences."""
    paths.check_inputs(checkpoints=[settings.model])
    command.load_tensorflow()
    from bert_tf.checkpoints import conversion
    from bert_tf.io.files import total_size

    print(f"Reading {settings.model}.", flush=True)
    result = conversion.convert(
        settings.model, settings.output, settings.format, allow_pickle=settings.allow_pickle
    )
    checkpoint = result.checkpoint
    if result.left_out:
        print(f"Omitted, not part of {settings.format}: {listed(result.left_out, 8)}.")
    if checkpoint.unused:
        print(f"Unused tensors of {settings.model}: {listed(checkpoint.unused, 8)}.")
    print(f"{len(checkpoint.tensors) - len(result.left_out)} weights are equal.")
    for key, difference in result.differences.items():
        print(f"Maximum difference of {key}: {difference:.2g}")
    size = total_size(settings.output)
    print(
        f"{settings.output}: {checkpoint.model.class_name}, {size / 1e6:,.1f} MB, verified against "
        f"{settings.model}."
    )


if __name__ == "__main__":
    command.run(main, ConvertSettings)
