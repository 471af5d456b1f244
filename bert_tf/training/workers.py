"""The processes of a training on several machines: who they are, and how they agree.

Each runs the same command with a number of its own. Worker 0 is the *chief*: it prepares what the
others read, and it alone writes. What they agree on is summed by the strategy's own all-reduce.
"""

import contextlib
import faulthandler
import glob
import hashlib
import importlib
import ipaddress
import math
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.untrusted import listed, parse_json_object, quote, reason

T = TypeVar("T")
_JOBS = ("chief", "worker")
_POLL_SECONDS = 0.2
_JOIN_SECONDS = 60.0
# How long a worker whose port answers may take to say a number.
_TELL_SECONDS = 5.0
# TensorFlow's errors where another worker ended, or does not answer.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    # Where a collective operation breaks off, among others.
    tf.errors.InternalError,
)


class LostWorkerError(ConnectionError):
    """Another worker ended; ``command`` ends the process at once."""


class Cluster(NamedTuple):
    """The ``host:port`` of every worker, the chief's first, and which of them this process is."""

    addresses: tuple[str, ...]
    task: int


def find_cluster(worker_hosts: Sequence[str] = (), task_index: int | None = None) -> Cluster | None:
    """The cluster that flags or else ``TF_CONFIG`` name; None for one process.

    A ValueError says what is wrong with either.

    >>> find_cluster(["a:2222", "b:2222"], 1)
    Cluster(addresses=('a:2222', 'b:2222'), task=1)
    """
    if worker_hosts:
        if task_index is None:
            raise ValueError(
                "--worker_hosts needs --task_index: which of its addresses this process is, from 0."
            )
        return _checked(tuple(worker_hosts), task_index, "--worker_hosts", "--task_index")
    if task_index is not None:
        raise ValueError("--task_index needs --worker_hosts: HOST:PORT of every worker, by commas.")
    config = _tf_config()
    jobs = _jobs(config)
    addresses = [address for job in _JOBS for address in jobs.get(job, ())]
    if len(addresses) < 2:
        return None
    task = config.get("task")
    if not isinstance(task, dict) or task.get("type") not in _JOBS:
        raise ValueError(
            'TF_CONFIG: expected a task such as {"type": "worker", "index": 0}, of type chief '
            f"or worker, got {quote(task)}."
        )
    index, own = task.get("index", 0), jobs.get(task["type"], ())
    if type(index) is not int or not 0 <= index < len(own):
        raise ValueError(
            f"TF_CONFIG: expected the task's index to be one of the {len(own)} of its cluster's "
            f"{task['type']}, from 0, got {quote(index)}."
        )
    before = len(jobs.get("chief", ())) if task["type"] == "worker" else 0
    return _checked(tuple(addresses), before + index, "TF_CONFIG", "its task's index")


def check_one_worker() -> None:
    """Checks, for what runs on one machine, that ``TF_CONFIG`` names no cluster of several tasks.

    Raises:
        ValueError: it does, or is not what TensorFlow writes there.
    """
    count = sum(map(len, _jobs(_tf_config()).values()))
    if count > 1:
        raise ValueError(
            f"TF_CONFIG names a cluster of {count} tasks, and each of them would do the whole work "
            "alone: several workers pre-train together, and all else runs on one machine. Start it "
            "with TF_CONFIG unset; it takes every GPU of that machine."
        )


def _tf_config() -> dict[str, Any]:
    text = os.environ.get("TF_CONFIG")
    return parse_json_object(text, "the environment variable TF_CONFIG") if text else {}


