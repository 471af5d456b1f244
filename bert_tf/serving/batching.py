"""Requests that wait are joined into batches, of which each worker runs one at a time.

A request does not wait for others: a free worker takes the oldest, and with it those that it may be
joined with. What is joined is answered as it would be alone, but for the rounding of floats. One
worker leaves requests of more rows than a batch has to the others, so that no small one waits for
several large ones.
"""

import collections
import dataclasses
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from .rest import Tensors, dimensions

Run = Callable[[str, Tensors], Tensors]
_COUNTS = "counts"  # the output that says how many values of a row are no padding


@dataclasses.dataclass(frozen=True, eq=False)
class _Waiting:
    signature: str
    inputs: Tensors
    key: Any  # of requests that may be joined; None if with no other
    answer: "Future[Tensors]"

    @property
    def rows(self) -> int:
        return max((len(value) for value in self.inputs.values() if value.ndim), default=1)


def joins(signature: Mapping[str, Any]) -> bool:
    """True if a signature's requests may share a batch.

    All inputs and outputs have rows, of any number. An output's other sizes are fixed, or those of
    the inputs, or else ``counts`` says what the padding is.
    """
    inputs = [dimensions(info) for info in signature["inputs"].values()]
    outputs = [dimensions(info) for info in signature["outputs"].values()]
    if not all(sizes and sizes[0] == -1 for sizes in inputs + outputs):
        return False
    is_fixed = all(-1 not in sizes[1:] for sizes in outputs)
    return is_fixed or any(len(sizes) > 1 for sizes in inputs) or _COUNTS in signature["outputs"]


class Batcher:
    """Answers requests, in batches of at most ``largest`` rows, by ``workers`` threads."""

    def __init__(
        self, run: Run, signatures: Mapping[str, Any], *, largest: int, workers: int
    ) -> None:
        self._run, self._signatures, self._largest = run, signatures, largest
        self._joins = {name: joins(signature) for name, signature in signatures.items()}
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._changed = threading.Condition()
        self._is_open = True
        self._workers = [
            threading.Thread(target=self._work, args=[most], daemon=True)
            for most in [*[math.inf] * (workers - 1), largest if workers > 1 else math.inf]
        ]
        for worker in self._workers:
            worker.start()

    def ask(self, signature: str, inputs: Tensors) -> "Future[Tensors]":
        """The answer to a request, when there is one; an error is raised from it."""
        key = None
        shapes = {name: value.shape for name, value in inputs.items()}
        if self._joins[signature] and len({shape[0] for shape in shapes.values()}) == 1:
            key = (signature, *((name, shape[1:]) for name, shape in sorted(shapes.items())))
        request = _Waiting(signature, inputs, key, Future())
        with self._changed:
            self._waiting.append(request)
            self._changed.notify_all()
        return request.answer

    def close(self) -> None:
        """Answers what waits, and ends the workers."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def _work(self, most: float) -> None:
        while batch := self._next_batch(most):
            self._answer(batch)

    def _next_batch(self, most: float) -> list[_Waiting]:
        """The oldest request of at most so many rows, and what joins it; none at the end."""

        def oldest() -> _Waiting | None:
            return next((each for each in self._waiting if each.rows <= most), None)

        with self._changed:
            self._changed.wait_for(lambda: oldest() or not self._is_open)
            first = oldest()
            if first is None:
                return []
            self._waiting.remove(first)
            batch, left = [first], collections.deque[_Waiting]()
            while self._waiting and first.key is not None:
                other = self._waiting.popleft()
                rows = sum(each.rows for each in [*batch, other])
                fits = other.key == first.key and rows <= self._largest
                (batch if fits else left).append(other)
            self._waiting.extendleft(reversed(left))
            return batch

    def _answer(self, batch: list[_Waiting]) -> None:
        first = batch[0]
        try:
            if len(batch) == 1:
                answers = [self._run(first.signature, first.inputs)]
            else:
                columns = {name: [each.inputs[name] for each in batch] for name in first.inputs}
                joined = {name: np.concatenate(column) for name, column in columns.items()}
                answers = self._split(batch, self._run(first.signature, joined))
        except Exception as error:
            # Of whatever kind, it is for the one who asked; nobody else's request fails with it.
            if len(batch) > 1:
                for each in batch:
                    self._answer([each])
            else:
                first.answer.set_exception(error)
            return
        for each, answer in zip(batch, answers, strict=True):
            each.answer.set_result(answer)

    def _split(self, batch: list[_Waiting], outputs: Tensors) -> list[Tensors]:
        ends = np.cumsum([each.rows for each in batch])
        columns = {name: np.split(value, ends[:-1]) for name, value in outputs.items()}
        answers = [{name: column[i] for name, column in columns.items()} for i in range(len(batch))]
        described = self._signatures[batch[0].signature]
        of_inputs = any(len(dimensions(info)) > 1 for info in described["inputs"].values())
        if not of_inputs and _COUNTS in outputs:
            ragged = [
                name for name, info in described["outputs"].items() if dimensions(info)[1:2] == [-1]
            ]
            for answer in answers:
                width = max(int(np.max(answer[_COUNTS], initial=0)), 1)
                answer.update({name: answer[name][:, :width] for name in ragged})
        return answers
