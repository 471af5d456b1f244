"""Workers find each other before TensorFlow joins them; these tests do not start TensorFlow."""

import contextlib
import signal
import socket
import threading
import time

import pytest

from bert_tf.training import waiting
from tests.training.test_two_workers import free_addresses, start_python

# Simulates TensorFlow: it listens on the port and holds Python's lock until all workers connect.
WORKER = """
import ctypes, pathlib, socket, sys
from bert_tf.cli import command
from bert_tf.training.waiting import Partners

def main(addresses, own, folder, count):
    addresses, own = addresses.split(","), int(own)
    print("looks", flush=True)
    with Partners(addresses, own).connected_workers(5):
        with socket.create_server(("", int(addresses[own].split(":")[1]))):
            print("joins", flush=True)
            pathlib.Path(folder, str(own)).touch()
            while len([*pathlib.Path(folder).iterdir()]) < int(count):
                ctypes.PyDLL(None).usleep(300_000)
    print("joined", flush=True)

command.run(main, arguments=["ADDRESSES", "OWN", "FOLDER", "COUNT"])
"""


class Worker:
    """A process that finds and joins its partners, ``count`` workers in total."""

    def __init__(self, addresses, own, folder, count=None):
        words = (",".join(addresses), own, folder, count or len(addresses))
        self.process = start_python("-c", WORKER, *words)

    def expect_line(self, word):
        """Waits for its next line of output."""
        assert self.process.stdout.readline() == f"{word}\n"

    def wait(self):
        """Waits for the end; returns its exit status and errors."""
        _, error = self.process.communicate(timeout=60)
        return self.process.returncode, error


def test_workers_find_each_other(tmp_path):
    addresses = free_addresses(3)
    workers = [Worker(addresses, own, tmp_path) for own in range(3)]
    assert [worker.wait() for worker in workers] == [(0, "")] * 3


def test_worker_may_restart_while_others_wait(tmp_path):
    addresses = free_addresses(3)
    first = Worker(addresses, 0, tmp_path)
    first.expect_line("looks")
    second = Worker(addresses, 1, tmp_path)
    second.expect_line("looks")
    time.sleep(1)  # both have connected
    second.process.kill()
    second.wait()
    later = [Worker(addresses, own, tmp_path) for own in (1, 2)]
    assert [worker.wait() for worker in (first, *later)] == [(0, "")] * 3


def test_chief_waits_for_worker_that_connected_and_exited():
    addresses = free_addresses(2)
    chief = waiting.Partners(addresses, 0)
    with chief._listen() as listening:
        with socket.create_connection(("127.0.0.1", int(addresses[0].split(":")[1]))) as worker:
            worker.sendall(chief.lines[1])
        assert chief._missing(listening) == f"{chief.name(1)}, which has not connected"


