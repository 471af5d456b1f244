"""Strategy for several workers, and exchange of numbers between them by all-reduce."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from bert_tf.graph_gradients import sum_over_replicas
from bert_tf.io.messages import reason

from .cluster import Cluster
from .waiting import LostWorkerError, Partners, collected_signals

T = TypeVar("T")

# Errors that TensorFlow raises if another worker has exited or does not respond.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    # Raised by interrupted collective operations, among others.
    tf.errors.InternalError,
)

# TensorFlow checks every second whether it has received SIGTERM, and notifies all workers.
_NOTICE, _NOTICE_MILLISECONDS = "TF_DEFAULT_PREEMPTION_NOTICE_KEY", 2000


def connect(cluster: Cluster, wait_minutes: float) -> tuple[tf.distribute.Strategy, Partners]:
    """Joins the cluster when all workers are connected; waits up to ``wait_minutes``."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.task,
        rpc_layer="grpc",
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
    )
    partners = Partners(cluster.addresses, cluster.task)
    with partners.reporting():
        with partners.connected_workers(wait_minutes):
            try:
                strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
            except tf.errors.OpError as error:
                raise ValueError(
                    f"The workers cannot connect ({reason(error, 200)}). Restart each worker with "
                    "its own --task_index (or TF_CONFIG) and an unused port."
                ) from error
        # TensorFlow cannot raise its error while a signal handler raises another error.
        with collected_signals() as received, contextlib.suppress(tf.errors.OpError):
            context.context().get_config_key_value(_NOTICE, _NOTICE_MILLISECONDS)
            received.append(signal.SIGTERM)
        if received:
            raise KeyboardInterrupt
    return strategy, partners


class Workers:
    """Workers of a strategy; without a cluster, only this process."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy | None = None,
        cluster: Cluster | None = None,
        partners: Partners | None = None,
    ) -> None:
        self._strategy = strategy or tf.distribute.get_strategy()
        addresses, self.index = cluster or Cluster(("",), 0)
        self.count = len(addresses)
        self._partners = partners or Partners(addresses, self.index)
        self.is_chief = self.index == 0
        self._gather_replicas = tf.function(self._gather_on_replicas)

    def name(self, index: int) -> str:
        """Returns the name of a worker for messages."""
        return self._partners.name(index)

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Returns the values of all workers, float64 (workers, values)."""
        mine = np.asarray(values, np.float64)
        if self.count == 1:
            return mine[None]
        with self.connected():
            replicas = run_in_thread(lambda: self._gather_replicas(tf.constant(mine)).numpy())
        # The replicas of a worker are adjacent and have equal values.
        return replicas[:: len(replicas) // self.count]

    def _gather_on_replicas(self, values: tf.Tensor) -> tf.Tensor:
        replicas = self._strategy.num_replicas_in_sync

        def sum_rows() -> tf.Tensor:
            replica = tf.distribute.get_replica_context()
            mask = tf.one_hot(replica.replica_id_in_sync_group, replicas, dtype=tf.float64)
            return sum_over_replicas(mask[:, None] * values)

        return self._strategy.experimental_local_results(self._strategy.run(sum_rows))[0]

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Raises LostWorkerError if a worker exits, or KeyboardInterrupt if it was interrupted."""
        with self._partners.reporting():
            try:
                yield
            except _LOST as error:
                if self.count == 1:
                    raise
                if self._partners.is_any_stopped():
                    raise KeyboardInterrupt from error
                raise LostWorkerError(
                    f"One of the other workers ({self.count} in total) has exited or cannot be "
                    "reached. Check the output of each worker, and rerun the command on all to "
                    "resume from the last checkpoint."
                ) from error

    def wait(self) -> None:
        """Waits until all workers have called this method."""
        self.gather([0.0])

    def leave(self) -> None:
        """Waits until all workers have called this method and no longer need this process."""
        self.wait()
        self._linger()

    def _linger(self) -> None:
        # A worker may exit when it has received its sum, while others still read from it. A second
        # sum starts only after all workers have received the first one.
        with contextlib.suppress(LostWorkerError):
            self.wait()

    def differences(self, numbers: Mapping[str, float]) -> dict[str, list[float]]:
        """Returns the values of numbers that differ, after which this worker may exit."""
        columns = zip(numbers, self.gather([*numbers.values()]).T, strict=True)
        different = {name: each.tolist() for name, each in columns if (each != each[0]).any()}
        if different:
            self._linger()
        return different

    def check_same(self, number: float, name: str) -> None:
        """Checks that all workers have the same number; error messages call it ``name``."""
        if different := self.differences({name: number}):
            raise ValueError(
                f"The workers differ in the {name} ({different[name]}). Run the same command on "
                "each worker, with a shared disk."
            )


def run_in_thread(work: Callable[[], T], seconds: float | None = None) -> T:
    """Calls a function in a thread, and abandons the thread on Ctrl-C or after ``seconds``."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)
