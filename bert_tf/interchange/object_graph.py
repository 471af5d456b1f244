"""A TensorFlow 2 checkpoint's object graph: what each variable is called, and belongs to.

A checkpoint's keys spell one path through the objects that were saved, whichever came first, so
that the same variable has other keys in other checkpoints. The graph beside them has each
variable's own name and every path to it. Source: tensorflow ``trackable_object_graph.proto``.
"""

from collections.abc import Collection
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
# A large BERT's with an optimizer has some ten thousand.
_MAX_SIZE = 500_000


class Variable(NamedTuple):
    """A variable of a model.

    Attributes:
        key: the tensor's name in the checkpoint.
        name: the variable's own name, ``bert/next_sentence/logits/kernel`` for example.
        attributes: of the names that were looked for, those under which the objects around it are
            held: its layer, the object which holds the layer, and one further up.
    """

    key: str
    name: str
    attributes: frozenset[str]


def read_variables(bundle: bundles.Bundle, attributes: Collection[str]) -> list[Variable]:
    """The variables of the checkpoint's models: what hangs on an optimizer is left out.

    Args:
        bundle: a checkpoint with ``KEY`` among its tensors.
        attributes: which names to look for around a variable.

    Returns:
        The variables in the order of the graph.

    Raises:
        ValueError: the graph cannot be read, or is larger than any model's.
    """
    graph: Any = TrackableObjectGraph()
    try:
        graph.ParseFromString(bundle.read_string(KEY))
    except DecodeError as error:
        raise ValueError(
            f"{bundle.prefix}: {KEY} is no object graph, the checkpoint is damaged ({error})."
        ) from error
    size = sum(1 + len(node.children) + len(node.attributes) for node in graph.nodes)
    if size > _MAX_SIZE:
        raise ValueError(
            f"{bundle.prefix}: {KEY} has {size:,} objects, names and values, expected at most "
            f"{_MAX_SIZE:,}: no BERT has as many."
        )
    around = _around(graph.nodes, attributes, bundle.prefix)
    return [
        Variable(attribute.checkpoint_key, attribute.full_name, around[node])
        for node in sorted(around)
        for attribute in graph.nodes[node].attributes
        if attribute.name == _VALUE and attribute.checkpoint_key in bundle.shapes
    ]


def _around(nodes: Any, wanted: Collection[str], prefix: str) -> dict[int, frozenset[str]]:
    """By object, from the root on: the wanted names of its holder, and of the levels above.

    Who writes the graph chooses who holds whom: the time grows with the graph's size alone.
    """
    waiting = [0] if nodes else []
    holders: dict[int, set[int]] = {node: set() for node in waiting}
    held_as: dict[int, frozenset[str]] = dict.fromkeys(waiting, frozenset())
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
                holders[child.node_id], held_as[child.node_id] = set(), frozenset()
                waiting.append(child.node_id)
            holders[child.node_id].add(holder)
            if child.local_name in wanted:
                held_as[child.node_id] |= {child.local_name}
    none: frozenset[str] = frozenset()
    found, level = dict.fromkeys(holders, none), held_as
    for _ in range(_LEVELS):
        level = {
            node: none.union(*(level[holder] for holder in above))
            for node, above in holders.items()
        }
        found = {node: names | level[node] for node, names in found.items()}
    return found
