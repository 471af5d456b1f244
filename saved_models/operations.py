"""The operations that an export may use, and the oldest TensorFlow Serving that has them all.

TensorFlow Serving has the operations of the TensorFlow of its own version, and those of a
tensorflow_text that is often older: 2.12.1 in its releases 2.12 to 2.19, and 2.20.0 since then. An
operation is in the list below when exports of the library's models use it; since when it is there
was asked of the registries of TensorFlow 2.12.1 with tensorflow-text 2.12.1 and of TensorFlow
2.14.1 with tensorflow-text 2.14.0, which also answer the exports' samples. Nothing older was asked:
TensorFlow Serving 2.11 has no ``FastBertNormalize``
(https://github.com/tensorflow/serving/issues/2064).
"""

import os
from collections.abc import Iterable

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.untrusted import listed, reason

# What BERT-large's exports have is a tenth of this.
_MAX_GRAPH_BYTES = 128 << 20
_OF_FILES = {"MergeV2Checkpoints", "RestoreV2", "SaveV2"}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")

# Those whose kernels are in tensorflow_text, by the library of its wheel that has them: a program
# that runs an export loads them beforehand. TensorFlow Serving has them built in.
TEXT_LIBRARIES = {
    "FastBertNormalize": "_fast_bert_normalizer.so",
    "FastWordpieceTokenizeWithOffsets": "_fast_wordpiece_tokenizer.so",
}

# By the oldest TensorFlow Serving that has them.
_NAMES = {
    "2.12": """
        Add AddN AddV2 All Any ArgMax AsString Assert AssignVariableOp BatchMatMulV2 BiasAdd Bitcast
        BitwiseAnd BroadcastTo Cast ConcatV2 Const Cumsum DenseBincount DisableCopyOnRead DivNoNan
        EmptyTensorList EnsureShape Equal Erf Exp ExpandDims Fill FloorDiv FloorMod GatherNd
        GatherV2 Greater GreaterEqual Identity IdentityN If Less LessEqual LogicalAnd LogicalNot
        LogicalOr MatMul Max Maximum Mean MergeV2Checkpoints Minimum Mul Neg NoOp NotEqual OnesLike
        Pack Pad PadV2 ParseExampleV2 PartitionedCall Placeholder Prod RaggedGather RaggedRange
        RaggedTensorToTensor Range ReadVariableOp RealDiv Relu Reshape RestoreV2 ReverseV2 Rsqrt
        SaveV2 Select SelectV2 Shape ShardedFilename Sigmoid Size Softmax Split Square Squeeze
        StatefulPartitionedCall StatelessIf StatelessRandomGetKeyCounter StatelessRandomUniformIntV2
        StatelessWhile StaticRegexFullMatch StaticRegexReplace StopGradient StridedSlice StringJoin
        StringLength StringSplitV2 Sub Substr Sum Tanh TensorListConcatV2 TensorListFromTensor
        TensorListGetItem TensorListPushBack TensorListReserve TensorListSetItem TensorListStack
        TensorScatterUpdate Tile TopKV2 Transpose UnicodeDecodeWithOffsets UnicodeEncode
        UnicodeTranscode Unique Unpack UnsortedSegmentJoin UnsortedSegmentMin UnsortedSegmentSum
        UpperBound VarHandleOp Where While ZerosLike
        FastBertNormalize FastWordpieceTokenizeWithOffsets
    """
}
OLDEST_SERVING = {name: version for version, names in _NAMES.items() for name in names.split()}


def check_operations(saved_model_dir: str) -> str:
    """The oldest TensorFlow Serving, such as "2.12", that has every operation of a SavedModel."""
    path = os.path.join(saved_model_dir, "saved_model.pb")
    with tf.io.gfile.GFile(path, "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    return oldest_serving(used_operations(model))


def used_operations(model: saved_model_pb2.SavedModel) -> set[str]:
    """The operations in a SavedModel's graphs and in all their functions, called or not."""
    used = set()
    for meta_graph in model.meta_graphs:
        functions = meta_graph.graph_def.library.function
        used |= {node.op for node in meta_graph.graph_def.node}
        used |= {node.op for function in functions for node in function.node_def}
        # A node may name a function as its operation, and so call it.
        used -= {function.signature.name for function in functions}
    return used


def check_loadable(saved_model_dir: str) -> None:
    """Checks that loading and asking a SavedModel runs no operation that an export does not have.

    So nothing of a stranger's writes a file, opens a connection or runs code. What reads and writes
    checkpoints may be in the saver's functions alone, which the graph's own two nodes name, and
    which no signature, no other function and no object can reach.
    """
    path = os.path.join(saved_model_dir, "saved_model.pb")
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(_MAX_GRAPH_BYTES + 1)
    if len(content) > _MAX_GRAPH_BYTES:
        raise ValueError(
            f"{path}: expected the graph of an export, of at most {_MAX_GRAPH_BYTES:,} bytes."
        )
    try:
        model = saved_model_pb2.SavedModel.FromString(content)
    except DecodeError as error:
        raise ValueError(f"{path} is damaged: {reason(error)}.") from error
    if len(model.meta_graphs) != 1 or not model.meta_graphs[0].HasField("object_graph_def"):
        raise ValueError(f"{path}: expected one graph with its objects, as TensorFlow 2 saves it.")
    unknown = sorted(used_operations(model) - OLDEST_SERVING.keys())
    if unknown:
        raise ValueError(
            f"{path} is not loaded, because its graph uses {listed(unknown)}: expected the "
            "operations of an export alone, of this version of the library or an older one."
        )
    graph = model.meta_graphs[0].graph_def
    outside = [node.name for node in graph.node if node.op in _OF_FILES]
    savers = [
        function.signature.name
        for function in graph.library.function
        if any(node.op in _OF_FILES for node in function.node_def)
    ]
    called = [node.attr["f"].func.name for node in graph.node if node.op in _CALLS]
    for name in savers:
        # Wherever in the file the function is named, its bytes are there: twice is its own name and
        # the one call of it.
        if called.count(name) != 1 or content.count(name.encode()) != 2:
            outside.append(name)
    if outside:
        raise ValueError(
            f"{path} is not loaded, because {listed(outside)} would read or write files: expected "
            f"{' and '.join(sorted(_OF_FILES))} in the functions of the saver alone."
        )


def oldest_serving(operations: Iterable[str]) -> str:
    """The oldest TensorFlow Serving that has all of some operations, at least one."""
    operations = set(operations)
    unknown = sorted(operations - OLDEST_SERVING.keys())
    if unknown:
        them = "it" if len(unknown) == 1 else "them"
        raise ValueError(
            f"The export uses {', '.join(unknown)}, and whether TensorFlow Serving has {them} is "
            "not known: use operations of the list in bert_tf.saved_models.operations instead, or "
            f"add {them} there with the oldest TensorFlow Serving that has {them}."
        )
    versions = {OLDEST_SERVING[name] for name in operations}
    return max(versions, key=lambda version: tuple(map(int, version.split("."))))
