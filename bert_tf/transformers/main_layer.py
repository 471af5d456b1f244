"""The encoder as a layer with transformers' calling convention.

Letters: B batch, S sequence, H hidden.
"""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

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
# Inputs that are not supported, and what they are for.
_UNSUPPORTED = {
    "head_mask": "masking attention heads",
    "encoder_hidden_states": "cross-attention",
    "encoder_attention_mask": "cross-attention",
    "past_key_values": "text generation",
}
_IGNORED = ("use_cache", "return_loss")
# Axes of the sequence length.
_LENGTHS = (("input_ids", -1), ("inputs_embeds", -2))
# Outputs of a tokenizer that no model takes, and labels, which the main layer ignores.
_NON_MODEL_INPUTS = (
    *("offset_mapping", "special_tokens_mask", "labels", "start_positions", "end_positions"),
    "next_sentence_label",
)


def collect_inputs(
    name: str, labels: Sequence[str], arguments: Sequence[Any], keywords: Any
) -> Any:
    """Returns the tensors by name, and the switches, of a call of the model ``name``.

    The first argument is a dict of tensors, a list of tensors in the order of ``TENSORS``, or the
    ids. Further arguments follow the same order. Unknown keys of a dict are ignored if they have
    one value per row, like the columns of a table. Otherwise, they raise an error, because they may
    be misspelled inputs.
    """
    order = (*TENSORS, *_SWITCHES[:3], *labels, "training")
    known = {*order, *_UNSUPPORTED, *_IGNORED}
    first, *positional = arguments or (None,)
    if len(positional) >= len(order):
        raise TypeError(f"{name}: expected at most {len(order)} arguments, got {len(arguments)}.")
    if isinstance(first, Mapping):
        tensors = {key: value for key, value in first.items() if key in known}
        for key in first.keys() - known - {*_NON_MODEL_INPUTS}:
            if _has_tokens(first[key]):
                raise ValueError(
                    f"{name} has no input {key!r}: expected {', '.join(order)}. Remove it."
                )
    elif isinstance(first, tuple | list) and any(map(_is_tensor, first)):
        tensors = dict(zip(TENSORS, first, strict=False))
    else:
        tensors = {TENSORS[0]: first}
    tensors.update(zip(order[1:], positional, strict=False))
    if isinstance(keywords.get("inputs"), Mapping):  # Keras' name of a layer's first argument
        tensors.update(keywords.pop("inputs"))
    if unknown := keywords.keys() - known:
        raise TypeError(f"{name} has no argument {unknown.pop()!r}: expected {', '.join(order)}.")
    tensors |= keywords
    tensors = {key: value for key, value in tensors.items() if value is not None}
    for key in tensors.keys() & _UNSUPPORTED.keys():
        raise ValueError(f"{name}: {key} ({_UNSUPPORTED[key]}) is not supported. Remove it.")
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
    """Returns whether the rows of a value contain several numbers, such as one per token."""
    if isinstance(value, list | tuple):
        return any(
            isinstance(row, list | tuple)
            and len(row) != 1
            and all(isinstance(number, numbers.Number) for number in row)
            for row in value
        )
    shape: Any = getattr(value, "shape", None) or ()  # a shape of unknown rank is false
    return len(shape) > 1 and shape[-1] != 1


def _is_text(tensor: Any) -> bool:
    return bool(tf.as_dtype(tensor.dtype) == tf.string)


def check_ids(name: str, tables: Any, tensors: Mapping[str, Any]) -> None:
    """Checks the shapes of the inputs and, outside a graph, that ids are in the embedding tables.

    In a graph, invalid ids raise an error on a CPU without XLA and otherwise result in NaN.
    """
    tables_by_input = {
        "input_ids": tables.word_embeddings,
        "token_type_ids": tables.token_type_embeddings,
        "position_ids": tables.position_embeddings,
    }
    limit = tables_by_input["position_ids"].shape[0]
    ids = tensors.get("input_ids")
    if ids is not None and (len(ids.shape) < 2 or ids.shape[-1] == 0 or _is_text(ids)):
        got = "strings" if _is_text(ids) else f"shape {tuple(ids.shape)}"
        raise ValueError(
            f"{name}: expected input_ids (B, S), got {got}. Use tokenizer(list_of_texts, "
            "padding=True, return_tensors='tf')."
        )
    lengths = [tensors[key].shape[axis] for key, axis in _LENGTHS if key in tensors]
    if "position_ids" not in tensors and any(n is not None and n > limit for n in lengths):
        raise ValueError(
            f"{name}: sequence length {lengths[0]} exceeds the maximum of {limit}. Pass "
            f"truncation=True, max_length={limit} to the tokenizer."
        )
    for key, table in tables_by_input.items() if tf.executing_eagerly() else ():
        if table is None or key not in tensors or isinstance(tensors[key], KerasTensor):
            continue
        ids = np.asarray(tensors[key])
        if ids.size and (ids.min() < 0 or ids.max() >= table.shape[0]):
            raise ValueError(
                f"{name}: expected {key} from 0 to {table.shape[0] - 1}, got {ids.min()} to "
                f"{ids.max()}."
            )


def keras_2_error(cls: type) -> ValueError:
    """Returns the error for a model that was saved by Keras 2."""
    return ValueError(
        f"Keras 3 cannot load a {cls.__name__} saved by Keras 2. Build the model in Python and use "
        "load_weights(file)."
    )


