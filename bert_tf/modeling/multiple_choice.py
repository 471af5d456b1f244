"""``BertMultipleChoice``: which of several continuations or answers fits."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.config import BertConfig

from .task_model import TaskModel


class FlattenChoices(keras.layers.Layer):
    """(B, K, S) -> (B * K, S): every choice a row of its own."""

    def call(self, ids: Any) -> Any:
        """Reshapes."""
        return ops.reshape(ids, (-1, ops.shape(ids)[-1]))

    def compute_output_spec(self, ids: Any) -> keras.KerasTensor:
        """(B * K, S), the first left open."""
        return keras.KerasTensor((None, ids.shape[-1]), ids.dtype)


class GroupChoices(keras.layers.Layer):
    """(B * K, 1) -> (B, K): the scores of one example side by side."""

    def call(self, scores: Any, ids: Any) -> Any:
        """Reshapes scores as the leading dimensions of ids (B, K, S) are."""
        return ops.reshape(scores, ops.shape(ids)[:2])

    def compute_output_spec(self, scores: Any, ids: Any) -> keras.KerasTensor:
        """(B, K)."""
        return keras.KerasTensor(ids.shape[:2], scores.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(TaskModel):
    """A logit for each choice: the pooled output of (question, choice) through one dense layer.

    Source: Devlin et al. 2019, section 4.4 (SWAG): the score of a choice is the product of its
    [CLS] representation with one vector, and a softmax goes over the choices.

    Inputs: ``features.CHOICE_FEATURES``, each (B, K, S) int32. Output: (B, K) float32 logits. K is
    anything, and need not be the same for every batch.

    Args:
        config: sizes, rates and activation.
        dropout: the rate on the pooled output; by default the config's ``hidden_dropout_prob``.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        encoder: the ``BertEncoder``.
        choice: the dense layer, kernel (H, 1).

    Raises:
        ValueError: the rate is outside [0, 1).

    >>> model = BertMultipleChoice(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = ops.ones((2, 4, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2, 4)
    """

    def __init__(
        self,
        config: BertConfig,
        dropout: float | None = None,
        name: str = "bert_multiple_choice",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config,
            head="choice",
            units=1,
            reads=features.POOLED_OUTPUT,
            pooler=True,
            dropout=dropout,
            contract=features.CHOICE_FEATURES,
            name=name,
            dtype=dtype,
            **kwargs,
        )

    @staticmethod
    def to_rows(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """(B, K, S) -> (B * K, S)."""
        return {key: FlattenChoices(name=f"flat_{key}")(ids) for key, ids in inputs.items()}

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """(B * K, 1) -> (B, K)."""
        return GroupChoices(name="grouped", dtype=logits.dtype)(
            logits, inputs[features.INPUT_WORD_IDS]
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {**super().get_config(), "dropout": self.dropout.rate}
