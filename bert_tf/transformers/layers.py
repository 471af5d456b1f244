"""The encoder as a layer, by the names that scripts know its parts by.

Letters: B batch, S sequence, H hidden, N heads.
"""

import math
from typing import Any

import keras
from keras import ops

from bert_tf.modeling import BertEncoder
from bert_tf.modeling.encoder import BertEmbeddings, look_up
from bert_tf.modeling.transformer import TransformerBlock, attention_bias, split_heads

from .configuration import CONFIGS, PretrainedConfig
from .inputs import gather
from .outputs import OUTPUTS


class TFBertEmbeddings(keras.layers.Layer):
    """The embeddings, whose tables go by their names."""

    def __init__(self, layer: BertEmbeddings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer
        self.built = True

    @property
    def weight(self) -> Any:
        """The word embeddings, (V, H)."""
        return self.layer.word_embeddings

    @property
    def position_embeddings(self) -> Any:
        """The positions' embeddings."""
        return self.layer.position_embeddings

    @property
    def token_type_embeddings(self) -> Any:
        """The token types' embeddings."""
        return self.layer.token_type_embeddings


class TFBertEncoder(keras.layers.Layer):
    """The blocks, as ``layer``; they run in ``TFBertMainLayer``."""

    def __init__(self, blocks: list[TransformerBlock], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = list(blocks)
        self.built = True


def attention_weights(block: TransformerBlock, hidden: Any, mask: Any) -> Any:
    """(B, S, H) states that enter a block, and the mask -> (B, N, S, S) weights, undropped."""
    attention = block.attention
    heads = attention.config.num_attention_heads
    query, key, _ = split_heads(attention.query_key_value(hidden), heads)
    scores = ops.matmul(query / math.sqrt(query.shape[-1]), ops.swapaxes(key, 2, 3))
    dtype = keras.backend.standardize_dtype(scores.dtype)
    return ops.softmax(scores + attention_bias(mask, dtype, attention.config.direction), axis=-1)


@keras.saving.register_keras_serializable(package="bert_tf.transformers")
class TFBertMainLayer(keras.layers.Layer):
    """An encoder called as theirs: any of its tensors left out, states and attentions on demand.

    Args:
        config: its settings.
        add_pooling_layer: whether it has a pooler.
        encoder: the ``BertEncoder`` whose layers it is made of; by default a new one.
        name: the layer's name.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = config
        found = encoder or BertEncoder(config.native(), pooler=add_pooling_layer)
        # Beside the layers, so that Keras does not save them twice.
        object.__setattr__(self, "native", found)
        self.embeddings = TFBertEmbeddings(found.embeddings, name="embeddings")
        self.encoder = TFBertEncoder(found.blocks, name="encoder")
        self.pooler = found.pooler

    def __dir__(self) -> list[str]:
        """All but the native encoder: Keras saves every layer that it finds here."""
        return [name for name in super().__dir__() if name != "native"]

    def build(self, *input_shapes: Any) -> None:
        """Nothing: the layers are built."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Runs it; the arguments are theirs (``inputs.TENSORS``, in this order)."""
        tensors, switches = gather(self.name, (), arguments, named)
        return super().__call__(tensors, **switches)

    def call(
        self,
        inputs: dict[str, Any],
        training: bool | None = False,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """A dict of tensors -> ``TFBaseModelOutputWithPooling``."""
        config = self.config
        ids, rows = inputs.get("input_ids"), inputs.get("inputs_embeds")
        if (ids is None) == (rows is None):
            raise ValueError(
                f"{self.name} was given {'neither' if ids is None else 'both'} of input_ids and "
                "inputs_embeds: expected one of them."
            )
        batch, sequence = ops.shape(ids if rows is None else rows)[:2]
        mask = inputs.get("attention_mask")
        mask = ops.ones((batch, sequence), "int32") if mask is None else ops.cast(mask, "int32")
        if len(mask.shape) != 2:
            raise ValueError(
                f"{self.name} was given an attention_mask with {len(mask.shape)} dimensions: "
                "expected (B, S), 1 = real and 0 = padding."
            )
        types = inputs.get("token_type_ids")
        types = ops.zeros((batch, sequence), "int32") if types is None else ops.cast(types, "int32")
        if rows is None:
            rows = look_up(self.embeddings.weight, ops.cast(ids, "int32"))
        places = inputs.get("position_ids")
        if places is not None:
            places = ops.broadcast_to(ops.cast(places, "int32"), (batch, sequence))
        hidden = self.embeddings.layer.from_words(rows, types, places, training=training)
        keeps_attentions = _switch(output_attentions, config.output_attentions)
        states, attentions = [hidden], []
        for block in self.encoder.layer:
            if keeps_attentions:
                attentions.append(attention_weights(block, hidden, mask))
            hidden = block(hidden, mask, training=training)
            states.append(hidden)
        keeps_states = _switch(output_hidden_states, config.output_hidden_states)
        outputs = OUTPUTS["TFBaseModelOutputWithPooling"](
            last_hidden_state=hidden,
            pooler_output=None if self.pooler is None else self.pooler(hidden, mask),
            hidden_states=tuple(states) if keeps_states else None,
            attentions=tuple(attentions) if keeps_attentions else None,
        )
        return outputs if _switch(return_dict, config.use_return_dict) else outputs.to_tuple()

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        has_pooler = self.pooler is not None
        values = {"config": self.config.to_dict(), "add_pooling_layer": has_pooler}
        return {**super().get_config(), **values}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer that ``get_config`` describes, with new weights."""
        settings = config["config"]
        return cls(**{**config, "config": CONFIGS[settings["model_type"]](**settings)})


def _switch(given: bool | None, default: Any) -> bool:
    return bool(default if given is None else given)


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
