"""The look of a cluster's workers for each other, before TensorFlow joins them.

TensorFlow waits an hour for one that never comes, takes SIGTERM meanwhile, and holds Python's lock.
So each worker first listens at its own port and connects to every other's, where both say a line.
It is a check: the cluster is given, and TensorFlow joins it.
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

_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
_TELL_SECONDS = 30.0


@contextlib.contextmanager
def present(addresses: Sequence[str], own: int, minutes: float) -> Iterator[None]:
    """Waits until all workers are there, for the block to join them.

    A worker that ends before it has joined ends this process, with a sentence and status 1.

    Raises:
        TimeoutError: one did not come in time.
        ValueError: the own port cannot be listened at.
    """
    look = _Look(addresses, own)
    try:
        look.wait(minutes)
        with _watched({look.name(index): each for index, each in look.came.items()}):
            yield
        for each in look.made.values():
            with contextlib.suppress(OSError):  # TensorFlow hears of one that ends from here on
                each.send(b".")
    finally:
        for each in (*look.made.values(), *look.came.values()):
            each.close()


class _Look:
    """A worker's connections with all others: one that it made, and one that it was asked for."""

    def __init__(self, addresses: Sequence[str], own: int) -> None:
        self._addresses, self._own = addresses, own
        cluster = hashlib.sha256(",".join(addresses).encode()).hexdigest()
        self.lines = [f"bert_tf {cluster} {index}\n".encode() for index in range(len(addresses))]
        self._others = [index for index in range(len(addresses)) if index != own]
        self.made: dict[int, socket.socket] = {}
        self.came: dict[int, socket.socket] = {}
        self._answering: set[int] = set()
        self._lock = threading.Lock()
        self._is_over = False

    def name(self, index: int) -> str:
        """A worker's name for a sentence."""
        return f"worker {index} ({self._addresses[index]})"

    def wait(self, minutes: float) -> None:
        """Waits until all others are there."""
        began = told = time.monotonic()
        with self._listen() as listening:
            for index in self._others:
                threading.Thread(target=self._call, args=[index], daemon=True).start()
            while missing := self._missing():
                now = time.monotonic()
                if now - began > 60 * minutes:
                    self._is_over = True
                    raise TimeoutError(
                        f"After {minutes:g} minutes without {missing}: see what was printed there, "
                        "and start every worker again, with the same HOST:PORT of all and with "
                        "ports that all of them reach."
                    )
                if now - told > _TELL_SECONDS:
                    told = now
                    print(f"Waiting for {missing}.", file=sys.stderr, flush=True)
                with contextlib.suppress(OSError):  # nobody asks within the pause
                    asked = (listening.accept()[0], self.came, self._others)
                    threading.Thread(target=self._meet, args=asked, daemon=True).start()

    def _listen(self) -> socket.socket:
        port = int(self._addresses[self._own].rpartition(":")[2])
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
                f"This is {self.name(self._own)}, and its port cannot be listened at "
                f"({os.strerror(number) if number else error}): end what listens there, or give "
                "every worker the HOST:PORT of another."
            ) from error
        listening.settimeout(_PAUSE_SECONDS)
        return listening

    def _missing(self) -> str:
        """The workers that are missing, and how, for a sentence; once empty, the look is over."""
        with self._lock:
            for connections in (self.made, self.came):
                ended = [index for index, each in connections.items() if _has_ended(each)]
                for index in ended:  # it may come again
                    connections.pop(index).close()
            missing = []
            for index in self._others:
                if index not in self.made:
                    is_other = index in self._answering
                    state = "where something else answers" if is_other else "which does not answer"
                    missing.append(f"{self.name(index)}, {state}")
                elif index not in self.came:
                    missing.append(f"{self.name(index)}, which has not reached this worker's port")
            self._is_over = not missing
        return "; ".join(missing)

    def _call(self, index: int) -> None:
        host, _, port = self._addresses[index].rpartition(":")
        while not self._is_over:
            if index not in self.made:
                place = (host.strip("[]"), int(port))
                try:
                    connection = socket.create_connection(place, _ANSWER_SECONDS)
                except (OSError, OverflowError, UnicodeError):
                    self._answering.discard(index)
                else:
                    self._answering.add(index)
                    self._meet(connection, self.made, [index])
            time.sleep(_PAUSE_SECONDS)

    def _meet(
        self,
        connection: socket.socket,
        connections: dict[int, socket.socket],
        expected: Sequence[int],
    ) -> None:
        """Keeps a connection where the other side says the line of an expected worker."""
        said, dropped = b"", connection
        with contextlib.suppress(OSError):
            connection.settimeout(_ANSWER_SECONDS)
            connection.sendall(self.lines[self._own])
            # Unbuffered: what is said after the line is read later.
            said = connection.makefile("rb", buffering=0).readline(100)
        with self._lock:
            for index in expected:
                if said == self.lines[index] and not self._is_over:
                    dropped = connections.get(index, dropped)
                    connections[index] = connection
        if dropped not in connections.values():
            dropped.close()


def _has_ended(connection: socket.socket) -> bool:
    """True if there is anything to read, which in the look is the end."""
    events = select.poll()
    events.register(connection, select.POLLIN)
    return bool(events.poll(0))


# Its arguments: a process, then each connection's number and the worker's name. Standard input ends
# when the process has joined, and with it.
_WATCHER = """
import os, select, signal, sys
process, *words = sys.argv[1:]
names = {int(number): name for number, _, name in (word.partition("=") for word in words)}
events = select.poll()
for number in (0, *names):
    events.register(number, select.POLLIN)
while True:
    for number, _ in events.poll():
        try:
            byte = os.read(number, 1)
        except OSError:
            byte = b""
        if number and not byte:
            print(f"Error: {names[number]} ended before TensorFlow had joined the workers: see "
                  "what it printed, and start every worker again.", file=sys.stderr, flush=True)
            os.kill(int(process), signal.SIGHUP)
        if not byte:
            sys.exit()
        events.unregister(number)
"""


@contextlib.contextmanager
def _watched(connections: Mapping[str, socket.socket]) -> Iterator[None]:
    """Lets a process look whether a worker ends: no thread of this one runs in the block."""
    numbers = {each.fileno(): name for name, each in connections.items()}
    command = [sys.executable, "-ISc", _WATCHER, str(os.getpid())]
    command += [f"{number}={name}" for number, name in numbers.items()]
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    # A handler of Python's would not run either. _exit takes the signal's number, 1, for a status.
    end = ctypes.cast(libc._exit, ctypes.c_void_p)
    before = ctypes.c_void_p(libc.signal(signal.SIGHUP, end))
    options: dict[str, Any] = {"pass_fds": [*numbers], "start_new_session": True}
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, **options):
            yield
    finally:
        libc.signal(signal.SIGHUP, before)
