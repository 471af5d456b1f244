"""Steps that ruin a training: a loss or a gradient that is not finite, or that spikes.

All is decided from the loss and the gradients' norm over the whole batch, which are the same on
every replica of every worker.
"""

import math
from typing import NamedTuple

import tensorflow as tf

# Good steps until one is judged a spike, and how many the running means look back on.
_WINDOW = 100


class Trend(NamedTuple):
    """Running means over the good steps, float32 scalars: what a spike is measured by.

    ``steps`` counts good steps up to 100. Each mean is the plain one of the first 100 steps, and
    moves by a hundredth of the difference from then on.
    """

    steps: tf.Tensor | float = 0.0
    loss: tf.Tensor | float = 0.0
    gradient_norm: tf.Tensor | float = 0.0

    def is_good(self, loss: tf.Tensor, gradient_norm: tf.Tensor, spike_factor: float) -> tf.Tensor:
        """Whether both are finite and, ``spike_factor`` being above 0, neither is a spike."""
        finite = tf.math.is_finite(loss) & tf.math.is_finite(gradient_norm)
        if not spike_factor:
            return finite
        is_spike = (loss > spike_factor * self.loss) | (
            gradient_norm > spike_factor * self.gradient_norm
        )
        return finite & ~((self.steps >= _WINDOW) & is_spike)

    def after(self, loss: tf.Tensor, gradient_norm: tf.Tensor, is_good: tf.Tensor) -> "Trend":
        """The means after a step; as they are after a bad one."""
        steps = tf.minimum(self.steps + 1.0, _WINDOW)
        moved = Trend(
            steps,
            self.loss + (loss - self.loss) / steps,
            self.gradient_norm + (gradient_norm - self.gradient_norm) / steps,
        )
        return Trend(*(tf.where(is_good, *pair) for pair in zip(moved, self, strict=True)))


class BadStep(NamedTuple):
    """A bad step: its number, the (epoch, pool, row) of each host's last row, and its measures.

    Where the number says enough there are no ``cursors``. ``ruins``: the step's own measures are
    good, and the weights behind it have no finite norm.
    """

    step: int
    cursors: tuple[tuple[int, int, int], ...]
    loss: float
    gradient_norm: float
    ruins: bool = False

    def __str__(self) -> str:
        is_finite = math.isfinite(self.loss) and math.isfinite(self.gradient_norm)
        what = "The loss or its gradient " + (
            "spiked" if is_finite else "became infinite or not a number"
        )
        if self.ruins:
            what = "The norm of the weights became infinite or not a number"
        rows = " and ".join(
            f"row {row:,} of pool {pool:,} in epoch {epoch:,}" for epoch, pool, row in self.cursors
        )
        where = f", on the batch that ends with {rows}" if rows else ""
        return (
            f"{what} at step {self.step:,} (loss {self.loss:.4g}, "
            f"gradient norm {self.gradient_norm:.4g}){where}"
        )


class BadStepError(ValueError):
    """The weights are unusable after ``bad``: an earlier checkpoint has to be restored.

    ``remedy`` is what to do, where more is known.
    """

    def __init__(
        self,
        bad: BadStep,
        remedy: str = "lower the learning rate or lengthen the warm-up, and go on from the "
        "checkpoint before",
    ) -> None:
        super().__init__(f"{bad}: {remedy}.")
        self.bad = bad
