"""What a row of pre-training is like: its length, its pairs, and what is predicted of it."""

import dataclasses

from bert_tf.choices import Masking, Objective
from bert_tf.pipelines.packing import check_at_least

from .masking import PAPER_REPLACEMENT, Replacement, default_max_predictions


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Options of the rows, checked; ``pretraining_dataset`` says what each does.

    Raises:
        ValueError: an option is out of its range.

    >>> RowOptions(max_seq_length=512).predictions
    77
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int | None = None
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    masking: Masking = "token"
    replacement: Replacement = PAPER_REPLACEMENT
    pairs: bool = True
    objective: Objective = "mlm"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("masked_lm_prob", "short_seq_prob"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name}: expected a probability, from 0 to 1; got {value}.")
        # The shortest target is two tokens: one for A and one for B.
        check_at_least("max_seq_length", self.max_seq_length, 5 if self.pairs else 4)
        check_at_least("max_predictions_per_seq", self.predictions, 1)
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"seed: expected an integer of 64 bits; got {self.seed}.")

    @property
    def predictions(self) -> int:
        """P, the most predictions of a row; by default what a full row needs."""
        if self.max_predictions_per_seq is None:
            return default_max_predictions(self.max_seq_length, self.masked_lm_prob)
        return self.max_predictions_per_seq

    @property
    def max_tokens(self) -> int:
        """The tokens that fit beside [CLS] and [SEP]."""
        return self.max_seq_length - (3 if self.pairs else 2)
