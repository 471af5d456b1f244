"""The arguments of a call, however a script gives them: by place, by name, in a list or a dict."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import KerasTensor, ops

TENSORS = (
    *("input_ids", "attention_mask", "token_type_ids", "position_ids", "head_mask"),
    "inputs_embeds",
)
_SWITCHES = ("output_attentions", "output_hidden_states", "return_dict", "training")
# What a decoder takes in generation, and a mask of heads; nothing here computes with them.
_REFUSED = {
    "head_mask": "no head can be switched off",
    "encoder_hidden_states": "there is no cross-attention",
    "encoder_attention_mask": "there is no cross-attention",
    "past_key_values": "states of earlier tokens are not kept, and nothing is generated",
}
_IGNORED = ("use_cache", "return_loss")


class Call(NamedTuple):
    """A call's tensors by name, and its switches; ``None`` is left out."""

    tensors: dict[str, Any]
    switches: dict[str, Any]


def gather(name: str, labels: Sequence[str], arguments: Sequence[Any], named: Any) -> Call:
    """What a call of the model ``name`` was given.

    ``labels`` are the names of its labels. The first argument is a dict of tensors (what it has
    besides is left out, as there), a list of tensors in the order of ``TENSORS``, or the ids; ids
    may be lists of numbers. The next are in that order, too.

    Raises:
        TypeError: an argument that no model has.
        ValueError: an argument of theirs that nothing here computes with.
    """
    order = (*TENSORS, *_SWITCHES[:3], *labels, "training")
    tensors: dict[str, Any] = {}
    first, *others = arguments or (None,)
    if len(others) >= len(order):
        raise TypeError(f"{name} takes {len(order)} arguments, and got {len(arguments)}.")
    if isinstance(first, Mapping):
        known = {*order, *_REFUSED}
        tensors = {key: value for key, value in first.items() if key in known}
    elif isinstance(first, tuple | list) and any(map(_is_tensor, first)):
        tensors = dict(zip(TENSORS, first, strict=False))
    elif first is not None:
        tensors = {TENSORS[0]: first}
    tensors.update(zip(order[1:], others, strict=False))
    known = {*order, *_REFUSED, *_IGNORED}
    # Keras hands the first argument on by its name in a layer's call.
    for key, value in named.items():
        if key == "inputs" and isinstance(value, Mapping):
            tensors.update(value)
        elif key in known:
            tensors[key] = value
        else:
            raise TypeError(f"{name} has no argument {key!r}: expected {', '.join(order)}.")
    tensors = {key: value for key, value in tensors.items() if value is not None}
    for key, why in _REFUSED.items():
        if key in tensors:
            raise ValueError(f"{name} was given {key}, and {why}: leave it out.")
    switches = {key: tensors.pop(key) for key in _SWITCHES if key in tensors}
    found = {key: _as_tensor(value) for key, value in tensors.items() if key not in _IGNORED}
    return Call(found, switches)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, KerasTensor) or ops.is_tensor(value) or isinstance(value, np.ndarray)


def _as_tensor(value: Any) -> Any:
    return value if _is_tensor(value) else ops.convert_to_tensor(np.asarray(value))