def _jobs(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """The addresses of each job of a cluster."""
    cluster = config.get("cluster") or {}
    expected = 'TF_CONFIG: expected a cluster such as {"worker": ["HOST:PORT", "HOST:PORT"]}'
    if not isinstance(cluster, dict):
        raise ValueError(f"{expected}, got {quote(cluster)}.")
    for job, addresses in cluster.items():
        if job not in _JOBS:
            raise ValueError(
                f"{expected}, of the jobs chief and worker, got the job {quote(job)}: parameter "
                "servers and evaluators take no part in a run."
            )
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise ValueError(f"{expected}, got {quote(addresses)} for {job}.")
    return cluster


def _checked(addresses: tuple[str, ...], index: int, source: str, number: str) -> Cluster | None:
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{source}: expected HOST:PORT of every worker, got {quote(address)}.")
    if len(set(addresses)) < len(addresses):
        raise ValueError(f"{source} names an address twice: {listed(sorted(addresses))}.")
    if not 0 <= index < len(addresses):
        raise ValueError(
            f"{number}={index}: expected 0 to {len(addresses) - 1}, as {source} names "
            f"{len(addresses)} workers."
        )
    return Cluster(addresses, index) if len(addresses) > 1 else None


def connect(cluster: Cluster, seconds: float) -> tf.distribute.Strategy:
    """Joins the cluster; a ValueError says who did not come within the time."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    _meet(cluster, seconds, gpus)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.task,
        rpc_layer="grpc",
        num_accelerators={"GPU": gpus},
    )
    # A worker that ends just now, or a port of another program, would be waited for: TensorFlow
    # holds Python's lock meanwhile, so that no thread but faulthandler's can end it.
    faulthandler.dump_traceback_later(seconds + _JOIN_SECONDS, exit=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except tf.errors.OpError as error:
        raise ValueError(
            f"The workers could not join each other ({reason(error, 200)}): start every worker "
            "anew, each with a --task_index (or TF_CONFIG) of its own."
        ) from error
    finally:
        faulthandler.cancel_dump_traceback_later()
        _keep_sigterm()


def _meet(cluster: Cluster, seconds: float, gpus: int) -> None:
    """Waits until every worker's port answers, with this worker's own open; compares their GPUs."""
    places = [_place(address) for address in cluster.addresses]
    port = places[cluster.task][1]
    absent = dict.fromkeys(range(len(places)), "")
    until = time.monotonic() + seconds
    try:
        # It may be taken from a server that was killed, whose port waits for a minute. gRPC listens
        # on all addresses of the machine, too.
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        server = socket.create_server(
            ("", port), family=family, backlog=2 * len(places), dualstack_ipv6=both
        )
    except OSError as error:
        raise ValueError(
            f"Port {port}, which worker {cluster.task} ({cluster.addresses[cluster.task]}) is "
            f"to have, cannot be taken ({error.strerror}): end what uses it, or give another."
        ) from error
    with server as own:
        while absent:
            for number in list(absent):
                try:
                    # A scheduler may give a name its address, or another one, while this waits.
                    found = socket.getaddrinfo(*places[number], type=socket.SOCK_STREAM)
                    if number != cluster.task:
                        socket.create_connection(places[number], 1.0).close()
                    else:
                        _warn_of_strangers(port, [str(place[4][0]) for place in found])
                    del absent[number]
                except (OSError, UnicodeError) as error:
                    is_nameless = isinstance(error, socket.gaierror | UnicodeError)
                    absent[number] = str(error) if is_nameless else ""
            if absent and time.monotonic() > until:
                raise _no_answer(cluster, absent, seconds)
            time.sleep(_POLL_SECONDS)
        until = max(until, time.monotonic() + _TELL_SECONDS)
        if cluster.task:
            counts = _tell_chief(places[0], cluster.task, gpus, until)
            silent = [] if len(counts) == len(places) else [0]
        else:
            counts = _hear_all(own, len(places), gpus, until)
            silent = [number for number in range(len(places)) if number not in counts]
    if silent:
        raise _no_answer(cluster, dict.fromkeys(silent, ""), seconds)
    if len(set(counts.values())) > 1:
        have = [f"worker {n} ({cluster.addresses[n]}) has {counts[n]}" for n in sorted(counts)]
        raise ValueError(
            f"The workers' numbers of GPUs differ ({listed(have)}), and each is to have the same "
            "share of a batch: show every worker as many, by CUDA_VISIBLE_DEVICES for example."
        )


def _no_answer(cluster: Cluster, silent: Mapping[int, str], seconds: float) -> ValueError:
    who = listed([f"worker {number} ({cluster.addresses[number]})" for number in silent])
    why = next((f" ({said})" for said in silent.values() if said), "")
    return ValueError(
        f"No answer from {who} within {seconds:.0f} seconds{why}: start every worker, each with "
        "its own --task_index (or TF_CONFIG), on machines that reach each other's names and ports; "
        "--connect_seconds waits longer."
    )


def _warn_of_strangers(port: int, own: Iterable[str]) -> None:
    """Says once that TensorFlow's server asks nobody who they are, where strangers may reach it."""
    public = [address for address in own if ipaddress.ip_address(address).is_global]
    if public:
        print(
            f"Warning: {public[0]} is an address of the internet, and whoever reaches port {port} "
            "there can read and write files as this user: let only the workers reach it, by a "
            "private network or a firewall.",
            file=sys.stderr,
        )


def _tell_chief(chief: tuple[str, int], task: int, gpus: int, until: float) -> dict[int, int]:
    """Tells the chief a number; every worker's when all have, and none where it does not answer."""
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(OSError), socket.create_connection(chief, left) as there:
            there.sendall(b"bert_tf %d %d" % (task, gpus))
            with there.makefile("rb") as told:
                if said := re.fullmatch(rb"bert_tf((?: \d{1,9})+)", told.read(1 << 20)):
                    return dict(enumerate(map(int, said[1].split())))
        time.sleep(_POLL_SECONDS)
    return {}


def _hear_all(own: socket.socket, count: int, gpus: int, until: float) -> dict[int, int]:
    """The numbers that workers tell the chief until a time; when all have, it tells them all."""
    counts, callers = {0: gpus}, dict[int, socket.socket]()
    own.settimeout(_POLL_SECONDS)
    with contextlib.ExitStack() as stack:
        while len(counts) < count and time.monotonic() < until:
            with contextlib.suppress(OSError):
                caller = stack.enter_context(own.accept()[0])
                caller.settimeout(1.0)
                # What else connects to a port is not listened to.
                said = re.fullmatch(rb"bert_tf (\d{1,9}) (\d{1,9})", caller.recv(64))
                if said and 0 < int(said[1]) < count:
                    counts[int(said[1])], callers[int(said[1])] = int(said[2]), caller
        if len(counts) == count:
            told = b"bert_tf" + b"".join(b" %d" % counts[number] for number in range(count))
            for caller in callers.values():
                with contextlib.suppress(OSError):
                    caller.sendall(told)
    return counts


def _place(address: str) -> tuple[str, int]:
    """An address' host and port, for a socket."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def within(work: Callable[[], T], seconds: float = math.inf) -> T:
    """Does work in a thread that is left behind after some time, by a TimeoutError, or on Ctrl-C.

    The thread may hold TensorFlow's locks, so the process can do little after that but end.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    waited = 0.0
    while thread.is_alive() and waited < seconds:
        thread.join(_POLL_SECONDS)
        waited += _POLL_SECONDS
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]


