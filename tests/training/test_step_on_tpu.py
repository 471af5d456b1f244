"""The step as a TPU runs it: its draws, its loss, the shapes that memory is tiled for."""

import functools

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.modeling.layers import MaskSeeds, draw_in_pairs
from bert_tf.pretraining.objective import PretrainingLoop
from bert_tf.training import optimizers
from bert_tf.training.step import draw_on_tpu

LARGE = 1_000_000
LANES = 128  # to which a TPU pads the last dimension of an array
ROWS, LENGTH, PREDICTIONS = 32, 512, 76


@functools.cache
def traced_step():
    """The graphs of a step of one block of 128 units: the shapes are those of larger ones."""
    config = BertConfig(
        vocab_size=30_522,
        hidden_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=512,
    )
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


def graphs_of(graph):
    yield graph
    for function in graph._functions.values():
        inner = getattr(function, "graph", None)
        if inner is not None:
            yield from graphs_of(inner)


def padded(graph):
    """The large tensors that are padded more than twofold, by name, and all tensors' number."""
    found, count = {}, 0
    for inner in graphs_of(graph):
        for operation in inner.get_operations():
            for tensor in operation.outputs:
                count += 1
                size, width = tensor.shape.num_elements(), (tensor.shape or [1])[-1:]
                if tensor.dtype != tf.resource and size > LARGE and 2 * width[0] < LANES:
                    found[tensor.name] = tensor.shape.as_list()
    return found, count


def test_no_large_array_is_padded_more_than_twofold():
    found, count = padded(traced_step())
    assert count > 500
    assert not found
    # As a CPU draws, words are in rows of one and halves of them in rows of two.
    draw = functools.partial(draw_in_pairs, (ROWS, 2, LENGTH, LENGTH), 9, MaskSeeds(3))
    found, _ = padded(tf.function(draw, autograph=False).get_concrete_function().graph)
    assert {tuple(shape[1:]) for shape in found.values()} >= {(1,), (2,)}


def test_the_step_has_static_shapes_and_nothing_that_a_tpu_lacks():
    kinds = {"NonZero", "Where", "Unique", "UniqueV2", "BooleanMask"}
    for graph in graphs_of(traced_step()):
        for operation in graph.get_operations():
            assert operation.type not in kinds and "String" not in operation.type, operation.name
            assert "Py" not in operation.type and "Scatter" not in operation.type, operation.name
            for tensor in operation.outputs:
                assert tensor.dtype != tf.string, tensor.name
                assert tensor.dtype == tf.resource or tensor.shape.is_fully_defined(), tensor.name


# === How it draws ===


def test_masks_are_those_of_the_words_sixteen_bits():
    shape, half = (7, 3, 5), [4, 3, 5]
    rates = {dropped: MaskSeeds(3) for dropped in (1, 40_000)}

    @tf.function(jit_compile=True, autograph=False)  # without XLA, TensorFlow has no Threefry
    def drawn(seed):
        words = tf.random.stateless_uniform(half, seed, None, None, tf.int32, alg="threefry")
        return words, [draw_on_tpu(shape, dropped, seeds) for dropped, seeds in rates.items()]

    words, masks = drawn(tf.constant([3, 0], tf.int64))
    assert rates[1].state.numpy().tolist() == [3, 1]  # the next mask is another
    # The lowest of a signed number is that with the first bit alone.
    unsigned = words.numpy().view(np.uint32) ^ np.uint32(0x80008000)
    bits = np.concatenate([unsigned >> 16, unsigned & 0xFFFF])
    for dropped, kept in zip(rates, masks, strict=True):
        np.testing.assert_array_equal(kept, bits[: shape[0]] >= dropped)
