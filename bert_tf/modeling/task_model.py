"""What the models for tasks share: an encoder, dropout, and one dense layer."""

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf import features
from bert_tf.config import BertConfig

from .base import BertModel, model_inputs
from .dropout import Dropout
from .encoder import BertEncoder
from .heads import new_logits


class TaskModel(BertModel):
    """An encoder whose pooled or sequence output goes through dropout and a dense layer.

    Source: Devlin et al. 2019, section 4; google-research/bert ``run_classifier.py``.

    The dense layer is drawn as every kernel of BERT's is, computes in float32 at least, and is
    named for the task: its variables are ``MODEL/HEAD/kernel`` and ``MODEL/HEAD/bias``, the
    encoder's ``bert_encoder/...``. Its dropout takes its seeds from the encoder's generator, so
    that the model has one.

    Args:
        config: sizes, rates and activation.
        head: the dense layer's name, and the attribute's that holds it.
        units: the width of the dense layer.
        reads: ``POOLED_OUTPUT`` or ``SEQUENCE_OUTPUT``.
        pooler: whether the encoder has a pooler.
        dropout: the rate in front of the dense layer; by default the config's
            ``hidden_dropout_prob``.
        contract: the inputs' features.
        name: the model's name; its encoder is always called ``bert_encoder``.
        dtype: a Keras dtype policy, ``"mixed_bfloat16"`` for example; the global one by default.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        head: str,
        units: int,
        reads: str,
        pooler: bool,
        dropout: float | None,
        contract: Mapping[str, features.Feature] = features.ENCODER_FEATURES,
        name: str,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        # === Layers ===
        encoder = BertEncoder(config, pooler=pooler, dtype=dtype)
        policy = encoder.dtype_policy
        rate = config.hidden_dropout_prob if dropout is None else dropout
        head_dropout = Dropout(rate, encoder.seed_generator, name="dropout", dtype=policy)
        dense = new_logits(config, units, head, policy)

        # === Functional model ===
        inputs = model_inputs(contract)
        states = encoder(self.to_rows(inputs))
        with keras.name_scope(name):
            logits = dense(head_dropout(states[reads]))
        outputs = self.to_outputs(logits, inputs)
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)

        # === Config ===
        self.set_config(config, policy)
        self.encoder = encoder
        self.dropout = head_dropout
        setattr(self, head, dense)

    @staticmethod
    def to_rows(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The encoder's inputs, made of the model's."""
        return inputs

    @staticmethod
    def to_outputs(logits: Any, inputs: Mapping[str, Any]) -> Any:
        """The model's outputs, made of the dense layer's."""
        return logits


def check_num_classes(num_classes: int) -> None:
    """Checks that there is a class.

    Raises:
        ValueError: there is none.

    >>> check_num_classes(0)
    Traceback (most recent call last):
    ...
    ValueError: num_classes is 0: expected 1 or more.
    """
    if num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}: expected 1 or more.")
