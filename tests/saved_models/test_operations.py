"""Exports have operations that TensorFlow Serving 2.14 has: its TensorFlow, and tensorflow_text.

Since when an operation is there was asked of the registries of TensorFlow 2.14.1 with
tensorflow-text 2.14.0, which ``test_old_tensorflow`` asks again.
"""

import pathlib

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.config import ACTIVATIONS
from bert_tf.modeling.layers import get_activation

from .head_exports import HEADS, exported

_NAMES = """
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
OPERATIONS = _NAMES.split()


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_every_operation_of_an_export_is_in_the_server(name, tmp_path_factory):
    content = (pathlib.Path(exported(name, tmp_path_factory)) / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    used = {node.op for node in nodes} - {function.signature.name for function in functions}
    assert used and used <= set(OPERATIONS), used - set(OPERATIONS)


def test_activations_are_in_the_server():
    @tf.function(input_signature=[tf.TensorSpec([None, 4])], autograph=False)
    def every(x):
        return [get_activation(name)(x, training) for name in ACTIVATIONS for training in (0, 1)]

    nodes = every.get_concrete_function().graph.as_graph_def().node
    assert {node.op for node in nodes} <= set(OPERATIONS)
