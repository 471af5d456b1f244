"""``BertClassifier`` and ``BertRegressor``: a class, or a number, for each text or pair."""

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf import features
from bert_tf.config import BertConfig

from .task_model import TaskModel, check_num_classes


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(TaskModel):
    """Logits of classes for a text or a pair of texts, from the pooled output.

    Source: Devlin et al. 2019, section 4.1 and figure 4 (a, b); google-research/bert
    ``run_classifier.py``, ``create_model``.

    Inputs: the encoder's. Output: (B, C) float32 logits, for a softmax, or for a sigmoid each
    where a text may have several classes.

    Args:
        config: sizes, rates and activation.
        num_classes: C.
        dropout: the rate on the pooled output; by default the config's ``hidden_dropout_prob``.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        encoder: the ``BertEncoder``.
        classifier: the dense layer, kernel (H, C).

    Raises:
        ValueError: ``num_classes`` is less than 1, or the rate is outside [0, 1).

    >>> model = BertClassifier(BertConfig.from_preset("bert-tiny", vocab_size=100), num_classes=3)
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    >>> tuple(model(inputs).shape)
    (2, 3)
    >>> model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> history = model.fit(inputs, keras.ops.array([0, 2]), verbose=0)
    """

    def __init__(
        self,
        config: BertConfig,
        num_classes: int,
        dropout: float | None = None,
        name: str = "bert_classifier",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        check_num_classes(num_classes)
        super().__init__(
            config,
            head="classifier",
            units=num_classes,
            reads=features.POOLED_OUTPUT,
            pooler=True,
            dropout=dropout,
            name=name,
            dtype=dtype,
            **kwargs,
        )
        self.num_classes = num_classes

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        rest = {"num_classes": self.num_classes, "dropout": self.dropout.rate}
        return {**super().get_config(), **rest}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertRegressor(TaskModel):
    """A number for a text or a pair of texts, from the pooled output, as for STS-B.

    Source: Devlin et al. 2019 report STS-B in section 4.1 and do not say how they trained it, and
    google-research/bert has no regression; this is ``BertClassifier`` with one output.

    Inputs: the encoder's. Output: (B,) float32, not bounded. ``fit`` learns numbers near 0: give it
    others less their mean, divided by their standard deviation, as ``bert_tf.finetune`` does.

    Args:
        config: sizes, rates and activation.
        dropout: the rate on the pooled output; by default the config's ``hidden_dropout_prob``.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.

    Attributes:
        encoder: the ``BertEncoder``.
        regressor: the dense layer, kernel (H, 1).

    Raises:
        ValueError: the rate is outside [0, 1).

    >>> model = BertRegressor(BertConfig.from_preset("bert-tiny", vocab_size=100))
    >>> ids = keras.ops.ones((2, 5), "int32")
    >>> tuple(model({"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}).shape)
    (2,)
    """

    def __init__(
        self,
        config: BertConfig,
        dropout: float | None = None,
        name: str = "bert_regressor",
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config,
            head="regressor",
            units=1,
            reads=features.POOLED_OUTPUT,
            pooler=True,
            dropout=dropout,
            name=name,
            dtype=dtype,
            **kwargs,
        )

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """(B, 1) -> (B,)."""
        return logits[:, 0]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {**super().get_config(), "dropout": self.dropout.rate}
