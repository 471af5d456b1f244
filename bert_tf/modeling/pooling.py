"""Pooling of the tokens' hidden states to one vector per text.

Letters: B batch, S sequence, H hidden, D vector.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from bert_tf.choices import POOLINGS


def pool(states: Any, mask: Any, pooling: str) -> Any:
    """Pools hidden states (B, S, H) to vectors (B, H); ``"none"`` returns the states.

    The mask (B, S) is 1 for tokens, including [CLS] and [SEP], and 0 for padding, as in
    sentence-transformers (Reimers and Gurevych 2019, section 3).
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling={pooling!r}: expected one of {', '.join(POOLINGS)}.")
    if pooling == "none":
        return states
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return _last_token_state(states, mask)
    # (B, S, 1)
    is_real = ops.cast(mask, "bool")[:, :, None]
    if pooling == "max":
        return ops.max(ops.where(is_real, states, ops.cast(-float("inf"), states.dtype)), axis=1)
    # States are selected, not multiplied by 0, because states at padding may be infinite.
    total = ops.sum(ops.where(is_real, states, ops.zeros_like(states)), axis=1)
    return total / ops.cast(ops.sum(mask, axis=1)[:, None], states.dtype)


def _last_token_state(states: Any, mask: Any) -> Any:
    """Returns the state (B, H) of the last token, or of the first if all are padding."""
    batch, sequence, width = ops.shape(states)
    indices = ops.max(mask * ops.arange(sequence, dtype=mask.dtype), axis=1)
    indices = indices + ops.arange(batch, dtype=mask.dtype) * ops.cast(sequence, mask.dtype)
    return ops.take(ops.reshape(states, (-1, width)), indices, axis=0)


def normalize(vectors: Any) -> Any:
    """Scales vectors (..., H) to Euclidean length 1; zero vectors stay zero."""
    return ops.normalize(vectors, axis=-1, order=2)


class Pooling(keras.layers.Layer):
    """Mean or maximum of a text's token states, for heads without a pooler.

    The layer uses float32 or float64, because a sum of many states is inaccurate in bfloat16.
    """

    def __init__(self, pooling: str, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.pooling = pooling

    def call(self, hidden: Any, real_tokens: Any) -> Any:
        """Computes (B, H) from hidden states (B, S, H) and the mask (B, S)."""
        # The first token is never masked, so that sequences of only padding have finite vectors.
        mask = ops.concatenate([ops.ones_like(real_tokens[:, :1]), real_tokens[:, 1:]], axis=1)
        states = ops.cast(hidden, keras.backend.result_type(hidden.dtype, "float32"))
        return pool(states, mask, self.pooling)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        return {**super().get_config(), "pooling": self.pooling}


@dataclasses.dataclass(frozen=True)
class SentenceEmbedding:
    """Computes a text's vector from the hidden states of the tokens.

    For a sentence-transformers model, ``bert_tf.load`` sets ``model.sentence_embedding``, which
    ``model.embed`` applies. The prefixes are added to the texts before tokenization.

    Attributes:
        pooling: One of ``bert_tf.choices.POOLINGS`` except ``"none"``.
        normalize: Whether the vector is scaled to length 1.
        max_seq_length: Maximum number of tokens per text, including [CLS] and [SEP].
        query_prefix: Prefix of queries, or of the first text of a pair.
        document_prefix: Prefix of documents, or of the second text of a pair.
        dims: Number of leading dimensions to keep; ``None`` keeps all.
        rescale: Whether ``normalize`` is applied after, rather than before, truncation to ``dims``.

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
    rescale: bool = True

    def __call__(self, states: Any, mask: Any, dense: Any = None) -> Any:
        """Computes the vectors.

        Args:
            states: Hidden states, of shape (B, S, H).
            mask: Mask of shape (B, S), 1 for tokens and 0 for padding.
            dense: Dense layer that is applied after pooling, or ``None``.

        Returns:
            Vectors of shape (B, D).
        """
        vectors = pool(states, mask, self.pooling)
        vectors = vectors if dense is None else dense(vectors)
        if self.normalize and not self.rescale:
            vectors = normalize(vectors)
        vectors = vectors[:, : self.dims]
        return normalize(vectors) if self.normalize and self.rescale else vectors
