"""How a long piece of work is stopped: by a signal, or by a limit of time."""

import signal
import sys
import threading
import time
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


class OutOfTimeError(TimeoutError):
    """A limit of time has come, and all is saved: the same command goes on."""

    exit_status = 75  # EX_TEMPFAIL of BSD's sysexits.h: try again


class Deadline:
    """When a process has to stop so that all is saved by a time of ``time.monotonic``."""

    def __init__(self, ends: float) -> None:
        self._ends = ends
        self._longest_pause = 0.0

    def note_pause(self, seconds: float) -> None:
        """Takes what came between steps: a compilation, an evaluation. It may come again."""
        self._longest_pause = max(self._longest_pause, seconds)

    def is_near(self, next_steps: float, save: float) -> bool:
        """Whether the seconds of the next steps and of a save leave no time for another look."""
        ahead = self._longest_pause + 1.5 * next_steps + 2 * save
        return time.monotonic() + ahead > self._ends
