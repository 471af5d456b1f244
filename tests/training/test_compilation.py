"""The step as XLA compiles it for a GPU or a TPU: masks, gradient norm and array shapes."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from keras.random import SeedGenerator

import bert_tf
from benchmarks import host_copies
from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.layers import Dropout, StepPlan, draw_in_pairs, step_plan_scope
from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.training import compilation, optimizers
from bert_tf.training.compilation import (
    COUNTED,
    DRAWN,
    HASHED,
    Compilation,
    draw_by_counter,
    draw_by_hash,
)
from tests.processes import run_python

from .conftest import batches_dataset, bert, make_loop, random_batch

LARGE = 1_000_000
LANES = 128  # A TPU pads the last dimension of an array to a multiple of this.
ROWS, LENGTH, PREDICTIONS = 32, 512, 76


@functools.cache
def get_traced_step():
    """Returns the graph of a step with one block of 128 units and the shapes of larger models."""
    config = BertConfig.from_preset("bert-tiny", num_hidden_layers=1)
    model = BertPretrainer(config, dtype="mixed_bfloat16")
    optimizer = optimizers.create_optimizer("adam", 1e-4, model.trainable_variables)
    strategy = tf.distribute.get_strategy()
    step = PretrainingLoop(model, optimizer, strategy, seed=0, device_type="TPU").replica_step
    shapes = {"S": LENGTH, "P": PREDICTIONS, "B": ROWS}
    spec = {
        key: tf.TensorSpec([shapes[letter] for letter in feature.dimensions], feature.dtype)
        for key, feature in features.PRETRAINING_FEATURES.items()
    }
    spec[features.CURSOR] = tf.TensorSpec([ROWS, 4], tf.int32)
    return tf.function(step, autograph=False).get_concrete_function(spec).graph


def all_graphs(graph):
    yield graph
    for function in graph._functions.values():
        inner = getattr(function, "graph", None)
        if inner is not None:
            yield from all_graphs(inner)


def padded(graph):
    """Returns the large tensors that are padded more than twofold, and the total count."""
    found, count = {}, 0
    for inner in all_graphs(graph):
        for operation in inner.get_operations():
            for tensor in operation.outputs:
                count += 1
                size, width = tensor.shape.num_elements(), (tensor.shape or [1])[-1:]
                if tensor.dtype != tf.resource and size > LARGE and 2 * width[0] < LANES:
                    found[tensor.name] = tensor.shape.as_list()
    return found, count


def test_large_arrays_are_padded_at_most_twofold():
    found, count = padded(get_traced_step())
    assert count > 500
    assert not found
    # CPU random ops keep words in rows of one and halves of words in rows of two.
    shape, seeds = (ROWS, 2, LENGTH, LENGTH), SeedGenerator(3)
    draw = tf.function(lambda: draw_in_pairs(shape, seeds)(9), autograph=False)
    found, _ = padded(draw.get_concrete_function().graph)
    assert {tuple(shape[1:]) for shape in found.values()} >= {(1,), (2,)}


def test_step_has_static_shapes_and_tpu_operations():
    kinds = {"NonZero", "Where", "Unique", "UniqueV2", "BooleanMask"}
    for graph in all_graphs(get_traced_step()):
        for operation in graph.get_operations():
            assert operation.type not in kinds and "String" not in operation.type, operation.name
            assert "Py" not in operation.type and "Scatter" not in operation.type, operation.name
            for tensor in operation.outputs:
                assert tensor.dtype != tf.string, tensor.name
                assert tensor.dtype == tf.resource or tensor.shape.is_fully_defined(), tensor.name


# === Hashed masks ===


def lowbias32(word):
    """Returns Wellons' lowbias32 of a Python integer."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word = (word ^ (word >> shift)) * factor % 2**32
    return word ^ (word >> 16)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_mask_is_hash_of_positions_and_seed(jit_compile):
    shape, first, second = (3, 2, 5), 2**32 - 7, 123_456_789  # positions exceed the largest word
    seeds = SeedGenerator(3)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def drawn(state):
        seeds.state.assign(state)
        return draw_by_hash(shape, seeds)(20_000), draw_by_hash(shape, seeds)(20_000)

    masks = drawn(tf.constant([first, second], tf.int64))
    for number, mask in enumerate(masks):
        words = [lowbias32(lowbias32((first + position) % 2**32) ^ (second + number))
                 for position in range(30)]  # fmt: skip
        expected = np.reshape(np.array(words) >= 20_000 << 16, shape)
        np.testing.assert_array_equal(mask, expected)
    assert (masks[0].numpy() != masks[1].numpy()).any()


