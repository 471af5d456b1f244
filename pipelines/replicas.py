"""Sharing of a batch among a model's replicas: the same code for one device and for several.

A model that is built in the scope of a ``tf.distribute`` strategy has its variables on each of the
strategy's devices. Every replica is handed the whole batch and computes a share of its rows.

Letters: B batch, N replicas, R = B / N, rounded up: the rows of a share.
"""

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager

from bert_tf.graph_gradients import sum_over_replicas

# Batches that are computed together: threads within an operation leave cores idle.
_MAX_PARALLEL = 2
_tracing = threading.Lock()


class ReplicaShard:
    """The share of a batch that the running replica computes, within ``strategy.run``.

    All shares have R rows, as wide as the batch's: where B is too small, the last ones repeat its
    last row, and what comes of a repetition is left out. ``rows`` are the batch's structure of
    tensors, (R, ...) each; of one replica the batch as it is.
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
        """Rows (R, ...) of this share without what repeats the last: perhaps none."""
        if self.num_replicas == 1:
            return rows
        count = tf.maximum(self._batch_size - self._begin, 0)
        return tf.nest.map_structure(lambda values: values[:count], rows)

    def all_gather(self, outputs: Any) -> Any:
        """Floats (R, ...) of this share to those of the whole batch, (B, ...), on every replica.

        A gradient goes to this share's alone: summed over the replicas, those of one device.
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
        """(R, ...) to (N * R, ...), with 0 in the places of the other shares."""
        num_after = (self.num_replicas - 1) * self._size - self._begin
        paddings = [[self._begin, num_after], *([0, 0] for _ in rows.shape[1:])]
        return tf.ensure_shape(tf.pad(rows, paddings), [None, *rows.shape[1:]])


def get_traced_step(
    model: Any, compute: Callable[..., Any], spec: Any, *arguments: Any
) -> Callable[[Any], Any]:
    """Makes a graph function of batches, or gives the one that an earlier call made for the model.

    ``compute`` takes the model, a batch's features and the hashable ``arguments``, and returns
    tensors with a row for each row of the batch. ``spec`` is the batches' ``element_spec``, of
    features or ``(features, labels, ...)``.
    """
    # Not as an attribute: Keras would take a dict that it is told of for a part of the model.
    steps: dict[Any, Any] = vars(model).setdefault("_traced_steps", {})
    key = (compute, str(spec), *arguments)
    if key not in steps:
        with _tracing:  # threads may make the first call together
            if key not in steps:
                steps[key] = _trace(model, compute, spec, *arguments)
    return steps[key]


def _trace(
    model: Any, compute: Callable[..., Any], spec: Any, *arguments: Any
) -> Callable[[Any], Any]:
    # Any model will do; one of Keras knows the strategy that it was built under.
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

    # TensorFlow warns of functions that are traced at several calls in a row, which this one
    # would be in a process that opens a model again and again.
    return step.get_concrete_function()


def compute_batches(
    step: Callable[[Any], Any], batches: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields each batch, in order, with a step's outputs for it; two are computed at once."""
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
    """Drops a model's graph functions: its variables are no longer those that they read."""
    getattr(model, "_traced_steps", {}).clear()
