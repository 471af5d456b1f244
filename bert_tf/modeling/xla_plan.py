"""What layers compute otherwise in a training's step that XLA compiles for a GPU or a TPU.

Left to itself, XLA keeps for the backward pass what is cheaper to compute again, and computes again
what is cheaper to keep. The step tells layers which, by a context.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Plan(NamedTuple):
    """What is kept, what is computed again, and in which order rows stand.

    ``barrier`` gives a tensor as it is; XLA does not look behind it, and so keeps it. ``again``
    calls a function of the tensors that follow, and the backward pass has these tensors alone.
    ``places_first``: rows are those of all first tokens, then of all second ones, so that products
    of matrices read and write heads as they lie; else attention's weights are computed again.
    """

    barrier: Callable[[Any], Any]
    again: Callable[..., Any]
    places_first: bool


_plan: contextvars.ContextVar[Plan | None] = contextvars.ContextVar("_plan", default=None)

# Numbers in a block's states: 5,461 tokens of bert-base. With fewer, by estimate, the additional
# kernels of the plan take longer than the memory's traffic that they spare.
LEAST_NUMBERS = 1 << 22


def current_plan() -> Plan | None:
    """The plan of the step that is traced, if XLA compiles it."""
    return _plan.get()


def plan_for(states: Any) -> Plan | None:
    """The plan, if a block follows it: its states (B, S, H) have so many numbers, as is known."""
    known = None not in states.shape
    return current_plan() if known and math.prod(states.shape) >= LEAST_NUMBERS else None


@contextlib.contextmanager
def planned(plan: Plan | None) -> Iterator[None]:
    """A context in which layers follow a plan."""
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)