def test_mask_without_xla_uses_philox():
    """Each word yields two elements; the last of an odd number takes half a word."""
    seeds, shape = SeedGenerator(3), (3, 5)
    generator = tf.random.Generator.from_key_counter(0x9E3779B97F4A7C15, [11, 7], "philox")
    words = generator.uniform_full_int([8], tf.uint32).numpy()
    halves = np.stack([words & 0xFFFF, words >> 16], axis=1).reshape(-1)
    seeds.state.assign([11, 7])
    drawn = draw_by_counter(shape, seeds)(20_000)
    np.testing.assert_array_equal(drawn, halves[:15].reshape(shape) >= 20_000)
    assert (draw_by_counter(shape, seeds)(20_000).numpy() != drawn.numpy()).any()


@pytest.mark.parametrize(("seeds_of", "draw"), [HASHED[1:], COUNTED[1:]])
def test_masks_match_dropout_rate_without_patterns(seeds_of, draw):
    """Checks rates, neighbors, axes and adjacent seeds, in standard errors of n draws."""
    shape, dropped = (16, 4, 64, 64), 6554
    keys = [seeds_of(7, *numbers, 1)[0] for numbers in ((0, 0, 0), (1, 0, 0), (0, 1, 0))]
    keys += [keys[0] + tf.constant([0, 1], tf.int64)]  # the next dropout layer of the same step
    masks = []
    for key in keys:
        seeds = SeedGenerator(3)
        seeds.state.assign(key)
        masks.append(draw(shape, seeds)(dropped).numpy().astype(float))
    rate = 1 - dropped / 65536
    spread = rate * (1 - rate)
    signed = [(mask - rate).ravel() for mask in masks]
    size = len(signed[0])
    errors = [each.mean() / np.sqrt(spread / size) for each in signed]
    errors += [
        np.mean(one * other) / spread * np.sqrt(size)
        for number, one in enumerate(signed)
        for other in signed[:number]
    ]
    errors += [
        np.mean(signed[0][:-lag] * signed[0][lag:]) / spread * np.sqrt(size - lag)
        for lag in (1, 2, 3, 16, 63, 64, 65, 4096, 16384)
    ]
    assert len(errors) == 19 and np.abs(errors).max() < 4
    for axis in range(4):
        others = tuple(each for each in range(4) if each != axis)
        means = masks[0].mean(axis=others)
        chi_square = np.sum((means - rate) ** 2) / (spread * len(means) / size)
        assert abs(chi_square - len(means)) < 5 * np.sqrt(2 * len(means))


@pytest.mark.parametrize("masks", [HASHED, COUNTED, DRAWN])
def test_bfloat16_mean_is_unbiased(masks):
    seeds, count = SeedGenerator(3), 1 << 21
    seeds.state.assign(masks.seeds(7, 0, 0, 0, 1)[0])
    layer = Dropout(0.1, seeds, dtype="bfloat16")
    with step_plan_scope(StepPlan(masks.draw)):
        y = tf.cast(layer(tf.ones([count]), training=True), tf.float64)
    assert abs(np.mean(y) - 1) < 4 * np.sqrt(1 / 9 / count) < 0.00157  # with a rounded scale


