r"""Converts a BERT checkpoint from one format to another, and checks that both compute the same.

    python -m bert_tf.convert --model=uncased_L-12_H-768_A-12 --output=bert-base \
        --format=huggingface

The format of --model is recognised, and --output appears whole, after the check;
docs/concepts/checkpoints.md lists the formats.
"""

import dataclasses

from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import choice, required, string, switch
from bert_tf.io import paths
from bert_tf.io.checkpoint_formats import WRITTEN
from bert_tf.io.wording import listed

_NEEDED = required("convert needs --model, --output and --format")


@dataclasses.dataclass(frozen=True)
class ConvertSettings:
    """Every flag."""

    model: str = string(
        None,
        f"Convert this model: {flag_fields.MODEL}.",
        rules=[_NEEDED],
        other_name="input",
    )
    output: str = string(None, "Write this new directory.", rules=[_NEEDED])
    format: str = choice(
        None,
        tuple(WRITTEN),
        "Write bert_tf (this library's directory), huggingface (config.json and "
        "model.safetensors) or google_tf1 (bert_model.ckpt).",
        rules=[_NEEDED],
    )
    allow_pickle: bool = switch(
        False,
        "Accept pytorch_model.bin, a pickle, which can run any code, so only from someone you "
        "trust.",
    )


def main(settings: ConvertSettings) -> None:
    """Converts, and prints what a person should know of the result."""
    paths.check_inputs(checkpoints=[settings.model])
    # TensorFlow loads here, after the flags were found good.
    command.load_tensorflow()
    from bert_tf.checkpoints import conversion
    from bert_tf.io.files import total_size

    print(f"Reading {settings.model}.", flush=True)
    result = conversion.convert(
        settings.model, settings.output, settings.format, allow_pickle=settings.allow_pickle
    )
    checkpoint = result.checkpoint
    if result.left_out:
        print(
            f"Left out, as {settings.format} has no place for them: {listed(result.left_out, 8)}."
        )
    if checkpoint.unused:
        print(f"In {settings.model}, but no weights of the model: {listed(checkpoint.unused, 8)}.")
    print(f"{len(checkpoint.tensors) - len(result.left_out)} weights are equal.")
    for key, difference in result.differences.items():
        print(f"Largest difference of {key}: {difference:.2g}")
    size = total_size(settings.output)
    print(
        f"{settings.output}: {checkpoint.model.class_name}, {size / 1e6:,.1f} MB, verified against "
        f"{settings.model}."
    )


if __name__ == "__main__":
    command.run(main, ConvertSettings)
