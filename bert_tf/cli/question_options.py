"""The flags of questions about contexts, which training, predictions and exports have."""

import dataclasses

from . import flag_fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """Options of questions about contexts, for training, predictions and exports."""

    doc_stride: int = flag_fields.integer(
        128,
        "squad: begin the windows of a context so many tokens apart.",
        least=1,
        is_kept=True,
        heading="Questions",
        is_rare=True,
    )
    max_query_length: int = flag_fields.integer(
        64, "squad: cut questions to this many tokens.", least=1, is_kept=True, is_rare=True
    )
    # The memory grows with the square of a question's answers.
    n_best_size: int = flag_fields.integer(
        20,
        "squad: keep this many answers for each question.",
        least=1,
        most=1000,
        is_kept=True,
        is_rare=True,
    )
    max_answer_length: int = flag_fields.integer(
        30, "squad: give answers of at most this many tokens.", least=1, is_kept=True, is_rare=True
    )
