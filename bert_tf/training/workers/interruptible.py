"""Interruptible calls of functions that ignore Ctrl-C."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[], T], seconds: float | None = None) -> T:
    """Calls a function in a thread, which Ctrl-C or a TimeoutError abandons."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)
