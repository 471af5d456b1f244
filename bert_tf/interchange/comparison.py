"""Whether two checkpoints are one model: the same weights, and the same outputs."""

import dataclasses
import gc
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_tf import features
from bert_tf.modeling.base import BertModel
from bert_tf.untrusted import listed

from .checkpoint import Checkpoint, StoredTensor
from .weights import assign, build_model

# Both sides compute in the same way, so most often nothing differs at all.
TOLERANCE = 1e-5
_SEED = 20181011  # the paper's date
_BATCH, _MAX_TOKENS, _CHOICES = 2, 16, 3
_MAX_WORDS = 64
_OF_WORDS = ("embeddings/word_embeddings", "masked_lm/output_bias")


class Sample(NamedTuple):
    """What is taken of a checkpoint to compare it with another.

    Attributes:
        path: the checkpoint's.
        digests: of every weight.
        few: the checkpoint with a few words of its vocabulary, the same ones of every checkpoint.
    """

    path: str
    digests: Mapping[str, Any]
    few: Checkpoint


def take_sample(checkpoint: Checkpoint) -> Sample:
    """Reads every weight of a whole checkpoint, one after the other, and keeps hardly anything."""
    digests = {name: _digest(tensor) for name, tensor in checkpoint.tensors.items()}
    return Sample(checkpoint.path, digests, _with_few_words(checkpoint))


def compare(first: Sample, second: Sample) -> dict[str, float]:
    """Compares the weights bit for bit, then runs both models on the same random tokens.

    The models are run one after the other, with no more of the vocabulary than a few words: all of
    it was compared already, and it may be half of a model.

    Args:
        first: of a checkpoint.
        second: of what was made of it; weights that its format has no place for may be missing.

    Returns:
        The largest absolute difference of each output, by the output's name.

    Raises:
        ValueError: a weight is another, the outputs are not the same ones, or they differ by more
            than ``TOLERANCE``.
    """
    changed = [name for name, digest in second.digests.items() if first.digests.get(name) != digest]
    if changed:
        raise ValueError(f"What was made of {first.path} has other weights: {listed(changed, 8)}.")
    outputs = [_run(first.few)]
    gc.collect()  # the first model goes before the second one comes
    outputs.append(_run(second.few))
    if outputs[0].keys() != outputs[1].keys():
        raise ValueError(
            f"{first.path} gives {', '.join(outputs[0])}, and what was made of it gives "
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
            f"What was made of {first.path} gives other outputs: they differ in {shown}, where at "
            f"most {TOLERANCE:g} was expected."
        )
    return differences


def _digest(tensor: StoredTensor) -> tuple[tuple[int, ...], bytes]:
    """The shape, and a hash of the values as float32: one tensor is held at a time."""
    values = np.ascontiguousarray(tensor.read().astype(np.float32, copy=False))
    return values.shape, hashlib.sha256(values.data).digest()


def _run(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """A checkpoint's outputs by name."""
    model = build_model(checkpoint.config, checkpoint.model, dtype="float32")
    assign(model, checkpoint.tensors)
    outputs = model(_random_inputs(model), training=False)
    if not isinstance(outputs, Mapping):
        outputs = {"logits": outputs}
    # encoder_outputs is a list of every layer's.
    return {key: np.array(value) for key, value in outputs.items()}


def _with_few_words(checkpoint: Checkpoint) -> Checkpoint:
    size = checkpoint.config.vocab_size
    random = np.random.default_rng(_SEED)
    words = np.sort(random.choice(size, min(size, _MAX_WORDS), replace=False))

    def cut(tensor: StoredTensor) -> StoredTensor:
        rows = tensor.read()[words]
        return dataclasses.replace(tensor, shape=rows.shape, read=lambda: rows)

    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(checkpoint.config, vocab_size=len(words)),
        tensors={
            name: cut(tensor) if name in _OF_WORDS else tensor
            for name, tensor in checkpoint.tensors.items()
        },
    )


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
        features.WORD_INDEX: np.where(mask, np.arange(length), -1),
    }
    return {key: values[key].astype(np.int32) for key in model.input}
