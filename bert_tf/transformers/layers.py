"""The encoder as a layer, by the names that scripts know its parts by.

Letters: B batch, S sequence, H hidden.
"""

from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.modeling import BertEncoder, keras_hooks
from bert_tf.modeling.encoder import BertEmbeddings, Pooler
from bert_tf.modeling.transformer import SelfAttention, TransformerBlock

from .configuration import AutoConfig, PretrainedConfig
from .inputs import CalledAsTheirs, of_keras_2
from .names import lacking
from .outputs import OUTPUTS, ModelOutput

keras_hooks.find_slices()  # states[:, 0] is in many a functional model


def _theirs(part: Any, name: str) -> Any:
    """A member of theirs of a part of the encoder, or what takes its place."""
    if isinstance(part, Pooler) and name in ("kernel", "bias"):  # a DistilBERT's pre_classifier
        return getattr(part.dense, name)
    raise lacking(part, name)


for _part in (Pooler, SelfAttention, TransformerBlock):
    _part.__getattr__ = _theirs


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
        shape = ops.shape(words)[:2]
        types = 0 if token_type_ids is None else token_type_ids
        types = ops.broadcast_to(ops.cast(types, "int32"), shape)
        places = position_ids
        if places is not None:
            places = ops.broadcast_to(ops.cast(places, "int32"), shape)
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
class TFBertMainLayer(CalledAsTheirs):
    """An encoder called as theirs: any of its tensors left out, states and attentions on demand.

    Args:
        config: its settings.
        add_pooling_layer: whether it has a pooler.
        encoder: the ``BertEncoder`` whose layers it is made of; by default a new one.
        name: the layer's name.
        trainable: whether its weights are trained.
        **kwargs: what ``keras.layers.Layer`` takes besides.

    Attributes:
        native: the ``BertEncoder``.
        embeddings: the embeddings' layer.
        encoder: a layer whose ``layer`` lists the blocks.
        pooler: the pooler, or ``None``.

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
        found = encoder or BertEncoder(config.native(), pooler=add_pooling_layer)
        self.keep_native(found)
        self.embeddings = TFBertEmbeddings(found.embeddings, name="embeddings")
        self.encoder = TFBertEncoder(found.blocks, name="encoder")
        # A DistilBERT's is its classifier's, which is trained where the encoder is frozen.
        self.pooler = None if found.config.is_distilbert else found.pooler
        self.trainable = trainable  # what it is made of, too

    def run(self, inputs: dict[str, Any], training: bool | None, **wanted: bool) -> ModelOutput:
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
        attentions = wanted["output_attentions"]
        found = self.native.from_embedded(embedded, mask, attentions, training)
        states = (embedded, *found[features.ENCODER_OUTPUTS])
        return OUTPUTS["TFBaseModelOutputWithPooling"](
            last_hidden_state=states[-1],
            pooler_output=found.get(features.POOLED_OUTPUT),
            hidden_states=states if wanted["output_hidden_states"] else None,
            attentions=tuple(found[features.ATTENTIONS]) if attentions else None,
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
            raise of_keras_2(cls)
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
