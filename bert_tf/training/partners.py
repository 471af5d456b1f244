"""The look of a cluster's workers for each other, before TensorFlow joins them.

TensorFlow waits an hour for one that never comes, takes SIGTERM meanwhile, and holds Python's lock.
So each worker first listens at its own port and connects to every other's; both say a line, and a
byte when they have found all. It is a check: the cluster is given, and TensorFlow joins it.
"""

import contextlib
import ctypes
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
_TELL_SECONDS = 30.0
_LONGEST_LINE = 100
_FOUND_ALL, _JOINED = b"+", b"."


@contextlib.contextmanager
def present(addresses: Sequence[str], own: int, minutes: float) -> Iterator[None]:
    """Waits until all workers are there; then the block joins them.

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
        look.say(_JOINED)
    finally:
        look.close()


class _Look:
    """A worker's connections with all others: one that it made, and one that it was asked for."""

    def __init__(self, addresses: Sequence[str], own: int) -> None:
        self._addresses = addresses
        self._own = own
        self._others = [index for index in range(len(addresses)) if index != own]
        cluster = hashlib.sha256(",".join(addresses).encode()).hexdigest()
        self._lines = [f"bert_tf {cluster} {index}\n".encode() for index in range(len(addresses))]
        self.made: dict[int, socket.socket] = {}
        self.came: dict[int, socket.socket] = {}
        self._answers: set[int] = set()  # where something else than the worker answers
        self._told: set[socket.socket] = set()
        self._heard: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def name(self, index: int) -> str:
        """A worker's name for a sentence."""
        return f"worker {index} ({self._addresses[index]})"

    def wait(self, minutes: float) -> None:
        """Waits until all workers have found all."""
        listening = self._listen()
        threads = [threading.Thread(target=self._accept, args=[listening], daemon=True)]
        threads += [
            threading.Thread(target=self._call, args=[index], daemon=True) for index in self._others
        ]
        for thread in threads:
            thread.start()
        began = told = time.monotonic()
        try:
            while missing := self._missing():
                now = time.monotonic()
                if now - began > 60 * minutes:
                    raise TimeoutError(
                        f"After {minutes:g} minutes without {missing}: see what was printed there, "
                        "and start every worker again, with the same HOST:PORT of all and with "
                        "ports that all of them reach."
                    )
                if now - told > _TELL_SECONDS:
                    told = now
                    print(f"Waiting for {missing}.", file=sys.stderr, flush=True)
                time.sleep(_PAUSE_SECONDS)
        finally:
            self._is_over.set()
            threads[0].join()  # from now on the port is TensorFlow's

    def say(self, byte: bytes) -> None:
        """Tells all others, once each."""
        for each in {*self.made.values()} - (self._told if byte == _FOUND_ALL else set()):
            with contextlib.suppress(OSError):  # that it ended is seen when it is read
                each.send(byte)
                self._told.add(each)

    def close(self) -> None:
        """Ends the connections."""
        for each in (*self.made.values(), *self.came.values()):
            each.close()

    def _listen(self) -> socket.socket:
        port = int(self._addresses[self._own].rpartition(":")[2])
        try:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
            return socket.create_server(("", port))
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            raise ValueError(
                f"This is {self.name(self._own)}, and its port cannot be listened at "
                f"({os.strerror(number) if number else error}): end what listens there, or give "
                "every worker the HOST:PORT of another."
            ) from error

    def _missing(self) -> str:
        """The workers that are missing, and how, for a sentence; empty when all have found all."""
        with self._lock:
            for connections in (self.made, self.came):
                for index, each in [*connections.items()]:
                    byte = _next_byte(each)
                    if byte == _FOUND_ALL:
                        self._heard.add(each)
                    elif byte is not None:  # it ended, and may come again
                        connections.pop(index).close()
            states = {index: self._state(index) for index in self._others}
            if not any(states.values()):
                self.say(_FOUND_ALL)
                states = {
                    index: "which has not found all others"
                    for index in self._others
                    if self.came[index] not in self._heard
                }
        return "; ".join(f"{self.name(i)}, {state}" for i, state in states.items() if state)

    def _state(self, index: int) -> str:
        if index not in self.made:
            is_other = index in self._answers
            return "where something else answers" if is_other else "which does not answer"
        return "" if index in self.came else "which has not reached this worker's port"

    def _accept(self, listening: socket.socket) -> None:
        listening.settimeout(_PAUSE_SECONDS)
        with listening:
            while not self._is_over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listening.accept()
                    threading.Thread(
                        target=self._meet, args=[connection, self.came, self._others], daemon=True
                    ).start()

    def _call(self, index: int) -> None:
        host, _, port = self._addresses[index].rpartition(":")
        while not self._is_over.is_set():
            if index not in self.made:
                try:
                    place = (host.strip("[]"), int(port))
                    connection = socket.create_connection(place, _ANSWER_SECONDS)
                except (OSError, OverflowError, UnicodeError):
                    self._answers.discard(index)
                else:
                    self._answers.add(index)
                    self._meet(connection, self.made, [index])
            self._is_over.wait(_PAUSE_SECONDS)

    def _meet(
        self,
        connection: socket.socket,
        connections: dict[int, socket.socket],
        expected: Sequence[int],
    ) -> None:
        """Keeps a connection where the other side's line is that of an expected worker."""
        said = b""
        with contextlib.suppress(OSError):
            connection.settimeout(_ANSWER_SECONDS)
            connection.sendall(self._lines[self._own])
            # Unbuffered: the bytes behind the line are read later.
            said = connection.makefile("rb", buffering=0).readline(_LONGEST_LINE)
            connection.setblocking(False)
        with self._lock:
            for index in expected:
                if said == self._lines[index] and not self._is_over.is_set():
                    connection, connections[index] = connections.get(index), connection
        if connection is not None:
            connection.close()


