"""One block of the encoder: self-attention, then a feed-forward network."""

from typing import Any

import keras

from bert_tf.config import BertConfig

from .activations import get_activation
from .attention import SelfAttention
from .base import BertLayer
from .dropout import Dropout
from .normalization import LayerNorm
from .token_rows import TokenRows


@keras.saving.register_keras_serializable(package="bert_tf")
class TransformerBlock(BertLayer):
    """Post-normalised Transformer block: each sub-layer's output is dropped out, added, normalised.

    Source: Vaswani et al. 2017, section 3.1; google-research/bert ``modeling.py``,
    ``transformer_model``.

    Args:
        config: sizes, rates and activation.
        seed_generator: the model's; by default every dropout of the block has its own.
        **kwargs: ``name``, ``dtype``, as for every Keras layer.

    Attributes:
        trains_without_padding: see ``BertEncoder``.
    """

    def __init__(
        self,
        config: BertConfig,
        seed_generator: keras.random.SeedGenerator | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        policy = self.dtype_policy
        epsilon = config.layer_norm_eps
        rate = config.hidden_dropout_prob
        self.trains_without_padding = False
        self.activation = get_activation(config.hidden_act)

        self.attention = SelfAttention(config, seed_generator, name="attention", dtype=policy)
        self.attention_dropout = Dropout(
            rate, seed_generator, name="attention_dropout", dtype=policy
        )
        self.attention_layer_norm = LayerNorm(epsilon, name="attention_layer_norm", dtype=policy)
        self.intermediate = self.new_dense(config.intermediate_size, "intermediate")
        self.feed_forward_output = self.new_dense(config.hidden_size, "output")
        self.output_dropout = Dropout(rate, seed_generator, name="output_dropout", dtype=policy)
        self.output_layer_norm = LayerNorm(epsilon, name="output_layer_norm", dtype=policy)

    def build(self, *input_shapes: Any) -> None:
        """Makes the variables of every sub-layer."""
        shape = (None, self.config.hidden_size)
        self.attention.build()
        self.attention_layer_norm.build(shape)
        self.intermediate.build(shape)
        self.feed_forward_output.build((None, self.config.intermediate_size))
        self.output_layer_norm.build(shape)

    def call(self, hidden: Any, real_tokens: Any, training: bool | None = False) -> Any:
        """Runs the block.

        Args:
            hidden: (B, S, H).
            real_tokens: (B, S) int32, 1 = real and 0 = padding.
            training: whether dropout acts.

        Returns:
            (B, S, H); 0 at padding where the block trains without it.
        """
        rows = TokenRows(real_tokens, bool(training) and self.trains_without_padding)
        # Matrices from here on, (R, ...): a product of matrices is quicker than of batches.
        matrix = rows.from_batch(hidden)
        attended = self.attention(matrix, real_tokens, rows=rows, training=training)
        attended = self.attention_dropout(attended, training=training)
        attended = self.attention_layer_norm(attended + matrix, training=training)
        output = self.activation(self.intermediate(attended), bool(training))
        output = self.feed_forward_output(output)
        output = self.output_dropout(output, training=training)
        output = self.output_layer_norm(output + attended, training=training)
        return rows.to_batch(output)

    def compute_output_shape(
        self, hidden_shape: tuple[int | None, ...], real_tokens_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        """(B, S, H)."""
        return hidden_shape
