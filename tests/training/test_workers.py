import contextlib
import json
import re
import socket
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.cli import command
from bert_tf.training import distribution, workers
from bert_tf.training.workers import (
    Cluster,
    LostWorkerError,
    Workers,
    check_one_worker,
    connect,
    find_cluster,
)

from .test_two_workers import free_addresses


@pytest.mark.parametrize(
    ("jobs", "task", "expected"),
    [
        ({"worker": ["a:1", "b:2"]}, {"type": "worker", "index": 1}, (("a:1", "b:2"), 1)),
        (
            {"worker": ["b:2"], "chief": ["a:1"]},
            {"type": "worker", "index": 0},
            (("a:1", "b:2"), 1),
        ),
        ({"worker": ["b:2"], "chief": ["a:1"]}, {"type": "chief"}, (("a:1", "b:2"), 0)),
        ({"worker": ["a:1"]}, None, None),
        ({}, None, None),
    ],
)
def test_tf_config(monkeypatch, jobs, task, expected):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": task}))
    assert find_cluster() == expected
    # Flags come before it.
    assert find_cluster(["c:1", "d:1"], 0) == (("c:1", "d:1"), 0)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ([], "the environment variable TF_CONFIG: expected a JSON object"),
        ({"cluster": ["a:1"]}, "TF_CONFIG: expected a cluster such as"),
        ({"cluster": {"worker": {"0": "b:1"}}}, "got {'0': 'b:1'} for worker"),
        ({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}}, "got the job 'ps': parameter servers"),
        ({"cluster": {"worker": ["a:1", "b:1"]}}, "expected a task such as .*, got None"),
        (
            {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "chief"}},
            "the 0 of its .* chief",
        ),
        (
            {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}},
            "one of the 2 of its cluster's worker, from 0, got 2",
        ),
        (
            {"cluster": {"worker": ["a:1", "b"]}, "task": {"type": "worker"}},
            "expected HOST:PORT of every worker, got 'b'",
        ),
        (
            {"cluster": {"worker": ["a:1", "a:1"]}, "task": {"type": "worker"}},
            "TF_CONFIG names an address twice",
        ),
    ],
)
def test_a_wrong_tf_config(monkeypatch, config, sentence):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match=sentence):
        find_cluster()


@pytest.mark.parametrize(
    ("hosts", "task", "sentence"),
    [
        (["a:1", "b:1"], None, "--worker_hosts needs --task_index"),
        ([], 1, "--task_index needs --worker_hosts"),
        (["a:1", "b:1"], 2, "--task_index=2: expected 0 to 1, as --worker_hosts names 2 workers"),
        (["a:1", "b:70000"], 0, "expected HOST:PORT of every worker, got 'b:70000'"),
    ],
)
def test_wrong_flags(hosts, task, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_cluster(hosts, task)


def test_what_runs_on_one_machine_refuses_a_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}}')
    with pytest.raises(ValueError, match="TF_CONFIG names a cluster of 3 tasks"):
        check_one_worker()
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"]}}')
    check_one_worker()


@pytest.fixture
def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return port


def test_a_worker_that_does_not_come(free_port):
    with socket.socket() as other:  # bound, and deaf
        other.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{other.getsockname()[1]}"
        cluster = Cluster((f"127.0.0.1:{free_port}", dead), 0)
        sentence = re.escape(f"No answer from worker 1 ({dead}) within 0 seconds: start every")
        with pytest.raises(ValueError, match=sentence):
            connect(cluster, 0.3)


@pytest.mark.parametrize("host", ["nowhere.invalid", "n" * 70])
def test_a_host_without_an_address(free_port, host):
    addresses = [f"127.0.0.1:{free_port}", f"{host}:1"]
    with pytest.raises(
        ValueError, match=r"No answer from worker 1 .* within 0 seconds \(\S+ .+\): st"
    ):
        connect(Cluster(tuple(addresses), 0), 0.1)


def test_hosts_whose_names_come_late(monkeypatch):
    """As those of a scheduler's pods, which have names before they have addresses."""
    known, asked = socket.getaddrinfo, []

    def resolve(host, port, *arguments, **options):
        if host.endswith(".bert"):
            asked.append(host)
            if asked.count(host) < 4:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = "127.0.0.1"
        return known(host, port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(workers, "_POLL_SECONDS", 0.01)
    ports = [address.split(":")[1] for address in free_addresses(2)]
    addresses = [f"pod-{task}.bert:{port}" for task, port in enumerate(ports)]
    assert _met(addresses, [1, 1]) == [None, None]


@pytest.mark.parametrize(
    ("address", "is_public"),
    [("8.8.8.8", True), ("2001:4860:4860::8888", True), ("10.1.2.3", False), ("::1", False),
     ("100.64.0.1", False), ("fe80::1%eth0", False)],
)  # fmt: skip
def test_a_server_that_strangers_may_reach(free_port, monkeypatch, capsys, address, is_public):
    known = socket.getaddrinfo
    place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, free_port))
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *a, **k: [place] if host == "me" else known(host, *a, **k),
    )
    monkeypatch.setattr(workers, "_POLL_SECONDS", 0.01)
    with pytest.raises(ValueError, match="No answer from worker 1"):
        connect(Cluster((f"me:{free_port}", "127.0.0.1:1"), 0), 0.05)
    said = f"Warning: {address} is an address of the internet, and whoever reaches port {free_port}"
    error = capsys.readouterr().err
    assert (error.count(said), error.count("Warning")) == (is_public, is_public)


