#!/usr/bin/env bash
# tf.saved_model.save of TensorFlow 2.21.0 traces each tf.function of the saved object again, even if it was traced
# before with the same input signature: while saving, the policy for variables is part of the key of traced functions.
# A function that a signature also calls is then traced twice, and the file contains its graph twice. This doubles the
# time for functions that are slow to trace, such as a Keras model with many layers. A ConcreteFunction as attribute
# is saved as is.
#
# Guessed: a function with an input signature is traced once, and the file contains its graph once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0
TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python - <<'PY'
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

SPEC = [tf.TensorSpec([None, 4], tf.float32)]
traces = {"inner": 0, "outer": 0}


def inner(x):
    traces["inner"] += 1
    return tf.linalg.matmul(x, x, transpose_b=True)


inner = tf.function(inner, input_signature=SPEC)


def outer(x):
    traces["outer"] += 1
    return inner(x)


def graphs_with_a_product(as_attribute):
    traces.update(inner=0, outer=0)
    module = tf.Module()
    function = tf.function(outer, input_signature=SPEC)
    traced = function.get_concrete_function()
    module.attribute = function if as_attribute == "function" else traced
    tf.saved_model.save(module, as_attribute, signatures=traced)
    with open(f"{as_attribute}/saved_model.pb", "rb") as file:
        graph = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0].graph_def
    found = [each for each in graph.library.function if any(n.op == "MatMul" for n in each.node_def)]
    return dict(traces), len(found)


found = {name: graphs_with_a_product(name) for name in ("function", "concrete")}
print(tf.__version__, found)
assert found == {
    "function": ({"inner": 2, "outer": 2}, 2),
    "concrete": ({"inner": 0, "outer": 1}, 1),
}, found
PY
