"""BERT's learning rate schedule."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0, then linear decay to 0.

    The learning rate is ``peak * step / warmup_steps`` while ``step < warmup_steps``, then
    ``peak * (1 - step / total_steps)``, and 0 from ``total_steps`` on. The first step is step 0, so
    with a warm-up, the first update has a learning rate of 0. The decay covers all steps, including
    the warm-up: at its end, the learning rate drops by ``warmup_steps / total_steps`` of the peak.
    Computed in float32. Source: ``create_optimizer`` in Google's ``optimization.py``.

    Args:
        peak: Peak learning rate.
        warmup_steps: Number of warm-up steps; 0 for no warm-up.
        total_steps: Total number of steps, including the warm-up.

    Raises:
        ValueError: If an argument is out of range.

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
        """Returns the float32 learning rate; ``step`` is the number of previous updates."""
        step = ops.cast(step, "float32")
        elapsed = ops.minimum(step / self.total_steps, 1.0)
        decayed = self.peak * (1.0 - elapsed)
        if self.warmup_steps == 0:
            return decayed
        return ops.where(step < self.warmup_steps, self.peak * (step / self.warmup_steps), decayed)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        names = ("peak", "warmup_steps", "total_steps")
        return {name: getattr(self, name) for name in names}