def _next_byte(connection: socket.socket) -> bytes | None:
    """The byte that came next; empty if the other side ended, ``None`` if none has come yet."""
    try:
        return connection.recv(1)
    except BlockingIOError:
        return None
    except OSError:
        return b""


# Each argument is the number of a connection and a worker's name. Standard input ends when the
# workers have joined, and when the process has ended that is to be ended.
_WATCHER = """
import os, select, signal, sys
process, *words = sys.argv[1:]
names = {int(number): name for number, _, name in (word.partition("=") for word in words)}
def end(number):
    os.kill(int(process), number)
    sys.exit()
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: end(signal.SIGINT))
watched = select.poll()
for number in (0, *names):
    watched.register(number, select.POLLIN)
while True:
    for number, _ in watched.poll():
        if number == 0:
            sys.exit()
        try:
            byte = os.read(number, 1)
        except OSError:
            byte = b""
        if byte:
            watched.unregister(number)
            continue
        print(f"Error: {names[number]} ended before TensorFlow had joined the workers: see what it "
              "printed, and start every worker again.", file=sys.stderr, flush=True)
        end(signal.SIGHUP)
"""


@contextlib.contextmanager
def _watched(connections: Mapping[str, socket.socket]) -> Iterator[None]:
    """Lets a process look whether a worker ends: no thread of this one runs in the block."""
    numbers = {each.fileno(): name for name, each in connections.items()}
    command = [sys.executable, "-I", "-S", "-c", _WATCHER, str(os.getpid())]
    command += [f"{number}={name}" for number, name in numbers.items()]
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    # A handler of Python's would wait for the lock, too. _exit takes the signal's number, 1, for
    # the status.
    before = libc.signal(signal.SIGHUP, ctypes.cast(libc._exit, ctypes.c_void_p))
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[*numbers]):
            yield
    finally:
        libc.signal(signal.SIGHUP, before)
