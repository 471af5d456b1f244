"""A checkpoint of one format to another: tensor by tensor, then both run and compared."""

import dataclasses
import os
from collections.abc import Mapping
from typing import NamedTuple

from bert_tf import files
from bert_tf.modeling import BertEncoder
from bert_tf.untrusted import listed

from . import google, hugging_face, keras_files, model_directory
from .checkpoint import Checkpoint
from .comparison import compare, take_sample
from .load import check_tensors
from .recognition import open_checkpoint
from .weights import expected_shapes

_WRITERS = {
    "bert_tf": model_directory.write,
    "huggingface": hugging_face.write,
    "google_tf1": google.write,
    "keras": keras_files.write,
}
FORMATS = tuple(_WRITERS)
_OF_EVERY_MODEL = ("bert_tf", "keras")


class Conversion(NamedTuple):
    """What a conversion did.

    Attributes:
        checkpoint: what was read.
        went: where each weight went, by its name in ``checkpoint``.
        left_out: weights that the other format's model has no place for.
        differences: the largest absolute difference of each output between the two.
        notes: sentences on what was assumed of the source, and on using the result.
    """

    checkpoint: Checkpoint
    went: Mapping[str, str]
    left_out: tuple[str, ...]
    differences: Mapping[str, float]
    notes: tuple[str, ...]


def convert(source: str, target: str, form: str, *, allow_pickle: bool = False) -> Conversion:
    """Writes a checkpoint in another format, and compares the weights and the outputs of both.

    The target appears whole, and only when it is the source's model.

    Args:
        source: a path that ``bert_tf.load`` takes.
        target: a new directory, or for ``keras`` a new file that ends in ``.keras``.
        form: one of ``FORMATS``.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled.

    Raises:
        ValueError: the source cannot be read or lacks a weight, the target is there already, or
            what was written differs from the source; nothing is kept of it then.
    """
    _check_target(target, form)
    checkpoint = _complete(open_checkpoint(source, allow_pickle))
    _check_place(checkpoint, form)
    target = target.rstrip("/") if "://" in target else os.path.abspath(target)
    with files.scratch_directory(target) as folder:
        # A file needs its name's ending, a directory is the scratch itself.
        partial = os.path.join(folder, os.path.basename(target)) if form == "keras" else folder
        sample = take_sample(checkpoint)
        went = _WRITERS[form](checkpoint, partial)
        differences = compare(sample, take_sample(_complete(open_checkpoint(partial))))
        _check_target(target, form)  # again: that took its time
        files.move_new(partial, target)
    left_out = tuple(name for name in checkpoint.tensors if name not in went)
    notes = checkpoint.notes + (_hugging_face_notes(checkpoint) if form == "huggingface" else ())
    return Conversion(checkpoint, went, left_out, differences, notes)


def _hugging_face_notes(checkpoint: Checkpoint) -> tuple[str, ...]:
    notes = []
    spec = checkpoint.model
    if spec.model_class is BertEncoder and not spec.has_pooler:
        notes.append(
            "The encoder has no pooler, and Hugging Face's BertModel starts one anew: load it with "
            "add_pooling_layer=False."
        )
    if checkpoint.thresholds:
        values = ", ".join(f"{name}={value:g}" for name, value in checkpoint.thresholds.items())
        notes.append(f"Hugging Face has no place for the thresholds {values}.")
    return tuple(notes)


def _check_place(checkpoint: Checkpoint, form: str) -> None:
    model = checkpoint.model
    if not model.model_class.known_elsewhere and form not in _OF_EVERY_MODEL:
        raise ValueError(
            f"{checkpoint.path} holds a {model.class_name}, which {form} has no place for: "
            f"expected one of {', '.join(_OF_EVERY_MODEL)}."
        )


def _check_target(target: str, form: str) -> None:
    if form not in _WRITERS:
        raise ValueError(f"There is no format {form!r} to write: expected {', '.join(FORMATS)}.")
    if form == "keras" and not target.endswith(keras_files.SUFFIX):
        raise ValueError(f"{target} has to end in {keras_files.SUFFIX}, or Keras will not open it.")
    files.check_new(target)
    if form == "keras":
        files.check_is_file(target)


def _complete(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, its tensors in the order of the model's weights, each found and fitting."""
    expected = expected_shapes(checkpoint.config, checkpoint.model)
    missing = [name for name in expected if name not in checkpoint.tensors]
    if missing:
        raise ValueError(
            f"{checkpoint.path} lacks {listed(missing, 8)}, so there is no whole "
            f"{checkpoint.model.class_name} to convert."
        )
    tensors = {name: checkpoint.tensors[name] for name in expected}
    check_tensors(checkpoint.path, tensors, expected)
    return dataclasses.replace(checkpoint, tensors=tensors)
