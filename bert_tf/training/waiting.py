"""Connections between workers before TensorFlow joins them, and exchange of signals.

TensorFlow waits an hour for a missing worker, catches SIGTERM during that time, and holds the
global interpreter lock. Therefore, each worker first connects to the chief, and TensorFlow joins
the workers only when all are connected.
"""

import contextlib
import ctypes
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ANSWER_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_REPORT_SECONDS = 30.0
# Time after which the chief knows why a worker exited.
_REASON_SECONDS = 15.0
_START, _JOINED, _STOPPED = b"g", b"j", b"s"


class LostWorkerError(ConnectionError):
    """Raised if another worker has exited; ``command`` then ends this process immediately."""


class Partners:
    """Connections between the chief and every other worker, open until the run ends."""

    def __init__(self, addresses: Sequence[str], index: int) -> None:
        self._addresses, self._index, self._is_chief = addresses, index, index == 0
        cluster = hashlib.sha256(",".join(addresses).encode()).hexdigest()
        self.lines = [f"bert_tf {cluster} {index}\n".encode() for index in range(len(addresses))]
        self._expected = range(1, len(addresses)) if self._is_chief else range(1)
        self._connections: dict[int, socket.socket] = {}

    def name(self, index: int) -> str:
        """Returns the name of a worker for messages."""
        return f"worker {index} ({self._addresses[index]})"

    @contextlib.contextmanager
    def connected_workers(self, minutes: float) -> Iterator[None]:
        """Waits until all workers are connected; the block then joins them through TensorFlow.

        If a worker exits before it has joined, this process exits with an error message and status
        1. A signal before the block interrupts immediately; a signal within the block interrupts
        when all workers have joined, so that no worker waits for a missing one.

        Raises:
            TimeoutError: If a worker is missing after ``minutes``.
            ValueError: If this worker cannot listen on its port.
        """
        with collected_signals() as received:
            self._find_workers(minutes, received)
            names = {each.fileno(): self.name(at) for at, each in self._connections.items()}
            with _watched(names, minutes):
                yield
            if not self._is_chief:
                self._send(_JOINED)
            self._await_joined(minutes)
            if self._is_chief:
                self._send(_JOINED)
            if received:
                raise KeyboardInterrupt

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """If the context is interrupted, reports this to the other workers."""
        try:
            yield
        except KeyboardInterrupt:
            self._send(_STOPPED)
            raise

    def is_any_stopped(self) -> bool:
        """Returns whether another worker reports that it was interrupted; waits for the report."""
        events = select.poll()
        for each in self._connections.values():
            events.register(each, select.POLLIN)
        seconds = _ANSWER_SECONDS if self._is_chief else _REASON_SECONDS
        return bool(self._connections and events.poll(1000 * seconds)) and any(
            _receive(each) == _STOPPED for each in self._connections.values()
        )

    def _find_workers(self, minutes: float, received: Sequence[int]) -> None:
        began = reported = time.monotonic()
        with self._listen() as listening:
            while missing := self._missing(listening):
                now = time.monotonic()
                if received:
                    self._withdraw()
                    break
                if now - began > 60 * minutes:
                    raise TimeoutError(
                        f"Waited {minutes:g} minutes for {missing}. Check the output of each "
                        "worker, and restart all with the same addresses and reachable ports."
                    )
                if now - reported > _REPORT_SECONDS:
                    reported = now
                    print(f"Waiting for {missing}.", file=sys.stderr, flush=True)
        if self._is_chief:
            self._send(_START)
            return
        # TensorFlow reports SIGTERM to the chief only once, so the chief must already be listening.
        while not (connection := self._call()) and _receive(self._connections[0]) is None:
            if received:
                break
            time.sleep(_PAUSE_SECONDS)
        if connection:
            connection.close()

    def _listen(self) -> socket.socket:
        port = int(self._addresses[self._index].rpartition(":")[2])
        try:
            if socket.has_dualstack_ipv6():
                listening = socket.create_server(
                    ("", port), family=socket.AF_INET6, dualstack_ipv6=True
                )
            else:
                listening = socket.create_server(("", port))
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            raise ValueError(
                f"This process, {self.name(self._index)}, cannot listen on its port: "
                f"{os.strerror(number) if number else error}. Stop the program that uses the port, "
                "or pass another HOST:PORT on all workers."
            ) from error
        listening.settimeout(_PAUSE_SECONDS)
        return listening

    def _missing(self, listening: socket.socket) -> str:
        """Checks once for new workers; returns a description of the missing ones, or ""."""
        if self._is_chief:
            with contextlib.suppress(OSError):  # There is no new connection.
                self._accept_peer(listening.accept()[0])
            # Checked last, because the worker of the new connection may also have exited.
            for index, each in [*self._connections.items()]:
                if _receive(each) is not None:  # The worker has exited and may connect again.
                    self._connections.pop(index).close()
            absent = [index for index in self._expected if index not in self._connections]
            return "; ".join(f"{self.name(index)}, which has not connected" for index in absent)
        if not self._connections:
            connection = self._call()
            if connection is None:
                time.sleep(_PAUSE_SECONDS)
                return f"{self.name(0)}, which does not respond"
            if not self._accept_peer(connection):
                time.sleep(_PAUSE_SECONDS)
                return f"{self.name(0)}, where another program responds"
        heard = _receive(self._connections[0], _PAUSE_SECONDS)
        if heard == _START:
            return ""
        if heard is not None:
            self._connections.pop(0).close()
        return f"{self.name(0)}, which waits for other workers"

    def _call(self) -> socket.socket | None:
        host, _, port = self._addresses[0].rpartition(":")
        with contextlib.suppress(OSError, OverflowError, UnicodeError):
            return socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS)
        return None

    def _accept_peer(self, connection: socket.socket) -> bool:
        """Accepts a connection if the other side sends the line of an expected worker."""
        received = b""
        with contextlib.suppress(OSError):
            connection.settimeout(_ANSWER_SECONDS)
            connection.sendall(self.lines[self._index])
            # Unbuffered, because later messages are read from the socket.
            received = connection.makefile("rb", buffering=0).readline(100)
        for index in self._expected:
            if received == self.lines[index]:
                before = self._connections.pop(index, None)
                if before is not None:
                    before.close()
                self._connections[index] = connection
                return True
        connection.close()
        return False

    def _withdraw(self) -> None:
        """Raises KeyboardInterrupt unless joining has started, which requires all workers."""
        self._send(_STOPPED)
        if self._is_chief or not any(
            _receive(each, _ANSWER_SECONDS) == _START for each in self._connections.values()
        ):
            raise KeyboardInterrupt

    def _send(self, word: bytes) -> None:
        for each in self._connections.values():
            with contextlib.suppress(OSError):  # The exit of a worker is detected elsewhere.
                each.send(word)

    def _await_joined(self, minutes: float) -> None:
        for index, each in self._connections.items():
            heard: bytes | None = b"-"
            while heard and heard != _JOINED:
                heard = _receive(each, 60 * minutes)
            if not heard:
                raise LostWorkerError(_ENDED.format(self.name(index)))


