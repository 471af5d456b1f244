"""Whether a training went wrong: a loss that is no number, or does not fall, or one answer only."""

import dataclasses
import math

_TENTHS = 10
# With fewer steps a tenth of them is a batch or two, and says nothing.
_FEWEST_STEPS = 50
_LEAST_FALL = 0.02


class DivergedError(ValueError):
    """The loss is no number; the message says what to do."""


@dataclasses.dataclass
class LossCurve:
    """The training loss, by tenths of the planned steps.

    Args:
        num_steps: the steps planned.
        sums: of each tenth.
        counts: of each tenth's steps so far.

    >>> curve = LossCurve(100)
    >>> for step in range(100):
    ...     curve.add(step, 1.0 - 0.001 * step)
    >>> curve.fall()
    'from 0.9955 to 0.9055'
    >>> curve.is_flat()
    False
    """

    num_steps: int
    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0] * _TENTHS)
    counts: list[int] = dataclasses.field(default_factory=lambda: [0] * _TENTHS)

    def add(self, step: int, loss: float) -> None:
        """Adds the loss of a step, counted from 0.

        Raises:
            DivergedError: it is not finite.
        """
        if not math.isfinite(loss):
            raise DivergedError(
                f"The loss of step {step + 1:,} is {loss}: start again with a lower "
                "--learning_rate and another --model_dir (or --precision=float32); what was saved "
                "before is kept."
            )
        tenth = step * _TENTHS // self.num_steps
        self.sums[tenth] += loss
        self.counts[tenth] += 1

    def _means(self) -> list[float]:
        return [total / count for total, count in zip(self.sums, self.counts, strict=True) if count]

    def fall(self) -> str:
        """The means of the first and of the last tenth, in words."""
        means = self._means()
        return f"from {means[0]:#.4g} to {means[-1]:#.4g}"

    def is_flat(self) -> bool:
        """Whether the mean of the last tenth is not below that of the first by 2%.

        ``False`` after fewer than 50 steps, of which it cannot be told.
        """
        means = self._means()
        if sum(self.counts) < _FEWEST_STEPS or len(means) < 2:
            return False
        return means[-1] > (1 - _LEAST_FALL) * means[0]


def describe_collapse(curve: LossCurve, constant: str | None, set_name: str | None) -> str | None:
    """Why a run counts as collapsed, in a phrase; ``None`` where it does not.

    Args:
        curve: its training loss.
        constant: in words, that the best weights give every example of the set the same
            prediction; ``None`` where they do not.
        set_name: that set; ``None`` where nothing was evaluated.
    """
    reasons = []
    if constant:
        reasons.append(f"on {set_name} {constant}")
    if curve.is_flat():
        reasons.append(f"the training loss did not fall ({curve.fall()})")
    return " and ".join(reasons) or None
