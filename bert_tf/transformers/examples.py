"""``InputExample`` and ``InputFeatures``, in which scripts keep texts and their ids."""

import dataclasses
from typing import Any


@dataclasses.dataclass
class InputExample:
    """A text or a pair of texts, and its label."""

    guid: str | None
    text_a: str
    text_b: str | None = None
    label: Any = None


@dataclasses.dataclass
class InputFeatures:
    """The ids of an example, its masks, and its label."""

    input_ids: list[int]
    attention_mask: list[int] | None = None
    token_type_ids: list[int] | None = None
    label: Any = None
