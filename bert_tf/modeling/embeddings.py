"""Token ids to vectors: word + position + segment type, normalised, with dropout."""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig

from .base import BertLayer, new_initializer
from .dropout import Dropout
from .normalization import LayerNorm


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(BertLayer):
    """The sum of three learned embeddings, then layer normalisation and dropout.

    Source: Devlin et al. 2019, section 3 and figure 2; google-research/bert ``modeling.py``,
    ``embedding_lookup`` and ``embedding_postprocessor``.

    Args:
        config: sizes and rates.
        seed_generator: the model's; by default the layer has its own.
        **kwargs: ``name``, ``dtype``, as for every Keras layer.

    Attributes:
        word_embeddings: (V, H); the masked-LM head multiplies by the same variable.
        position_embeddings: (max_position_embeddings, H).
        token_type_embeddings: (type_vocab_size, H).

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> ids = ops.zeros((2, 5), "int32")
    >>> tuple(BertEmbeddings(config)(ids, ids).shape)
    (2, 5, 128)
    """

    def __init__(
        self,
        config: BertConfig,
        seed_generator: keras.random.SeedGenerator | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.layer_norm = LayerNorm(
            config.layer_norm_eps, name="layer_norm", dtype=self.dtype_policy
        )
        self.dropout = Dropout(
            config.hidden_dropout_prob, seed_generator, name="dropout", dtype=self.dtype_policy
        )

    def build(self, *input_shapes: Any) -> None:
        """Makes the three tables."""
        config = self.config
        for name, rows in (
            ("word_embeddings", config.vocab_size),
            ("position_embeddings", config.max_position_embeddings),
            ("token_type_embeddings", config.type_vocab_size),
        ):
            table = self.add_weight(
                name=name,
                shape=(rows, config.hidden_size),
                initializer=new_initializer(config),
                autocast=False,  # rows are looked up and added in float32; only the sum is rounded
            )
            setattr(self, name, table)
        self.layer_norm.build((None, None, config.hidden_size))

    def call(self, word_ids: Any, type_ids: Any, training: bool | None = False) -> Any:
        """Embeds ids.

        Args:
            word_ids: (B, S) int32, token ids.
            type_ids: (B, S) int32, segment types.
            training: whether dropout acts.

        Returns:
            (B, S, H) in the compute dtype.
        """
        # (B, S, H) + (S, H) + (B, S, H)
        summed = ops.take(self.word_embeddings, word_ids, axis=0)
        summed = summed + self.position_embeddings[: ops.shape(word_ids)[1]]
        summed = summed + ops.take(self.token_type_embeddings, type_ids, axis=0)
        return self.dropout(self.layer_norm(summed, training=training), training=training)

    def compute_output_shape(
        self, word_ids_shape: tuple[int | None, ...], type_ids_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """(B, S, H)."""
        return (*word_ids_shape, self.config.hidden_size)
