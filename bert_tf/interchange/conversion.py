"""A checkpoint of one format to another: tensor by tensor, then both run and compared."""

import dataclasses
import gc
import os
import uuid
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling.base import BertModel

from . import google, hugging_face, keras_files, model_directory
from .checkpoint import Checkpoint
from .load import check_tensors, first_names, load_with_report
from .recognition import open_checkpoint
from .weights import expected_shapes, has_pooler

_WRITERS = {
    "bert_tf": model_directory.write,
    "huggingface": hugging_face.write,
    "google_tf1": google.write,
    "keras": keras_files.write,
}
FORMATS = tuple(_WRITERS)
# Both sides compute in the same way, so most often nothing differs at all.
TOLERANCE = 1e-5
_NO_POOLER = (
    "The encoder has no pooler, and Hugging Face's BertModel starts one anew: load it with "
    "add_pooling_layer=False."
)
_SEED = 20181011  # the paper's date
_BATCH, _MAX_TOKENS, _CHOICES = 2, 16, 3


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
    """Writes a checkpoint in another format, and compares the outputs of both on random input.

    The target appears whole, and only when its outputs are the source's.

    Args:
        source: a path that ``bert_tf.load`` takes.
        target: a new directory, or for ``keras`` a new file that ends in ``.keras``.
        form: one of ``FORMATS``.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled.

    Raises:
        ValueError: the source cannot be read or lacks a weight, the target is there already, or
            the outputs differ by more than ``TOLERANCE``.
    """
    _check_target(target, form)
    checkpoint = _complete(open_checkpoint(source, allow_pickle))
    target = target.rstrip("/") if "://" in target else os.path.abspath(target)
    folder, name = os.path.split(target)
    partial = os.path.join(folder, f".{uuid.uuid4().hex}-{name}")
    try:
        tf.io.gfile.makedirs(folder if form == "keras" else partial)
        went = _WRITERS[form](checkpoint, partial)
        differences = compare(source, partial, allow_pickle=allow_pickle)
        _check_target(target, form)  # again: that took its time
        if tf.io.gfile.isdir(target):
            tf.io.gfile.rmtree(target)
        tf.io.gfile.rename(partial, target)
    finally:
        if tf.io.gfile.isdir(partial):
            tf.io.gfile.rmtree(partial)
        elif tf.io.gfile.exists(partial):
            tf.io.gfile.remove(partial)
    left_out = tuple(name for name in checkpoint.tensors if name not in went)
    notes = checkpoint.notes
    spec = checkpoint.model
    if form == "huggingface" and spec.class_name == "BertEncoder" and not has_pooler(spec):
        notes += (_NO_POOLER,)
    return Conversion(checkpoint, went, left_out, differences, notes)


def _check_target(target: str, form: str) -> None:
    if form not in _WRITERS:
        raise ValueError(f"There is no format {form!r} to write: expected {', '.join(FORMATS)}.")
    if form == "keras" and not target.endswith(keras_files.SUFFIX):
        raise ValueError(f"{target} has to end in {keras_files.SUFFIX}, or Keras will not open it.")
    if not tf.io.gfile.exists(target):
        return
    # An empty directory is as good as none.
    if form == "keras" or not tf.io.gfile.isdir(target) or tf.io.gfile.listdir(target):
        raise ValueError(f"{target} is there already, and is never overwritten: name another.")


def _complete(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, its tensors in the order of the model's weights, each found and fitting."""
    expected = expected_shapes(checkpoint.config, checkpoint.model)
    missing = [name for name in expected if name not in checkpoint.tensors]
    if missing:
        raise ValueError(
            f"{checkpoint.path} lacks {first_names(missing)}, so there is no whole "
            f"{checkpoint.model.class_name} to convert."
        )
    tensors = {name: checkpoint.tensors[name] for name in expected}
    check_tensors(checkpoint.path, tensors, expected)
    return dataclasses.replace(checkpoint, tensors=tensors)


# === Comparison ===


def compare(first: str, second: str, *, allow_pickle: bool = False) -> dict[str, float]:
    """Runs two checkpoints, one after the other, on the same random input.

    Args:
        first: a path that ``bert_tf.load`` takes.
        second: another.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled.

    Returns:
        The largest absolute difference of each output, by the output's name.

    Raises:
        ValueError: the outputs are not the same ones, or differ by more than ``TOLERANCE``.
    """
    outputs = [_run(path, allow_pickle) for path in (first, second)]
    if outputs[0].keys() != outputs[1].keys():
        raise ValueError(
            f"{first} gives {', '.join(outputs[0])}, and what was made of it gives "
            f"{', '.join(outputs[1])}."
        )
    differences = {
        key: float(np.max(np.abs(value - outputs[1][key]), initial=0.0))
        for key, value in outputs[0].items()
    }
    bad = {key: value for key, value in differences.items() if not value <= TOLERANCE}
    if bad:
        shown = ", ".join(f"{key} by {value:.2g}" for key, value in bad.items())
        raise ValueError(
            f"What was made of {first} gives other outputs: they differ in {shown}, where at most "
            f"{TOLERANCE:g} was expected. Nothing is kept of it."
        )
    return differences


def _run(path: str, allow_pickle: bool) -> dict[str, np.ndarray]:
    """A checkpoint's outputs by name; nothing of its model is left in memory."""
    model, _ = load_with_report(path, dtype="float32", allow_pickle=allow_pickle)
    outputs = model(_random_inputs(model), training=False)
    if not isinstance(outputs, Mapping):
        outputs = {"logits": outputs}
    # encoder_outputs is a list of every layer's.
    arrays = {key: np.array(value) for key, value in outputs.items()}
    del model, outputs
    gc.collect()
    return arrays


def _random_inputs(model: BertModel) -> dict[str, np.ndarray]:
    """Token ids, some of them padding, of two segments; every position is asked for predictions."""
    random = np.random.default_rng(_SEED)
    config = model.config
    length = min(_MAX_TOKENS, config.max_position_embeddings)
    rows = (_BATCH, _CHOICES) if len(model.input[features.INPUT_WORD_IDS].shape) == 3 else (_BATCH,)
    shape = (*rows, length)
    mask = np.ones(shape, np.int32)
    mask[-1, ..., length // 2 + 1 :] = 0
    values = {
        features.INPUT_WORD_IDS: random.integers(config.vocab_size, size=shape),
        features.INPUT_MASK: mask,
        features.INPUT_TYPE_IDS: mask * random.integers(config.type_vocab_size, size=shape),
        features.MASKED_LM_POSITIONS: np.broadcast_to(np.arange(length), shape),
    }
    return {key: values[key].astype(np.int32) for key in model.input}
