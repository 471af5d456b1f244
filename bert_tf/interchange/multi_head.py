"""Attention kernels stored by head, as layers called multi-head attention keep them.

Letters: H hidden, N heads, D head size; H = N * D.
"""

import dataclasses
import re

from .checkpoint import StoredTensor

_LEAF = re.compile(r"layer_\d+/attention/(query|key|value|output)/(kernel|bias)")


def merge_heads(name: str, tensor: StoredTensor, num_heads: int, source: str) -> StoredTensor:
    """A tensor in this library's layout.

    A query, key or value kernel is (H, N, D) in the file and (H, N * D) here, its bias (N, D) and
    (N * D,); the output's kernel is (N, D, H) and (N * D, H). In memory they are the same. Any
    other tensor, and one of these that has another number of dimensions, is left as it is.

    Args:
        name: the tensor's name, as in ``checkpoint``.
        tensor: as stored.
        num_heads: the config's.
        source: what errors name as the place that the config came from.

    Raises:
        ValueError: the tensor has another number of heads than the config: merged, it would have
            the right shape and mean something else.
    """
    match = _LEAF.fullmatch(name)
    if not match:
        return tensor
    part, leaf = match.groups()
    rank = {"kernel": 3, "bias": 2}[leaf] if (part, leaf) != ("output", "bias") else 0
    if len(tensor.shape) != rank:
        return tensor
    first = 1 if leaf == "kernel" and part != "output" else 0  # the axis of heads
    before, (heads, size), after = (
        tensor.shape[:first],
        tensor.shape[first : first + 2],
        tensor.shape[first + 2 :],
    )
    if heads != num_heads:
        raise ValueError(
            f"{source} says that attention has {num_heads} heads, but {tensor.names[0]} of shape "
            f"{tensor.shape} has {heads}: one of the two belongs to another model."
        )
    shape = (*before, heads * size, *after)
    return dataclasses.replace(tensor, shape=shape, read=lambda: tensor.read().reshape(shape))
