"""The batch contract: every key of a batch, its dtype and its shape.

Nothing else in the library spells a key as a string. Dimension letters, here and everywhere:
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
| cursor               | (B, 3) int32   | (epoch, pool, row): where the row stands in the   |
|                      |                | data's order; a checkpoint keeps the last row's   |
| example_index        | (B,) int32     | which example of its data set the row is of       |
| word_index           | (B, S) int32   | which word of its sentence is tagged here (at the |
|                      |                | word's first piece); -1 where none is             |
| word_states          | (B, W, L, H)   | what a frozen encoder gave at words' first        |
|                      | floating       | pieces: L hidden states of each                   |

A causal model is trained on the same keys, with P = S - 1: nothing is masked, masked_lm_positions
are where the predicting tokens stand, and masked_lm_ids the tokens after them (from right to left:
before them).

For multiple choice the first three are (B, K, S): a row for each of K answers. Where a label is one
for each position, (B, S), ``NO_LABEL`` stands where none is, and counts in no loss and no metric.
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


# The names of what ``BertModel.thresholds`` may hold: "no answer" is the answer to a question where
# its score exceeds the best text's by more than this, and of several classes that may hold at once
# each does whose probability is at least this, by default a half. Logits are divided by the
# temperature before they become probabilities.
NULL_THRESHOLD = "null"
PROBABILITY_THRESHOLD = "probability"
# From this probability on a text has a class, where no dev set has decided.
DEFAULT_THRESHOLD = 0.5
TEMPERATURE = "temperature"


class Feature(NamedTuple):
    """One row of the contract: the dtype's name and the dimension letters of the shape."""

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
    """Checks that a batch has the contract's keys, dtypes and ranks, and that its shapes agree.

    Works on anything with ``.shape`` and ``.dtype``: NumPy arrays, tensors, ``KerasTensor``,
    ``tf.TensorSpec``. Dimensions that are not static (``None``) agree with every size. The contract
    is ``ENCODER_FEATURES``, ``CHOICE_FEATURES`` or ``PRETRAINING_FEATURES``; further keys of the
    batch are ignored. What does not agree is a ``ValueError``.

    >>> import numpy as np
    >>> ids = np.zeros((2, 12), np.int32)
    >>> check_batch({"input_word_ids": ids, "input_mask": ids, "input_type_ids": ids},
    ...             ENCODER_FEATURES)
    >>> check_batch({"input_word_ids": ids}, ENCODER_FEATURES)
    Traceback (most recent call last):
    ...
    ValueError: The batch has no 'input_mask': expected the keys input_word_ids, input_mask, \
input_type_ids; got input_word_ids.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for key, (dtype, dimensions) in contract.items():
        if key not in batch:
            raise ValueError(
                f"The batch has no {key!r}: expected the keys {', '.join(contract)}; "
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
                    f"Feature {key!r} has {letter} = {size}, but {first_key!r} has "
                    f"{letter} = {first_size}: every feature of a batch shares its dimensions."
                )