@pytest.mark.parametrize("seeds_of", [HASHED.seeds, COUNTED.seeds])
def test_seeds_depend_on_every_argument(seeds_of):
    points = [(7, 0, 0, 0), (8, 0, 0, 0), (7 + 2**32, 0, 0, 0), (7, 1, 0, 0), (7, 0, 1, 0),
              (7, 0, 0, 1)]  # fmt: skip
    seeds = [seeds_of(*point, 3).numpy() for point in points]
    assert len({tuple(row) for each in seeds for row in each}) == 3 * len(points)
    np.testing.assert_array_equal(seeds[3], seeds_of(7, tf.constant(1, tf.int64), 0, 0, 3))


@pytest.mark.parametrize(
    "device_type, jit_compile, draw",
    [("CPU", False, draw_in_pairs), ("CPU", True, draw_in_pairs), ("GPU", False, draw_by_counter),
     ("GPU", True, draw_by_hash), ("TPU", False, draw_by_hash)],
)  # fmt: skip
def test_device_determines_mask_generator(device_type, jit_compile, draw):
    loop = make_loop(bert(), device_type=device_type, jit_compile=jit_compile)
    assert loop.compilation.plan.draw == draw
    assert loop.compilation == Compilation(device_type, jit_compile)


# === The step ===


def reduced_gradients(loop):
    """The gradients and sums of a loop's step, computed by XLA if the loop is compiled."""
    uses_xla = loop.compilation.uses_xla
    return tf.function(loop.replica_step.reduce, jit_compile=uses_xla, autograph=False)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_and_norm_equal_tensorflow_kernels(causal, monkeypatch):
    """Layer normalization keeps its sums, and one norm is computed over all gradients.

    On a GPU, rows are ordered differently, and queries, keys and values have separate products.
    Without XLA, all gradients are also clipped together.
    """
    monkeypatch.setattr(compilation, "MIN_ELEMENTS", 1)
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}
    found = []
    every = ({"device_type": "GPU", "jit_compile": True}, {"device_type": "TPU"},
             {"device_type": "GPU"}, {})  # fmt: skip
    for options in every:
        loop = make_loop(bert(causal=causal), clip_norm=0.5, **options)
        loop.model.encoder.trains_without_padding = False
        gradients, (sums, norm, _) = reduced_gradients(loop)(batch)
        found.append([*gradients, sums / 100.0, norm])
    for *ours, theirs in zip(*found, strict=True):
        for value in ours:
            np.testing.assert_allclose(value, theirs, rtol=2e-4, atol=2e-6)
    assert found[0][-1] > 1.0


@pytest.mark.parametrize("device_type", ["GPU", "TPU"])
def test_operation_counts_of_large_blocks(device_type, monkeypatch):
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}

    def counts(min_elements, quantized=None):
        """Counts products as wide as queries, keys and values together; softmaxes; GELUs."""
        monkeypatch.setattr(compilation, "MIN_ELEMENTS", min_elements)
        model = bert()
        (block,) = model.encoder.blocks
        if quantized:
            quantized(block).quantize("int8")
        loop = make_loop(model, device_type=device_type, jit_compile=device_type == "GPU")
        traced = reduced_gradients(loop).get_concrete_function(batch).graph
        operations = [each for graph in all_graphs(traced) for each in graph.get_operations()]
        wide = [
            each for each in operations if each.type == "MatMul" and each.outputs[0].shape[1] == 24
        ]
        kinds = [each.type for each in operations]
        return len(wide), kinds.count("Softmax"), kinds.count("Erf")

    numbers = 8 * 6 * 8  # rows, tokens, units
    (wide, softmaxes, gelus), planned = counts(numbers + 1), counts(numbers)
    on_tpu = device_type == "TPU"
    assert wide and planned == (wide * on_tpu, softmaxes + on_tpu, gelus + 1)
    for quantized in (lambda b: b.attention.query_key_value, lambda b: b.feed_forward_output):
        assert counts(numbers, quantized)[1:] == (softmaxes, gelus)


