"""Where a training stands, besides its variables."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .collapse import LossCurve
from .task import TargetScale


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
        target_mean: the ``TargetScale`` that the variables were trained with; without it in what
            was saved, that which changes nothing.
        target_std: likewise.
        stops_at_evaluations: whether early stopping is at an evaluation; earlier versions stopped
            between two.
    """

    step: int
    curve: LossCurve
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_step: int = 0
    seconds: float = 0.0
    examples: int = 0
    target_mean: float = 0.0
    target_std: float = 1.0
    stops_at_evaluations: bool = False

    @property
    def target_scale(self) -> TargetScale:
        """That which the variables were trained with."""
        return TargetScale(self.target_mean, self.target_std)

    def to_dict(self) -> dict[str, Any]:
        """The state, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingState":
        """The state that ``to_dict`` gave."""
        return cls(**{**values, "curve": LossCurve(**values["curve"])})
