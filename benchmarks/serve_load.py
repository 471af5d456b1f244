"""Servers that ``benchmarks.serve`` starts, and the clients that ask them."""

import dataclasses
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

Inputs = dict[str, list[str]]


@dataclasses.dataclass
class Load:
    """What clients saw: requests a second, the seconds of each, and the replies by request."""

    rate: float
    seconds: list[float]
    replies: dict[int, set[bytes]]


class Server:
    """A server's process, from its start until it is ended.

    Args:
        name: for people.
        command: of a process that prints where it listens.
        path: of the address that is asked.
        body: inputs to a request's body.
        outputs: a reply to the outputs, by name.
        folder: where the process runs; not where Python would find another build of a package.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        path: str,
        body: Callable[[Inputs], dict[str, Any]],
        outputs: Callable[[Any], dict[str, Any]],
        folder: str,
    ) -> None:
        self.name, self.path, self._body, self.outputs = name, path, body, outputs
        self._command, self._folder = command, folder

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, cwd=self._folder
        )
        for line in self._process.stdout or ():
            if found := re.match("Listening at http://([^/]+)/", line):
                self.place = found[1]
                return self
        raise ValueError(f"{self.name} did not start: see its message above.")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def memory(self) -> dict[str, float]:
        """MiB that the process holds (VmRSS), and what of it is in no file (RssAnon)."""
        with open(f"/proc/{self._process.pid}/status", encoding="ascii") as file:
            text = file.read()
        return {
            key: int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) / 1024
            for key in ("RssAnon", "VmRSS")
        }

    def bodies(self, requests: Sequence[Inputs]) -> list[bytes]:
        """Requests' bodies."""
        return [json.dumps(self._body(inputs)).encode() for inputs in requests]

    def load(
        self, bodies: Sequence[bytes], clients: int, seconds: float = 0, count: int = 0
    ) -> Load:
        """Has clients ask, over a kept connection each, one request after another.

        They ask for so many ``seconds``, or each of the bodies once.
        """
        taken: list[float] = []
        replies: dict[int, set[bytes]] = {}
        errors: list[BaseException] = []
        began = time.perf_counter()

        def work(client: int) -> None:
            connection = http.client.HTTPConnection(self.place, timeout=120)
            try:
                # Each begins at another request, so that those that wait together differ.
                numbers = range(client, count or sys.maxsize, clients)
                for number in numbers:
                    number = number if count else (number * 7 + client) % len(bodies)
                    sent = time.perf_counter()
                    if seconds and sent - began >= seconds:
                        break
                    connection.request("POST", self.path, bodies[number])
                    reply = connection.getresponse()
                    text = reply.read()
                    taken.append(time.perf_counter() - sent)
                    if reply.status != 200:
                        raise ValueError(f"{self.name}: status {reply.status}: {text[:200]!r}")
                    replies.setdefault(number, set()).add(text)
            except BaseException as error:
                errors.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise ValueError(f"{len(errors)} of {clients} clients failed; the first: {errors[0]!r}")
        return Load(len(taken) / (time.perf_counter() - began), taken, replies)

    def difference(self, load: Load, expected: Sequence[dict[str, Any]]) -> float:
        """The largest difference of the replies' floats; whatever else differs is an error."""
        return max(
            _difference(self.outputs(json.loads(text)), expected[number])
            for number, texts in load.replies.items()
            for text in texts
        )


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    largest = 0.0
    for name, value in found.items():
        if np.asarray(value).dtype.kind == "f":
            apart = np.abs(np.subtract(value, expected[name]))
            largest = max(largest, float(np.max(apart, initial=0)))
        elif value != expected[name]:
            raise ValueError(f"{name}: expected {expected[name]}, got {value}.")
    return largest
