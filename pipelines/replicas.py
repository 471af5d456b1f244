"""Splits batches among the replicas of a model, on one or several devices.

A model that is built in the scope of a ``tf.distribute`` strategy has copies of its variables on
each device. Every replica receives the full batch and computes a shard of the rows.

Letters: B batch, N replicas, R = B / N, rounded up: rows per shard.
"""

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager

from bert_tf.graph_gradients import sum_over_replicas

# Number of batches to compute in parallel, because threads within an operation leave cores idle.
_MAX_PARALLEL = 2
_tracing = threading.Lock()


class ReplicaShard:
    """Shard of a batch that the current replica computes, within ``strategy.run``.

    All shards have R rows. If B is too small, the last shards repeat the last row, and results of
    repeated rows are dropped.

    Attributes:
        rows: Rows of the shard, in the structure of the batch, (R, ...) each. With one replica,
            the batch itself.
    """

    def __init__(self, batch: Any) -> None:
        self._context = tf.distribute.get_replica_context()
        self.num_replicas: int = self._context.num_replicas_in_sync
        self.rows = batch
        if self.num_replicas > 1:
            replica = tf.convert_to_tensor(self._context.replica_id_in_sync_group)
            self._batch_size = tf.shape(tf.nest.flatten(batch)[0])[0]
            self._size = -(-self._batch_size // self.num_replicas)
            self._begin = replica * self._size
            numbers = tf.minimum(self._begin + tf.range(self._size), self._batch_size - 1)
            self.rows = tf.nest.map_structure(lambda rows: tf.gather(rows, numbers), batch)

    def without_padding(self, rows: Any) -> Any:
        """Drops repeated rows from this shard's rows, (R, ...); the result may be empty."""
        if self.num_replicas == 1:
            return rows
        count = tf.maximum(self._batch_size - self._begin, 0)
        return tf.nest.map_structure(lambda values: values[:count], rows)

    def all_gather(self, outputs: Any) -> Any:
        """Concatenates float outputs (R, ...) of all shards to (B, ...), on every replica.

        Gradients flow only to this replica's shard; their sum is the gradient on one device.
        """
        if self.num_replicas == 1:
            return outputs
        scattered = [self._scatter(rows) for rows in tf.nest.flatten(outputs)]
        sums = sum_over_replicas(scattered)
        joined = [
            (local + tf.stop_gradient(total - local))[: self._batch_size]
            for local, total in zip(scattered, sums, strict=True)
        ]
        return tf.nest.pack_sequence_as(outputs, joined)

    def _scatter(self, rows: tf.Tensor) -> tf.Tensor:
        """Pads (R, ...) to (N * R, ...), with 0 for the rows of other shards."""
        num_after = (self.num_replicas - 1) * self._size - self._begin
        paddings = [[self._begin, num_after], *([0, 0] for _ in rows.shape[1:])]
        return tf.ensure_shape(tf.pad(rows, paddings), [None, *rows.shape[1:]])


def get_traced_step(
    model: Any, compute: Callable[..., Any], spec: Any, *arguments: Any
) -> Callable[[Any], Any]:
    """Returns a graph function that takes a batch; traced at most once per model and arguments.

    Args:
        model: The model.
        compute: Function that maps the model, a batch's features and ``arguments`` to tensors with
            one row per row of the batch.
        spec: ``element_spec`` of the batches: features, or ``(features, labels, ...)``.
        *arguments: Hashable arguments of ``compute``.
    """
    # Set in vars(), because Keras would track a dict attribute as part of the model.
    steps: dict[Any, Any] = vars(model).setdefault("_traced_steps", {})
    key = (compute, str(spec), *arguments)
    if key not in steps:
        with _tracing:  # threads may make the first call at the same time
            if key not in steps:
                steps[key] = _trace(model, compute, spec, *arguments)
    return steps[key]


def _trace(
    model: Any, compute: Callable[..., Any], spec: Any, *arguments: Any
) -> Callable[[Any], Any]:
    # Keras models use the strategy in whose scope they were built; others use the current one.
    strategy = getattr(model, "distribute_strategy", tf.distribute.get_strategy())

    def joined(rows: Any, size: tf.Tensor) -> tf.Tensor:
        return tf.concat(strategy.experimental_local_results(rows), 0)[:size]

    @tf.function(input_signature=[spec], autograph=False)
    def step(batch: Any) -> Any:
        rows = batch[0] if isinstance(batch, tuple) else batch
        if strategy.num_replicas_in_sync == 1:
            return compute(model, rows, *arguments)
        outputs = strategy.run(lambda: compute(model, ReplicaShard(rows).rows, *arguments))
        size = tf.shape(tf.nest.flatten(rows)[0])[0]
        return tf.nest.map_structure(lambda shares: joined(shares, size), outputs)

    # Returned as a concrete function, because TensorFlow warns about functions that are retraced
    # repeatedly, as in a process that opens a model many times.
    return step.get_concrete_function()


def compute_batches(
    step: Callable[[Any], Any], batches: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields each batch with a step's outputs, in order, computing two batches in parallel."""
    pending: collections.deque[tuple[Any, Future[Any]]] = collections.deque()
    options = eager.context().function_call_options  # the calling thread's precision

    def adopt_options() -> None:
        eager.context().function_call_options = options

    with ThreadPoolExecutor(_MAX_PARALLEL, initializer=adopt_options) as pool:
        for batch in batches:
            pending.append((batch, pool.submit(step, batch)))
            if len(pending) > _MAX_PARALLEL:
                batch, outputs = pending.popleft()
                yield batch, outputs.result()
        for batch, outputs in pending:
            yield batch, outputs.result()


def clear_traced_steps(model: Any) -> None:
    """Drops a model's graph functions, after its variables were replaced."""
    getattr(model, "_traced_steps", {}).clear()
