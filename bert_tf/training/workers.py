"""The processes of a training on several machines: who they are, and how they agree.

Each runs the same command with a number of its own. Worker 0 is the *chief*: it prepares what the
others read, and it alone writes. What they agree on is summed by the strategy's own all-reduce.
"""

import contextlib
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.untrusted import parse_json_object, quote, reason

T = TypeVar("T")
_JOBS = ("chief", "worker")
_POLL_SECONDS = 0.2
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

    The flags stand for a ``TF_CONFIG``. A ValueError says what is wrong with either.

    >>> find_cluster(["a:2222", "b:2222"], 1)
    Cluster(addresses=('a:2222', 'b:2222'), task=1)
    """
    if bool(worker_hosts) != (task_index is not None):
        raise ValueError(
            "--worker_hosts and --task_index go together: HOST:PORT of every worker, by commas, "
            "and which of these this process is, from 0."
        )
    jobs: Mapping[str, Sequence[str]] = {"worker": worker_hosts}
    task: Any = {"type": "worker", "index": task_index}
    source = "--worker_hosts and --task_index"
    if not worker_hosts:
        config, source = _tf_config(), "TF_CONFIG"
        jobs, task = _jobs(config), config.get("task")
    places = [(job, number) for job in _JOBS for number in range(len(jobs.get(job, ())))]
    if len(places) < 2:
        return None
    own = (task.get("type"), task.get("index", 0)) if isinstance(task, dict) else None
    if own not in places:
        raise ValueError(
            f"{source}: expected one of the cluster's {len(places)} tasks, such as "
            f'{{"type": "worker", "index": 0}}, got {quote(task)}.'
        )
    addresses = tuple(jobs[job][number] for job, number in places)
    for address in addresses:
        if not re.fullmatch(r".+:\d{1,5}", address) or addresses.count(address) > 1:
            raise ValueError(
                f"{source}: expected HOST:PORT of every worker, each another, got {quote(address)}."
            )
    return Cluster(addresses, places.index(own))


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


def connect(cluster: Cluster) -> tf.distribute.Strategy:
    """Joins the cluster, when all of its workers have come."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.task,
        rpc_layer="grpc",
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )
    print(f"Waiting for all {len(cluster.addresses)} workers.", flush=True)
    # TensorFlow holds Python's lock meanwhile, so that no handler of Python's is called; and it
    # takes SIGTERM.
    is_main = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in signals}
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except tf.errors.OpError as error:
        raise ValueError(
            f"The workers could not join each other ({reason(error, 200)}): start every worker "
            "anew, each with a --task_index (or TF_CONFIG) of its own and a port that is free."
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

    def check_same(self, number: float, what: str) -> None:
        """Checks that every worker has the same number; ``what`` says whose."""
        told = self.gather([number])[:, 0]
        if (told != told[0]).any():
            raise ValueError(
                f"The workers differ in the {what} ({told.tolist()}): start every worker with the "
                "same flags, on a disk that all of them share."
            )
