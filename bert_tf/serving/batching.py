"""Batching of waiting requests, and splitting of large requests into parts.

A free thread takes the oldest waiting request together with compatible ones, and does not wait for
further requests. Batching and splitting change outputs only by float rounding. Separate threads run
the parts of large requests, so that small requests do not wait for large ones.
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

Names = frozenset[str] | None  # the names of the requested outputs, or None for all
Run = Callable[[str, Tensors, Names], Tensors]
_SHUTDOWN_MESSAGE = "The server is shutting down."
_COUNTS = "counts"  # output with the number of values per row, excluding padding
# Padding value of an output by dtype kind.
_PADDING: dict[str, Any] = {"O": b"", "i": -1}
# Maximum number of bytes in a batch of several rows, about 2,000 tokens. Larger batches are not
# faster, and a running batch cannot be stopped.
_MAX_BYTES = 8192


@dataclasses.dataclass(eq=False)
class _Request:
    signature: str
    inputs: Tensors
    requested: Names
    is_batchable: bool
    is_large: bool
    size: int  # in bytes
    parts: list[Any]  # the waiting parts: row indices, or an ellipsis for all rows
    num_parts: int
    answers: list[tuple[Any, Tensors]] = dataclasses.field(default_factory=list)
    waits_since: float = dataclasses.field(default_factory=time.monotonic)
    answer: "Future[Tensors]" = dataclasses.field(default_factory=Future)

    @property
    def key(self) -> list[Any]:
        """Signature and row shapes, which all requests in a batch have in common."""
        return [self.signature, *(value.shape[1:] for value in self.inputs.values())]


def find_padded_outputs(signature: Mapping[str, Any]) -> frozenset[str]:
    """Returns the outputs that are padded to the longest row of a batch."""
    if any(len(dimensions(info)) > 1 for info in signature["inputs"].values()):
        return frozenset()  # The inputs determine the number of columns.
    outputs = signature["outputs"].items()
    return frozenset(name for name, info in outputs if -1 in dimensions(info)[1:])


def is_batchable(signature: Mapping[str, Any]) -> bool:
    """Returns whether requests to a signature can share a batch.

    This requires a batch dimension in all inputs and outputs, and ``counts`` for padded outputs.
    """
    infos = [*signature["inputs"].values(), *signature["outputs"].values()]
    have_rows = all(dimensions(info)[:1] == [-1] for info in infos)
    return have_rows and (not find_padded_outputs(signature) or _COUNTS in signature["outputs"])


class Batcher:
    """Thread pool that answers requests in batches.

    Args:
        run: Function that runs a signature.
        signatures: ``SignatureDef`` JSON by name.
        largest: Maximum number of rows per batch.
        workers: Number of threads for small requests, and number of threads for large requests.
        max_seconds: Maximum number of seconds that a request, or its next part, may wait before it
            fails with status 503.
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
        self._is_batchable = {name: is_batchable(info) for name, info in signatures.items()}
        self._padded = {name: find_padded_outputs(info) for name, info in signatures.items()}
        self._lock, self._ends = threading.RLock(), threading.Event()
        self._arrived = {is_large: threading.Condition(self._lock) for is_large in (False, True)}
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []  # One entry per running part.
        # Batches cannot be stopped, and an exiting process does not wait for daemon threads.
        self._threads = [
            threading.Thread(target=self._work, args=[is_large], daemon=True)
            for is_large in (False, True) * workers
        ]
        self._threads.append(threading.Thread(target=self._expire_requests, daemon=True))
        for thread in self._threads:
            thread.start()

    def submit(self, signature: str, inputs: Tensors, outputs: Names = None) -> "Future[Tensors]":
        """Submits a request and returns a future of its outputs.

        Canceling the future drops the parts that have not started.
        """
        sizes = [_row_sizes(value) for value in inputs.values()]
        # Inputs with different numbers of rows are passed to the model, which raises an error.
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
        """Ends the threads; requests that do not finish within ``seconds`` fail."""
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
        """Sets the outcome of a request, unless it has one or was canceled."""
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
                start = time.monotonic() - limit
                waiting = [r for r in self._waiting if r.parts and r not in self._running]
            late = [request for request in waiting if request.waits_since <= start]
            seconds = min([r.waits_since - start for r in waiting if r not in late], default=limit)
            for request in late:
                message = f"The request waited {limit:g} seconds (--max_wait_seconds). Retry later."
                self._resolve(request, RestError(503, message, retry_after=math.ceil(limit)))

    # === Threads ===

    def _work(self, is_large: bool) -> None:
        while taken := self._next(is_large):
            batch, rows = taken
            failure = None
            try:
                self._answer(batch, rows)
            except Exception as error:
                # A single request fails; the requests of a batch are retried one by one.
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
        """Returns the next requests and their rows, or ``None`` on shutdown."""
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
            rows = [request.parts.pop() for request in batch][-1]  # An ellipsis for a batch.
            self._running += batch
            batch[0].waits_since = time.monotonic()  # Its next part queues after other requests.
            if batch[0].parts:
                self._arrived[is_large].notify()
            return batch, rows

    def _batched(self, waiting: Sequence[_Request]) -> list[_Request]:
        """Returns the first waiting request, and the requests that can be batched with it."""
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
        inputs = {name: np.concatenate(v) if v[1:] else v[0] for name, v in columns.items()}
        found = self._run(signature, inputs, outputs)
        for request, answer in zip(batch, self._split(batch, found), strict=True):
            request.answers.append((rows, answer))
            if len(request.answers) == request.num_parts:
                self._resolve(request, self._concatenate(request))

    def _split(self, batch: Sequence[_Request], outputs: Tensors) -> list[Tensors]:
        """Splits the outputs of a batch by request and removes padding."""
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
        """Concatenates the parts of a request in the order of its rows, with padding."""
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
    """Returns the size of each row in bytes."""
    rows = np.atleast_1d(values)
    if rows.dtype != object:
        return np.full(len(rows), rows[:1].nbytes)
    lengths = np.array([len(value) for value in rows.flat], int).reshape(rows.shape)
    return lengths.sum(axis=tuple(range(1, rows.ndim)))


def _make_parts(sizes: np.ndarray, max_rows: int) -> list[Any]:
    """Groups rows of similar size into parts; returns the row indices, longest rows last."""
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
