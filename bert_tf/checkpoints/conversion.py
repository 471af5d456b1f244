"""A checkpoint of one format to another: tensor by tensor, then both run and compared."""

import dataclasses
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bert_tf import features, files
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.base import BertModel
from bert_tf.untrusted import listed

from . import FORMATS, google, model_card, model_directory, sentence_transformers
from .checkpoint import Checkpoint
from .load import check_tensors
from .recognition import open_checkpoint
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
    outputs = [_run(first), _run(second)]
    if outputs[0].keys() != outputs[1].keys():
        raise ValueError(
            f"{first.path} gives {', '.join(outputs[0])}, and the conversion gives "
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


_MODULES = (model_directory, sentence_transformers, google)
_WRITERS = {form: module.write for form, module in zip(FORMATS, _MODULES, strict=True)}
# The formats that have a word for a causal model, and for a DistilBERT.
_SAY_WHAT = ("bert_tf", "huggingface")


class Conversion(NamedTuple):
    """Result of a conversion.

    Attributes:
        checkpoint: what was read.
        left_out: weights that the other format's model has no place for.
        differences: the largest absolute difference of each output between the two.
        notes: sentences on what was assumed of the source, and on using the result.
    """

    checkpoint: Checkpoint
    left_out: tuple[str, ...]
    differences: Mapping[str, float]
    notes: tuple[str, ...]


def convert(source: str, target: str, form: str, *, allow_pickle: bool = False) -> Conversion:
    """Writes a checkpoint in another format, and compares the weights and the outputs of both.

    The target appears whole, and only when it is the source's model.

    Args:
        source: a path that ``bert_tf.load`` takes.
        target: a new directory.
        form: one of ``FORMATS``.
        allow_pickle: whether ``pytorch_model.bin`` may be unpickled.
    """
    files.check_new(target)
    checkpoint = _complete(open_checkpoint(source, allow_pickle))
    model = checkpoint.model
    if not model.known_elsewhere and form != "bert_tf":
        own = ""
        if (pooling := model.arguments.get("pooling", "cls")) != "cls":
            own = f" whose head reads the {pooling} over all tokens"
        raise ValueError(
            f"{checkpoint.path} holds a {model.class_name}{own}, which {form} has no place for: "
            "expected --format=bert_tf."
        )
    config = checkpoint.config
    if (config.is_distilbert or config.is_decoder) and form not in _SAY_WHAT:
        kind, said_by = ("causal", "is_decoder")
        if config.is_distilbert:
            kind, said_by = ("DistilBERT's", "type_vocab_size is 0")
        raise ValueError(
            f"{checkpoint.path} holds a {kind} {model.class_name} ({said_by}), and {form} "
            f"cannot say that: expected one of {', '.join(_SAY_WHAT)}."
        )
    target = target.rstrip("/") if "://" in target else os.path.abspath(target)
    with files.whole_directory(target) as folder:
        _WRITERS[form](checkpoint, folder)
        written = _complete(open_checkpoint(folder))
        differences = compare(checkpoint, written)
        model_card.write_converted(checkpoint, folder, form)
    left_out = tuple(name for name in checkpoint.tensors if name not in written.tensors)
    notes = checkpoint.notes + (_hugging_face_notes(checkpoint) if form == "huggingface" else ())
    if checkpoint.task is not None and form != "bert_tf":
        notes += (
            f"{form} has no place for task.json, the lengths and options that {checkpoint.path} "
            "was fine-tuned with: commands that read the result take their own defaults.",
        )
    if checkpoint.not_computed:
        notes += (f"{checkpoint.not_computed}; what was written is its BERT alone.",)
    return Conversion(checkpoint, left_out, differences, notes)


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
