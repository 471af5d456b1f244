"""``BertTokenClassifier``: a class for each token."""

from typing import Any

import keras

from bert_tf import features
from bert_tf.config import BertConfig

from .task_model import TaskModel, check_num_classes


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(TaskModel):
    """Logits of classes for each token, as for named entities.

    Source: Devlin et al. 2019, section 5.3 and figure 4 (d).

    Inputs: the encoder's. Output: (B, S, C) float32 logits, also at padding, [CLS], [SEP] and the
    pieces after a word's first, where the weights of the loss are to be 0.

    Args:
        config: sizes, rates and activation.
        num_classes: C.
        dropout: the rate on the sequence output; by default the config's ``hidden_dropout_prob``.
        pooler: whether the encoder has a pooler, which the model does not use.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        encoder: the ``BertEncoder``.
        token_classifier: the dense layer, kernel (H, C).

    Raises:
        ValueError: ``num_classes`` is less than 1, or the rate is outside [0, 1).

    >>> config = BertConfig.from_preset("bert-tiny", vocab_size=100)
    >>> model = BertTokenClassifier(config, num_classes=9)
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2, 5, 9)
    """

    def __init__(
        self,
        config: BertConfig,
        num_classes: int,
        dropout: float | None = None,
        pooler: bool = False,
        name: str = "bert_token_classifier",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        check_num_classes(num_classes)
        super().__init__(
            config,
            head="token_classifier",
            units=num_classes,
            reads=features.SEQUENCE_OUTPUT,
            pooler=pooler,
            dropout=dropout,
            name=name,
            dtype=dtype,
            **kwargs,
        )
        self.num_classes = num_classes

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "dropout": self.dropout.rate,
            "pooler": self.encoder.pooler is not None,
        }
