"""The vectors of a text's tokens to one vector for the text."""

from typing import Any

from keras import ops

POOLINGS = ("none", "cls", "mean", "max")


def pool(states: Any, mask: Any, pooling: str) -> Any:
    """Makes one vector of each row's real tokens, [CLS] and [SEP] among them.

    As sentence-transformers (Reimers and Gurevych 2019, section 3) does, whose models so give the
    embeddings that they were trained for.

    Args:
        states: (B, S, H), any float dtype.
        mask: (B, S) int32, 1 = real and 0 = padding; [CLS] is real.
        pooling: ``cls``, the first token's state; ``mean``; ``max``, of each of the H numbers;
            ``none``.

    Returns:
        (B, H) in the dtype of ``states``; ``states`` themselves of ``none``.

    Raises:
        ValueError: there is no such pooling.

    >>> states = ops.array([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]]])
    >>> mask = ops.array([[1, 1, 0]])
    >>> [ops.convert_to_numpy(pool(states, mask, how)).tolist() for how in POOLINGS[1:]]
    [[[1.0, -4.0]], [[2.0, -3.0]], [[3.0, -2.0]]]
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLINGS)}.")
    if pooling == "none":
        return states
    if pooling == "cls":
        return states[:, 0]
    # (B, S, 1)
    is_real = ops.cast(mask, "bool")[:, :, None]
    if pooling == "max":
        return ops.max(ops.where(is_real, states, ops.cast(-float("inf"), states.dtype)), axis=1)
    # Chosen, not multiplied by 0: what padding has may be infinite.
    total = ops.sum(ops.where(is_real, states, ops.zeros_like(states)), axis=1)
    return total / ops.cast(ops.sum(mask, axis=1)[:, None], states.dtype)


def normalize(vectors: Any) -> Any:
    """Scales vectors to the Euclidean length 1; a vector of zeros stays one.

    Args:
        vectors: (..., H), any float dtype.

    Returns:
        (..., H); the dot product of two of them is their cosine.

    >>> ops.convert_to_numpy(normalize(ops.array([[3.0, 4.0], [0.0, 0.0]])))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    return ops.normalize(vectors, axis=-1, order=2)
