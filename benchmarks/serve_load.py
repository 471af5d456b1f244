"""Servers that ``benchmarks.serve`` starts, and their clients."""

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
    """Results of the clients: requests per second, seconds of each, and replies by request."""

    rate: float
    seconds: list[float]
    replies: dict[int, set[bytes]]


class Server:
    """A server in a separate process, as a context manager.

    Args:
        name: Display name.
        command: Command of the server, which prints its address.
        path: Path of the requests.
        body: Function from the inputs to the body of a request.
        outputs: Function from a reply to the outputs by name.
        folder: Working directory, in which Python must not find another version of the package.
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
                self.address = found[1]
                return self
        raise ValueError(f"{self.name} did not start. See its message above.")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def memory(self) -> dict[str, float]:
        """Returns the resident memory (VmRSS) and its anonymous part (RssAnon) in MiB."""
        with open(f"/proc/{self._process.pid}/status", encoding="ascii") as file:
            text = file.read()
        return {
            key: int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) / 1024
            for key in ("RssAnon", "VmRSS")
        }

    def bodies(self, requests: Sequence[Inputs]) -> list[bytes]:
        """Returns the bodies of requests."""
        return [json.dumps(self._body(inputs)).encode() for inputs in requests]

    def load(
        self, bodies: Sequence[bytes], clients: int, seconds: float = 0, count: int = 0
    ) -> Load:
        """Runs clients, each with a persistent connection and one request at a time.

        They run for ``seconds``, or until each of ``count`` bodies was sent once.
        """
        latencies: list[float] = []
        replies: dict[int, set[bytes]] = {}
        errors: list[BaseException] = []
        start = time.perf_counter()

        def work(client: int) -> None:
            connection = http.client.HTTPConnection(self.address, timeout=120)
            try:
                # Each client starts with another request, so that concurrent requests differ.
                numbers = range(client, count or sys.maxsize, clients)
                for number in numbers:
                    number = number if count else (number * 7 + client) % len(bodies)
                    sent = time.perf_counter()
                    if seconds and sent - start >= seconds:
                        break
                    connection.request("POST", self.path, bodies[number])
                    reply = connection.getresponse()
                    text = reply.read()
                    latencies.append(time.perf_counter() - sent)
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
            raise ValueError(
                f"{len(errors)} of {clients} clients failed. First error: {errors[0]!r}"
            )
        return Load(len(latencies) / (time.perf_counter() - start), latencies, replies)

    def difference(self, load: Load, expected: Sequence[dict[str, Any]]) -> float:
        """Returns the maximum difference of floats in the replies.

        Raises:
            ValueError: If other values differ.
        """
        return max(
            _difference(self.outputs(json.loads(text)), expected[number])
            for number, texts in load.replies.items()
            for text in texts
        )


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    largest = 0.0
    for name, value in found.items():
        if np.asarray(value).dtype.kind == "f":
            differences = np.abs(np.subtract(value, expected[name]))
            largest = max(largest, float(np.max(differences, initial=0)))
        elif value != expected[name]:
            raise ValueError(f"{name}: expected {expected[name]}, got {value}.")
    return largest
