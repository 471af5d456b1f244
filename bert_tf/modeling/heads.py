"""The layers on top of the encoder: pooler, heads of pre-training, a task's dense layer."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig

from .activations import get_activation
from .base import BertLayer, new_initializer
from .normalization import LayerNorm


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(BertLayer):
    """A tanh layer on the first token's hidden state.

    Source: google-research/bert ``modeling.py``, ``BertModel``'s scope "pooler".
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(config.hidden_size, "dense")

    def build(self, *input_shapes: Any) -> None:
        """Makes the kernel (H, H)."""
        self.dense.build((None, self.config.hidden_size))

    def call(self, hidden: Any) -> Any:
        """(B, S, H) -> (B, H)."""
        return ops.tanh(self.dense(hidden[:, 0, :]))

    def compute_output_shape(self, hidden_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """(B, H)."""
        return (hidden_shape[0], hidden_shape[-1])


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentenceHead(BertLayer):
    """Two logits of the pooled output: index 0, the second segment follows; 1, it is random.

    Source: Devlin et al. 2019, section 3.1, task 2; google-research/bert ``run_pretraining.py``,
    ``get_next_sentence_output``. The logits are float32 whatever the compute dtype.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(2, "dense")

    def build(self, *input_shapes: Any) -> None:
        """Makes the kernel (H, 2)."""
        self.dense.build((None, self.config.hidden_size))

    def call(self, pooled: Any) -> Any:
        """(B, H) -> (B, 2)."""
        return _at_least_float32(self.dense(pooled))

    def compute_output_spec(self, pooled: Any) -> keras.KerasTensor:
        """(B, 2)."""
        return keras.KerasTensor((pooled.shape[0], 2), _logits_dtype(self.compute_dtype))


class MaskedLMHead(BertLayer):
    """Logits over the vocabulary at the given positions of a sequence.

    The hidden states at the positions go through a dense layer, the activation and a layer
    normalisation, and are multiplied by the encoder's own word embeddings; a bias per word is
    added. Nothing is computed for other positions.

    Source: Devlin et al. 2019, section 3.1, task 1; google-research/bert ``run_pretraining.py``,
    ``get_masked_lm_output`` and ``gather_indexes``.

    Args:
        config: sizes and activation.
        embedding_table: the variable (V, H) of the encoder's word embeddings. The head uses it
            and does not own it: it is not among the head's weights.
        **kwargs: ``name``, ``dtype``, as for every Keras layer.
    """

    def __init__(self, config: BertConfig, embedding_table: Any, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        # In a closure, or Keras would count and save the encoder's variable as the head's.
        self.embedding_table: Callable[[], Any] = lambda: embedding_table
        self.activation = get_activation(config.hidden_act)
        self.dense = self.new_dense(config.hidden_size, "dense")
        self.layer_norm = LayerNorm(
            config.layer_norm_eps, name="layer_norm", dtype=self.dtype_policy
        )

    def build(self, *input_shapes: Any) -> None:
        """Makes the dense kernel (H, H), the normalisation and the output bias (V,)."""
        shape = (None, self.config.hidden_size)
        self.dense.build(shape)
        self.layer_norm.build(shape)
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.config.vocab_size,),
            initializer="zeros",
            autocast=False,  # it is added to float32 logits
        )

    def call(self, hidden: Any, positions: Any, training: bool | None = False) -> Any:
        """Predicts.

        Args:
            hidden: (B, S, H).
            positions: (B, P) int32, each in [0, S).
            training: whether gradients will be taken.

        Returns:
            (B, P, V), float32 at least: the product with the embeddings is in the compute dtype,
            and rounded to it, and all that follows is not.
        """
        batch, sequence, width = ops.shape(hidden)
        # (B, P) positions in a row -> positions in (B * S, H)
        rows = positions + ops.expand_dims(ops.arange(batch, dtype=positions.dtype), 1) * sequence
        # (B * P, H)
        gathered = ops.take(ops.reshape(hidden, (-1, width)), ops.reshape(rows, (-1,)), axis=0)
        transformed = self.activation(self.dense(gathered), bool(training))
        transformed = self.layer_norm(transformed, training=training)
        table = ops.cast(self.embedding_table(), transformed.dtype)
        logits = _at_least_float32(ops.matmul(transformed, ops.transpose(table)))
        # (B * P, V) -> (B, P, V)
        logits = ops.add(logits, ops.cast(self.output_bias, logits.dtype))
        return ops.reshape(logits, (batch, ops.shape(positions)[1], self.config.vocab_size))

    def compute_output_spec(
        self, hidden: Any, positions: Any, training: bool | None = False
    ) -> keras.KerasTensor:
        """(B, P, V)."""
        shape = (*positions.shape, self.config.vocab_size)
        return keras.KerasTensor(shape, _logits_dtype(self.compute_dtype))


def new_logits(
    config: BertConfig, units: int, name: str, policy: keras.DTypePolicy
) -> keras.layers.Dense:
    """A task's output layer: dense, its kernel drawn as BERT's are, its bias 0.

    It computes in float32 at least, so that no logit is rounded to a lower compute dtype.

    Args:
        config: the range of the initial values.
        units: how many logits.
        name: the layer's.
        policy: the model's dtype policy.

    >>> new_logits(BertConfig(), 3, "classifier", keras.DTypePolicy("mixed_bfloat16")).compute_dtype
    'float32'
    """
    return keras.layers.Dense(
        units,
        kernel_initializer=new_initializer(config),
        name=name,
        dtype=_logits_dtype(policy.compute_dtype),
    )


def _logits_dtype(dtype: str) -> str:
    return str(keras.backend.result_type(dtype, "float32"))


def _at_least_float32(x: Any) -> Any:
    return ops.cast(x, _logits_dtype(keras.backend.standardize_dtype(x.dtype)))
