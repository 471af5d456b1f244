"""What a step without XLA asks of a GPU and of its host: kernels, and copies between the two.

    python -m benchmarks.host_copies [--program=base:256x128]  # or finetune:32x128

It needs no GPU. TensorFlow's graph optimiser is told of a card that is not there, and what runs
where, and which inputs and outputs are in the host's memory, its register of kernels says. A copy
to the host makes the step wait; one to the card does not.
"""

import argparse
import collections
import functools
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, device_properties_pb2
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.grappler import cluster, tf_optimizer

from benchmarks.compiled_step import build_step

_CARD, _HOST = ("/job:localhost/replica:0/task:0/device:" + name for name in ("GPU:0", "CPU:0"))
# What only names, or looks again at, what is there.
_FREE = frozenset(
    {
        *("Bitcast", "Const", "ExpandDims", "Identity", "IdentityN", "NoOp", "Placeholder", "Rank"),
        *("ReadVariableOp", "Reshape", "Shape", "ShapeN", "Size", "Squeeze", "StopGradient"),
        "VarHandleOp",
    }
)
_UPDATES = frozenset(
    {"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "ResourceApplyAdam"}
)


class Counts(NamedTuple):
    """Numbers of a step: kernels on the card, operations on the host, copies by what is joined."""

    kernels: int
    host_operations: int
    to_host: collections.Counter[str]
    to_card: collections.Counter[str]

    def __str__(self) -> str:
        lines = [f"{self.kernels:,} kernels, {self.host_operations:,} operations of the host"]
        for where, copies in (("host", self.to_host), ("card", self.to_card)):
            listed = ", ".join(f"{number} {pair}" for pair, number in copies.most_common())
            lines.append(f"{copies.total():,} copies to the {where}: {listed}")
        return "\n".join(lines)


def count(function: Any) -> Counts:
    """The counts of a concrete function that is to run on a GPU, ``tf.device("CPU")`` apart."""
    graph = _optimised(function)
    nodes = {node.name: node for node in graph.node if op_def_registry.get(node.op)}
    on_card = host_operations = 0
    to_host, to_card = collections.Counter[str](), collections.Counter[str]()
    seen = set()
    for node in nodes.values():
        kernel = _kernel(node)
        outputs = _names(node, "output_arg")
        is_hosts = kernel is None or (
            bool(outputs) and all(name in kernel.host_memory_arg for name in outputs)
        )
        if node.op not in _FREE:
            host_operations += is_hosts
            on_card += not is_hosts
        names = _names(node, "input_arg")
        data = [each for each in node.input if not each.startswith("^")]
        for name, value in zip(names, data, strict=True):
            source, _, number = value.partition(":")
            wants_host = kernel is None or name in kernel.host_memory_arg
            place = (source, number, wants_host)
            if source not in nodes or _is_variable(nodes[source]) or place in seen:
                continue
            seen.add(place)
            if wants_host != _is_in_host_memory(nodes[source], int(number or 0)):
                copies = to_host if wants_host else to_card
                copies[f"{nodes[source].op} > {node.op}"] += 1
    return Counts(on_card, host_operations, to_host, to_card)


def _optimised(function: Any) -> Any:
    """The function's graph, as TensorFlow's optimiser leaves it where there is a card."""
    graph_def = function.graph.as_graph_def()
    for node in graph_def.node:
        node.device = _HOST if "CPU" in node.device else _CARD
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    meta = tf.compat.v1.train.export_meta_graph(graph_def=graph_def, graph=graph)
    kept = [output.name for output in function.outputs]
    kept += [node.name for node in graph_def.node if node.op in _UPDATES]
    meta.collection_def["train_op"].node_list.value.extend(kept)
    card = device_properties_pb2.NamedDevice(name=_CARD)
    card.properties.type, card.properties.vendor = "GPU", "nvidia"
    card.properties.memory_size, card.properties.num_cores = 80 << 30, 132
    card.properties.environment["architecture"] = "9.0"
    host = device_properties_pb2.NamedDevice(name=_HOST)
    host.properties.type, host.properties.num_cores = "CPU", 16
    options = config_pb2.ConfigProto()
    options.graph_options.rewrite_options.min_graph_nodes = -1
    devices = cluster.Cluster(devices=[host, card])
    return tf_optimizer.OptimizeGraph(options, meta, cluster=devices, verbose=False)


@functools.cache
def _kernels_of(operation: str) -> list[Any]:
    found = kernels.get_registered_kernels_for_op(operation).kernel
    return [kernel for kernel in found if kernel.device_type in ("GPU", "DEFAULT")]


def _kernel(node: Any) -> Any:
    """The card's kernel of a node, ``None`` where the host computes it."""
    if "CPU" in node.device:
        return None
    fitting = [kernel for kernel in _kernels_of(node.op) if _fits(kernel, node)]
    return max(fitting, key=lambda kernel: kernel.priority, default=None)


def _fits(kernel: Any, node: Any) -> bool:
    for constraint in kernel.constraint:
        value = node.attr[constraint.name]
        types = [value.type] if value.type else value.list.type
        if not set(types) <= set(constraint.allowed_values.list.type):
            return False
    return True


def _names(node: Any, side: str) -> list[str]:
    """The names of a node's inputs or outputs, one for each tensor."""
    names = []
    for argument in getattr(op_def_registry.get(node.op), side):
        tensors = 1
        if argument.number_attr:
            tensors = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            tensors = len(node.attr[argument.type_list_attr].list.type)
        names += [argument.name] * tensors
    return names


def _is_variable(node: Any) -> bool:
    return bool(node.op == "Placeholder" and node.attr["dtype"].type == tf.resource)


def _is_in_host_memory(node: Any, number: int) -> bool:
    if node.op == "Placeholder":  # a batch comes in the card's memory
        return False
    if node.op == "Const":
        return bool(node.attr["dtype"].type == tf.int32)
    kernel = _kernel(node)
    return kernel is None or _names(node, "output_arg")[number] in kernel.host_memory_arg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="base:256x128", help="SIZE:ROWSxLENGTH")
    size, _, shape = parser.parse_args().program.partition(":")
    rows, length = map(int, shape.split("x"))
    step, batch, _ = build_step("GPU", size, rows, length, jit_compile=False)
    print(count(tf.function(step, autograph=False).get_concrete_function(batch)))


if __name__ == "__main__":
    main()