class TransformersLayer(keras.layers.Layer):
    """Layer with transformers' calling convention, based on a bert_tf model.

    ``run`` takes the tensors of a call, ``training`` and the switches of optional outputs. A class
    without a ``native`` model must override ``call``.
    """

    config: Any
    native: Any = None
    run: Callable[..., ModelOutput]
    # Names of the labels among the inputs, and the names of the corresponding logits.
    label_logits: ClassVar[Mapping[str, str]] = {}

    def set_native(self, model: Any) -> None:
        """Sets ``native`` without tracking, because Keras would save its layers twice."""
        object.__setattr__(self, "native", model)

    def __dir__(self) -> list[str]:
        """Hides attributes that Keras and TensorFlow would save."""
        return [name for name in super().__dir__() if name not in ("native", "serving")]

    def build(self, *input_shapes: Any) -> None:
        """Does nothing, because the layers are already built."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the layer with tensors in the order of ``TENSORS``, or with keywords."""
        runtime.check_fork()
        if self.native is None:
            return super().__call__(*arguments, **keywords)
        trains = {"trains": keywords.pop("trains")} if "trains" in keywords else {}
        tensors, switches = collect_inputs(self.name, [*self.label_logits], arguments, keywords)
        check_ids(self.name, getattr(self.native, "encoder", self.native).embeddings, tensors)
        # A functional model passes its own ``training`` when it repeats the call.
        if "training" in switches and type(self).call is TransformersLayer.call:
            switches = {**switches, "trains": switches["training"], **trains}
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
        """Returns the result of ``run``, or a tuple of its values.

        ``trains`` is the ``training`` of the original call, or ``None``.
        """
        if self.native is None:
            raise NotImplementedError(f"{type(self).__name__} must implement call.")

        def is_on(name: str, switch: bool | None) -> bool:
            return bool(getattr(self.config, name) if switch is None else switch)

        outputs = self.run(
            inputs,
            training if trains is None else trains,
            output_attentions=is_on("output_attentions", output_attentions),
            output_hidden_states=is_on("output_hidden_states", output_hidden_states),
        )
        return outputs if is_on("use_return_dict", return_dict) else outputs.to_tuple()


keras_hooks.register_slice_operation()  # many functional models use states[:, 0]


class TFBertEmbeddings(keras.layers.Layer):
    """Embedding layer with transformers' argument and attribute names."""

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
        """Computes embeddings (B, S, H) from ids (B, S) or vectors (B, S, H)."""
        words = ops.cast(input_ids, "int32") if inputs_embeds is None else inputs_embeds
        types = 0 if token_type_ids is None else token_type_ids
        types, positions = (
            None if ids is None else ops.broadcast_to(ops.cast(ids, "int32"), ops.shape(words)[:2])
            for ids in (types, position_ids)
        )
        return self.layer(words, types, positions, training=training)

    weight = property(lambda self: self.layer.word_embeddings)  # (V, H)
    position_embeddings = property(lambda self: self.layer.position_embeddings)
    token_type_embeddings = property(lambda self: self.layer.token_type_embeddings)


class TFBertEncoder(keras.layers.Layer):
    """Container of the blocks in ``layer``; ``TFBertMainLayer`` runs them."""

    def __init__(self, blocks: list[TransformerBlock], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = list(blocks)
        # TensorFlow's checkpoints track attributes, but not Keras' lists.
        for number, block in enumerate(blocks):
            setattr(self, f"layer_{number}", block)
        self.built = True


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFBertMainLayer(TransformersLayer):
    """Encoder with transformers' calling convention.

    Args:
        config: Config of the model.
        add_pooling_layer: Whether to add a pooler.
        encoder: ``BertEncoder`` to use; by default a new one.
        name: Name of the layer.
        trainable: Whether the layer is trained.
        **kwargs: Arguments of every Keras layer.

    Attributes:
        native: The ``BertEncoder``.
        embeddings: Embedding layer.
        encoder: Container of the blocks, in ``encoder.layer``.
        pooler: Pooler, or ``None``.

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
        # DistilBERT's pooler belongs to the classifier, so it is trained if the encoder is frozen.
        self.pooler = None if native.config.is_distilbert else native.pooler
        self.trainable = trainable  # also applies to the layers set above

    def run(self, inputs: dict[str, Any], training: bool | None, **switches: bool) -> ModelOutput:
        """Computes a ``TFBaseModelOutputWithPooling`` from a dict of tensors."""
        ids, words = inputs.get("input_ids"), inputs.get("inputs_embeds")
        if (ids is None) == (words is None):
            raise ValueError(
                f"{self.name}: expected either input_ids or inputs_embeds, got "
                f"{'neither' if ids is None else 'both'}."
            )
        mask = inputs.get("attention_mask")
        if mask is not None and len(mask.shape) != 2:
            raise ValueError(
                f"{self.name}: expected attention_mask (B, S), 1 for tokens and 0 for padding, got "
                f"shape {tuple(mask.shape)}."
            )
        ids_by_name = {name: inputs.get(name) for name in ("position_ids", "token_type_ids")}
        embedded = self.embeddings(ids, inputs_embeds=words, **ids_by_name, training=training)
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
        """Returns the constructor's arguments for serialization."""
        has_pooler = self.native.pooler is not None
        values = {"config": self.config.to_dict(), "add_pooling_layer": has_pooler}
        return {**super().get_config(), **values}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Creates the layer from the result of ``get_config``, with new weights."""
        if isinstance(config.get("dtype"), str):  # Keras 3 stores a policy
            raise keras_2_error(cls)
        return cls(**{**config, "config": AutoConfig.for_model(**config["config"])})


# The name in Keras 2, so that loading raises ``keras_2_error``.
keras.saving.get_custom_objects()["Custom>TFBertMainLayer"] = TFBertMainLayer


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFDistilBertMainLayer(TFBertMainLayer):
    """``TFBertMainLayer`` for DistilBERT, which has no pooler and no token types."""

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
        """The container of the blocks, under the name that DistilBERT uses."""
        return self.encoder
