"""The variables of an object graph are those of the models, each under its own name."""

import time

import keras
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_tf.interchange import bundles, object_graph


def save_graph(path, graph, key="a/.ATTRIBUTES/VARIABLE_VALUE"):
    """A checkpoint of one tensor and a graph, an object or bytes."""
    content = graph if isinstance(graph, bytes) else graph.SerializeToString()
    tf.raw_ops.SaveV2(
        prefix=str(path / "ckpt"),
        tensor_names=[key, object_graph.KEY],
        shape_and_slices=["", ""],
        tensors=[tf.zeros(3), tf.constant(content)],
    )
    return bundles.Bundle(str(path / "ckpt"))


def test_variables_and_what_holds_them(tmp_path):
    """A shared variable has one key; an optimizer's variables are left out, like its name says."""
    kernel, bias = tf.Variable([1.0], name="head/logits/kernel"), tf.Variable([2.0], name="b")
    head, model, root = tf.Module(), tf.Module(), tf.train.Checkpoint()
    head.out_proj = tf.Module()
    head.out_proj.kernel = kernel
    model.heads = [head]
    model.bias = bias
    root.model = model
    root.shared = tf.Module()
    root.shared.item = bias
    root.optimizer = tf.Module()
    root.optimizer.slot = tf.Variable([3.0], name="m/head/logits/kernel")
    root.optimizer.of = bias
    prefix = root.write(str(tmp_path / "ckpt"))
    wanted = {"out_proj", "heads", "model", "shared"}
    found = {v.name: v for v in object_graph.read_variables(bundles.Bundle(prefix), wanted)}
    assert set(found) == {"head/logits/kernel", "b"}
    assert found["head/logits/kernel"].attributes == {"out_proj", "heads"}
    assert found["b"].attributes == {"model", "shared"}
    stored = tf.train.load_checkpoint(prefix)
    for name, value in (("head/logits/kernel", 1.0), ("b", 2.0)):
        assert stored.get_tensor(found[name].key) == [value]


def test_what_keras_has_no_names_for_is_read_as_well(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    model.build((None, 3))
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    assert len(object_graph.read_variables(bundles.Bundle(prefix), ())) == 2


def test_a_graph_that_runs_in_a_circle_ends(tmp_path):
    graph = TrackableObjectGraph()
    for number in range(2):
        node = graph.nodes.add()
        node.children.add(node_id=1 - number, local_name="other")
        node.children.add(node_id=number, local_name="self")
    graph.nodes[1].attributes.add(
        name="VARIABLE_VALUE", full_name="a", checkpoint_key="a/.ATTRIBUTES/VARIABLE_VALUE"
    )
    bundle = save_graph(tmp_path, graph)
    (variable,) = object_graph.read_variables(bundle, {"other", "self"})
    assert (variable.name, variable.attributes) == ("a", {"other", "self"})


def test_a_variable_that_is_not_stored_is_none(tmp_path):
    graph = TrackableObjectGraph()
    graph.nodes.add().attributes.add(name="VARIABLE_VALUE", full_name="a", checkpoint_key="b")
    assert object_graph.read_variables(save_graph(tmp_path, graph), ()) == []
    assert object_graph.read_variables(save_graph(tmp_path, b""), ()) == []


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"\x0a\x05abc"])
def test_a_damaged_graph_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match=r"ckpt: _CHECKPOINTABLE_OBJECT_GRAPH is no object graph,"):
        object_graph.read_variables(save_graph(tmp_path, content), ())


def test_a_graph_of_numbers_is_refused(tmp_path):
    bundle = save_graph(tmp_path, b"", key="other")
    prefix = str(tmp_path / "second")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[object_graph.KEY],
        shape_and_slices=[""],
        tensors=[tf.zeros(3)],
    )
    bundle = bundles.Bundle(prefix)
    with pytest.raises(
        ValueError,
        match=r"second: _CHECKPOINTABLE_OBJECT_GRAPH is float32 \(3,\), expected one str",
    ):
        object_graph.read_variables(bundle, ())


@pytest.mark.parametrize("number", [2, -1])
def test_a_child_beyond_the_graph_is_refused(tmp_path, number):
    graph = TrackableObjectGraph()
    graph.nodes.add().children.add(node_id=number, local_name="a")
    graph.nodes.add()
    with pytest.raises(ValueError, match=rf"names the object {number} of 2, the checkpoint is dam"):
        object_graph.read_variables(save_graph(tmp_path, graph), ())


def test_a_graph_in_which_everything_holds_everything_takes_no_time(tmp_path):
    """The time grew with the cube of the objects: 1,500 took minutes."""
    node = TrackableObjectGraph.TrackableObject()
    node.attributes.add(name="VARIABLE_VALUE", full_name="a", checkpoint_key="a")
    for number in range(350):
        node.children.add(node_id=number, local_name=f"{number % 9}")
    bundle = save_graph(tmp_path, TrackableObjectGraph(nodes=[node] * 350), key="a")
    begin = time.process_time()
    variables = object_graph.read_variables(bundle, {"7", "8"})
    assert time.process_time() - begin < 3
    assert [variable.attributes for variable in variables] == [{"7", "8"}] * 350


def test_a_graph_larger_than_any_models_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(object_graph, "_MAX_SIZE", 3)
    graph = TrackableObjectGraph()
    graph.nodes.add().children.add(node_id=1, local_name="a")
    graph.nodes.add().attributes.add(name="VARIABLE_VALUE")
    with pytest.raises(
        ValueError, match=r"GRAPH has 4 objects, names and values, expected at most"
    ):
        object_graph.read_variables(save_graph(tmp_path, graph), ())
