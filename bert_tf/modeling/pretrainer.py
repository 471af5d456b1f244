"""``BertPretrainer``: the encoder with the pre-training heads."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from bert_tf import features
from bert_tf.config import ACTIVATIONS, BertConfig

from .base import (
    BertModel,
    Shapes,
    dense_shapes,
    is_flag,
    model_inputs,
    normalization_shapes,
    optional,
)
from .encoder import BertEncoder, nan_if_out_of_range
from .layers import INDEX_DTYPE, BertLayer, cast_to_logits_dtype, get_activation, logits_dtype


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentenceHead(BertLayer):
    """Head for next-sentence logits: index 0 if the second text follows the first, else index 1."""

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dense = self.new_dense(2, "dense")

    def build(self, *input_shapes: Any) -> None:
        """Creates the kernel (H, 2)."""
        self.dense.build((None, self.config.hidden_size))

    def call(self, pooled: Any) -> Any:
        """Computes logits (B, 2) from the pooled output (B, H)."""
        return cast_to_logits_dtype(self.dense(pooled))


class MaskedLMHead(BertLayer):
    """Head for masked-LM logits at given positions; its kernel is the encoder's word embeddings.

    Source: Devlin et al. 2019, section 3.1, task 1; google-research/bert ``run_pretraining.py``,
    ``get_masked_lm_output`` and ``gather_indexes``.
    """

    def __init__(self, config: BertConfig, embedding_table: Any, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        # The closure hides the variable from Keras, which would save it with the head.
        self.embedding_table: Callable[[], Any] = lambda: embedding_table
        self.activation = get_activation(config.hidden_act)
        self.dense = self.new_dense(config.hidden_size, "dense")
        self.layer_norm = self.new_norm("layer_norm")

    def build(self, *input_shapes: Any) -> None:
        """Creates the dense kernel (H, H), the layer normalization and the output bias (V,)."""
        shape = (None, self.config.hidden_size)
        self.dense.build(shape)
        self.layer_norm.build(shape)
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.config.vocab_size,),
            initializer="zeros",
            autocast=False,  # the bias is added to float32 logits
        )

    def call(self, hidden: Any, positions: Any, training: bool | None = False) -> Any:
        """Computes logits (B, P, V) in float32 or float64.

        ``hidden`` has shape (B, S, H). ``positions`` has shape (B, P), int32 in [0, S).
        """
        batch, sequence, _ = ops.shape(hidden)
        # (B, P) positions in a sequence -> indices of the (B * S, H) states
        row = ops.expand_dims(ops.arange(batch, dtype=INDEX_DTYPE), 1)
        indices = ops.cast(positions, INDEX_DTYPE) + row * ops.cast(sequence, INDEX_DTYPE)
        transformed, table, bias = self.logit_factors(hidden, ops.reshape(indices, (-1,)), training)
        # A position outside its sequence would read another sequence's state: (B * P, 1)
        invalid = nan_if_out_of_range((positions, ops.cast(sequence, INDEX_DTYPE)))
        transformed = transformed + ops.cast(ops.reshape(invalid, (-1, 1)), transformed.dtype)
        # Only the product is computed in the compute dtype. (B * P, V) -> (B, P, V)
        logits = cast_to_logits_dtype(ops.matmul(transformed, ops.transpose(table)))
        logits = ops.add(logits, ops.cast(bias, logits.dtype))
        return ops.reshape(logits, (batch, ops.shape(positions)[1], self.config.vocab_size))

    def logit_factors(
        self, hidden: Any, indices: Any, training: bool | None = False
    ) -> tuple[Any, Any, Any]:
        """Returns the factors of the logits, which are ``states @ table.T + bias``.

        A loss can use the factors to compute the logits in chunks.

        Args:
            hidden: Hidden states of shape (B, S, H).
            indices: Int32 indices (N,) into the B * S states.
            training: Whether the layers run in training mode.

        Returns:
            States (N, H), the embedding table (V, H) and the output bias (V,).
        """
        gathered = ops.take(ops.reshape(hidden, (-1, hidden.shape[-1])), indices, axis=0)
        transformed = self.activation(self.dense(gathered), bool(training))
        transformed = self.layer_norm(transformed, training=training)
        table = ops.cast(self.embedding_table(), transformed.dtype)
        return transformed, table, ops.convert_to_tensor(self.output_bias)

    def compute_output_spec(
        self, hidden: Any, positions: Any, training: bool | None = False
    ) -> keras.KerasTensor:
        """Returns the spec of the logits (B, P, V)."""
        shape = (*positions.shape, self.config.vocab_size)
        return keras.KerasTensor(shape, logits_dtype(self.compute_dtype))


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(BertModel):
    """Encoder with a masked-LM head, a next-sentence head, or both.

    Source: Devlin et al. 2019, section 3.1; google-research/bert ``run_pretraining.py``. With
    ``config.is_decoder`` the encoder is causal and the masked-LM head predicts the next token, as
    in the ablation "LTR" of section 5.1.

    Inputs: those of ``BertEncoder`` and, for the masked-LM head, ``masked_lm_positions`` (B, P)
    int32.

    Outputs, a dict of float32 tensors:

    * ``masked_lm_logits`` (B, P, V). At padded positions, set the loss weight to 0.
    * ``next_sentence_logits`` (B, 2): index 0 if the second text follows the first.

    Args:
        config: ``BertConfig`` with sizes, dropout rates and activation.
        mlm: Whether to add a masked-LM head.
        nsp: Whether to add a next-sentence head.
        pooler: Whether the encoder has a pooler; by default only with a next-sentence head.
        mlm_activation: Activation of the masked-LM head, one of ``bert_tf.config.ACTIVATIONS``; by
            default the config's. KerasHub uses a different one.
        mlm_layer_norm_eps: Epsilon of the masked-LM head's layer normalization; by default the
            config's.
        name: Name of the model. Its encoder is always named ``bert_encoder``.
        dtype: Keras dtype policy, such as ``"mixed_bfloat16"``; by default the global policy.

    Attributes:
        encoder: ``BertEncoder``, which can be used, saved or exported without the heads.
        masked_lm: Masked-LM head, or ``None``.
        next_sentence: Next-sentence head, or ``None``.

    Raises:
        ValueError: If both heads are False, or ``nsp=True`` with ``pooler=False``.

    >>> model = BertPretrainer(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> outputs = model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids,
    ...                  "masked_lm_positions": ids[:, :3]})
    >>> {key: tuple(value.shape) for key, value in sorted(outputs.items())}
    {'masked_lm_logits': (2, 3, 100), 'next_sentence_logits': (2, 2)}
    """

    argument_checks: ClassVar = {
        "mlm": is_flag,
        "nsp": is_flag,
        "pooler": optional(is_flag),
        "mlm_activation": optional(lambda value: value in ACTIVATIONS),
        "mlm_layer_norm_eps": optional(
            lambda value: isinstance(value, float) and 0 < value < math.inf
        ),
    }
    hub_task = "fill-mask"

    def __init__(
        self,
        config: BertConfig,
        mlm: bool = True,
        nsp: bool = True,
        pooler: bool | None = None,
        mlm_activation: str | None = None,
        mlm_layer_norm_eps: float | None = None,
        name: str = "bert_pretrainer",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        if not (mlm or nsp):
            raise ValueError("mlm=False, nsp=False: expected at least one head. Use BertEncoder.")
        if nsp and pooler is False:
            raise ValueError("pooler=False: nsp=True requires the pooler. Set nsp=False.")

        # === Layers ===
        has_pooler = self.has_pooler({"nsp": nsp, "pooler": pooler})
        encoder = BertEncoder(config, pooler=has_pooler, dtype=dtype)
        policy = encoder.dtype_policy
        head_config = dataclasses.replace(
            config,
            hidden_act=mlm_activation or config.hidden_act,
            layer_norm_eps=mlm_layer_norm_eps or config.layer_norm_eps,
        )
        # === Functional model ===
        keys = [*features.ENCODER_FEATURES, *([features.MASKED_LM_POSITIONS] if mlm else [])]
        inputs = model_inputs({key: features.PRETRAINING_FEATURES[key] for key in keys})
        states = encoder({key: inputs[key] for key in features.ENCODER_FEATURES})
        masked_lm = next_sentence = None
        with keras.name_scope(name):
            outputs = {}
            if mlm:
                table = encoder.embeddings.word_embeddings
                masked_lm = MaskedLMHead(head_config, table, name="masked_lm", dtype=policy)
                outputs[features.MASKED_LM_LOGITS] = masked_lm(
                    states[features.SEQUENCE_OUTPUT], inputs[features.MASKED_LM_POSITIONS]
                )
            if nsp:
                next_sentence = NextSentenceHead(config, name="next_sentence", dtype=policy)
                pooled = states[features.POOLED_OUTPUT]
                outputs[features.NEXT_SENTENCE_LOGITS] = next_sentence(pooled)
        arguments = {
            "mlm": mlm,
            "nsp": nsp,
            "pooler": has_pooler,
            "mlm_activation": mlm_activation,
            "mlm_layer_norm_eps": mlm_layer_norm_eps,
        }
        super().__init__(config, policy, inputs, outputs, name, arguments=arguments, **kwargs)

        self.mlm, self.nsp = mlm, nsp
        self.encoder = encoder
        self.masked_lm = masked_lm
        self.next_sentence = next_sentence

    @classmethod
    def has_pooler(cls, arguments: Mapping[str, Any]) -> bool:
        """Returns the ``pooler`` argument, which defaults to ``nsp``."""
        pooler = arguments.get("pooler")
        if pooler is None:
            pooler = arguments.get("nsp", True)
        return bool(pooler)

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Returns the shapes of the heads' weights."""
        width = config.hidden_size
        shapes: Shapes = {}
        if arguments.get("mlm", True):
            shapes |= dense_shapes("masked_lm/dense", width, width)
            shapes |= normalization_shapes("masked_lm/layer_norm", width)
            shapes["masked_lm/output_bias"] = (config.vocab_size,)
        if arguments.get("nsp", True):
            shapes |= dense_shapes("next_sentence/dense", width, 2)
        return shapes

    @classmethod
    def hugging_face_class(cls, config: BertConfig, arguments: Mapping[str, Any]) -> str:
        """Returns the name of the Hugging Face class with the same heads."""
        if not arguments.get("mlm", True):
            return "BertForNextSentencePrediction"
        if arguments.get("nsp", True):
            return "BertForPreTraining"
        return "BertLMHeadModel" if config.is_decoder else "BertForMaskedLM"

    @classmethod
    def get_hub_task(cls, config: BertConfig, arguments: Mapping[str, Any]) -> str:
        """Returns the ``pipeline_tag`` of the masked-LM head, or ``""`` without this head."""
        if not arguments.get("mlm", True):
            return ""
        return "text-generation" if config.is_decoder else cls.hub_task