def _receive(connection: socket.socket, seconds: float = 0.0) -> bytes | None:
    """Returns a byte; b"" if the connection has ended; None if no byte arrives in time."""
    events = select.poll()
    events.register(connection, select.POLLIN)
    if not events.poll(1000 * seconds):
        return None
    with contextlib.suppress(OSError):
        return connection.recv(1)  # only one, because others may follow
    return b""


@contextlib.contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collects the signals that arrive within the context in a list."""
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {
        each: signal.signal(each, lambda number, _: received.append(number)) for each in signals
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_ENDED = (
    "{} exited before TensorFlow had joined the workers. Check the output of that worker, and "
    "restart all workers."
)
# Arguments: process ID to end; maximum number of seconds; for each connection, file descriptor and
# message to print if the connection ends. Standard input closes when the process joins or exits.
_WATCHER = """
import os, select, signal, sys
process, seconds, *words = sys.argv[1:]
messages = {int(number): text for number, _, text in (word.partition("=") for word in words)}
events = select.poll()
events.register(0, select.POLLIN)
for number in messages:
    events.register(number, select.POLLRDHUP)
came = events.poll(1000 * float(seconds)) or [(-1, 0)]
if all(number for number, _ in came):
    late = f"TensorFlow has not joined the workers in {seconds} seconds. Restart all workers."
    print(f"Error: {messages.get(came[0][0], late)}", file=sys.stderr, flush=True)
    os.kill(int(process), signal.SIGHUP)
"""


@contextlib.contextmanager
def _watched(names: Mapping[int, str], minutes: float) -> Iterator[None]:
    """Watches for workers that exit, in a subprocess, because no thread can run in the block."""
    command = [sys.executable, "-ISc", _WATCHER, str(os.getpid()), f"{60 * minutes:g}"]
    command += [f"{number}={_ENDED.format(name)}" for number, name in names.items()]
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    # A Python handler would not run either. _exit uses the signal number, 1, as exit status.
    end = ctypes.cast(libc._exit, ctypes.c_void_p)
    before = ctypes.c_void_p(libc.signal(signal.SIGHUP, end))
    options: dict[str, Any] = {"pass_fds": [*names], "start_new_session": True}
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, **options):
            yield
    finally:
        libc.signal(signal.SIGHUP, before)
