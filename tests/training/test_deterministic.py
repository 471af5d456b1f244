"""--deterministic: a step of operations that repeat on a GPU, and a loop that runs with them."""

import pytest

from tests.anew import run_python

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
from bert_tf.training import optimizers
from tests.training.conftest import batches_dataset, bert
from tests.training.test_compilation import graphs_of

tf.config.experimental.enable_op_determinism()
model = bert()
optimizer = optimizers.create_optimizer("adam", 1e-2, model.trainable_variables)
loop = PretrainingLoop(
    model, optimizer, tf.distribute.get_strategy(), seed=0, device_type="GPU",
    gradient_accumulation_steps=2, measures_waits=False,
)
iterator = loop.distribute(batches_dataset(3))
result = loop.make(iterator, 3)
graph = loop._make.get_concrete_function(iterator, tf.constant(3)).graph
types = {operation.type for inner in graphs_of(graph) for operation in inner.get_operations()}
print("TYPES", *sorted(types))
print("WAITED", result.waited is not None)
"""


@pytest.mark.slow
def test_the_steps_operations_repeat_on_a_gpu():
    done = run_python(PROGRAM, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert len(found["TYPES"]) > 30
    assert not REFUSED & set(found["TYPES"])
    assert found["WAITED"] == ["False"]
