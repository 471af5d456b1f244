"""Requests that wait are joined into batches, and large ones are answered in parts.

A request does not wait for others: a free thread takes the oldest, and with it those that it may be
joined with. What is joined, or parted, is answered as it would be alone, but for the rounding of
floats. Large requests take turns, a part each, in threads of their own, so that no small one waits
for them: the two kinds share the processor.
"""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from .rest import RestError, Tensors, count_rows, dimensions

Names = frozenset[str] | None  # of outputs; None is all
Run = Callable[[str, Tensors, Names], Tensors]
_SHUTDOWN_MESSAGE = "The server ends."
_COUNTS = "counts"  # the output that says how many values of a row are no padding
# What outputs of exports are padded with, by the kind of their dtype.
_PADDING: dict[str, Any] = {"O": b"", "i": -1}
# The most bytes of a batch of several rows, some 2,000 tokens: more make no processor quicker, and
# nothing stops what runs.
_MAX_BYTES = 8192


@dataclasses.dataclass(eq=False)
class _Request:
    signature: str
    inputs: Tensors
    requested: Names
    is_batchable: bool  # others
    is_large: bool
    size: int  # in bytes
    parts: list[Any]  # that wait: the numbers of their rows, or an ellipsis for all
    count: int  # of its parts
    answers: list[tuple[Any, Tensors]] = dataclasses.field(default_factory=list)
    waits_since: float = dataclasses.field(default_factory=time.monotonic)
    answer: "Future[Tensors]" = dataclasses.field(default_factory=Future)

    @property
    def key(self) -> list[Any]:
        """The signature and the shapes of rows, which are equal in a batch."""
        return [self.signature, *(value.shape[1:] for value in self.inputs.values())]


def find_padded_outputs(signature: Mapping[str, Any]) -> frozenset[str]:
    """The outputs that have as many columns as the longest row of a batch needs."""
    if any(len(dimensions(info)) > 1 for info in signature["inputs"].values()):
        return frozenset()  # they have as many as the inputs
    outputs = signature["outputs"].items()
    return frozenset(name for name, info in outputs if -1 in dimensions(info)[1:])


def is_batchable(signature: Mapping[str, Any]) -> bool:
    """True if a signature's requests may share a batch.

    All inputs and outputs have rows, of any number, and ``counts`` says what of a row is padding.
    """
    infos = [*signature["inputs"].values(), *signature["outputs"].values()]
    have_rows = all(dimensions(info)[:1] == [-1] for info in infos)
    return have_rows and (not find_padded_outputs(signature) or _COUNTS in signature["outputs"])


