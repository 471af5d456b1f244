"""Between this library's names and layouts of weights and another's."""

import dataclasses
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .checkpoint import StoredTensor

_LAYER = re.compile(r"layer_(\d+)/")


class Spelling(NamedTuple):
    """How another library stores a weight.

    Attributes:
        name: its name there.
        transposed: whether its matrix there is (outputs, inputs).
    """

    name: str
    transposed: bool


class Names:
    """Another library's names for this one's.

    Args:
        modules: by the name here, "{}" standing for the layer's number, the name there.
        leaves: by ``kernel``, ``bias``, ``gamma``, ``beta``: what is put behind the module's name.
        transposed: whether kernels there are (outputs, inputs).

    >>> names = Names({"layer_{}/output": "h.{}.out"}, {"kernel": ".w"}, transposed=True)
    >>> names.spell("layer_12/output/kernel")
    Spelling(name='h.12.out.w', transposed=True)
    """

    def __init__(
        self,
        modules: Mapping[str, str],
        leaves: Mapping[str, str],
        *,
        transposed: bool,
    ) -> None:
        self._modules = modules
        self._leaves = leaves
        self._transposed = transposed

    def spell(self, name: str) -> Spelling:
        """The other library's name and layout of a weight."""
        layer = _LAYER.match(name)
        pattern = _LAYER.sub("layer_{}/", name, count=1)
        if pattern in self._modules:  # a table: no leaf below it
            return Spelling(self._modules[pattern], transposed=False)
        module, leaf = pattern.rsplit("/", 1)
        number = layer[1] if layer else ""
        there = self._modules[module].format(number) + self._leaves[leaf]
        return Spelling(there, self._transposed and leaf == "kernel")


def transpose(tensor: StoredTensor) -> StoredTensor:
    """The tensor with its axes turned round, once it is read."""
    return dataclasses.replace(
        tensor,
        shape=tensor.shape[::-1],
        read=lambda: np.ascontiguousarray(tensor.read().T),
    )
