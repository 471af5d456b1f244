"""Workers look for each other before TensorFlow joins them, which these tests do not start."""

import contextlib
import signal
import socket
import threading
import time

import pytest

from bert_tf.training import waiting
from tests.training.test_two_workers import free_addresses, start_python

# What TensorFlow does in the block: it listens at the port, and holds Python's lock until all come.
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
    """A process that looks for its partners and joins them, ``count`` in all."""

    def __init__(self, addresses, own, folder, count=None):
        words = (",".join(addresses), own, folder, count or len(addresses))
        self.process = start_python("-c", WORKER, *words)

    def says(self, word):
        """Waits for its next line."""
        assert self.process.stdout.readline() == f"{word}\n"

    def ended(self):
        """Its status and its errors."""
        _, error = self.process.communicate(timeout=60)
        return self.process.returncode, error


def test_workers_find_each_other(tmp_path):
    addresses = free_addresses(3)
    workers = [Worker(addresses, own, tmp_path) for own in range(3)]
    assert [worker.ended() for worker in workers] == [(0, "")] * 3


def test_a_worker_that_ends_during_the_look_may_come_again(tmp_path):
    addresses = free_addresses(3)
    first = Worker(addresses, 0, tmp_path)
    first.says("looks")
    second = Worker(addresses, 1, tmp_path)
    second.says("looks")
    time.sleep(1)  # they have found each other
    second.process.kill()
    second.ended()
    later = [Worker(addresses, own, tmp_path) for own in (1, 2)]
    assert [worker.ended() for worker in (first, *later)] == [(0, "")] * 3


@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_ends_before_it_has_joined_ends_the_others(tmp_path, lost):
    addresses = free_addresses(2)
    workers = [Worker(addresses, own, tmp_path, count=3) for own in range(2)]
    for worker in workers:
        worker.says("looks")
        worker.says("joins")
    began = time.monotonic()
    workers[lost].process.kill()
    assert workers[1 - lost].ended() == (
        1,
        f"Error: worker {lost} ({addresses[lost]}) ended before TensorFlow had joined the "
        "workers. Check its output, and restart all workers.\n",
    )
    assert time.monotonic() - began < 10
    workers[lost].ended()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_look_at_once(tmp_path, number):
    worker = Worker(free_addresses(2), 0, tmp_path)
    worker.says("looks")
    worker.process.send_signal(number)
    assert worker.ended() == (130, "\nInterrupted.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_joining_interrupts_when_all_have_joined(tmp_path, number):
    """No other worker is left behind in TensorFlow, which would wait for an hour."""
    addresses = free_addresses(2)
    workers = [Worker(addresses, own, tmp_path, count=3) for own in range(2)]
    for worker in workers:
        worker.says("looks")
        worker.says("joins")
    workers[1].process.send_signal(number)
    time.sleep(0.5)
    (tmp_path / "2").touch()
    assert workers[1].ended() == (130, "\nInterrupted.\n")
    workers[0].says("joined")
    assert workers[0].ended() == (0, "")


@pytest.mark.parametrize(
    ("answer", "ends"), [(waiting._START, False), (waiting._STOPPED, True), (b"", True)]
)
def test_a_worker_leaves_the_look_only_before_the_chief_has_started_the_joining(answer, ends):
    worker, (own, chief) = waiting.Partners(("a:1", "b:1"), 1), socket.socketpair()
    worker._connections[0] = own
    with own, chief, contextlib.ExitStack() as stack:
        chief.send(answer) if answer else chief.shutdown(socket.SHUT_WR)
        if ends:
            stack.enter_context(pytest.raises(KeyboardInterrupt))
        worker._withdraw()


def _connected(work):
    """Does work as each of three workers that have found each other: their results."""
    addresses, results, joining = free_addresses(3), {}, threading.Barrier(3)

    def run(own):
        partners = waiting.Partners(addresses, own)
        with partners.connected_workers(1), _stranger(addresses[own], b""):
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
def test_workers_hear_whether_one_that_ended_was_interrupted(is_stopped):
    """The chief hears it of worker 2, and reports it to worker 1."""

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
def _stranger(address, says):
    """Something else that listens at an address, and says some bytes to whoever connects."""
    with socket.create_server(("127.0.0.1", int(address.split(":")[1]))) as listening:
        kept = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listening.accept()[0])
                    kept[-1].sendall(says)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in kept:
                each.close()


def _line_of_another_cluster(address):
    return waiting.Partners([address, "c:1"], 1).lines[0]


STRANGERS = {
    "nothing": (None, "which does not respond"),
    "a web server": (
        lambda address: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "where another program responds",
    ),
    "what never ends a line": (lambda address: b"x" * 1000, "where another program responds"),
    "another cluster's": (_line_of_another_cluster, "where another program responds"),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_partner_that_never_comes_is_told_and_then_ends_the_look(monkeypatch, capfd, kind):
    monkeypatch.setattr(waiting, "_REPORT_SECONDS", 0.3)
    addresses = free_addresses(2)
    says, state = STRANGERS[kind]
    with contextlib.ExitStack() as stack:
        if says is not None:
            stack.enter_context(_stranger(addresses[0], says(addresses[0])))
        with (
            pytest.raises(TimeoutError) as error,
            waiting.Partners(addresses, 1).connected_workers(0.02),
        ):
            raise AssertionError("it has no partner")
    missing = f"worker 0 ({addresses[0]}), {state}"
    assert str(error.value).startswith(f"Waited 0.02 minutes for {missing}")
    assert capfd.readouterr().err.startswith(f"Waiting for {missing}")


def test_a_port_that_cannot_be_listened_at():
    addresses = free_addresses(2)
    with _stranger(addresses[0], b""), pytest.raises(ValueError) as error:
        with waiting.Partners(addresses, 0).connected_workers(1):
            raise AssertionError("it has no port")
    assert str(error.value) == (
        f"Cannot listen on the port of worker 0 ({addresses[0]}), which is this process: Address "
        "already in use. Stop the program that uses it, or pass another HOST:PORT on all workers."
    )
