"""The encoder as a layer, called as in transformers: by place or name, with a list or a dict.

Letters: B batch, S sequence, H hidden.
"""

import numbers
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor, ops

from bert_tf import features
from bert_tf.io import runtime
from bert_tf.modeling import BertEncoder, keras_hooks
from bert_tf.modeling.encoder import BertEmbeddings
from bert_tf.modeling.transformer import TransformerBlock

from .configuration import AutoConfig, PretrainedConfig
from .outputs import OUTPUTS, ModelOutput

TENSORS = (
    *("input_ids", "attention_mask", "token_type_ids", "position_ids", "head_mask"),
    "inputs_embeds",
)
_SWITCHES = ("output_attentions", "output_hidden_states", "return_dict", "training")
# Inputs of a decoder in generation, and a mask of heads; nothing here computes with them.
_UNSUPPORTED = {
    "head_mask": "no head can be switched off",
    "encoder_hidden_states": "there is no cross-attention",
    "encoder_attention_mask": "there is no cross-attention",
    "past_key_values": "states of earlier tokens are not kept, and nothing is generated",
}
_IGNORED = ("use_cache", "return_loss")
# Where tensors have their rows' length.
_LENGTHS = (("input_ids", -1), ("inputs_embeds", -2))
# What a tokenizer gives for each token and no model takes, and what is the head's, not its layer's.
_NON_MODEL_INPUTS = (
    *("offset_mapping", "special_tokens_mask", "labels", "start_positions", "end_positions"),
    "next_sentence_label",
)


def collect_inputs(
    name: str, labels: Sequence[str], arguments: Sequence[Any], keywords: Any
) -> Any:
    """The tensors by name, and the switches, that a call of the model ``name`` was given.

    The first argument is a dict of tensors, a list of tensors in the order of ``TENSORS``, or the
    ids; the next arguments are in that order, too. Unknown names of a dict are left out where they
    are of columns, a value a row; what has one a token would be a name misspelt.
    """
    order = (*TENSORS, *_SWITCHES[:3], *labels, "training")
    known = {*order, *_UNSUPPORTED, *_IGNORED}
    first, *others = arguments or (None,)
    if len(others) >= len(order):
        raise TypeError(f"{name} takes {len(order)} arguments, and got {len(arguments)}.")
    if isinstance(first, Mapping):
        tensors = {key: value for key, value in first.items() if key in known}
        for key in first.keys() - known - {*_NON_MODEL_INPUTS}:
            if _has_tokens(first[key]):
                raise ValueError(
                    f"{name} has no input {key!r}: expected {', '.join(order)}; leave it out."
                )
    elif isinstance(first, tuple | list) and any(map(_is_tensor, first)):
        tensors = dict(zip(TENSORS, first, strict=False))
    else:
        tensors = {TENSORS[0]: first}
    tensors.update(zip(order[1:], others, strict=False))
    if isinstance(keywords.get("inputs"), Mapping):  # Keras' name of a layer's first argument
        tensors.update(keywords.pop("inputs"))
    if unknown := keywords.keys() - known:
        raise TypeError(f"{name} has no argument {unknown.pop()!r}: expected {', '.join(order)}.")
    tensors |= keywords
    tensors = {key: value for key, value in tensors.items() if value is not None}
    for key in tensors.keys() & _UNSUPPORTED.keys():
        raise ValueError(f"{name} was given {key}, and {_UNSUPPORTED[key]}: leave it out.")
    switches = {key: tensors.pop(key) for key in _SWITCHES if key in tensors}
    tensors = {
        key: value if _is_tensor(value) else ops.convert_to_tensor(np.asarray(value))
        for key, value in tensors.items()
        if key not in _IGNORED
    }
    return tensors, switches


def _is_tensor(value: Any) -> bool:
    return isinstance(value, KerasTensor) or ops.is_tensor(value) or isinstance(value, np.ndarray)


def _has_tokens(value: Any) -> bool:
    """True if a value has a number, or more, for each token of its rows."""
    if isinstance(value, list | tuple):
        return any(
            isinstance(row, list | tuple)
            and len(row) != 1
            and all(isinstance(number, numbers.Number) for number in row)
            for row in value
        )
    shape: Any = getattr(value, "shape", None) or ()  # that of an unknown rank is false
    return len(shape) > 1 and shape[-1] != 1


def _is_text(tensor: Any) -> bool:
    return bool(tf.as_dtype(tensor.dtype) == tf.string) or str(tensor.dtype).startswith("<U")


