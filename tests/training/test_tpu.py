"""A TPU that is not there is told in time; one that is takes its time."""

import contextlib
import socket
import time

import pytest

from bert_tf.training import distribution
from tests.training.test_distribution import NO_TPU


@pytest.fixture
def server():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening, f"grpc://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("silent", ["_find_tpu", "_initialize_tpu"])
def test_what_is_not_answered_is_left_behind(monkeypatch, silent):
    monkeypatch.setattr(distribution, "_LOOK_UP_SECONDS", 0.05)
    monkeypatch.setattr(distribution, "_TPU_SECONDS", 0.05)
    monkeypatch.setattr(distribution, "_find_tpu", lambda name: (name, ""))
    monkeypatch.setattr(distribution, silent, lambda given: time.sleep(1))
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", "no answer in 0 seconds")):
        distribution.choose_strategy(tpu="my-tpu")


def test_a_slice_takes_its_time_and_a_missing_one_does_not(server, monkeypatch):
    """Its initialisation would take a minute."""
    listening, address = server
    limits = []

    def run_in_thread(work, seconds):
        limits.append(seconds)
        if len(limits) % 2 == 0 and seconds < 60:
            raise TimeoutError
        return work()

    monkeypatch.setattr(distribution, "run_in_thread", run_in_thread)
    monkeypatch.setattr(distribution, "_find_tpu", lambda name: (name, address))
    monkeypatch.setattr(distribution, "_initialize_tpu", lambda resolver: 1 / 0)
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", "division by zero")):
        distribution.choose_strategy(tpu="my-tpu")
    assert limits == [10, 600]
    with pytest.raises(ValueError, match=NO_TPU.format(address, "division by zero")):
        distribution.choose_strategy(tpu=address.removeprefix("grpc://"))
    # Nothing listens there any more: that is told before the initialisation.
    listening.close()
    with pytest.raises(ValueError, match=NO_TPU.format("my-tpu", r"\[Errno 111\] Connection")):
        distribution.choose_strategy(tpu="my-tpu")
    assert limits == [10, 600, 10, 600, 10]
