"""The phases of a run: steps at one sequence length each, as ``--phases`` divides them."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Phase:
    """A run of steps, from ``first_step`` to before ``last_step``, at one sequence length.

    A step has ``rows`` over all replicas, a row at most ``max_predictions``, where
    ``--phases`` names a number.
    """

    max_seq_length: int
    first_step: int
    last_step: int
    rows: int
    max_predictions: int | None = None


def parse_phases(text: str, num_steps: int, rows: int) -> list[Phase]:
    """Divides the steps of a run among ``LENGTH:SHARE[:PREDICTIONS]``, whose shares add up to 1.

    The phases have no gaps; those left without a step are left out.
    """
    phases = []
    first, passed = 0, 0.0
    for part in text.split(","):
        length, share, predictions = _parse_phase(text, part)
        passed += share
        last = round(passed * num_steps)
        if last > first:
            phases.append(Phase(length, first, last, rows, predictions))
        first = last
    if not math.isclose(passed, 1.0, abs_tol=1e-6):
        raise ValueError(f"--phases={text}: the shares add up to {passed:g}, expected 1.")
    return phases


def _parse_phase(text: str, part: str) -> tuple[int, float, int | None]:
    length, *rest = part.split(":")
    share, *most = rest or ["1"]
    try:
        phase = int(length), float(share), int(":".join(most)) if most else None
        if phase[0] < 1 or not 0.0 <= phase[1] <= 1.0 or (most and int(most[0]) < 1):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"--phases={text}: expected LENGTH:SHARE pairs such as 128:0.9,512:0.1, or "
            "LENGTH:SHARE:PREDICTIONS, lengths and predictions of 1 or more and shares between 0 "
            f"and 1, got {part!r}."
        ) from None
    return phase
