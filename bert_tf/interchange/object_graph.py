"""A TensorFlow 2 checkpoint's object graph: what each variable is called, and belongs to.

A checkpoint's keys spell one path through the objects that were saved, whichever came first, so
that the same variable has other keys in other checkpoints. The graph beside them has each
variable's own name and every path to it. Source: tensorflow ``trackable_object_graph.proto``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from . import bundles

KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
# An optimizer holds a slot or two for each variable, under names that end like the variable's.
_OPTIMIZERS = ("optimizer", "_optimizer")
# From a variable up: its layer, the head that the layer is in, a list of heads.
_LEVELS = 3


class Variable(NamedTuple):
    """A variable of a model.

    Attributes:
        key: the tensor's name in the checkpoint.
        name: the variable's own name, ``bert/next_sentence/logits/kernel`` for example.
        attributes: under which names the objects around it hold each other: its layer's, that of
            the object which holds the layer, and one further up.
    """

    key: str
    name: str
    attributes: frozenset[str]


def read_variables(bundle: bundles.Bundle) -> list[Variable]:
    """The variables of the checkpoint's models: what hangs on an optimizer is left out.

    Args:
        bundle: a checkpoint with ``KEY`` among its tensors.

    Returns:
        The variables in the order of the graph.

    Raises:
        ValueError: the graph cannot be read.
    """
    graph: Any = TrackableObjectGraph()
    try:
        graph.ParseFromString(bundle.read_string(KEY))
    except DecodeError as error:
        raise ValueError(
            f"{bundle.prefix}: {KEY} is no object graph, the checkpoint is damaged ({error})."
        ) from error
    holders = _holders(graph.nodes, bundle.prefix)
    variables = []
    for node in sorted(holders):
        for attribute in graph.nodes[node].attributes:
            if attribute.name == _VALUE and attribute.checkpoint_key in bundle.shapes:
                names = _attributes(node, holders)
                variables.append(Variable(attribute.checkpoint_key, attribute.full_name, names))
    return variables


def _holders(nodes: Any, prefix: str) -> dict[int, list[tuple[int, str]]]:
    """By object, from the root on: the objects that hold it, each with the attribute's name."""
    waiting = [0] if nodes else []
    holders: dict[int, list[tuple[int, str]]] = {node: [] for node in waiting}
    while waiting:
        holder = waiting.pop()
        for child in nodes[holder].children:
            if not 0 <= child.node_id < len(nodes):
                raise ValueError(
                    f"{prefix}: {KEY} names the object {child.node_id} of {len(nodes)}, the "
                    "checkpoint is damaged."
                )
            if child.local_name in _OPTIMIZERS:
                continue
            if child.node_id not in holders:
                holders[child.node_id] = []
                waiting.append(child.node_id)
            holders[child.node_id].append((holder, child.local_name))
    return holders


def _attributes(node: int, holders: Mapping[int, list[tuple[int, str]]]) -> frozenset[str]:
    found: set[str] = set()
    level = {holder for holder, _ in holders[node]}
    for _ in range(_LEVELS):
        found.update(name for item in level for _, name in holders[item])
        level = {holder for item in level for holder, _ in holders[item]}
    return frozenset(found)