def installed() -> dict[str, str]:
    """The library's code, as a hash, and the versions of what it computes with."""
    digest = hashlib.sha256()
    for name in ("bert_tf", "bert_tf.pipelines", "bert_tf.saved_models"):
        folder = os.path.dirname(str(importlib.import_module(name).__file__))
        for path in sorted(glob.glob(os.path.join(folder, "**", "*.py"), recursive=True)):
            with open(path, "rb") as file:
                digest.update(file.read())
    versions = {name: metadata.version(name) for name in ("keras", "tensorflow-text")}
    return {"bert_tf": digest.hexdigest(), "tensorflow": tf.__version__, **versions}


def _keep_sigterm() -> None:
    """Puts Python's handler back: TensorFlow takes SIGTERM when it joins a cluster."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


class Workers:
    """The workers of a strategy; without a cluster, this process alone."""

    def __init__(
        self, strategy: tf.distribute.Strategy | None = None, cluster: Cluster | None = None
    ) -> None:
        self._strategy = strategy or tf.distribute.get_strategy()
        self._addresses = cluster.addresses if cluster else ("",)
        self.index = cluster.task if cluster else 0
        self.count = len(self._addresses)
        self.is_chief = self.index == 0
        self._sum = tf.function(self._all_reduced)

    def name(self, index: int) -> str:
        """A worker's name for a sentence."""
        return f"worker {index} ({self._addresses[index]})"

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Every worker's values, (workers, values) float64, the same on each of them."""
        mine = np.asarray(values, np.float64)
        if self.count == 1:
            return mine[None]
        with self.connected():
            replicas = within(lambda: self._sum(tf.constant(mine)).numpy())
        # The replicas of a worker follow each other.
        return replicas[:: len(replicas) // self.count]

    def _all_reduced(self, values: tf.Tensor) -> tf.Tensor:
        replicas = self._strategy.num_replicas_in_sync

        def of_replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            place = tf.one_hot(context.replica_id_in_sync_group, replicas, dtype=tf.float64)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, place[:, None] * values)

        return self._strategy.experimental_local_results(self._strategy.run(of_replica))[0]

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Says in a sentence that another worker ended."""
        try:
            yield
        except _LOST as error:
            if self.count == 1:
                raise
            raise LostWorkerError(
                f"Another of the {self.count} workers ended or cannot be reached: see what it "
                "printed, and start every worker again with the same command; the run goes on from "
                "its newest checkpoint."
            ) from error

    def wait(self) -> None:
        """Waits until every worker has come here."""
        self.gather([0.0])

    def in_turn(self, work: Callable[[], T]) -> T:
        """Does work on the chief, then on the others; where it fails on one, all end."""
        results: list[T] = []
        for is_chiefs in (True, False):
            error: BaseException | None = None
            if is_chiefs == self.is_chief:
                try:
                    results.append(work())
                except BaseException as caught:
                    error = caught
            if self.count > 1:
                failed = self.gather([error is not None])[:, 0]
            if error is not None:
                raise error
            if self.count > 1 and failed.any():
                raise ValueError(
                    f"This worker ends because {self.name(int(failed.argmax()))} did: see what it "
                    "printed, and start every worker again."
                )
        return results[0]

    def check_equal(self, facts: Mapping[str, Any], what: str) -> None:
        """Checks that every worker has the chief's facts; ``what`` names their kind."""
        if self.count == 1:
            return
        # 48 bits, which float64 holds exactly.
        hashes = [
            int(hashlib.sha256(repr(value).encode()).hexdigest()[:12], 16)
            for value in facts.values()
        ]
        told = self.gather(hashes)
        for index in range(1, self.count):
            other = [name for name, same in zip(facts, told[index] == told[0], strict=True)
                     if not same]  # fmt: skip
            if other:
                raise ValueError(
                    f"Of {self.name(index)} and the chief, {self.name(0)}, the {what} differ "
                    f"({listed(other)}): start every worker with the same."
                )
