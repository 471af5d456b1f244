"""Optimizers and learning rates, compared with NumPy and Keras, and the decayed variables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer, keras_hooks
from bert_tf.training import optimizers
from bert_tf.training.schedules import WarmupLinearDecay

SHAPES = {"kernel": (3, 2), "bias": (2,), "gamma": (4,), "embeddings": (5, 3)}


def _variables():
    random = np.random.default_rng(0)
    return [
        keras.Variable(random.normal(size=shape).astype(np.float32), name=name)
        for name, shape in SHAPES.items()
    ]


def _gradients(steps):
    """Some gradients are so small that epsilon dominates."""
    random = np.random.default_rng(1)
    scales = (1.0, 1e-6, 1e-8, 1e-3)
    return [
        [
            (scale * random.normal(size=shape)).astype(np.float32)
            for scale, shape in zip(scales, SHAPES.values(), strict=True)
        ]
        for _ in range(steps)
    ]


def _twin(values, gradients, schedule, *, bias_correction, lamb=False):
    """Computes the update in float64; decays only the kernel and the embeddings.

    The betas are rounded to float32, as in the kernel: 1 - 0.999 has a relative error of 1.3e-5.
    """
    beta_1, beta_2 = float(np.float32(0.9)), float(np.float32(0.999))
    values = [v.astype(np.float64) for v in values]
    m, v = [np.zeros_like(x) for x in values], [np.zeros_like(x) for x in values]
    for step, grads in enumerate(gradients):
        rate = float(schedule(step))
        c_1 = 1 - beta_1 ** (step + 1) if bias_correction else 1.0
        c_2 = 1 - beta_2 ** (step + 1) if bias_correction else 1.0
        epsilon = 1e-8 if bias_correction and not lamb else 1e-6
        for i, name in enumerate(SHAPES):
            m[i] = beta_1 * m[i] + (1 - beta_1) * grads[i]
            v[i] = beta_2 * v[i] + (1 - beta_2) * grads[i].astype(np.float64) ** 2
            update = (m[i] / c_1) / (np.sqrt(v[i] / c_2) + epsilon)
            if name in ("kernel", "embeddings"):
                update = update + 0.01 * values[i]
                if lamb and values[i].any():
                    update = update * np.sqrt((values[i] ** 2).sum() / (update**2).sum())
            values[i] = values[i] - rate * update
    return values


@pytest.mark.parametrize(
    ("name", "compiled"),
    [("adam", False), ("adamw", False), ("lamb", False), ("adamw", True), ("lamb", True)],
)
def test_updates_equal_reference(name, compiled):
    variables, gradients = _variables(), _gradients(6)
    schedule = WarmupLinearDecay(0.1, 2, 10)
    expected = _twin(
        [v.numpy() for v in variables],
        gradients,
        schedule,
        bias_correction=name != "adam",
        lamb=name == "lamb",
    )
    optimizer = optimizers.create_optimizer(name, schedule, variables)
    apply = optimizer.apply
    if compiled:
        apply = tf.function(apply, jit_compile=True, autograph=False)
    for grads in gradients:
        apply([tf.constant(g) for g in grads])
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=2e-5, atol=2e-6)
    assert int(optimizer.iterations.numpy()) == 6


def test_shared_values_are_computed_once():
    calls = []

    class Schedule(WarmupLinearDecay):
        def __call__(self, step):
            calls.append(step)
            return super().__call__(step)

    optimizer = optimizers.create_optimizer("adamw", Schedule(0.1, 2, 10), _variables())
    calls.clear()
    apply = tf.function(optimizer.apply, autograph=False).get_concrete_function(_gradients(1)[0])
    types = [operation.type for operation in apply.graph.get_operations()]
    assert len(calls) == 1 and types.count("ResourceApplyAdam") == 4 and types.count("Pow") == 2


def test_lamb_updates_zero_variable():
    variable = keras.Variable(np.zeros((2, 1), np.float32), name="kernel")
    optimizer = optimizers.create_optimizer("lamb", 0.1, [variable])
    optimizer.apply([tf.constant([[1.0], [-1.0]])])
    np.testing.assert_allclose(variable.numpy(), [[-0.1], [0.1]], rtol=1e-4)
    optimizer.apply([tf.zeros((2, 1))])  # an update from the moments only
    assert np.isfinite(variable.numpy()).all()


def test_only_kernels_and_embedding_tables_are_decayed():
    config = BertConfig.from_preset("bert-tiny", vocab_size=30)
    variables = BertPretrainer(config, nsp=True).trainable_variables
    excluded = {v.path for v in optimizers.weight_decay_exclusions(variables)}
    decayed = [v.path for v in variables if v.path not in excluded]
    layer = [
        "attention/query_key_value/kernel",
        "attention/output/kernel",
        "intermediate/kernel",
        "output/kernel",
    ]
    assert decayed == [
        "bert_encoder/embeddings/word_embeddings",
        "bert_encoder/embeddings/position_embeddings",
        "bert_encoder/embeddings/token_type_embeddings",
        *[f"bert_encoder/layer_{number}/{name}" for number in range(2) for name in layer],
        "bert_encoder/pooler/dense/kernel",
        "bert_pretrainer/masked_lm/dense/kernel",
        "bert_pretrainer/next_sentence/dense/kernel",
    ]
    assert all(v.shape.rank == 1 for v in variables if v.path in excluded)


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb"])
def test_serialization_keeps_decay_exclusions(name):
    """For other variables, the excluded paths and the additional exclusions are kept."""
    kernel, scale, more = (keras.Variable([1.0], name=n) for n in ("kernel", "gamma", "more"))
    rate = WarmupLinearDecay(1e-3, 1, 2)
    optimizer = optimizers.create_optimizer(name, rate, [kernel, scale], weight_decay=0.1)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert copy.get_config() == optimizer.get_config()
    assert copy.weight_decay == 0.1 and copy.bias_correction is (name != "adam")
    copy.exclude_from_weight_decay(var_list=[more])
    variables = [keras.Variable([1.0], name=n) for n in ("gamma", "kernel")] + [more]
    copy.build(variables)
    assert [keras_hooks.is_decayed(copy, v) for v in variables] == [False, True, False]
    assert copy.get_config()["undecayed"] == ["gamma", "more"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_variables_raise_error(dtype):
    weights = [keras.Variable([1.0], name=name, dtype=dtype) for name in ("kernel", "other")]
    message = (
        f"^adamw: expected float32 or float64 variables, got {dtype}, in which beta_2 is rounded"
    )
    with pytest.raises(ValueError, match=message):
        optimizers.create_optimizer("adamw", 1e-2, weights)


def test_variables_of_two_dtypes_get_same_update():
    weights = [keras.Variable([1.0], name=name, dtype=name) for name in ("float32", "float64")]
    optimizer = optimizers.create_optimizer("adamw", 1e-2, weights)
    for _ in range(3):
        optimizer.apply([keras.ops.array([0.5], weight.dtype) for weight in weights], weights)
    one, other = (float(weight[0]) for weight in weights)
    assert one == pytest.approx(other, rel=1e-6) and other < 0.98


@pytest.mark.parametrize(("name", "own"), [("adam", 1e-6), ("adamw", 1e-8), ("lamb", 1e-6)])
def test_epsilon_and_weight_decay_are_configurable(name, own):
    weight = keras.Variable([2.0], name="kernel")
    assert optimizers.create_optimizer(name, 1e-3, [weight]).epsilon == own
    optimizer = optimizers.create_optimizer(name, 0.5, [weight], epsilon=1e-3, weight_decay=0.0)
    assert optimizer.epsilon == 1e-3
    optimizer.apply([keras.ops.zeros(1)])
    optimizer.weight_decay = None
    optimizer.apply([keras.ops.zeros(1)])
    assert weight.numpy().tolist() == [2.0]
    optimizer.weight_decay = 0.5
    optimizer.apply([keras.ops.zeros(1)])
    # LAMB scales the update, here only the decay, to the norm of the weights.
    assert weight.numpy().tolist() == [1.0 if name == "lamb" else 1.5]


def test_unknown_optimizer_raises_error():
    with pytest.raises(
        ValueError, match=r"Unknown optimizer 'sgd': expected one of adam, adamw, lamb\."
    ):
        optimizers.create_optimizer("sgd", 1e-3, [])


def test_sparse_gradient_is_clipped_like_dense():
    table = keras.Variable(np.ones((4, 2), "float32"), name="embeddings")
    with tf.GradientTape() as tape:
        # Row 0 occurs three times: the norm of the slices differs from the norm of their sum.
        loss = tf.reduce_sum(tf.gather(table.value, [0, 0, 0, 1]) * 3.0)
    gradient = tape.gradient(loss, table.value)
    assert isinstance(gradient, tf.IndexedSlices)
    optimizer = optimizers.create_optimizer("adam", 1.0, [table], global_clipnorm=1.0)
    optimizer.apply([gradient], [table])
    dense = np.float32([[9, 9], [3, 3], [0, 0], [0, 0]])
    expected = 0.1 * dense / np.linalg.norm(dense)
    np.testing.assert_allclose(optimizer.variables[2].numpy(), expected, rtol=1e-6)


def _rate_twin(step, peak, warmup, total):
    """Google's formula, with every operation rounded to float32."""
    step, peak = np.float32(step), np.float32(peak)
    if step < warmup:
        return peak * (step / np.float32(warmup))
    return peak * (np.float32(1) - min(step / np.float32(total), np.float32(1)))


@pytest.mark.parametrize("warmup", [0, 7, 23])
def test_learning_rate_equals_float32_reference(warmup):
    schedule = WarmupLinearDecay(3e-4, warmup, 23)
    for step in range(26):
        assert np.float32(schedule(step)) == _rate_twin(step, 3e-4, warmup, 23), step


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1, 2), "peak must be a positive learning rate, got 0.0."),
        ((1.0, 0, 0), "total_steps must be at least 1, got 0."),
        ((1.0, 5, 4), r"warmup_steps must be between 0 and total_steps \(4\), got 5."),
    ],
)
def test_out_of_range_arguments_raise_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupLinearDecay(*arguments)
