"""What the workers of a training agree on, summed by the strategy's own all-reduce."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.graph_gradients import sum_over_replicas

from .cluster import Cluster
from .interruptible import run_in_thread
from .waiting import LostWorkerError, Partners

# TensorFlow's errors where another worker ended, or does not answer.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    # Where a collective operation breaks off, among others.
    tf.errors.InternalError,
)


class Workers:
    """The workers of a strategy; without a cluster, this process alone."""

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
        """A worker's name for a sentence."""
        return self._partners.name(index)

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Every worker's values, (workers, values) float64, the same on each of them."""
        mine = np.asarray(values, np.float64)
        if self.count == 1:
            return mine[None]
        with self.connected():
            replicas = run_in_thread(lambda: self._gather_replicas(tf.constant(mine)).numpy())
        # A worker's replicas are neighbours and hold the same: take the first of each.
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
        """Raises LostWorkerError if another worker ended, or interrupts if a signal ended it."""
        with self._partners.reporting():
            try:
                yield
            except _LOST as error:
                if self.count == 1:
                    raise
                if self._partners.is_any_stopped():
                    raise KeyboardInterrupt from error
                raise LostWorkerError(
                    f"Another of the {self.count} workers ended or cannot be reached: see what it "
                    "printed, and start every worker again with the same command; the run goes on "
                    "from its newest checkpoint."
                ) from error

    def wait(self) -> None:
        """Waits until every worker has come here."""
        self.gather([0.0])

    def leave(self) -> None:
        """Waits until every worker calls this, and no longer reads from this process."""
        self.wait()
        self._linger()

    def _linger(self) -> None:
        # A worker may end as soon as it has its sum, while another still reads parts of it there. A
        # second sum starts only after all workers have the first one.
        with contextlib.suppress(LostWorkerError):
            self.wait()

    def check_same(self, number: float, what: str) -> None:
        """Checks that every worker has the same number; errors call it ``what``."""
        numbers = self.gather([number])[:, 0]
        if (numbers != numbers[0]).any():
            self._linger()
            raise ValueError(
                f"The workers differ in the {what} ({numbers.tolist()}): start every worker with "
                "the same flags, on a disk that all of them share."
            )
