"""Progress lines, progress bars and TensorBoard summaries."""

import contextlib
import contextvars
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TextIO

import tensorflow as tf
from tqdm import tqdm

from bert_tf.io.messages import EscapedStream
from bert_tf.io.paths import local_path

_LOG_INTERVAL_S = 10.0
# Object stores rewrite the complete file for each added record.
_REMOTE_SECONDS = 60.0
# TensorBoard sections, and patterns of the names in each; the first match is used.
_SECTIONS = {
    "masked_lm": r"masked_lm_(.+)",
    "next_sentence": r"next_sentence_(.+)",
    "optimizer": r"(gradient_norm|learning_rate)",
    "speed": r"(.+_per_second|input_wait_share)",
    "scores": r"(.+)",
}


# Discards its input.
NOWHERE: TextIO = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
# Stream for the progress of one call in one thread; ``sys.stdout`` is shared by the whole process.
# ``None`` means standard output at the time of printing.
_stream: contextvars.ContextVar[TextIO | None] = contextvars.ContextVar("_stream", default=None)


@contextlib.contextmanager
def progress_to(stream: TextIO | None) -> Iterator[None]:
    """Sends the progress lines that this thread prints within the context to a stream.

    Args:
        stream: ``NOWHERE`` discards the lines; ``None`` is standard output.
    """
    token = _stream.set(stream)
    try:
        yield
    finally:
        _stream.reset(token)


def print_progress(*values: object, sep: str = " ", flush: bool = False) -> None:
    """Prints a line about a run, like ``print``, to the stream set by ``progress_to``."""
    # The encoding of standard output may lack characters that occur in class names.
    print(*values, sep=sep, file=EscapedStream(_stream.get() or sys.stdout), flush=flush)


def duration(seconds: float) -> str:
    """Formats a duration.

    >>> duration(8), duration(133), duration(7384), duration(200000)
    ('8s', '2m13s', '2h03m', '2d07h')
    """
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


class Progress:
    """Displays the progress, the speed and the remaining time of a long task.

    A terminal shows one line that is updated in place; other streams get a line every ten seconds
    and at the end.

    Args:
        label: Name of the task.
        total: Total number of units.
        unit: Name of the unit.
        start: Number of units that were finished before.
    """

    def __init__(self, label: str, total: int, unit: str, start: int = 0) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self._done = start
        # The time before the first update is excluded, because it is mostly tracing.
        self._first: tuple[int, float] | None = None
        self._began = self._logged = time.monotonic()
        self._status = ""
        self._bar: tqdm | None = None
        if sys.stderr.isatty() and _stream.get() is not NOWHERE:
            self._bar = tqdm(
                total=total,
                initial=start,
                bar_format="{percentage:3.0f}%|{bar:12}| {desc}",
                desc=label,
                leave=False,
                dynamic_ncols=True,
            )

    def update(self, done: int, figures: Mapping[str, str] | None = None) -> None:
        """Displays the number of finished units, followed by ``figures``."""
        self._done = done
        now = time.monotonic()
        first, began = self._first = self._first or (done, now)
        left = ""
        if done > first and now > began:
            seconds = (now - began) * (self.total - done) / (done - first)
            left = f", {duration(seconds)} left"
        text = "".join(f"  {name} {value}" for name, value in (figures or {}).items())
        self._status = f"{done:,}/{self.total:,} {self.unit}{left}{text}"
        if self._bar is not None:
            self._bar.n = done
            self._bar.set_description_str(f"{self.label}: {self._status}")
        elif now - self._logged >= _LOG_INTERVAL_S:
            self._logged = now
            print_progress(f"{self.label}: {self._status}", flush=True)

    def write(self, line: str) -> None:
        """Prints a permanent line above the progress bar."""
        if self._bar is not None:
            self._bar.clear()
        print_progress(line, flush=True)
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Removes the progress bar and prints a final line."""
        if self._bar is not None:
            self._bar.close()
        elapsed = duration(time.monotonic() - self._began)
        print_progress(f"{self.label}: {self._done:,} {self.unit} in {elapsed}.", flush=True)


def _tag(name: str) -> str:
    """Returns the tag of a scalar: its section and its name."""
    found = ((section, re.fullmatch(form, name)) for section, form in _SECTIONS.items())
    return next(f"{section}/{match[1]}" for section, match in found if match)


class Summaries:
    """Writes scalars for TensorBoard to ``train`` and ``eval`` in the ``logs`` folder."""

    def __init__(self, directory: str | None) -> None:
        """Creates the writers; without ``directory``, nothing is written."""
        self._directory = directory
        is_local = directory is None or local_path(directory) is not None
        self._seconds = 0.0 if is_local else _REMOTE_SECONDS
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._waiting: dict[str, list[tuple[int, Mapping[str, float]]]] = {}
        self._written_at = time.monotonic()

    def write(self, group: str, step: int, figures: Mapping[str, float]) -> None:
        """Adds scalars of a group (``train`` or ``eval``) at a step.

        On local disks, scalars are written immediately, because a run may be killed at any time.
        """
        self._waiting.setdefault(group, []).append((step, dict(figures)))
        if time.monotonic() - self._written_at >= self._seconds:
            self.flush()

    def flush(self) -> None:
        """Writes pending scalars."""
        for group, waiting in self._waiting.items():
            if self._directory is None:
                continue
            if group not in self._writers:
                folder = os.path.join(self._directory, group)
                self._writers[group] = tf.summary.create_file_writer(folder, max_queue=10_000)
            with self._writers[group].as_default():
                for step, figures in waiting:
                    for name, value in figures.items():
                        tf.summary.scalar(_tag(name), value, step=step)
        self._waiting = {}
        self._written_at = time.monotonic()
