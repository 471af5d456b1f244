"""Conversion of checkpoints between formats, verified by comparing the models' outputs."""

import dataclasses
import importlib
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bert_tf import features
from bert_tf.io import files
from bert_tf.io.checkpoint_formats import WRITTEN
from bert_tf.io.messages import listed, warn
from bert_tf.modeling.base import BertModel

from . import model_card
from .checkpoint import Checkpoint
from .load import check_tensors, open_checkpoint
from .weights import assign, build_model, expected_shapes

TOLERANCE = 1e-5  # maximum absolute difference between outputs
_SEED = 20181011
_BATCH, _MAX_TOKENS, _CHOICES = 2, 16, 3


def compare(first: Checkpoint, second: Checkpoint) -> dict[str, float]:
    """Checks that two checkpoints have equal weights, and equal outputs for random tokens.

    ``second`` may lack weights that its format cannot store.

    Returns:
        The maximum absolute difference of each output by name.
    """
    changed = [
        name
        for name, tensor in second.tensors.items()
        if name not in first.tensors
        or not np.array_equal(tensor.read(), first.tensors[name].read())
    ]
    if changed:
        raise ValueError(f"The conversion of {first.path} changed weights: {listed(changed, 8)}.")
    outputs, others = _run(first), _run(second)
    differences = {
        key: float(np.max(np.abs(value - others.get(key, np.inf)), initial=0.0))
        for key, value in outputs.items()
    }
    large = [f"{key} by {x:.2g}" for key, x in differences.items() if not x <= TOLERANCE]
    if large:
        raise ValueError(
            f"The conversion of {first.path} changed outputs: {', '.join(large)} (expected at most "
            f"{TOLERANCE:g})."
        )
    return differences


def _run(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Returns the outputs of a checkpoint's model by name."""
    model = build_model(checkpoint.config, checkpoint.model, dtype="float32")
    assign(model, checkpoint.tensors)
    outputs = model(_random_inputs(model), training=False)
    if not isinstance(outputs, Mapping):
        outputs = {"logits": outputs}
    # np.array also converts encoder_outputs, a list with one tensor per layer.
    return {key: np.array(value) for key, value in outputs.items()}


def _random_inputs(model: BertModel) -> dict[str, np.ndarray]:
    """Creates random inputs with padding, two segments and a prediction at every position."""
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
        features.INPUT_TYPE_IDS: mask * random.integers(config.type_vocab_size or 1, size=shape),
        features.MASKED_LM_POSITIONS: np.broadcast_to(np.arange(length), shape),
        features.WORD_INDEX: np.where(mask, np.arange(length), -1),
    }
    return {key: values[key].astype(np.int32) for key in model.input}


class Conversion(NamedTuple):
    """Result of a conversion.

    Attributes:
        checkpoint: The source.
        left_out: Weights that the target format cannot store.
        differences: Maximum absolute difference of each output by name.
        notes: Warnings about the source and the result.
    """

    checkpoint: Checkpoint
    left_out: tuple[str, ...]
    differences: Mapping[str, float]
    notes: tuple[str, ...]


def convert(source: str, target: str, form: str, *, allow_pickle: bool = False) -> Conversion:
    """Converts a checkpoint to a format of ``WRITTEN`` and verifies the result.

    The target is created atomically after the verification.
    """
    files.check_not_exists(target)
    checkpoint = _complete(open_checkpoint(source, allow_pickle))
    model = checkpoint.model
    if not model.has_portable_format and form != "bert_tf":
        detail = f" with {model.pooling} pooling" if model.pooling != "cls" else ""
        raise ValueError(
            f"--format={form}: cannot store the {model.class_name}{detail} of {checkpoint.path}. "
            "Use --format=bert_tf."
        )
    if form != "bert_tf":
        checkpoint = _to_portable(checkpoint)
    target = target.rstrip("/") if "://" in target else os.path.abspath(target)
    with files.atomic_directory(target) as folder:
        notes = write(checkpoint, folder, form)
        written = _complete(open_checkpoint(folder))
        differences = compare(checkpoint, written)
        notes = (*checkpoint.notes, *notes)
        if checkpoint.task is not None and form != "bert_tf":
            notes += (
                f"{form} cannot store the lengths and options in task.json of {checkpoint.path}. "
                "Commands that load the result use the default values.",
            )
        if checkpoint.unsupported_modules:
            notes += (f"{checkpoint.unsupported_modules}. Only the BERT encoder was written.",)
        model_card.write_converted(checkpoint, folder, form, notes)
    left_out = tuple(name for name in checkpoint.tensors if name not in written.tensors)
    warn(notes)
    return Conversion(checkpoint, left_out, differences, notes)


def _to_portable(checkpoint: Checkpoint) -> Checkpoint:
    """Divides the head by the temperature, and takes ``max_seq_length`` from ``task.json``."""
    thresholds = dict(checkpoint.thresholds)
    temperature = thresholds.pop(features.TEMPERATURE, 1.0)

    def divide(array: np.ndarray) -> np.ndarray:
        return np.asarray((array.astype(np.float64) / temperature).astype(array.dtype))

    tensors = dict(checkpoint.tensors)
    if temperature != 1.0:
        for name in checkpoint.model.head_shapes(checkpoint.config):
            tensors[name] = tensors[name].transform(tensors[name].shape, divide)
    length = (checkpoint.task or {}).get("max_seq_length")
    if type(length) is not int:
        length = checkpoint.max_seq_length
    return dataclasses.replace(
        checkpoint, tensors=tensors, thresholds=thresholds, max_seq_length=length
    )


def write(checkpoint: Checkpoint, path: str, form: str) -> tuple[str, ...]:
    """Writes a checkpoint into a directory, and returns warnings about the result."""
    writer = importlib.import_module(f"{__package__}.{WRITTEN[form].writer}")
    notes: tuple[str, ...] = writer.write(checkpoint, path)
    return notes


def _complete(checkpoint: Checkpoint) -> Checkpoint:
    """Checks that a checkpoint has all weights, and returns it with the weights in model order."""
    expected = expected_shapes(checkpoint.config, checkpoint.model)
    missing = [name for name in expected if name not in checkpoint.tensors]
    if missing:
        raise ValueError(
            f"{checkpoint.path}: missing weights of a {checkpoint.model.class_name}: "
            f"{listed(missing, 8)}. Only complete models can be converted."
        )
    tensors = {name: checkpoint.tensors[name] for name in expected}
    check_tensors(checkpoint.path, tensors, expected)
    return dataclasses.replace(checkpoint, tensors=tensors)
