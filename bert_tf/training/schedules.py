"""The paper's learning-rate curve."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then a straight line that ends in 0 after *all* the steps.

    ``rate(step) = peak * step / warmup_steps`` while ``step < warmup_steps``, then
    ``peak * (1 - step / total_steps)``, and 0 from ``total_steps`` on. Steps count from 0, so the
    first update has rate 0. The line runs over all the steps, not over those after the warm-up:
    the rate falls by ``warmup_steps / total_steps`` of the peak where the two parts meet. All
    arithmetic is float32. Source: ``create_optimizer`` in Google's ``optimization.py``.

    Args:
        peak: the learning rate that the warm-up aims at.
        warmup_steps: the number of updates of the warm-up; 0 for none.
        total_steps: the number of updates of the whole training, all phases together.

    Raises:
        ValueError: a number is out of range.

    >>> schedule = WarmupLinearDecay(1e-4, warmup_steps=10, total_steps=100)
    >>> [f"{float(schedule(step)):.1e}" for step in (0, 5, 10, 50, 100)]
    ['0.0e+00', '5.0e-05', '9.0e-05', '5.0e-05', '0.0e+00']
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int) -> None:
        if not peak > 0.0:
            raise ValueError(f"peak must be a positive learning rate, got {peak!r}.")
        if total_steps < 1:
            raise ValueError(f"total_steps must be at least 1, got {total_steps}.")
        if not 0 <= warmup_steps <= total_steps:
            raise ValueError(
                f"warmup_steps must be between 0 and total_steps ({total_steps}), "
                f"got {warmup_steps}."
            )
        self.peak = float(peak)
        self.warmup_steps = int(warmup_steps)
        self.total_steps = int(total_steps)

    def __call__(self, step: Any) -> Any:
        """The float32 learning rate of an update; ``step`` is the number of updates before it."""
        step = ops.cast(step, "float32")
        elapsed = ops.minimum(step / self.total_steps, 1.0)
        decayed = self.peak * (1.0 - elapsed)
        if self.warmup_steps == 0:
            return decayed
        return ops.where(step < self.warmup_steps, self.peak * (step / self.warmup_steps), decayed)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("peak", "warmup_steps", "total_steps")
        return {name: getattr(self, name) for name in names}
