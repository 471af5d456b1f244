"""The vectors of a text's tokens to one vector for the text."""

import dataclasses
from typing import Any

import keras
from keras import ops

from bert_tf.choices import POOLINGS


def pool(states: Any, mask: Any, pooling: str) -> Any:
    """(B, S, H) states and the (B, S) mask, 1 = real -> (B, H); ``none`` gives the states.

    Over all real tokens, [CLS] and [SEP] among them, as sentence-transformers does (Reimers and
    Gurevych 2019, section 3): so its models give the embeddings that they were trained for.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLINGS)}.")
    if pooling == "none":
        return states
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return _last(states, mask)
    # (B, S, 1)
    is_real = ops.cast(mask, "bool")[:, :, None]
    if pooling == "max":
        return ops.max(ops.where(is_real, states, ops.cast(-float("inf"), states.dtype)), axis=1)
    # Chosen, not multiplied by 0: what padding has may be infinite.
    total = ops.sum(ops.where(is_real, states, ops.zeros_like(states)), axis=1)
    return total / ops.cast(ops.sum(mask, axis=1)[:, None], states.dtype)


def _last(states: Any, mask: Any) -> Any:
    """(B, S, H) -> (B, H): the last real token's state; a row of nothing but padding: the first."""
    batch, sequence, width = ops.shape(states)
    places = ops.max(mask * ops.arange(sequence, dtype=mask.dtype), axis=1)
    places = places + ops.arange(batch, dtype=mask.dtype) * ops.cast(sequence, mask.dtype)
    return ops.take(ops.reshape(states, (-1, width)), places, axis=0)


def normalize(vectors: Any) -> Any:
    """Scales vectors (..., H) to the Euclidean length 1; a vector of zeros stays one."""
    return ops.normalize(vectors, axis=-1, order=2)


def most_tokens(embedding: "SentenceEmbedding | None", positions: int) -> int:
    """The tokens of a row where nothing else says it: the embedding's, else all positions."""
    return positions if embedding is None else min(embedding.max_seq_length, positions)


class Pooling(keras.layers.Layer):
    """Pooling for a head without a pooler: the mean or maximum over a text's tokens.

    It computes in float32 at least: a sum of hundreds of states loses digits in less.
    """

    def __init__(self, pooling: str, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.pooling = pooling

    def call(self, hidden: Any, real_tokens: Any) -> Any:
        """(B, S, H) states and the (B, S) mask -> (B, H)."""
        # The first token counts as real, so that a row of nothing but padding gives numbers too.
        mask = ops.concatenate([ops.ones_like(real_tokens[:, :1]), real_tokens[:, 1:]], axis=1)
        states = ops.cast(hidden, keras.backend.result_type(hidden.dtype, "float32"))
        return pool(states, mask, self.pooling)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {**super().get_config(), "pooling": self.pooling}


@dataclasses.dataclass(frozen=True)
class SentenceEmbedding:
    """Steps from the states of a text's tokens to its vector, in a model of sentence embeddings.

    ``bert_tf.load`` reads it, and gives it as a model's ``sentence_embedding``; ``model.embed``
    does all of it but the prefixes.

    Attributes:
        pooling: one of ``POOLINGS`` but ``none``.
        normalize: whether the vector has the Euclidean length 1.
        max_seq_length: the most tokens of a text, [CLS] and [SEP] included.
        query_prefix: what stands before a text that asks, or the first of two.
        document_prefix: what stands before a text that may be found, or the second of two.
        dims: how many numbers, the first ones, are kept of the vector; ``None``: all.

    >>> embedding = SentenceEmbedding("max", normalize=True, max_seq_length=128)
    >>> states = ops.array([[[3.0, 1.0], [1.0, 4.0], [9.0, 9.0]]])
    >>> ops.convert_to_numpy(embedding(states, ops.array([[1, 1, 0]]))).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """

    pooling: str
    normalize: bool
    max_seq_length: int
    query_prefix: str = ""
    document_prefix: str = ""
    dims: int | None = None

    def __call__(self, states: Any, mask: Any, dense: Any = None) -> Any:
        """(B, S, H) states, the (B, S) mask and the model's dense layer, if any -> (B, D)."""
        vectors = pool(states, mask, self.pooling)
        vectors = vectors if dense is None else dense(vectors)
        vectors = vectors[:, : self.dims]
        return normalize(vectors) if self.normalize else vectors
