"""Exports a model to TensorFlow Serving: strings in, answers out, the tokenizer inside.

    python -m bert_tf.export --model=runs/reviews --output=exports/reviews/1 --name=reviews

It ends by printing the signatures and the commands that serve them; docs/guides/serving.md says
what the signatures of each model answer.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_tf.answering.options import ExportOptions
from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import Given, Values, names_a_model, required
from bert_tf.io import paths
from bert_tf.io.wording import warn

if TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint
    from bert_tf.modeling.base import BertModel
    from bert_tf.saved_models.exporting import Exported

_NEEDED = required("export needs --model and --output")


def _is_version(name: str, values: Values, given_flags: Given) -> str:
    output = values[name].rstrip("/")
    version = os.path.basename(output)
    if version.isascii() and version.isdecimal():
        return ""
    return (
        f"--{name}={values[name]} does not end in a number, which TensorFlow Serving finds a "
        f"version by: name {output}/1."
    )


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """The flags besides those of ``ExportOptions``."""

    model: str = flag_fields.string(
        None, f"Export this model: {flag_fields.MODEL}.", rules=[_NEEDED], other_name="checkpoint"
    )
    output: str = flag_fields.string(
        None,
        "Write this new directory, whose name is a number, the version, such as exports/mine/1.",
        rules=[_NEEDED, _is_version],
    )
    special_tokens_in_texts: bool | None = flag_fields.special_tokens("the model was trained")
    name: str = flag_fields.string(
        "bert",
        "Give the model this name in a server, a part of the address that clients call.",
        rules=[names_a_model],
    )


def main(settings: ExportSettings, user_options: Mapping[str, Any]) -> None:
    """Exports, and prints what is where."""
    paths.check_inputs(checkpoints=[settings.model])
    command.load_tensorflow()
    run(settings, user_options)


def run(
    settings: ExportSettings, user_options: Mapping[str, Any], model: "BertModel | None" = None
) -> "Exported":
    """Exports a checkpoint, or a ``model`` in memory; prints what is where.

    ``user_options`` are the options of ``ExportOptions`` that a user named.
    """
    output = settings.output.rstrip("/")
    # TensorFlow loads here, after the flags were found good.
    from bert_tf.checkpoints import model_card
    from bert_tf.checkpoints.load import load_with_report, open_checkpoint
    from bert_tf.checkpoints.weights import to_checkpoint
    from bert_tf.io.files import check_not_exists
    from bert_tf.saved_models import export
    from bert_tf.training.progress import print_progress

    check_not_exists(output)
    differences = ""
    if model is None:
        print_progress(f"Reading {settings.model}.", flush=True)
        checkpoint = open_checkpoint(settings.model)
        options = options_of(checkpoint, user_options)
        model, report = load_with_report(
            checkpoint, special_tokens_in_texts=settings.special_tokens_in_texts
        )
        if model.preprocessor is None:
            raise ValueError(report.notes[-1])  # which says why
        warn(report.notes)
        differences = model_card.differences(report.notes, checkpoint.path)
        for sentence in report.messages(settings.model):
            print_progress(sentence)
    else:
        checkpoint = to_checkpoint(model)
        options = options_of(checkpoint, user_options)
    print_progress(f"Exporting a {checkpoint.model.class_name}.", flush=True)
    exported = export(model, output, options=options, name=settings.name, notes=differences)
    _report(exported)
    return exported


def options_of(checkpoint: "Checkpoint", user_options: Mapping[str, Any]) -> "ExportOptions":
    """The user's options, else those of the directory, else the defaults."""
    from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
    from bert_tf.tasks.signatures import classes_with
    from bert_tf.tasks.task_file import export_options, load_task_file

    if checkpoint.tokenization is None:
        raise ValueError(
            f"{checkpoint.path} cannot read text: {missing_tokenizer_reason(checkpoint.notes)}"
        )
    for name in user_options:
        classes = classes_with(name)
        if classes and checkpoint.model.model_class not in classes:
            raise ValueError(
                f"--{name} means nothing to a {checkpoint.model.class_name}, which "
                f"{checkpoint.path} holds: leave it out (it is for "
                f"{' and '.join(model_class.__name__ for model_class in classes)})."
            )
    changes = dict(user_options)
    # A directory of sentence-transformers with a head is a cross-encoder, which reads pairs.
    is_of_pairs = checkpoint.model.model_class in classes_with("pair")
    if is_of_pairs and checkpoint.format == "sentence_transformers":
        changes = {"pair": True, **changes}
    if sizes := user_options.get("allowed_batch_sizes"):
        try:
            changes["allowed_batch_sizes"] = tuple(map(int, sizes))
        except ValueError:
            raise ValueError(
                f"--allowed_batch_sizes={','.join(map(str, sizes))}: expected whole numbers such "
                "as 8,16,32."
            ) from None
    return dataclasses.replace(export_options(load_task_file(checkpoint)), **changes)


def _report(exported: "Exported") -> None:
    from bert_tf.io.files import total_size
    from bert_tf.training.progress import print_progress

    print_progress("Signatures:")
    for name, signature in exported.signatures.items():
        answers = ", ".join(exported.outputs[name])
        print_progress(f"  {name}: {', '.join(signature.inputs)} -> {answers}")
    print_progress(f"{exported.path}: {total_size(exported.path) / 1e6:,.1f} MB.")
    print_progress(f"\nWhat comes next:\n  python -m bert_tf.verify {exported.path}")
    if "://" not in exported.path:
        folder = os.path.dirname(os.path.abspath(exported.path))
        print_progress(
            f"  docker run -p 8501:8501 -v {folder}:/models/{exported.name} "
            f"-e MODEL_NAME={exported.name} tensorflow/serving"
        )
    print_progress(f"  less {os.path.join(exported.path, 'assets.extra', 'README.md')}")
    print_progress(f"Try it in a browser: python -m bert_tf.serve --model={exported.path}")


if __name__ == "__main__":
    command.run(main, ExportSettings, ExportOptions)
