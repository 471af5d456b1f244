"""Exports use only operations of TensorFlow Serving 2.14, including tensorflow_text.

TensorFlow 2.14, of 2023, also returns the recorded answers of exports. It is installed in a
separate environment with Python 3.11, the last supported version: once per run, or permanently in
the directory that ``BERT_TF_OLD_TENSORFLOW`` specifies.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.config import ACTIVATIONS
from bert_tf.modeling.layers import get_activation
from bert_tf.saved_models import verification

from .head_exports import HEADS, TOLERANCES, exported, heads

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
def test_export_operations_are_supported_by_the_server(name, tmp_path_factory):
    content = (pathlib.Path(exported(name, tmp_path_factory)) / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    used = {node.op for node in nodes} - {function.signature.name for function in functions}
    assert used and used <= set(OPERATIONS), used - set(OPERATIONS)


def test_activation_operations_are_supported_by_the_server():
    @tf.function(input_signature=[tf.TensorSpec([None, 4])], autograph=False)
    def all_activations(x):
        return [get_activation(name)(x, training) for name in ACTIVATIONS for training in (0, 1)]

    nodes = all_activations.get_concrete_function().graph.as_graph_def().node
    assert {node.op for node in nodes} <= set(OPERATIONS)


# === TensorFlow 2.14 ===

PACKAGE = "tensorflow-text==2.14.0"  # depends on TensorFlow 2.14.1
PRINT_MISSING = """
import importlib.util, glob, json, os, sys
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

root = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
for library in glob.glob(os.path.join(root, "python", "ops", "*.so")):
    tf.load_op_library(library)
print(json.dumps([name for name in sys.argv[1:] if op_def_registry.get(name) is None]))
"""


def _slow_and_exhaustive(test):
    return pytest.mark.slow(pytest.mark.exhaustive(test))


@pytest.fixture(scope="module")
def old_python(tmp_path_factory):
    """Path of the Python interpreter of an environment with TensorFlow 2.14."""
    base = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")
    if base is None:
        pytest.skip("TensorFlow 2.14 needs Python 3.11, and python3.11 is not on the PATH")
    permanent = os.environ.get("BERT_TF_OLD_TENSORFLOW")
    folder = pathlib.Path(permanent) if permanent else tmp_path_factory.mktemp("tensorflow_2_14")
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", PACKAGE]
        installed = subprocess.run(pip, capture_output=True, text=True)
        if installed.returncode:
            last_line = (installed.stderr.strip().splitlines() or ["nothing"])[-1]
            pytest.skip(f"pip could not install {PACKAGE}: {last_line}")
        done.touch()
    return str(python)


@_slow_and_exhaustive
@pytest.mark.parametrize(
    "name",
    # A few heads are enough, because the next test checks all operations.
    heads("pretrainer", "span_predictor", "bfloat16"),
)
def test_old_tensorflow_returns_recorded_answers(old_python, tmp_path_factory, name):
    export = exported(name, tmp_path_factory)
    tolerance = TOLERANCES.get(name, 1e-4)
    found = verification.verify(export, python=old_python, tolerance=tolerance)
    assert found.tensorflow == "2.14.1" and found.tensorflow_text == "2.14.0"
    assert found.problems == ()


@_slow_and_exhaustive
def test_old_tensorflow_has_all_operations(old_python):
    command = [old_python, "-I", "-c", PRINT_MISSING, *OPERATIONS, "NoSuchOperation"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == '["NoSuchOperation"]', done.stderr
