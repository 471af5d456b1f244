"""--deterministic: a step of operations that repeat on a GPU, and a loop that runs with them."""

import subprocess
import sys

import pytest

# What TensorFlow 2.21 says of itself with ``enable_op_determinism``: a clock and random operations
# without a seed are refused on every device, the losses, counts and sparse products on a GPU; what
# scatters runs on the CPU, with a copy of its operand there and back.
REFUSED = {
    "Timestamp", "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal",
    "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
    "Bincount", "DenseBincount", "SparseTensorDenseMatMul",
    "ScatterNd", "TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate",
    "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate", "ResourceScatterNdAdd",
}  # fmt: skip

# Determinism is a process' setting, which cannot be taken back by its public names.
PROGRAM = """
import tensorflow as tf
from bert_tf.pretraining.objective import PretrainingLoop
from tests.training.conftest import batches_dataset
from tests.training.test_two_replicas import bert
from bert_tf.training import optimizers

tf.config.experimental.enable_op_determinism()
model = bert()
optimizer = optimizers.create_optimizer("adam", 1e-2, model.trainable_variables)
loop = PretrainingLoop(
    model, optimizer, tf.distribute.get_strategy(), seed=0, device_type="GPU",
    gradient_accumulation_steps=2, measures_waits=False,
)
iterator = loop.distribute(batches_dataset(3))
result = loop.make(iterator, 3)

def graphs_of(graph):
    yield graph
    for function in graph._functions.values():
        if getattr(function, "graph", None) is not None:
            yield from graphs_of(function.graph)

graph = loop._make.get_concrete_function(iterator, tf.constant(3)).graph
types = {operation.type for inner in graphs_of(graph) for operation in inner.get_operations()}
print("TYPES", *sorted(types))
print("WAITED", result.waited is not None)
"""


@pytest.mark.slow
def test_the_steps_operations_repeat_on_a_gpu():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert len(found["TYPES"]) > 30
    assert not REFUSED & set(found["TYPES"])
    assert found["WAITED"] == ["False"]