def check_ids(name: str, tables: Any, tensors: Mapping[str, Any]) -> None:
    """Refuses rows, and ids outside of a graph, that the embeddings have no place for.

    In a graph TensorFlow refuses on a CPU what is too high; what is below 0 counts from the end.
    """
    of = {
        "input_ids": tables.word_embeddings,
        "token_type_ids": tables.token_type_embeddings,
        "position_ids": tables.position_embeddings,
    }
    limit = of["position_ids"].shape[0]
    ids = tensors.get("input_ids")
    if ids is not None and (len(ids.shape) < 2 or ids.shape[-1] == 0 or _is_text(ids)):
        kind = "text" if _is_text(ids) else f"input_ids of shape {tuple(ids.shape)}"
        raise ValueError(
            f"{name} was given {kind}: expected ids (B, S), rows of one token or more, which "
            "tokenizer(list_of_texts, padding=True, return_tensors='tf') makes."
        )
    lengths = [tensors[key].shape[at] for key, at in _LENGTHS if key in tensors]
    if "position_ids" not in tensors and any(n is not None and n > limit for n in lengths):
        raise ValueError(
            f"{name} was given rows of {lengths[0]} tokens, and has {limit} positions: cut them "
            f"(truncation=True, max_length={limit} of the tokenizer)."
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


def keras_2_error(kind: type) -> ValueError:
    """The refusal of a model that Keras 2 wrote as a whole."""
    return ValueError(
        f"Keras 3 cannot make the model of a {kind.__name__} that Keras 2 wrote: build it anew in "
        "Python, and call its load_weights(file)."
    )


class TransformersLayer(keras.layers.Layer):
    """A layer with the arguments of transformers' layers, and this library's model in it.

    Without a ``native`` model, of the same variables, the class has a call of its own. ``run``
    takes a call's tensors, ``training`` and the switches of optional outputs.
    """

    config: Any
    native: Any = None
    run: Callable[..., ModelOutput]
    # By the names of labels among the inputs: those of the logits that go with them.
    label_logits: Mapping[str, str] = MappingProxyType({})

    def set_native(self, model: Any) -> None:
        """Keeps the ``native`` model where Keras does not look: it would save the layers twice."""
        object.__setattr__(self, "native", model)

    def __dir__(self) -> list[str]:
        """All but what Keras and TensorFlow would save because they find it here."""
        return [name for name in super().__dir__() if name not in ("native", "serving")]

    def build(self, *input_shapes: Any) -> None:
        """Nothing: the layers are built."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs it; the arguments are transformers' (``TENSORS``, in this order, and labels)."""
        runtime.check_fork()
        if self.native is None:
            return super().__call__(*arguments, **keywords)
        own = {"trains": keywords.pop("trains")} if "trains" in keywords else {}
        tensors, switches = collect_inputs(self.name, [*self.label_logits], arguments, keywords)
        check_ids(self.name, getattr(self.native, "encoder", self.native).embeddings, tensors)
        # A functional model repeats the call with a ``training`` of its own, whatever it own.
        if "training" in switches and type(self).call is TransformersLayer.call:
            switches = {**switches, "trains": switches["training"], **own}
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

        ``trains`` is the call's own ``training``, ``None`` where there was none.
        """
        if self.native is None:
            raise NotImplementedError(f"{type(self).__name__} has no call of its own.")

        def is_on(name: str, switch: bool | None) -> bool:
            return bool(getattr(self.config, name) if switch is None else switch)

        outputs = self.run(
            inputs,
            training if trains is None else trains,
            output_attentions=is_on("output_attentions", output_attentions),
            output_hidden_states=is_on("output_hidden_states", output_hidden_states),
        )
        return outputs if is_on("use_return_dict", return_dict) else outputs.to_tuple()


keras_hooks.register_slice_operation()  # states[:, 0] is in many a functional model


class TFBertEmbeddings(keras.layers.Layer):
    """The embeddings, whose tables go by their names."""

    def __init__(self, layer: BertEmbeddings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer
        self.built = True

    def call(
        self,
        input_ids: Any = None,
        position_ids: Any = None,
        token_type_ids: Any = None,
        inputs_embeds: Any = None,
        training: bool | None = False,
    ) -> Any:
        """(B, S) ids, or (B, S, H) vectors -> (B, S, H); types are 0 where they are left out."""
        words = ops.cast(input_ids, "int32") if inputs_embeds is None else inputs_embeds
        types = 0 if token_type_ids is None else token_type_ids
        types, places = (
            None if ids is None else ops.broadcast_to(ops.cast(ids, "int32"), ops.shape(words)[:2])
            for ids in (types, position_ids)
        )
        return self.layer(words, types, places, training=training)

    weight = property(lambda self: self.layer.word_embeddings)  # (V, H)
    position_embeddings = property(lambda self: self.layer.position_embeddings)
    token_type_embeddings = property(lambda self: self.layer.token_type_embeddings)


class TFBertEncoder(keras.layers.Layer):
    """The blocks, as ``layer``; they run in ``TFBertMainLayer``."""

    def __init__(self, blocks: list[TransformerBlock], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = list(blocks)
        # TensorFlow's checkpoints follow attributes, and not a list of Keras'.
        for number, block in enumerate(blocks):
            setattr(self, f"layer_{number}", block)
        self.built = True


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFBertMainLayer(TransformersLayer):
    """An encoder called as in transformers: any tensor left out, states and attentions on demand.

    It is made of the layers of a ``BertEncoder``, ``native``, by default a new one. Its parts are
    ``embeddings``, ``encoder``, whose ``layer`` lists the blocks, and ``pooler``, or ``None``.

    >>> from bert_tf.transformers import BertConfig
    >>> layer = TFBertMainLayer(BertConfig(
    ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    >>> tuple(layer([[2, 5, 3]]).last_hidden_state.shape)
    (1, 3, 8)
    """

    def __init__(
        self,
        config: PretrainedConfig,
        add_pooling_layer: bool = True,
        encoder: BertEncoder | None = None,
        name: str = "bert",
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = config
        native = encoder or BertEncoder(config.native(), pooler=add_pooling_layer)
        self.set_native(native)
        self.embeddings = TFBertEmbeddings(native.embeddings, name="embeddings")
        self.encoder = TFBertEncoder(native.blocks, name="encoder")
        # The pooler of DistilBERT is part of its classifier, and trained if the encoder is frozen.
        self.pooler = None if native.config.is_distilbert else native.pooler
        self.trainable = trainable  # also of the layers set above

    def run(self, inputs: dict[str, Any], training: bool | None, **switches: bool) -> ModelOutput:
        """A dict of tensors -> ``TFBaseModelOutputWithPooling``."""
        ids, words = inputs.get("input_ids"), inputs.get("inputs_embeds")
        if (ids is None) == (words is None):
            raise ValueError(
                f"{self.name} was given {'neither' if ids is None else 'both'} of input_ids and "
                "inputs_embeds: expected one of them."
            )
        mask = inputs.get("attention_mask")
        if mask is not None and len(mask.shape) != 2:
            raise ValueError(
                f"{self.name} was given an attention_mask with {len(mask.shape)} dimensions: "
                "expected (B, S), 1 = real and 0 = padding."
            )
        others = {name: inputs.get(name) for name in ("position_ids", "token_type_ids")}
        embedded = self.embeddings(ids, inputs_embeds=words, **others, training=training)
        mask = ops.cast(1 if mask is None else mask, "int32")
        mask = ops.broadcast_to(mask, ops.shape(embedded)[:2])
        attentions = switches["output_attentions"]
        outputs = self.native.from_embedded(embedded, mask, attentions, training)
        states = (embedded, *outputs[features.ENCODER_OUTPUTS])
        return OUTPUTS["TFBaseModelOutputWithPooling"](
            last_hidden_state=states[-1],
            pooler_output=outputs.get(features.POOLED_OUTPUT),
            hidden_states=states if switches["output_hidden_states"] else None,
            attentions=tuple(outputs[features.ATTENTIONS]) if attentions else None,
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        has_pooler = self.native.pooler is not None
        values = {"config": self.config.to_dict(), "add_pooling_layer": has_pooler}
        return {**super().get_config(), **values}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer that ``get_config`` describes, with new weights."""
        if isinstance(config.get("dtype"), str):  # Keras 3 has a policy there
            raise keras_2_error(cls)
        return cls(**{**config, "config": AutoConfig.for_model(**config["config"])})


# By the name that it had in Keras 2, so that its refusal is said.
keras.saving.get_custom_objects()["Custom>TFBertMainLayer"] = TFBertMainLayer


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFDistilBertMainLayer(TFBertMainLayer):
    """``TFBertMainLayer`` of a DistilBERT, which has no pooler and no types of tokens."""

    def __init__(
        self,
        config: PretrainedConfig,
        add_pooling_layer: bool = False,
        encoder: BertEncoder | None = None,
        name: str = "distilbert",
        **kwargs: Any,
    ) -> None:
        super().__init__(config, add_pooling_layer, encoder, name, **kwargs)

    @property
    def transformer(self) -> TFBertEncoder:
        """The blocks, by DistilBERT's name of them."""
        return self.encoder
