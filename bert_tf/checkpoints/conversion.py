"""A checkpoint of one format to another: tensor by tensor, then both run and compared."""

import dataclasses
import importlib
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bert_tf import features
from bert_tf.io import files
from bert_tf.io.checkpoint_formats import WRITTEN
from bert_tf.io.wording import listed, warn
from bert_tf.modeling.base import BertModel

from . import model_card
from .checkpoint import Checkpoint
from .load import check_tensors, open_checkpoint
from .weights import assign, build_model, expected_shapes

# Both sides compute in the same way, so most often nothing differs at all.
TOLERANCE = 1e-5
_SEED = 20181011  # the paper's date
_BATCH, _MAX_TOKENS, _CHOICES = 2, 16, 3


def compare(first: Checkpoint, second: Checkpoint) -> dict[str, float]:
    """Compares the weights, then the outputs on the same random tokens.

    ``second`` may lack weights that its format has no place for. Returned: by name, the largest
    absolute difference of each output.
    """
    changed = [
        name
        for name, tensor in second.tensors.items()
        if name not in first.tensors
        or not np.array_equal(tensor.read(), first.tensors[name].read())
    ]
    if changed:
        raise ValueError(f"The conversion of {first.path} has other weights: {listed(changed, 8)}.")
    outputs, others = _run(first), _run(second)
    differences = {
        key: float(np.max(np.abs(value - others.get(key, np.inf)), initial=0.0))
        for key, value in outputs.items()
    }
    bad = {key: value for key, value in differences.items() if not value <= TOLERANCE}
    if bad:
        shown = ", ".join(f"{key} by {value:.2g}" for key, value in bad.items())
        raise ValueError(
            f"The conversion of {first.path} gives other outputs: they differ in {shown}, where at "
            f"most {TOLERANCE:g} was expected."
        )
    return differences


def _run(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The outputs of a checkpoint's model by name."""
    model = build_model(checkpoint.config, checkpoint.model, dtype="float32")
    assign(model, checkpoint.tensors)
    outputs = model(_random_inputs(model), training=False)
    if not isinstance(outputs, Mapping):
        outputs = {"logits": outputs}
    # encoder_outputs is a list of every layer's.
    return {key: np.array(value) for key, value in outputs.items()}


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
        features.INPUT_TYPE_IDS: mask * random.integers(config.type_vocab_size or 1, size=shape),
        features.MASKED_LM_POSITIONS: np.broadcast_to(np.arange(length), shape),
        features.WORD_INDEX: np.where(mask, np.arange(length), -1),
    }
    return {key: values[key].astype(np.int32) for key in model.input}


class Conversion(NamedTuple):
    """Result of a conversion."""

    checkpoint: Checkpoint  # what was read
    left_out: tuple[str, ...]  # weights that the other format's model has no place for
    differences: Mapping[str, float]  # the largest absolute difference of each output
    notes: tuple[str, ...]  # on what was assumed of the source, and on using the result


def convert(source: str, target: str, form: str, *, allow_pickle: bool = False) -> Conversion:
    """Writes a checkpoint in another format, which ``convert --to`` names, and compares the two.

    The target appears whole, and only when it is the source's model.
    """
    files.check_not_exists(target)
    checkpoint = _complete(open_checkpoint(source, allow_pickle))
    model = checkpoint.model
    if not model.has_portable_format and form != "bert_tf":
        has_pooling = model.pooling != "cls"
        detail = f" whose head reads the {model.pooling} over all tokens" if has_pooling else ""
        raise ValueError(
            f"{checkpoint.path} holds a {model.class_name}{detail}, which {form} has no place for: "
            "expected --format=bert_tf."
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
                f"{form} has no place for task.json, the lengths and options that "
                f"{checkpoint.path} was fine-tuned with: commands that read the result take their "
                "own defaults.",
            )
        if checkpoint.unsupported_modules:
            notes += (f"{checkpoint.unsupported_modules}; what was written is its BERT alone.",)
        model_card.write_converted(checkpoint, folder, form, notes)
    left_out = tuple(name for name in checkpoint.tensors if name not in written.tensors)
    warn(notes)
    return Conversion(checkpoint, left_out, differences, notes)


def _to_portable(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with the temperature in its head, and the length that ``task.json`` says."""
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
    """Writes a checkpoint into a directory; gives sentences on the use of what was written."""
    writer = importlib.import_module(f"{__package__}.{WRITTEN[form].writer}")
    notes: tuple[str, ...] = writer.write(checkpoint, path)
    return notes


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
