"""Requests that wait are joined into batches.

A request does not wait for others: a free thread takes the oldest, and with it those that it may be
joined with. What is joined is answered as it would be alone, but for the rounding of floats.
Requests of more rows than a batch has are answered one after another by a thread of their own, so
that no small one waits for them.
"""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from .rest import Tensors, dimensions, rows_of

Run = Callable[[str, Tensors], Tensors]
_COUNTS = "counts"  # the output that says how many values of a row are no padding


@dataclasses.dataclass(frozen=True, eq=False)
class _Waiting:
    signature: str
    inputs: Tensors
    answer: "Future[Tensors]" = dataclasses.field(default_factory=Future)

    @property
    def key(self) -> list[Any]:
        """The signature and the shapes of rows, which are equal in a batch."""
        return [self.signature, *(value.shape[1:] for value in self.inputs.values())]


def padded_outputs(signature: Mapping[str, Any]) -> list[str]:
    """The outputs that have as many columns as the longest row of a batch needs."""
    if any(len(dimensions(info)) > 1 for info in signature["inputs"].values()):
        return []  # they have as many as the inputs
    return [name for name, info in signature["outputs"].items() if -1 in dimensions(info)[1:]]


def joins(signature: Mapping[str, Any]) -> bool:
    """True if a signature's requests may share a batch.

    All inputs and outputs have rows, of any number, and ``counts`` says what of a row is padding.
    """
    infos = [*signature["inputs"].values(), *signature["outputs"].values()]
    have_rows = all(dimensions(info)[:1] == [-1] for info in infos)
    return have_rows and (not padded_outputs(signature) or _COUNTS in signature["outputs"])


class Batcher:
    """Answers requests, in batches of at most ``largest`` rows, by ``workers`` threads."""

    def __init__(
        self, run: Run, signatures: Mapping[str, Any], *, largest: int, workers: int
    ) -> None:
        self._run, self._largest = run, largest
        self._joins = {name: joins(signature) for name, signature in signatures.items()}
        self._padded = {name: padded_outputs(signature) for name, signature in signatures.items()}
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._workers, self._large = ThreadPoolExecutor(workers), ThreadPoolExecutor(1)

    def ask(self, signature: str, inputs: Tensors) -> "Future[Tensors]":
        """The answer to a request, when there is one; an error is raised from it."""
        if rows_of(inputs) > self._largest:
            return self._large.submit(self._run, signature, inputs)
        # Inputs of different numbers of rows are the model's to refuse.
        if not self._joins[signature] or len({len(value) for value in inputs.values()}) > 1:
            return self._workers.submit(self._run, signature, inputs)
        request = _Waiting(signature, inputs)
        with self._lock:
            self._waiting.append(request)
        self._workers.submit(self._answer_next)
        return request.answer

    def close(self) -> None:
        """Answers what waits, and ends the threads."""
        self._workers.shutdown()
        self._large.shutdown()

    def _answer_next(self) -> None:
        """Answers the oldest request, and what joins it; nothing where another thread has."""
        batch: list[_Waiting] = []
        with self._lock:
            rows = 0
            for request in self._waiting.copy():
                more = rows_of(request.inputs)
                if not batch or (request.key == batch[0].key and rows + more <= self._largest):
                    batch.append(request)
                    self._waiting.remove(request)
                    rows += more
        if batch:
            self._answer(batch)

    def _answer(self, batch: list[_Waiting]) -> None:
        try:
            answers = self._answers(batch)
        except Exception as error:
            # Of whatever kind, it is for the one who asked; nobody else's request fails with it.
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
            else:
                for request in batch:
                    self._answer([request])
        else:
            for request, answer in zip(batch, answers, strict=True):
                request.answer.set_result(answer)

    def _answers(self, batch: list[_Waiting]) -> list[Tensors]:
        signature, names = batch[0].signature, batch[0].inputs
        joined = {name: np.concatenate([each.inputs[name] for each in batch]) for name in names}
        outputs = self._run(signature, joined)
        ends = np.cumsum([rows_of(each.inputs) for each in batch])[:-1]
        columns = {name: np.split(value, ends) for name, value in outputs.items()}
        answers = [{name: column[i] for name, column in columns.items()} for i in range(len(batch))]
        if len(batch) > 1 and (padded := self._padded[signature]):
            for answer in answers:
                width = max(int(np.max(answer[_COUNTS], initial=0)), 1)
                answer |= {name: answer[name][:, :width] for name in padded}
        return answers