def test_a_port_in_use():
    with socket.socket() as used:
        used.bind(("", 0))
        used.listen()
        cluster = Cluster((f"127.0.0.1:{used.getsockname()[1]}", "127.0.0.1:1"), 0)
        with pytest.raises(ValueError, match=r"Port \d+, which worker 0 .* cannot be taken"):
            connect(cluster, 5)


def test_the_port_of_a_worker_that_was_killed_is_free(free_port):
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", free_port))
        server.listen()
        with socket.create_connection(("127.0.0.1", free_port)):
            taken, _ = server.accept()
            taken.close()  # who closes first keeps the port waiting
    cluster = Cluster((f"127.0.0.1:{free_port}", "127.0.0.1:1"), 0)
    with pytest.raises(ValueError, match="No answer from worker 1"):
        connect(cluster, 0.1)


def _met(addresses, gpus):
    """What each worker's meeting with the others comes to: None, or the sentence it ends with."""
    said = [None] * len(gpus)

    def meet(task):
        try:
            workers._meet(Cluster(tuple(addresses), task), 20, gpus[task])
        except ValueError as error:
            said[task] = str(error)

    threads = [threading.Thread(target=meet, args=(task,)) for task in range(len(gpus))]
    for thread in threads:
        thread.start()
        time.sleep(0.1)  # the first one waits
    # What is no worker is not listened to.
    port = int(addresses[0].split(":")[1])
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as other:
        other.sendall(b"GET / HTTP/1.1\r\n\r\n")
    for thread in threads:
        thread.join()
    return said


def test_workers_meet_and_compare_their_gpus():
    assert _met(free_addresses(3), [2, 2, 2]) == [None, None, None]
    addresses = free_addresses(2)
    sentence = (
        f"The workers' numbers of GPUs differ (worker 0 ({addresses[0]}) has 8, worker 1 "
        f"({addresses[1]}) has 4), and each is to have the same share of a batch: show every "
        "worker as many, by CUDA_VISIBLE_DEVICES for example."
    )
    assert _met(addresses, [8, 4]) == [sentence, sentence]


@pytest.mark.parametrize("task", [0, 1])
def test_a_port_that_answers_and_is_no_worker(free_port, task, monkeypatch):
    monkeypatch.setattr(workers, "_TELL_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [f"127.0.0.1:{other.getsockname()[1]}"]
        addresses.insert(task, f"127.0.0.1:{free_port}")
        with pytest.raises(ValueError, match=f"No answer from worker {1 - task} "):
            connect(Cluster(tuple(addresses), task), 0.3)


def test_strategies_that_contradict_a_cluster():
    cluster = Cluster(("a:1", "b:1"), 0)
    with pytest.raises(
        ValueError, match="2 workers were named, .* and strategy 'mirrored', on whi"
    ):
        distribution.choose_strategy("mirrored", cluster=cluster)
    with pytest.raises(ValueError, match="2 workers were named, .* and a TPU"):
        distribution.choose_strategy(tpu="t", cluster=cluster)
    with pytest.raises(ValueError, match="'multi_worker' needs two workers or more"):
        distribution.choose_strategy("multi_worker")


class _Told(Workers):
    """Worker ``task`` of two, the other one of which says ``others``, one after the other."""

    def __init__(self, task, others):
        super().__init__(None, Cluster(("a:1", "b:1"), task))
        self._others = others

    def gather(self, values):
        other = np.array(self._others.pop(0))
        mine = np.array(values, float)
        return np.stack([mine, other] if self.index == 0 else [other, mine])


def test_one_process_agrees_with_itself():
    alone = Workers()
    assert alone.gather([1.0, 2.0]).tolist() == [[1.0, 2.0]]
    assert alone.in_turn(lambda: 5) == 5
    alone.check_equal({"a": 1}, "flags")
    alone.wait()


@pytest.mark.parametrize("task", [0, 1])
def test_work_in_turn(task):
    done = []
    assert _Told(task, [[0.0], [0.0]]).in_turn(lambda: done.append(1) or 3) == 3
    assert done == [1]
    other = 1 - task
    with pytest.raises(ValueError, match=rf"ends because worker {other} \({'ba'[task]}:1\) did"):
        # The chief's turn comes first.
        _Told(task, [[0.0], [1.0]] if other else [[1.0]]).in_turn(lambda: 3)
    failing = _Told(task, [[0.0], [0.0]])
    with pytest.raises(ZeroDivisionError):
        failing.in_turn(lambda: 1 / 0)
    assert len(failing._others) == 1 - task, "the other one has to hear of it"


def test_facts_that_differ():
    mine = _Told(0, [])
    heard = []
    mine.gather = lambda values: heard.append(values) or np.array([values, values], float)
    mine.check_equal({"--seed": 1, "--input": ["a"]}, "flags")
    other = [heard[0][0], heard[0][1] + 1]
    mine.gather = lambda values: np.array([values, other], float)
    with pytest.raises(ValueError, match=r"worker 1 \(b:1\) .* the flags differ \(--input\)"):
        mine.check_equal({"--seed": 1, "--input": ["a"]}, "flags")


def test_a_lost_worker_is_told_in_the_sentence_that_a_command_ends_with():
    of_two = Workers(cluster=Cluster(("one:1", "two:2"), 0))
    with pytest.raises(
        LostWorkerError, match="^Another of the 2 workers ended or cannot be"
    ) as error:
        with of_two.connected():
            raise tf.errors.UnavailableError(None, None, "gone")
    # Which knows it without importing TensorFlow.
    assert command._is_user_error(error.value) and error.type.__name__ == "LostWorkerError"