class Batcher:
    """Answers requests, in batches of at most ``largest`` rows, by ``workers`` threads a kind.

    What waits for ``max_seconds``, also for its next part, ends with an error.
    """

    def __init__(
        self,
        run: Run,
        signatures: Mapping[str, Any],
        *,
        largest: int,
        workers: int,
        max_seconds: float,
    ) -> None:
        self._run, self._largest, self._max_seconds = run, largest, max_seconds
        self._is_batchable = {
            name: is_batchable(signature) for name, signature in signatures.items()
        }
        self._padded = {
            name: find_padded_outputs(signature) for name, signature in signatures.items()
        }
        self._lock, self._ends = threading.RLock(), threading.Event()
        self._arrived = {is_large: threading.Condition(self._lock) for is_large in (False, True)}
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []  # as often as they have parts that run
        # A process that ends does not wait for daemons: nothing stops what they run.
        self._threads = [
            threading.Thread(target=self._work, args=[is_large], daemon=True)
            for is_large in (False, True) * workers
        ]
        self._threads.append(threading.Thread(target=self._expire_requests, daemon=True))
        for thread in self._threads:
            thread.start()

    def submit(self, signature: str, inputs: Tensors, outputs: Names = None) -> "Future[Tensors]":
        """The answer to a request, when there is one; an error is raised from it.

        Who does not wait any more cancels it; what of it has not begun is left undone.
        """
        sizes = [_row_sizes(value) for value in inputs.values()]
        # Inputs of different numbers of rows are the model's to refuse.
        can_batch = self._is_batchable[signature] and len({len(value) for value in sizes}) == 1
        parts = _make_parts(np.sum(sizes, 0), self._largest) if can_batch else [...]
        size = sum(int(value.sum()) for value in sizes)
        is_large = len(parts) > 1 or size > _MAX_BYTES or count_rows(inputs) > self._largest
        request = _Request(signature, inputs, outputs, can_batch, is_large, size, parts, len(parts))
        with self._lock:
            self._waiting.append(request)
            self._arrived[is_large].notify()
        if self._ends.is_set():
            self._resolve(request, RestError(503, _SHUTDOWN_MESSAGE))
        return request.answer

    def close(self, seconds: float) -> None:
        """Answers what is in hand, refuses what is left after so many seconds, ends the threads."""
        end = time.monotonic() + seconds
        with self._lock:
            self._ends.set()
            for condition in self._arrived.values():
                condition.notify_all()
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        with self._lock:
            left = [*self._waiting, *self._running]
        for request in left:
            self._resolve(request, RestError(503, _SHUTDOWN_MESSAGE))

    def _resolve(self, request: _Request, outcome: Tensors | Exception) -> None:
        """Answers a request, once, unless it is cancelled."""
        answer = request.answer
        with self._lock:
            if answer.running() or answer.done() or not answer.set_running_or_notify_cancel():
                return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            requested = outcome if request.requested is None else request.requested
            answer.set_result({name: value for name, value in outcome.items() if name in requested})

    def _expire_requests(self) -> None:
        seconds = limit = self._max_seconds
        while not self._ends.wait(seconds):
            with self._lock:
                deadline = time.monotonic() - limit
                waiting = [r for r in self._waiting if r.parts and r not in self._running]
            late = [request for request in waiting if request.waits_since <= deadline]
            seconds = min(
                [r.waits_since - deadline for r in waiting if r not in late], default=limit
            )
            for request in late:
                message = f"The request waited {limit:g} seconds, --max_wait_seconds: ask later."
                self._resolve(request, RestError(503, message, retry_after=math.ceil(limit)))

    # === What a thread does ===

    def _work(self, is_large: bool) -> None:
        while taken := self._next(is_large):
            batch, rows = taken
            failure = None
            try:
                self._answer(batch, rows)
            except Exception as error:
                # Of whatever kind, it is for the one who asked; of several each is asked alone.
                failure = error
                if len(batch) == 1:
                    self._resolve(batch[0], error)
            with self._lock:
                for request in batch:
                    self._running.remove(request)
                    request.waits_since = time.monotonic()
                    if failure:
                        request.is_batchable = False
                        request.parts.append(rows)
                if failure:
                    self._waiting += batch
                    self._arrived[is_large].notify_all()

    def _next(self, is_large: bool) -> tuple[list[_Request], Any] | None:
        """The requests that are answered next, and which rows of theirs; at the end nothing."""
        with self._lock:
            while True:
                self._waiting = [r for r in self._waiting if r.parts and not r.answer.done()]
                waiting = [request for request in self._waiting if request.is_large == is_large]
                if waiting:
                    break
                if self._ends.is_set():
                    return None
                self._arrived[is_large].wait()
            batch = self._batched(sorted(waiting, key=lambda request: request.waits_since))
            rows = [request.parts.pop() for request in batch][-1]  # all, of several
            self._running += batch
            batch[0].waits_since = time.monotonic()  # its turn comes again after the others'
            if batch[0].parts:
                self._arrived[is_large].notify()
            return batch, rows

    def _batched(self, waiting: Sequence[_Request]) -> list[_Request]:
        """The first, and what joins it."""
        first, batch = waiting[0], [waiting[0]]
        rows, size = count_rows(first.inputs), first.size
        for request in waiting[1:] if first.is_batchable else ():
            batch_rows = rows + count_rows(request.inputs)
            batch_size = size + request.size
            fits = batch_rows <= self._largest and batch_size <= _MAX_BYTES
            if fits and request.is_batchable and request.key == first.key:
                batch.append(request)
                rows, size = batch_rows, batch_size
        return batch

    def _answer(self, batch: Sequence[_Request], rows: Any) -> None:
        signature, names = batch[0].signature, batch[0].inputs
        columns = {name: [request.inputs[name][rows] for request in batch] for name in names}
        requested = [request.requested for request in batch]
        outputs = None if None in requested else frozenset[str]().union(*filter(None, requested))
        if outputs and outputs & self._padded[signature]:
            outputs |= {_COUNTS}
        inputs = {
            name: np.concatenate(arrays) if arrays[1:] else arrays[0]
            for name, arrays in columns.items()
        }
        found = self._run(signature, inputs, outputs)
        for request, answer in zip(batch, self._split(batch, found), strict=True):
            request.answers.append((rows, answer))
            if len(request.answers) == request.count:
                self._resolve(request, self._concatenate(request))

    def _split(self, batch: Sequence[_Request], outputs: Tensors) -> list[Tensors]:
        """Each request's rows, as wide as they are alone."""
        if len(batch) == 1:
            return [outputs]
        ends = np.cumsum([count_rows(request.inputs) for request in batch])[:-1]
        columns = {name: np.split(value, ends) for name, value in outputs.items()}
        answers = [{name: column[i] for name, column in columns.items()} for i in range(len(batch))]
        if padded := self._padded[batch[0].signature] & outputs.keys():
            for answer in answers:
                width = max(int(np.max(answer[_COUNTS], initial=0)), 1)
                answer |= {name: answer[name][:, :width] for name in padded}
        return answers

    def _concatenate(self, request: _Request) -> Tensors:
        """A request's rows in their order, as wide as they are together."""
        if len(request.answers) == 1:
            return request.answers[0][1]
        parts, answers = zip(*request.answers, strict=True)
        columns = {name: [answer[name] for answer in answers] for name in answers[0]}
        for name in self._padded[request.signature] & columns.keys():
            width = max(values.shape[1] for values in columns[name])
            columns[name] = [_pad_columns(values, width) for values in columns[name]]
        order = np.argsort(np.concatenate(parts))
        return {name: np.concatenate(values)[order] for name, values in columns.items()}


def _row_sizes(values: np.ndarray) -> np.ndarray:
    """The bytes of each row."""
    rows = np.atleast_1d(values)
    if rows.dtype != object:
        return np.full(len(rows), rows[:1].nbytes)
    lengths = np.array([len(value) for value in rows.flat], int).reshape(rows.shape)
    return lengths.sum(axis=tuple(range(1, rows.ndim)))


def _make_parts(sizes: np.ndarray, max_rows: int) -> list[Any]:
    """The numbers of each part's rows, those of about one size together; the longest are last."""
    parts: list[Any] = [[]]
    size = 0
    for row in np.argsort(sizes, kind="stable").tolist():
        if parts[-1] and (len(parts[-1]) == max_rows or size + sizes[row] > _MAX_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += sizes[row]
    return parts if len(parts) > 1 else [...]


def _pad_columns(values: np.ndarray, width: int) -> np.ndarray:
    widths = [(0, 0), (0, width - values.shape[1]), *[(0, 0)] * (values.ndim - 2)]
    padded: np.ndarray = np.pad(values, widths, constant_values=_PADDING.get(values.dtype.kind, 0))
    return padded
