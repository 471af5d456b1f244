"""Outputs of models: named tuples that answer by name and by place.

transformers' outputs are ordered dicts. These are tuples, so that Keras, ``tf.function`` and
``tf.nest`` take them apart and put them together as they are; a dict of a class of its own is
closed to all three.
"""

import collections
import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar


class ModelOutput(tuple[Any, ...]):
    """The tensors that a model gives, in the order of ``names``, without those that are ``None``.

    ``outputs.logits``, ``outputs["logits"]`` and ``outputs[0]`` are the same where there is no
    loss. What a class has a name for and a call did not give is ``None`` by name, and has no place.

    >>> outputs = TFSequenceClassifierOutput(logits=[[1.0, 2.0]])
    >>> outputs.logits is outputs[0], outputs.loss, list(outputs.keys()), len(outputs.to_tuple())
    (True, None, ['logits'], 1)
    """

    names: ClassVar[tuple[str, ...]] = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, **values: Any) -> Any:
        """Takes what there is by name; ``None`` is not there."""
        unknown = values.keys() - {*cls.names}
        if unknown:
            raise TypeError(
                f"{cls.__name__} has no {', '.join(sorted(unknown))}: expected "
                f"{', '.join(cls.names)}."
            )
        fields = tuple(name for name in cls.names if values.get(name) is not None)
        return _with_fields(cls, fields)(*(values[name] for name in fields))

    def __getattr__(self, name: str) -> Any:
        if name in type(self).names:
            return None
        raise AttributeError(f"{type(self).__name__} has no {name!r}.")

    def __setitem__(self, name: str, value: Any) -> None:
        raise TypeError(
            f"A {type(self).__name__} is a tuple and cannot be changed: make a dict of it, "
            f"dict(outputs.items()), and put {name!r} there."
        )

    def __reduce__(self) -> Any:
        return functools.partial(type(self).__bases__[0], **dict(self.items())), ()

    def keys(self) -> tuple[str, ...]:
        """Names of the values that are there."""
        return self._fields

    def values(self) -> tuple[Any, ...]:
        """Values, in the order of their names."""
        return tuple(self)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Pairs of name and value."""
        return zip(self._fields, self, strict=True)

    def get(self, name: str, default: Any = None) -> Any:
        """Value of a name, else the default."""
        return getattr(self, name) if name in self._fields else default

    def to_tuple(self) -> tuple[Any, ...]:
        """Values as a plain tuple."""
        return tuple(self)


def _get(self: Any, key: Any) -> Any:
    if not isinstance(key, str):
        return tuple.__getitem__(self, key)
    if key not in self._fields:
        raise KeyError(key)
    return getattr(self, key)


def _contains(self: Any, key: Any) -> bool:
    return key in self._fields


@functools.cache
def _with_fields(kind: type[ModelOutput], fields: tuple[str, ...]) -> Any:
    """The class of the outputs that have just these names: a named tuple."""
    plain = collections.namedtuple(kind.__name__, fields)  # type: ignore[misc]
    # ``kind`` comes first; its ``__new__``, which calls this function, must not make the tuple.
    body = {"__new__": plain.__new__, "__getitem__": _get, "__contains__": _contains}
    return type(kind.__name__, (kind, plain), {**body, "_fields": fields, "names": kind.names})


_STATES = ("hidden_states", "attentions")
_POOLED = [f"TFBaseModelOutputWithPooling{more}" for more in ("", "AndCrossAttentions")]
_PRETRAINING = ("prediction_logits", "seq_relationship_logits")
_LOGITS = ("loss", "logits", *_STATES)
# By the name of each class: what it may have.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "TFBaseModelOutput": ("last_hidden_state", *_STATES),
    **dict.fromkeys(_POOLED, ("last_hidden_state", "pooler_output", *_STATES)),
    "TFBertForPreTrainingOutput": ("loss", *_PRETRAINING, *_STATES),
    **dict.fromkeys(
        (
            *("TFMaskedLMOutput", "TFNextSentencePredictorOutput", "TFTokenClassifierOutput"),
            *("TFSequenceClassifierOutput", "TFMultipleChoiceModelOutput"),
            "TFCausalLMOutputWithCrossAttentions",
        ),
        _LOGITS,
    ),
    "TFQuestionAnsweringModelOutput": ("loss", "start_logits", "end_logits", *_STATES),
}
#: The classes by their names.
OUTPUTS: Mapping[str, type[ModelOutput]] = {
    name: type(name, (ModelOutput,), {"names": names, "__doc__": ModelOutput.__doc__})
    for name, names in _NAMES.items()
}
globals().update(OUTPUTS)
