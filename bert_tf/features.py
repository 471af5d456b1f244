"""The batch contract: key, dtype and shape of each feature in a batch.

Other modules use these constants instead of strings. Dimension letters in the whole library:
B batch, S sequence, P masked-LM predictions, N heads, D head size, H hidden, V vocabulary,
C classes, K choices, W words, L hidden states of one token.

| key                  | shape, dtype   | meaning                                           |
|----------------------|----------------|---------------------------------------------------|
| input_word_ids       | (B, S) int32   | token ids                                         |
| input_mask           | (B, S) int32   | 1 = real, 0 = padding                             |
| input_type_ids       | (B, S) int32   | 0 for segment A, 1 for segment B, 0 on padding    |
| masked_lm_positions  | (B, P) int32   | ascending, 0 where padded                         |
| masked_lm_ids        | (B, P) int32   | the original ids, 0 where padded                  |
| masked_lm_weights    | (B, P) float32 | 1 = real, 0 = padded                              |
| next_sentence_labels | (B,) int32     | 0 = B follows A in the text, 1 = B is random      |
| cursor               | (B, 3) int32   | (epoch, pool, row): position of the row in the    |
|                      |                | order of the data; checkpoints store the last one |
| example_index        | (B,) int32     | index of the row's example in its data set        |
| word_index           | (B, S) int32   | index of the word at its first piece, -1 at other |
|                      |                | positions                                         |
| word_states          | (B, W, L, H)   | L hidden states of a frozen encoder at the first  |
|                      | floating       | piece of each word                                |

A causal model is trained on the same keys, with P = S - 1. No token is masked; masked_lm_positions
contains the positions of the predicting tokens, and masked_lm_ids contains the token after each of
these positions (before it, in a right-to-left model).

For multiple choice, the first three features have shape (B, K, S), with a row for each of the K
choices. In labels of shape (B, S), positions with ``NO_LABEL`` are ignored by losses and metrics.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

INPUT_WORD_IDS = "input_word_ids"
INPUT_MASK = "input_mask"
INPUT_TYPE_IDS = "input_type_ids"
MASKED_LM_POSITIONS = "masked_lm_positions"
MASKED_LM_IDS = "masked_lm_ids"
MASKED_LM_WEIGHTS = "masked_lm_weights"
NEXT_SENTENCE_LABELS = "next_sentence_labels"
CURSOR = "cursor"
EXAMPLE_INDEX = "example_index"
NUM_WINDOWS = "num_windows"
WORD_INDEX = "word_index"
WORD_STATES = "word_states"

SEQUENCE_OUTPUT = "sequence_output"
POOLED_OUTPUT = "pooled_output"
ENCODER_OUTPUTS = "encoder_outputs"
EMBEDDING_OUTPUT = "embedding_output"
ATTENTIONS = "attentions"
MASKED_LM_LOGITS = "masked_lm_logits"
NEXT_SENTENCE_LOGITS = "next_sentence_logits"
START_LOGITS = "start_logits"
END_LOGITS = "end_logits"

NO_LABEL = -1


# Keys of ``BertModel.thresholds``. A question has no answer if the score of "no answer" exceeds the
# best span's score by more than NULL_THRESHOLD. A multi-label classifier predicts each class with a
# probability of at least PROBABILITY_THRESHOLD. Logits are divided by TEMPERATURE before softmax or
# sigmoid.
NULL_THRESHOLD = "null"
PROBABILITY_THRESHOLD = "probability"
DEFAULT_THRESHOLD = 0.5  # probability threshold without a dev set
TEMPERATURE = "temperature"


class Feature(NamedTuple):
    """Name of a feature's dtype, and dimension letters of the feature's shape."""

    dtype: str
    dimensions: str


ENCODER_FEATURES: dict[str, Feature] = {
    INPUT_WORD_IDS: Feature("int32", "BS"),
    INPUT_MASK: Feature("int32", "BS"),
    INPUT_TYPE_IDS: Feature("int32", "BS"),
}

CHOICE_FEATURES: dict[str, Feature] = {
    key: Feature(feature.dtype, "BKS") for key, feature in ENCODER_FEATURES.items()
}

TAGGING_FEATURES: dict[str, Feature] = {
    **ENCODER_FEATURES,
    WORD_INDEX: Feature("int32", "BS"),
}

PRETRAINING_FEATURES: dict[str, Feature] = {
    **ENCODER_FEATURES,
    MASKED_LM_POSITIONS: Feature("int32", "BP"),
    MASKED_LM_IDS: Feature("int32", "BP"),
    MASKED_LM_WEIGHTS: Feature("float32", "BP"),
    NEXT_SENTENCE_LABELS: Feature("int32", "B"),
}


def check_batch(batch: Mapping[str, Any], contract: Mapping[str, Feature]) -> None:
    """Checks that a batch has the keys, dtypes and shapes of a contract.

    Args:
        batch: Mapping from keys to objects with ``shape`` and ``dtype``: NumPy arrays, tensors,
            ``KerasTensor`` or ``tf.TensorSpec``. A dimension of ``None`` matches every size. Keys
            that are not in the contract are ignored.
        contract: ``ENCODER_FEATURES``, ``CHOICE_FEATURES`` or ``PRETRAINING_FEATURES``.

    Raises:
        ValueError: If a key is missing, or a dtype or shape does not match.

    >>> import numpy as np
    >>> ids = np.zeros((2, 12), np.int32)
    >>> check_batch({"input_word_ids": ids, "input_mask": ids, "input_type_ids": ids},
    ...             ENCODER_FEATURES)
    >>> check_batch({"input_word_ids": ids}, ENCODER_FEATURES)
    Traceback (most recent call last):
    ...
    ValueError: The batch has no key 'input_mask': expected input_word_ids, input_mask, \
input_type_ids, got input_word_ids.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for key, (dtype, dimensions) in contract.items():
        if key not in batch:
            raise ValueError(
                f"The batch has no key {key!r}: expected {', '.join(contract)}, "
                f"got {', '.join(batch)}."
            )
        value = batch[key]
        received = getattr(value.dtype, "name", str(value.dtype))
        shape = tuple(value.shape)
        if received != dtype or len(shape) != len(dimensions):
            expected_shape = ", ".join(dimensions)
            raise ValueError(
                f"Feature {key!r}: expected dtype {dtype} and shape ({expected_shape}), "
                f"got dtype {received} and shape {shape}."
            )
        for letter, size in zip(dimensions, shape, strict=True):
            if size is None:
                continue
            first_size, first_key = sizes.setdefault(letter, (size, key))
            if size != first_size:
                raise ValueError(
                    f"Feature {key!r} has {letter}={size}, but {first_key!r} has "
                    f"{letter}={first_size}: expected equal sizes."
                )
