"""How a long piece of work is stopped by a signal."""

import signal
import sys
import threading
from types import FrameType
from typing import Self

# SIGTERM is what a preempted cloud machine sends before it goes away.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A context in which a first signal is noted, and a second one interrupts at once.

    Outside of a process' main thread Python notes no signals.

    >>> with Interruption() as interruption:
    ...     interruption.requested
    False
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        self._before = {n: signal.getsignal(n) for n in (_SIGNALS if is_main else ())}
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
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
