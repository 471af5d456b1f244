"""``BertSpanPredictor``: where the answer to a question begins and ends."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.config import BertConfig

from .attention import MASKED_SCORE
from .task_model import TaskModel


class IgnorePaddingInTraining(keras.layers.Layer):
    """Makes the logits of padding so low in training that a softmax passes them over."""

    def call(self, logits: Any, real_tokens: Any, training: bool | None = False) -> Any:
        """(B, S) logits and (B, S) int32, 1 = real and 0 = padding -> (B, S)."""
        return ops.where(real_tokens > 0, logits, MASKED_SCORE) if training else logits


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanPredictor(TaskModel):
    """Logits, for each token, that the answer begins and that it ends there, as for SQuAD.

    Source: Devlin et al. 2019, sections 4.2 and 4.3, figure 4 (c); google-research/bert
    ``run_squad.py``, ``create_model``, which drops nothing out in front of the dense layer.

    Inputs: the encoder's. Outputs, float32: ``start_logits`` (B, S) and ``end_logits`` (B, S), for
    a softmax over S; column 0 and 1 of one dense layer. Padding has logits too, but in training,
    where they count nothing in the softmax: a batch's loss does not depend on its padding.

    Args:
        config: sizes, rates and activation.
        pooler: whether the encoder has a pooler, which the model does not use.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        encoder: the ``BertEncoder``.
        span: the dense layer, kernel (H, 2).

    >>> model = BertSpanPredictor(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> outputs = model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids})
    >>> {key: tuple(value.shape) for key, value in sorted(outputs.items())}
    {'end_logits': (2, 5), 'start_logits': (2, 5)}
    """

    def __init__(
        self,
        config: BertConfig,
        pooler: bool = False,
        name: str = "bert_span_predictor",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config,
            head="span",
            units=2,
            reads=features.SEQUENCE_OUTPUT,
            pooler=pooler,
            dropout=0.0,
            name=name,
            dtype=dtype,
            **kwargs,
        )

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """(B, S, 2) -> (B, S) each."""
        mask = inputs[features.INPUT_MASK]
        return {
            key: IgnorePaddingInTraining(name=key, autocast=False)(logits[:, :, column], mask)
            for column, key in enumerate((features.START_LOGITS, features.END_LOGITS))
        }

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {**super().get_config(), "pooler": self.encoder.pooler is not None}
