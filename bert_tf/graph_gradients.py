"""Custom gradients that are released with the graph in which they are traced.

TensorFlow registers each ``tf.custom_gradient`` that is traced in a graph until the process ends. A
gradient refers to its graph, and therefore to the weights and the optimizer's variables. With this
module, the graph owns its gradients, and the registry has only weak references to them. Removing
the entries after each training run would not work for Keras' ``fit``, which has no hook when a
model is deleted, and would break functions that are still in use.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates like ``keras.ops.custom_gradient``, but the graph owns the gradients."""
    return owned_by_graph(keras.ops.custom_gradient(function))


def sum_over_replicas(values: Any) -> Any:
    """Sums tensors over the replicas within ``strategy.run``."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return owned_by_graph(context.all_reduce)(tf.distribute.ReduceOp.SUM, values)


def owned_by_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that the graph of the outputs owns the outputs' custom gradients.

    This is for functions of Keras and TensorFlow that apply a custom gradient last, such as
    ``keras.activations.silu``.
    """
    if keras.backend.backend() != "tensorflow":
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        outputs = function(*args, **kwargs)
        output = keras.tree.flatten(outputs)[0]
        if hasattr(output, "op") and hasattr(output, "graph"):  # eager tensors have neither
            _make_graph_owner(output.op)
        return outputs

    return call


def traced_in_owner(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a training step so that the step's graph owns all custom gradients in the graph.

    This is for steps whose backward pass adds custom gradients, such as steps with ``keras.remat``
    or with Keras' optimizers, which sum gradients over replicas.
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
    """Replaces the registry's reference to an operation's custom gradient with a weak one."""
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
    # A graph collection would be copied to the graphs of inner functions.
    if not hasattr(operation.graph, "_bert_tf_gradients"):
        operation.graph._bert_tf_gradients = []
    operation.graph._bert_tf_gradients.append(gradient)
    entries[name]["type"] = weakref.proxy(gradient, lambda _: entries.pop(name, None))
