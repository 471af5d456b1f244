"""The schedule of sequence lengths: ``128:0.9,512:0.1`` is the paper's.

Devlin et al. 2019, appendix A.2: the first 90% of the steps at length 128, the rest at 512, under
one learning-rate curve.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Phase:
    """A run of steps at one sequence length.

    Attributes:
        max_seq_length: tokens in a row, [CLS] and [SEP] included.
        first_step: the global step that the phase starts at.
        last_step: the global step that it ends before.
    """

    max_seq_length: int
    first_step: int
    last_step: int


def parse_phases(text: str, num_steps: int) -> list[Phase]:
    """Divides the steps among the sequence lengths.

    Args:
        text: ``LENGTH:SHARE`` pairs with commas between; the shares add up to 1.
        num_steps: the steps of the whole run.

    Returns:
        The phases in order, without gaps; phases that are left without a step are left out.

    Raises:
        ValueError: the text is not of the form, or the shares do not add up to 1.

    >>> for phase in parse_phases("128:0.9,512:0.1", 1000):
    ...     print(phase)
    Phase(max_seq_length=128, first_step=0, last_step=900)
    Phase(max_seq_length=512, first_step=900, last_step=1000)
    >>> parse_phases("128:0.9,512:0.2", 1000)
    Traceback (most recent call last):
    ...
    ValueError: --phases=128:0.9,512:0.2: the shares add up to 1.1, expected 1.
    """
    lengths: list[int] = []
    shares: list[float] = []
    for part in text.split(","):
        length, separator, share = part.partition(":")
        try:
            lengths.append(int(length))
            shares.append(float(share) if separator else 1.0)
        except ValueError:
            raise ValueError(
                f"--phases={text}: expected LENGTH:SHARE pairs such as 128:0.9,512:0.1, "
                f"got {part!r}."
            ) from None
        if lengths[-1] < 1 or not 0.0 <= shares[-1] <= 1.0:
            raise ValueError(
                f"--phases={text}: expected a positive length and a share between 0 and 1, "
                f"got {part!r}."
            )
    total = math.fsum(shares)
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise ValueError(f"--phases={text}: the shares add up to {total:g}, expected 1.")
    phases = []
    first, passed = 0, 0.0
    for max_seq_length, phase_share in zip(lengths, shares, strict=True):
        passed += phase_share
        last = round(passed * num_steps)
        if last > first:
            phases.append(Phase(max_seq_length, first, last))
        first = last
    return phases
