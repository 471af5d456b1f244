"""Custom gradients that live no longer than the graph in which they are traced.

TensorFlow registers the gradient of each ``tf.custom_gradient`` in a graph by a name, for the life
of the process. A gradient refers to its graph, and so to the weights and the optimizer's slots.
Here the graph owns its gradients and the registry refers to them weakly, so the names disappear
with the graph. Removing the names after each training instead would miss Keras' ``fit``, which
calls nothing when a model is deleted, and would break functions that are still in use.
"""

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """``keras.ops.custom_gradient``, owned by the graph in which it is traced."""
    return owned_by_graph(keras.ops.custom_gradient(function))


def remat(function: Callable[..., Any]) -> Callable[..., Any]:
    """``keras.remat`` of a function of tensors, owned by the graph in which it is traced.

    Keras' own registers another gradient in the backward pass, which no caller can reach.
    """
    import tensorflow as tf

    if tf.executing_eagerly():
        return keras.remat(function)

    def compute(*inputs: Any) -> tuple[Any, Callable[..., Any]]:
        def gradient(upstream: Any, variables: Sequence[Any] = ()) -> Any:
            # As inputs that depend on the upstream gradient, or they would be computed before it.
            zero = tf.reduce_max(tf.reshape(upstream, [-1])[:1])
            zero = tf.where(tf.cast(zero, tf.bool) == tf.cast(zero, tf.bool), 0.0, float("nan"))
            with tf.GradientTape() as tape:
                kept = [x + tf.cast(zero, x.dtype) for x in inputs]
                tape.watch([*kept, *variables])
                outputs = function(*kept)
            sources = [*kept, *variables]
            gradients = tape.gradient(outputs, sources, upstream, tf.UnconnectedGradients.ZERO)
            of_inputs = gradients[: len(kept)]
            return (of_inputs, gradients[len(kept) :]) if variables else of_inputs

        return function(*inputs), gradient

    return custom_gradient(compute)


def sum_over_replicas(values: Any) -> Any:
    """Sums tensors over the replicas, within ``strategy.run``: ``all_reduce``, owned likewise."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return owned_by_graph(context.all_reduce)(tf.distribute.ReduceOp.SUM, values)


def owned_by_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``function`` with any custom gradient of its outputs owned by their graph.

    For functions of Keras and TensorFlow that apply a custom gradient last, such as
    ``keras.activations.silu``.
    """
    if keras.backend.backend() != "tensorflow":
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        outputs = function(*args, **kwargs)
        output = keras.tree.flatten(outputs)[0]
        if hasattr(output, "op") and hasattr(output, "graph"):  # neither is of an eager tensor
            _make_graph_owner(output.op)
        return outputs

    return call


def traced_in_owner(step: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``step`` with all custom gradients that it traces owned by its graph.

    For a model's ``train_step``: Keras' optimizers add custom gradients as well, since they sum
    gradients over replicas.
    """
    if keras.backend.backend() != "tensorflow":
        return step

    @functools.wraps(step)
    def call(*args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        outputs = step(*args, **kwargs)
        if not tf.executing_eagerly():
            for operation in tf.compat.v1.get_default_graph().get_operations():
                _make_graph_owner(operation)
        return outputs

    return call


def _make_graph_owner(operation: Any) -> None:
    """Replaces the registry's reference to an operation's custom gradient by a weak one."""
    from tensorflow.python.framework import ops

    if operation.type != "IdentityN":
        return
    try:
        name = operation.get_attr("_gradient_op_type").decode()
    except ValueError:  # no custom gradient
        return
    entries = ops.gradient_registry._registry
    gradient = entries[name]["type"]
    if type(gradient) in weakref.ProxyTypes:
        return
    # Not in a collection, which the graphs of inner functions would copy.
    if not hasattr(operation.graph, "_bert_tf_gradients"):
        operation.graph._bert_tf_gradients = []
    operation.graph._bert_tf_gradients.append(gradient)
    entries[name]["type"] = weakref.proxy(gradient, lambda _: entries.pop(name, None))
