"""The list of operations: what is in it exists, what exports use is in it, all else is refused."""

import importlib.util
import os

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from bert_tf.config import ACTIVATIONS
from bert_tf.modeling.activations import get_activation
from bert_tf.saved_models import operations


def write(folder, nodes=(), function_nodes=(), functions=()):
    """A SavedModel of these operations alone."""
    model = saved_model_pb2.SavedModel()
    graph = model.meta_graphs.add().graph_def
    for index, name in enumerate(nodes):
        graph.node.add(name=f"node_{index}", op=name)
    for name in functions:
        function = graph.library.function.add()
        function.signature.name = name
        for index, operation in enumerate(function_nodes):
            function.node_def.add(name=f"node_{index}", op=operation)
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    return str(folder)


def test_the_oldest_server(tmp_path, monkeypatch):
    folder = write(tmp_path, ["Const", "my_function"], ["MatMul", "my_function"], ["my_function"])
    assert operations.check_operations(folder) == "2.12"
    # As numbers: 2.9 comes before 2.14.
    monkeypatch.setitem(operations.OLDEST_SERVING, "Const", "2.9")
    monkeypatch.setitem(operations.OLDEST_SERVING, "MatMul", "2.14")
    assert operations.check_operations(folder) == "2.14"


@pytest.mark.parametrize("where", ["nodes", "function_nodes"])
def test_an_operation_outside_the_list(tmp_path, where):
    folder = write(tmp_path, functions=["f"], **{where: ["MatMul", "TFText>RoundRobinTrim"]})
    with pytest.raises(ValueError) as caught:
        operations.check_operations(folder)
    assert str(caught.value) == (
        "The export uses TFText>RoundRobinTrim, and whether TensorFlow Serving has it is not "
        "known: use operations of the list in bert_tf.saved_models.operations instead, or add it "
        "there with the oldest TensorFlow Serving that has it."
    )
    with pytest.raises(ValueError, match="The export uses EagerPyFunc, PyFunc, and .* has them is"):
        operations.oldest_serving(["PyFunc", "Add", "EagerPyFunc"])


# === Before a stranger's export is loaded ===


def saved(folder, **functions):
    """A SavedModel of TensorFlow 2 that answers with each of some functions of a text."""
    module = tf.Module()
    module.weight = tf.Variable([1.0])
    spec = tf.TensorSpec([], tf.string, name="text")
    signatures = {
        name: tf.function(function).get_concrete_function(spec)
        for name, function in functions.items()
    }
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return str(folder)


def edited(folder, edit):
    """Changes the graph of a SavedModel."""
    path = os.path.join(folder, "saved_model.pb")
    with open(path, "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    edit(model.meta_graphs[0])
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def functions_of(graph):
    """The name of the function that writes checkpoints, and another function."""
    library = graph.graph_def.library.function
    writes = [any(node.op == "SaveV2" for node in function.node_def) for function in library]
    return library[writes.index(True)].signature.name, library[writes.index(False)]


def call(graph):
    saver, other = functions_of(graph)
    other.node_def.add(name="n", op="PartitionedCall").attr["f"].func.name = saver


def branch(graph):
    saver, other = functions_of(graph)
    other.node_def.add(name="n", op="StatelessIf").attr["then_branch"].func.name = saver


def as_operation(graph):
    graph.graph_def.library.function[0].node_def.add(name="n", op=functions_of(graph)[0])


def as_object(graph):
    function = graph.object_graph_def.nodes.add().bare_concrete_function
    function.concrete_function_name = functions_of(graph)[0]


def as_gradient(graph):
    saver, _ = functions_of(graph)
    graph.graph_def.library.gradient.add(function_name="f", gradient_func=saver)


def twice(graph):
    saver, _ = functions_of(graph)
    node = next(node for node in graph.graph_def.node if node.attr["f"].func.name == saver)
    graph.graph_def.node.add().CopyFrom(node)


def in_the_graph(graph):
    graph.graph_def.node.add(name="mine", op="SaveV2")


def refused(folder):
    with pytest.raises(ValueError) as caught:
        operations.check_loadable(folder)
    return str(caught.value).replace(folder, "DIR")


def write_file(text):
    tf.io.write_file(text, "written")
    return {"a": text}


def in_a_branch(text):
    nested = tf.function(lambda: tf.io.read_file(text))
    return {"a": tf.cond(tf.strings.length(text) > 1, nested, lambda: text)}


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (write_file, "WriteFile"),
        (in_a_branch, "ReadFile"),
        (lambda text: {"a": tf.io.matching_files(text)}, "MatchingFiles"),
        (lambda text: {"a": tf.py_function(lambda: 1, [], tf.int32)}, "EagerPyFunc"),
    ],
)
def test_a_strangers_operations_are_not_loaded(tmp_path, function, operation):
    assert refused(saved(tmp_path, f=function)) == (
        f"DIR/saved_model.pb is not loaded, because its graph uses {operation}: expected the "
        "operations of an export alone, of this version of the library or an older one."
    )


@pytest.mark.parametrize(
    "edit", [call, branch, as_operation, as_object, as_gradient, twice, in_the_graph]
)
def test_the_saver_is_the_graphs_alone(tmp_path, edit):
    """A checkpoint is a file that is written where a stranger's graph says."""
    folder = saved(tmp_path, f=lambda text: {"a": tf.strings.length(text)})
    operations.check_loadable(folder)
    edited(folder, edit)
    name = "mine" if edit is in_the_graph else "__inference__traced_save_"
    assert f"because {name}" in refused(folder)


def test_a_strangers_checkpoint_is_not_read(tmp_path):
    def restore(text):
        dtypes = [tf.float32]
        (value,) = tf.raw_ops.RestoreV2(
            prefix=text, tensor_names=["a"], shape_and_slices=[""], dtypes=dtypes
        )
        return {"a": value}

    sentence = refused(saved(tmp_path, f=restore))
    assert sentence.startswith("DIR/saved_model.pb is not loaded, because __inference_")
    assert sentence.endswith(
        "would read or write files: expected MergeV2Checkpoints and RestoreV2 and SaveV2 in the "
        "functions of the saver alone."
    )


def test_what_is_no_graph_of_tensorflow_2(tmp_path, monkeypatch):
    write(tmp_path, ["Const"])
    assert refused(str(tmp_path)) == (
        "DIR/saved_model.pb: expected one graph with its objects, as TensorFlow 2 saves it."
    )
    (tmp_path / "saved_model.pb").write_bytes(b"no graph")
    assert refused(str(tmp_path)).startswith("DIR/saved_model.pb is damaged: ")
    monkeypatch.setattr(operations, "_MAX_GRAPH_BYTES", 7)
    assert refused(str(tmp_path)) == (
        "DIR/saved_model.pb: expected the graph of an export, of at most 7 bytes."
    )


def test_every_name_is_an_operation():
    root = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
    for library in operations.TEXT_LIBRARIES.values():
        tf.load_op_library(os.path.join(root, "python", "ops", library))
    assert [name for name in operations.OLDEST_SERVING if not op_def_registry.get(name)] == []
    assert op_def_registry.get("NoSuchOperation") is None
    assert operations.TEXT_LIBRARIES.keys() <= operations.OLDEST_SERVING.keys()


def test_activations_are_of_the_list():
    @tf.function(input_signature=[tf.TensorSpec([None, 4])], autograph=False)
    def every(x):
        return [get_activation(name)(x, training) for name in ACTIVATIONS for training in (0, 1)]

    nodes = every.get_concrete_function().graph.as_graph_def().node
    assert operations.oldest_serving(node.op for node in nodes)