@pytest.mark.parametrize("options", [{"device_type": "GPU", "jit_compile": True},
                                     {"device_type": "TPU"}])  # fmt: skip
def test_recomputed_values_equal_original(options, monkeypatch):
    """Covers GELU, attention weights on a TPU, and whole blocks with their original masks."""
    monkeypatch.setattr(compilation, "MIN_ELEMENTS", 1)
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}
    model = bert(dropout=0.3)
    found = []
    for again, recomputes in ((True, False), (True, True), (False, False)):
        loop = make_loop(model, **options)
        model.encoder.recomputes_blocks = recomputes
        with monkeypatch.context() as patch:
            if not again:
                patch.setattr(compilation, "_recompute", lambda function, *given: function(*given))
            found.append(reduced_gradients(loop)(batch)[0])
    for *ours, theirs in zip(*found, strict=True):
        for value in ours:
            np.testing.assert_allclose(value, theirs, rtol=2e-4, atol=2e-6)


def test_random_words_stay_on_gpu_without_xla():
    """The GPU kernel of Reshape keeps only int32 values in host memory."""
    loop = make_loop(bert(dropout=0.5), device_type="GPU")
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}
    step = tf.function(loop.replica_step, autograph=False).get_concrete_function(batch)
    random = 0
    for graph in all_graphs(step.graph):
        for operation in graph.get_operations():
            random += operation.type.startswith("StatelessRandomUniform")
            if operation.type == "Reshape":
                source = operation.inputs[0]
                while source.op.type in ("Identity", "Bitcast") and source.dtype == tf.int32:
                    source = source.op.inputs[0]
                assert not source.op.type.startswith("Stateless") or source.dtype != tf.int32
    assert random > 3


def test_host_computes_seeds_on_gpu_without_xla():
    loop = make_loop(bert(dropout=0.5), device_type="GPU")
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}
    step = tf.function(loop.replica_step, autograph=False).get_concrete_function(batch)
    folds = [o for o in step.graph.get_operations() if o.type == "StatelessRandomGetKeyCounter"]
    on_host = [o for o in folds if "CPU:0" in o.device]
    assert len(on_host) >= 4


def test_gpu_step_is_one_program_and_thirteen_operations():
    """Counts the batch, timing and per-step bookkeeping, on the host and on the GPU."""
    loop = make_loop(bert(), device_type="GPU", jit_compile=True)
    iterator = loop.distribute(batches_dataset(1))
    made = loop._make.get_concrete_function(iterator, tf.constant(1)).graph
    (turn,) = [graph for graph in all_graphs(made) if "while_body" in graph.name]
    each = [one for one in turn.get_operations() if one.type not in host_copies._FREE]
    (step,) = [one for one in each if one.type == "StatefulPartitionedCall"]
    assert step.get_attr("_XlaMustCompile")
    assert 5 < len(each) - 1 <= 13


# === Without XLA, on a GPU ===


def test_gpu_step_waits_for_host_four_times():
    """For the step number, the number of real tokens, and twice at the end of the batch.

    The host sends the seeds, the number of real tokens and the number of predictions. All are
    shorter than a batch, and their number is independent of the number of layers.
    """
    loop = make_loop(bert(dropout=0.1, layers=3), device_type="GPU")
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}
    counts = host_copies.count(
        tf.function(loop.replica_step, autograph=False).get_concrete_function(batch)
    )
    # 743, including 20 that check whether ids have rows and 18 of TensorFlow's gradients of sums.
    assert 500 < counts.kernels < 750
    allowed = {"Placeholder > StridedSlice", "ReadVariableOp > Cast", "Where > Unpack",
               "Cast > StridedSlice"}  # fmt: skip
    assert counts.to_host.keys() <= allowed and counts.to_host.total() <= 4
    assert counts.to_gpu.total() <= 4
    assert not any("Equal" in pair or "Random" in pair for pair in counts.to_gpu)
    assert counts.to_host.total() and counts.to_gpu.total()


