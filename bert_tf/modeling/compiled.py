"""What layers compute otherwise in a training's step that XLA compiles for a GPU or a TPU.

XLA keeps for the backward pass what it had better compute again, and computes again what it had
better keep. A step that it compiles says which, by a context.
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

# Numbers in the states of 5,461 of bert-base's tokens. With fewer, by estimate, the more kernels of
# a block that follows the plan take longer than the memory's traffic that they spare.
MANY = 1 << 22


def current_plan() -> Plan | None:
    """The plan of the step that is traced, if XLA compiles it."""
    return _plan.get()


def plan_for(states: Any) -> Plan | None:
    """The plan, if a block follows it: its states (B, S, H) are known to be many."""
    known = None not in states.shape
    return current_plan() if known and math.prod(states.shape) >= MANY else None


@contextlib.contextmanager
def planned(plan: Plan | None) -> Iterator[None]:
    """A context in which layers follow a plan."""
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)