@pytest.mark.parametrize("lost", [0, 1])
def test_worker_that_ends_before_joining_stops_others(tmp_path, lost):
    addresses = free_addresses(2)
    workers = [Worker(addresses, own, tmp_path, count=3) for own in range(2)]
    for worker in workers:
        worker.expect_line("looks")
        worker.expect_line("joins")
    began = time.monotonic()
    workers[lost].process.kill()
    assert workers[1 - lost].wait() == (
        1,
        f"Error: worker {lost} ({addresses[lost]}) exited before TensorFlow had joined the "
        "workers. Check the output of that worker, and restart all workers.\n",
    )
    assert time.monotonic() - began < 10
    workers[lost].wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_wait_immediately(tmp_path, number):
    worker = Worker(free_addresses(2), 0, tmp_path)
    worker.expect_line("looks")
    worker.process.send_signal(number)
    assert worker.wait() == (130, "\nInterrupted.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_join_interrupts_after_join(tmp_path, number):
    """No worker is left waiting in TensorFlow, which would take an hour."""
    addresses = free_addresses(2)
    workers = [Worker(addresses, own, tmp_path, count=3) for own in range(2)]
    for worker in workers:
        worker.expect_line("looks")
        worker.expect_line("joins")
    workers[1].process.send_signal(number)
    time.sleep(0.5)
    (tmp_path / "2").touch()
    assert workers[1].wait() == (130, "\nInterrupted.\n")
    workers[0].expect_line("joined")
    assert workers[0].wait() == (0, "")


@pytest.mark.parametrize(
    ("answer", "ends"), [(waiting._START, False), (waiting._STOPPED, True), (b"", True)]
)
def test_worker_can_leave_only_before_chief_starts_join(answer, ends):
    worker, (own, chief) = waiting.Partners(("a:1", "b:1"), 1), socket.socketpair()
    worker._connections[0] = own
    with own, chief, contextlib.ExitStack() as stack:
        chief.send(answer) if answer else chief.shutdown(socket.SHUT_WR)
        if ends:
            stack.enter_context(pytest.raises(KeyboardInterrupt))
        worker._withdraw()


def _connected(work):
    """Runs work on each of three connected workers; returns the results."""
    addresses, results, joining = free_addresses(3), {}, threading.Barrier(3)

    def run(own):
        partners = waiting.Partners(addresses, own)
        with partners.connected_workers(1), _foreign_server(addresses[own], b""):
            joining.wait()
        results[own] = work(partners, own)
        for each in partners._connections.values():
            each.close()

    threads = [threading.Thread(target=run, args=[own]) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[own] for own in range(3)]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_workers_learn_whether_ended_worker_was_interrupted(is_stopped):
    """The chief receives it from worker 2 and reports it to worker 1."""

    def work(partners, own):
        if own == 2:
            with contextlib.suppress(KeyboardInterrupt), partners.reporting():
                if is_stopped:
                    raise KeyboardInterrupt
            return None
        with contextlib.suppress(KeyboardInterrupt), partners.reporting():
            heard = partners.is_any_stopped()
            if heard:
                raise KeyboardInterrupt
        return heard

    assert _connected(work) == [is_stopped, is_stopped, None]


@contextlib.contextmanager
def _foreign_server(address, reply):
    """Runs a server at an address that sends some bytes to each connection."""
    with socket.create_server(("127.0.0.1", int(address.split(":")[1]))) as listening:
        connections = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connections.append(listening.accept()[0])
                    connections[-1].sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in connections:
                each.close()


def _handshake_of_other_cluster(address):
    return waiting.Partners([address, "c:1"], 1).lines[0]


FOREIGN_SERVERS = {
    "nothing": (None, "which does not respond"),
    "a web server": (
        lambda address: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "where another program responds",
    ),
    "what never ends a line": (lambda address: b"x" * 1000, "where another program responds"),
    "another cluster's": (_handshake_of_other_cluster, "where another program responds"),
}


@pytest.mark.parametrize("kind", FOREIGN_SERVERS)
def test_missing_partner_is_reported_and_times_out(monkeypatch, capfd, kind):
    monkeypatch.setattr(waiting, "_REPORT_SECONDS", 0.3)
    addresses = free_addresses(2)
    reply, state = FOREIGN_SERVERS[kind]
    with contextlib.ExitStack() as stack:
        if reply is not None:
            stack.enter_context(_foreign_server(addresses[0], reply(addresses[0])))
        with (
            pytest.raises(TimeoutError) as error,
            waiting.Partners(addresses, 1).connected_workers(0.02),
        ):
            raise AssertionError("it has no partner")
    missing = f"worker 0 ({addresses[0]}), {state}"
    assert str(error.value).startswith(f"Waited 0.02 minutes for {missing}")
    assert capfd.readouterr().err.startswith(f"Waiting for {missing}")


def test_unavailable_port_raises_error():
    addresses = free_addresses(2)
    with _foreign_server(addresses[0], b""), pytest.raises(ValueError) as error:
        with waiting.Partners(addresses, 0).connected_workers(1):
            raise AssertionError("it has no port")
    assert str(error.value) == (
        f"This process, worker 0 ({addresses[0]}), cannot listen on its port: Address already in "
        "use. Stop the program that uses the port, or pass another HOST:PORT on all "
        "workers."
    )