# === Cost of a GPU's step, which must not grow unnoticed ===


# An interpreter with the compiler for NVIDIA GPUs; see benchmarks/compiled_step.py.
COMPILER = os.environ.get("BERT_TF_CUDA_COMPILER")


def _measured(program, folder, python):
    """Returns the benchmark's output for a program, and the lowered program."""
    command = [sys.executable, "-m", "benchmarks.compiled_step", "--targets=h100"]
    command += [f"--programs={program}", f"--keep={folder}", f"--python=h100={python}"]
    done = subprocess.run(
        command,
        cwd=pathlib.Path(bert_tf.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    (lowered,) = folder.glob("*.mlir")
    return done.stdout, lowered.read_text()


@pytest.mark.slow
def test_lowered_program_stays_small(tmp_path):
    """A full step of bert-tiny; with Philox instead of the hash it has 6,600 operations."""
    _, lowered = _measured("tiny:32x128", tmp_path, sys.executable)
    operations = re.findall(r"\b(?:stablehlo|chlo|mhlo)\.", lowered)
    assert 3500 < len(operations) < 4100  # about 60 of them check whether ids have rows
    assert "rng_bit_generator" not in lowered


@pytest.mark.slow
@pytest.mark.skipif(
    not COMPILER, reason="BERT_TF_CUDA_COMPILER names no interpreter with a compiler"
)
@pytest.mark.parametrize(
    ("program", "limits"),
    [("base:256x128", (950, 104.0, 12.0)), ("finetune:32x128", (420, 5.4, 0.6))],
)
def test_h100_step_runs_few_kernels(tmp_path, program, limits):
    """Checks the number of kernels, the GB that they move, and the GB of temporaries."""
    output, _ = _measured(program, tmp_path, COMPILER)
    found = re.search(
        rf"h100 {program}: ([\d,]+) kernels, ([\d.]+) GB moved.* batch, ([\d.]+) temporaries",
        output,
    )
    numbers = [float(each.replace(",", "")) for each in found.groups()]
    assert all(0.5 * limit < number < limit for number, limit in zip(numbers, limits, strict=True))


# === --deterministic: a step of repeatable GPU operations ===

# From the documentation of ``enable_op_determinism`` in TensorFlow 2.21: a clock and random
# operations without a seed raise an error on every device; losses, counts and sparse products raise
# one on a GPU. Scatter operations run on the CPU and copy their operand there and back.
UNSUPPORTED = {
    "Timestamp", "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal",
    "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
    "Bincount", "DenseBincount", "SparseTensorDenseMatMul",
    "ScatterNd", "TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate",
    "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate", "ResourceScatterNdAdd",
}  # fmt: skip

# Determinism is a setting of the process, and no public function turns it off.
PROGRAM = """
import tensorflow as tf
from tests.training.conftest import batches_dataset, bert, make_loop
from tests.training.test_compilation import all_graphs

tf.config.experimental.enable_op_determinism()
loop = make_loop(bert(), device_type="GPU", gradient_accumulation_steps=2, measures_waits=False)
iterator = loop.distribute(batches_dataset(3))
result = loop.make(iterator, 3)
graph = loop._make.get_concrete_function(iterator, tf.constant(3)).graph
types = {operation.type for inner in all_graphs(graph) for operation in inner.get_operations()}
print("TYPES", *sorted(types))
print("WAITED", result.waited is not None)
"""


@pytest.mark.slow
def test_step_operations_are_deterministic_on_gpu():
    done = run_python(PROGRAM, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert len(found["TYPES"]) > 30
    assert not UNSUPPORTED & set(found["TYPES"])
    assert found["WAITED"] == ["False"]
