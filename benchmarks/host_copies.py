"""Counts the kernels of a training step without XLA, and its copies between a GPU and its host.

    python -m benchmarks.host_copies [--program=base:256x128]  # or finetune:32x128

No GPU is needed. TensorFlow's graph optimizer receives the description of one, and TensorFlow's
kernel registry specifies where each operation runs and which inputs and outputs are in host memory.
The step waits for a copy to the host, but not for a copy to the GPU.
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

_GPU, _HOST = ("/job:localhost/replica:0/task:0/device:" + name for name in ("GPU:0", "CPU:0"))
# Operations that compute and copy nothing.
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
    """Counts of a step: GPU kernels, host operations, and copies by the operations they connect."""

    kernels: int
    host_operations: int
    to_host: collections.Counter[str]
    to_gpu: collections.Counter[str]

    def __str__(self) -> str:
        lines = [f"{self.kernels:,} kernels, {self.host_operations:,} host operations"]
        for where, copies in (("host", self.to_host), ("GPU", self.to_gpu)):
            listed = ", ".join(f"{number} {pair}" for pair, number in copies.most_common())
            lines.append(f"{copies.total():,} copies to the {where}: {listed}")
        return "\n".join(lines)


def count(function: Any) -> Counts:
    """Counts for a concrete function that runs on a GPU, except in ``tf.device("CPU")`` scopes."""
    graph = _optimize(function)
    nodes = {node.name: node for node in graph.node if op_def_registry.get(node.op)}
    gpu_kernels = host_operations = 0
    to_host, to_gpu = collections.Counter[str](), collections.Counter[str]()
    seen = set()
    for node in nodes.values():
        kernel = _kernel(node)
        outputs = _argument_names(node, "output_arg")
        is_on_host = kernel is None or (
            bool(outputs) and all(name in kernel.host_memory_arg for name in outputs)
        )
        if node.op not in _FREE:
            host_operations += is_on_host
            gpu_kernels += not is_on_host
        names = _argument_names(node, "input_arg")
        data = [each for each in node.input if not each.startswith("^")]
        for name, value in zip(names, data, strict=True):
            source, _, number = value.partition(":")
            wants_host = kernel is None or name in kernel.host_memory_arg
            copy = (source, number, wants_host)
            if source not in nodes or _is_variable(nodes[source]) or copy in seen:
                continue
            seen.add(copy)
            if wants_host != _is_in_host_memory(nodes[source], int(number or 0)):
                copies = to_host if wants_host else to_gpu
                copies[f"{nodes[source].op} > {node.op}"] += 1
    return Counts(gpu_kernels, host_operations, to_host, to_gpu)


def _optimize(function: Any) -> Any:
    """Returns the graph of the function after TensorFlow's optimizer, for a machine with a GPU."""
    graph_def = function.graph.as_graph_def()
    for node in graph_def.node:
        node.device = _HOST if "CPU" in node.device else _GPU
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    meta = tf.compat.v1.train.export_meta_graph(graph_def=graph_def, graph=graph)
    kept = [output.name for output in function.outputs]
    kept += [node.name for node in graph_def.node if node.op in _UPDATES]
    meta.collection_def["train_op"].node_list.value.extend(kept)
    gpu = device_properties_pb2.NamedDevice(name=_GPU)
    gpu.properties.type, gpu.properties.vendor = "GPU", "nvidia"
    gpu.properties.memory_size, gpu.properties.num_cores = 80 << 30, 132
    gpu.properties.environment["architecture"] = "9.0"
    host = device_properties_pb2.NamedDevice(name=_HOST)
    host.properties.type, host.properties.num_cores = "CPU", 16
    options = config_pb2.ConfigProto()
    options.graph_options.rewrite_options.min_graph_nodes = -1
    devices = cluster.Cluster(devices=[host, gpu])
    return tf_optimizer.OptimizeGraph(options, meta, cluster=devices, verbose=False)


@functools.cache
def _registered_kernels(operation: str) -> list[Any]:
    found = kernels.get_registered_kernels_for_op(operation).kernel
    return [kernel for kernel in found if kernel.device_type in ("GPU", "DEFAULT")]


def _kernel(node: Any) -> Any:
    """Returns the GPU kernel of a node, or ``None`` if it runs on the host."""
    if "CPU" in node.device:
        return None
    matching = [
        kernel for kernel in _registered_kernels(node.op) if _matches_constraints(kernel, node)
    ]
    return max(matching, key=lambda kernel: kernel.priority, default=None)


def _matches_constraints(kernel: Any, node: Any) -> bool:
    for constraint in kernel.constraint:
        value = node.attr[constraint.name]
        types = [value.type] if value.type else value.list.type
        if not set(types) <= set(constraint.allowed_values.list.type):
            return False
    return True


def _argument_names(node: Any, side: str) -> list[str]:
    """Returns the argument names of the inputs or outputs of a node, one per tensor."""
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
    if node.op == "Placeholder":  # a batch is in GPU memory
        return False
    if node.op == "Const":
        return bool(node.attr["dtype"].type == tf.int32)
    kernel = _kernel(node)
    return kernel is None or _argument_names(node, "output_arg")[number] in kernel.host_memory_arg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="base:256x128", help="SIZE:ROWSxLENGTH")
    size, _, shape = parser.parse_args().program.partition(":")
    rows, length = map(int, shape.split("x"))
    step, batch, _ = build_step("GPU", size, rows, length, jit_compile=False)
    print(count(tf.function(step, autograph=False).get_concrete_function(batch)))


if __name__ == "__main__":
    main()
