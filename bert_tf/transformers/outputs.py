"""Model outputs: named tuples that can also be indexed by name.

In transformers, outputs are ordered dicts. Here, outputs are tuples, because Keras,
``tf.function`` and ``tf.nest`` cannot flatten a custom dict class.
"""

import collections
import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar


class ModelOutput(tuple[Any, ...]):
    """Outputs of a model in the order of ``names``, without those that are ``None``.

    Without a loss, ``outputs.logits``, ``outputs["logits"]`` and ``outputs[0]`` are the same. The
    attribute of a missing output is ``None``.

    >>> outputs = TFSequenceClassifierOutput(logits=[[1.0, 2.0]])
    >>> outputs.logits is outputs[0], outputs.loss, list(outputs.keys()), len(outputs.to_tuple())
    (True, None, ['logits'], 1)
    """

    names: ClassVar[tuple[str, ...]] = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, **values: Any) -> Any:
        """Creates the outputs; values of ``None`` are omitted."""
        unknown = values.keys() - {*cls.names}
        if unknown:
            raise TypeError(
                f"{cls.__name__}: expected {', '.join(cls.names)}, got "
                f"{', '.join(sorted(unknown))}."
            )
        fields = tuple(name for name in cls.names if values.get(name) is not None)
        return _with_fields(cls, fields)(*(values[name] for name in fields))

    def __getattr__(self, name: str) -> Any:
        if name in type(self).names:
            return None
        raise AttributeError(f"{type(self).__name__} has no {name!r}.")

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self._fields:
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self._fields

    def __setitem__(self, name: str, value: Any) -> None:
        raise TypeError(
            f"{type(self).__name__} is immutable. Use dict(outputs.items()) to set {name!r}."
        )

    def __reduce__(self) -> Any:
        return functools.partial(type(self).__bases__[0], **dict(self.items())), ()

    def keys(self) -> tuple[str, ...]:
        """Returns the names of the outputs."""
        return self._fields

    def values(self) -> tuple[Any, ...]:
        """Returns the outputs as a plain tuple."""
        return tuple(self)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Returns pairs of a name and an output."""
        return zip(self._fields, self, strict=True)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the output with a name, or the default."""
        return getattr(self, name) if name in self._fields else default

    to_tuple = values


@functools.cache
def _with_fields(cls: type[ModelOutput], fields: tuple[str, ...]) -> Any:
    """Creates the named tuple class for outputs with exactly these names."""
    plain = collections.namedtuple(cls.__name__, fields)  # type: ignore[misc]
    # ``cls`` is the first base, but its ``__new__`` calls this function, so it is replaced.
    body = {"__new__": plain.__new__, "_fields": fields, "names": cls.names}
    return type(cls.__name__, (cls, plain), body)


_STATES = ("hidden_states", "attentions")
_POOLED = [f"TFBaseModelOutputWithPooling{more}" for more in ("", "AndCrossAttentions")]
_PRETRAINING = ("prediction_logits", "seq_relationship_logits")
_LOGITS = ("loss", "logits", *_STATES)
# Names of the outputs of each class.
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
#: The classes by name.
OUTPUTS: Mapping[str, type[ModelOutput]] = {
    name: type(name, (ModelOutput,), {"names": names, "__doc__": ModelOutput.__doc__})
    for name, names in _NAMES.items()
}
globals().update(OUTPUTS)
