"""Tagging by features: a BiLSTM that learns, on an encoder that does not."""

import copy
from typing import Any

from bert_tf.modeling import BertFeatureTagger
from bert_tf.pipelines.length_buckets import Examples

from .tagging import TaggingTask
from .word_states import WordStates


class FeatureTaggingTask(TaggingTask):
    """Sentences of words with a tag each, for ``BertFeatureTagger``.

    Source: Devlin et al. 2019, section 5.3, "Feature-based Approach with BERT". The encoder is run
    on each data set once (``word_states``).

    Args:
        *data: as ``TaggingTask``'s.
        variant: one of ``layer_mixing.VARIANTS``.
        lstm_units: the width of each direction of the BiLSTM.
        folder: where what the encoder gives is kept while the task is there.
        **options: as ``TaggingTask``'s.

    Raises:
        ValueError: as ``TaggingTask``.
    """

    model_class = BertFeatureTagger

    def __init__(
        self, *data: Any, variant: str, lstm_units: int, folder: str, **options: Any
    ) -> None:
        super().__init__(*data, **options)
        self.model_arguments = {
            **self.model_arguments,
            "variant": variant,
            "lstm_units": lstm_units,
        }
        self._states = WordStates(folder)

    def reading(self, variant: str) -> "FeatureTaggingTask":
        """The task on the same data, with another variant."""
        other = copy.copy(self)
        other.model_arguments = {**self.model_arguments, "variant": variant}
        return other

    def prepared(self, model: Any, examples: Examples) -> Examples:
        """The examples with what the model's encoder gives for them, which is kept."""
        return self._states.of(model, examples)
