"""Exports a model with its tokenizer as a SavedModel for TensorFlow Serving.

    python -m bert_tf.export --model=runs/reviews --output=exports/reviews/1 --name=reviews

The command prints the signatures and the commands that verify and serve the export.
docs/guides/exports.md describes the signatures of each model.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_tf.answering.export_options import ExportOptions
from bert_tf.cli import command, flag_fields
from bert_tf.cli.flag_fields import Given, Values, names_a_model, required
from bert_tf.io import paths
from bert_tf.io.messages import warn

if TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint
    from bert_tf.modeling.base import BertModel
    from bert_tf.saved_models.exporting import Exported

_REQUIRED = required("export needs --model and --output")


def _is_version(name: str, values: Values, given_flags: Given) -> str:
    output = values[name].rstrip("/")
    version = os.path.basename(output)
    if version.isascii() and version.isdecimal():
        return ""
    return (
        f"--{name}={values[name]}: expected a directory named by a version number, for "
        f"TensorFlow Serving. Pass {output}/1."
    )


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """Flags of the command, except those in ``ExportOptions``."""

    model: str = flag_fields.string(
        None, f"Model to export: {flag_fields.MODEL}.", rules=[_REQUIRED], other_name="checkpoint"
    )
    output: str = flag_fields.string(
        None,
        "New directory for the export; its name is a version number, as in exports/mine/1.",
        rules=[_REQUIRED, _is_version],
    )
    special_tokens_in_texts: bool | None = flag_fields.special_tokens("in the model's training")
    name: str = flag_fields.string(
        "bert",
        "Name of the model in the URLs of a server.",
        rules=[names_a_model],
    )


def main(settings: ExportSettings, user_options: Mapping[str, Any]) -> None:
    """Exports a checkpoint."""
    paths.check_inputs(checkpoints=[settings.model])
    command.load_tensorflow()
    run(settings, user_options)


def run(
    settings: ExportSettings, user_options: Mapping[str, Any], model: "BertModel | None" = None
) -> "Exported":
    """Exports a checkpoint, or a ``model`` in memory, and prints its signatures.

    ``user_options`` are the fields of ``ExportOptions`` that the user passed.
    """
    output = settings.output.rstrip("/")
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
            raise ValueError(report.notes[-1])  # the reason
        warn(report.notes)
        differences = model_card.differences(report.notes, checkpoint.path)
        for message in report.messages(settings.model):
            print_progress(message)
    else:
        checkpoint = to_checkpoint(model)
        options = options_of(checkpoint, user_options)
    print_progress(f"Exporting a {checkpoint.model.class_name}.", flush=True)
    exported = export(model, output, options=options, name=settings.name, notes=differences)
    _report(exported)
    return exported


def options_of(checkpoint: "Checkpoint", user_options: Mapping[str, Any]) -> "ExportOptions":
    """Returns the user's options, with the checkpoint's options as defaults."""
    from bert_tf.checkpoints.tokenizer_files import missing_tokenizer_reason
    from bert_tf.tasks.signatures import classes_with
    from bert_tf.tasks.task_file import export_options, load_task_file

    if checkpoint.tokenization is None:
        raise ValueError(
            f"{checkpoint.path} has no tokenizer: {missing_tokenizer_reason(checkpoint.notes)}"
        )
    for name in user_options:
        classes = classes_with(name)
        if classes and checkpoint.model.model_class not in classes:
            raise ValueError(
                f"--{name} does not apply to {checkpoint.path}, a {checkpoint.model.class_name}. "
                "Remove this flag, which is for "
                f"{' and '.join(found.__name__ for found in classes)}."
            )
    changes = dict(user_options)
    # A sentence-transformers directory with a head is a cross-encoder, which reads pairs.
    reads_pairs = checkpoint.model.model_class in classes_with("pair")
    if reads_pairs and checkpoint.format == "sentence_transformers":
        changes = {"pair": True, **changes}
    if sizes := user_options.get("allowed_batch_sizes"):
        try:
            changes["allowed_batch_sizes"] = tuple(map(int, sizes))
        except ValueError:
            raise ValueError(
                f"--allowed_batch_sizes={','.join(map(str, sizes))}: expected integers such as "
                "8,16,32."
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
    print_progress(f"\nNext steps:\n  python -m bert_tf.verify {exported.path}")
    if "://" not in exported.path:
        folder = os.path.dirname(os.path.abspath(exported.path))
        print_progress(
            f"  docker run -p 8501:8501 -v {folder}:/models/{exported.name} "
            f"-e MODEL_NAME={exported.name} tensorflow/serving"
        )
    print_progress(f"  less {os.path.join(exported.path, 'assets.extra', 'README.md')}")
    print_progress(f"  python -m bert_tf.serve --model={exported.path}  # a page in the browser")


if __name__ == "__main__":
    command.run(main, ExportSettings, ExportOptions)
