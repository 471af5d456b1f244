"""Exchange of numbers between the workers of a training, by the all-reduce of the strategy."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.graph_gradients import sum_over_replicas

from .cluster import Cluster
from .interruptible import run_in_thread
from .waiting import LostWorkerError, Partners

# Errors of TensorFlow if another worker has ended or does not respond.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    # Raised by interrupted collective operations, among others.
    tf.errors.InternalError,
)


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
            context = tf.distribute.get_replica_context()
            mask = tf.one_hot(context.replica_id_in_sync_group, replicas, dtype=tf.float64)
            return sum_over_replicas(mask[:, None] * values)

        return self._strategy.experimental_local_results(self._strategy.run(sum_rows))[0]

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Raises LostWorkerError if another worker has ended, or interrupts if it was stopped."""
        with self._partners.reporting():
            try:
                yield
            except _LOST as error:
                if self.count == 1:
                    raise
                if self._partners.is_any_stopped():
                    raise KeyboardInterrupt from error
                raise LostWorkerError(
                    f"Another of the {self.count} workers ended or cannot be reached. Check its "
                    "output, and rerun the command on each worker to resume from the last "
                    "checkpoint."
                ) from error

    def wait(self) -> None:
        """Waits until all workers have called this method."""
        self.gather([0.0])

    def leave(self) -> None:
        """Waits until all workers have called this method and no longer need this process."""
        self.wait()
        self._linger()

    def _linger(self) -> None:
        # A worker may end when it has its sum, while others still read from it. A second sum starts
        # only after all workers have the first one.
        with contextlib.suppress(LostWorkerError):
            self.wait()

    def check_same(self, number: float, what: str) -> None:
        """Checks that all workers have the same number; ``what`` is its name in errors."""
        numbers = self.gather([number])[:, 0]
        if (numbers != numbers[0]).any():
            self._linger()
            raise ValueError(
                f"The workers differ in the {what} ({numbers.tolist()}). Run the same command on "
                "each worker, with a shared disk."
            )
