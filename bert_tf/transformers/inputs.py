"""The arguments of a call, however a script gives them: by place, by name, in a list or a dict."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor, ops

from .outputs import ModelOutput

TENSORS = (
    *("input_ids", "attention_mask", "token_type_ids", "position_ids", "head_mask"),
    "inputs_embeds",
)
_SWITCHES = ("output_attentions", "output_hidden_states", "return_dict", "training")
# Inputs of a decoder in generation, and a mask of heads; nothing here computes with them.
_REFUSED = {
    "head_mask": "no head can be switched off",
    "encoder_hidden_states": "there is no cross-attention",
    "encoder_attention_mask": "there is no cross-attention",
    "past_key_values": "states of earlier tokens are not kept, and nothing is generated",
}
_IGNORED = ("use_cache", "return_loss")
# Where tensors have their rows' length.
_LENGTHS = (("input_ids", -1), ("inputs_embeds", -2))


def gather(name: str, labels: Sequence[str], arguments: Sequence[Any], named: Any) -> Any:
    """The tensors by name, and the switches, that a call of the model ``name`` was given.

    The first argument is a dict of tensors, whose unknown names are left out, a list of tensors in
    the order of ``TENSORS``, or the ids; the next arguments are in that order, too.
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
    return found, switches


def _is_tensor(value: Any) -> bool:
    return isinstance(value, KerasTensor) or ops.is_tensor(value) or isinstance(value, np.ndarray)


def _as_tensor(value: Any) -> Any:
    return value if _is_tensor(value) else ops.convert_to_tensor(np.asarray(value))


def check_places(name: str, tables: Any, tensors: Mapping[str, Any]) -> None:
    """Refuses rows, and ids outside of a graph, that the embeddings have no place for.

    A graph, which does not know its ids, is not made longer for it: on a CPU TensorFlow refuses
    there what is too high, and what is below 0 counts from the end.
    """
    of = {
        "input_ids": tables.word_embeddings,
        "token_type_ids": tables.token_type_embeddings,
        "position_ids": tables.position_embeddings,
    }
    most = of["position_ids"].shape[0]
    if "position_ids" not in tensors:
        lengths = [tensors[key].shape[at] for key, at in _LENGTHS if key in tensors]
        if any(length is not None and length > most for length in lengths):
            raise ValueError(
                f"{name} was given rows of {lengths[0]} tokens, and has {most} positions: cut them "
                f"(truncation=True, max_length={most} of the tokenizer)."
            )
    for key, table in of.items() if tf.executing_eagerly() else ():
        if table is None or key not in tensors or isinstance(tensors[key], KerasTensor):
            continue
        ids = np.asarray(tensors[key])
        if ids.size and (ids.min() < 0 or ids.max() >= table.shape[0]):
            raise ValueError(
                f"{name} was given {key} from {ids.min()} to {ids.max()}: expected 0 to "
                f"{table.shape[0] - 1}."
            )


def of_keras_2(kind: type) -> ValueError:
    """The refusal of a model that Keras 2 wrote as a whole."""
    return ValueError(
        f"Keras 3 cannot make the model of a {kind.__name__} that Keras 2 wrote: build it anew in "
        "Python, and call its load_weights(file)."
    )


class CalledAsTheirs(keras.layers.Layer):
    """A layer that takes the arguments of theirs, and has this library's model in it.

    Without a ``native`` model, of the same variables, the class has a call of its own. ``run``
    takes a call's tensors, ``training`` and the outputs that are wanted.
    """

    config: Any
    native: Any = None
    run: Callable[..., ModelOutput]
    # By the names of labels among the inputs: those of the logits that go with them.
    label_logits: Mapping[str, str] = MappingProxyType({})

    def keep_native(self, model: Any) -> None:
        """Keeps it beside the layers, so that Keras does not save them twice."""
        object.__setattr__(self, "native", model)

    def __dir__(self) -> list[str]:
        """All but the native model: Keras saves every layer that it finds here."""
        return [name for name in super().__dir__() if name != "native"]

    def build(self, *input_shapes: Any) -> None:
        """Nothing: the layers are built."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Runs it; the arguments are theirs (``TENSORS``, in this order, and labels)."""
        if self.native is None:
            return super().__call__(*arguments, **named)
        said = {"trains": named.pop("trains")} if "trains" in named else {}
        tensors, switches = gather(self.name, [*self.label_logits], arguments, named)
        check_places(self.name, getattr(self.native, "encoder", self.native).embeddings, tensors)
        # A functional model repeats the call with a ``training`` of its own, whatever it said.
        if "training" in switches and type(self).call is CalledAsTheirs.call:
            switches = {**switches, "trains": switches["training"], **said}
        return super().__call__(tensors, **switches)

    def call(
        self,
        inputs: dict[str, Any],
        training: bool | None = False,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        trains: bool | None = None,
    ) -> Any:
        """A dict of tensors -> what ``run`` gives, or a tuple of what there is.

        ``trains`` is what the call said of ``training``, ``None`` where it said nothing.
        """
        if self.native is None:
            raise NotImplementedError(f"{type(self).__name__} has no call of its own.")

        def is_on(name: str, given: bool | None) -> bool:
            return bool(getattr(self.config, name) if given is None else given)

        found = self.run(
            inputs,
            training if trains is None else trains,
            output_attentions=is_on("output_attentions", output_attentions),
            output_hidden_states=is_on("output_hidden_states", output_hidden_states),
        )
        return found if is_on("use_return_dict", return_dict) else found.to_tuple()
