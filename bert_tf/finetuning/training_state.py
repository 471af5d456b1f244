"""Where a training stands, besides its variables."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .collapse import LossCurve


@dataclasses.dataclass
class TrainingState:
    """What is saved with a training's variables, as JSON.

    Attributes:
        step: updates made.
        curve: the loss so far.
        evaluations: of the set that decides, in order: ``step``, ``scores``, ``constant``.
        best_step: the step of the best evaluation; the newest epoch's end where none is made.
        seconds: spent on the steps that ``examples`` counts: all but each process' first.
        examples: see ``seconds``.
    """

    step: int
    curve: LossCurve
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_step: int = 0
    seconds: float = 0.0
    examples: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The state, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingState":
        """The state that ``to_dict`` gave."""
        return cls(**{**values, "curve": LossCurve(**values["curve"])})
