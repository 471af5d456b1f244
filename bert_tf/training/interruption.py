"""Ctrl-C and SIGTERM during a run: the steps in progress end, a checkpoint is kept, it stops."""

import signal
import sys
from types import FrameType, TracebackType
from typing import Self

# SIGTERM is what a preempted cloud machine sends before it goes away.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A context in which a first signal is noted, and a second one interrupts at once.

    >>> with Interruption() as interruption:
    ...     interruption.requested
    False
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print(
            "\nStopping after the steps in progress, to keep a checkpoint. "
            "Once more stops at once; nothing that is saved is lost either way.",
            file=sys.stderr,
            flush=True,
        )
