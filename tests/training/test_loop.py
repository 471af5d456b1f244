"""The training loop on one device, compared with a plain step and across restarts; speed."""

import functools
import itertools
import os
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling import BertPretrainer
from bert_tf.pretraining import objective
from bert_tf.pretraining.objective import PretrainingLoop, check_static_batches
from bert_tf.training import attention, optimizers
from bert_tf.training.compilation import dropout_seeds
from bert_tf.training.loop import BadStepError, StepResults
from bert_tf.training.schedules import WarmupLinearDecay
from tests.processes import run_python

from .conftest import (
    SEQUENCE,
    batches_dataset,
    bert,
    make_loop,
    random_batch,
    small_model,
    state_resetter,
)

CLIP_NORM = 0.5  # well below the small model's gradient norms, so clipping always acts


_loop = functools.partial(make_loop, clip_norm=CLIP_NORM)


@functools.cache
def _plain_loop(**options):
    """Returns a loop without dropout that several tests share, and a function that resets it."""
    loop = _loop(small_model(), **options)
    return loop, state_resetter(loop)


def _weights(model):
    return [v.numpy() for v in model.trainable_variables]


def _assert_close(ours, theirs, atol=1e-6):
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=atol)


def _assert_equal(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def _plain_training(model, batches):
    """Makes the same updates without the loop: one tape, the paper's means, clipping, Adam."""
    schedule = WarmupLinearDecay(1e-2, warmup_steps=2, total_steps=20)
    optimizer = optimizers.create_optimizer("adam", schedule, model.trainable_variables)
    rows = []
    for batch in batches:
        with tf.GradientTape() as tape:
            outputs = model({k.name: batch[k.name] for k in model.inputs}, training=True)
            sums = objective.batch_sums(
                outputs, {key: tf.constant(value) for key, value in batch.items()}
            )
            masked_lm = sums.masked_lm_loss / (batch["masked_lm_weights"].sum() + 1e-5)
            next_sentence = sums.next_sentence_loss / len(batch["input_mask"])
            loss = masked_lm + next_sentence
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        norm = np.sqrt(sum((g.numpy().astype(np.float64) ** 2).sum() for g in gradients))
        scale = min(1.0, CLIP_NORM / norm)
        optimizer.apply([g * scale for g in gradients])
        rows.append((sums, norm))
    return rows


@pytest.fixture(scope="module")
def plain():
    model = small_model()
    rows = _plain_training(model, [random_batch(i) for i in range(4)])
    return _weights(model), rows


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 4},
        pytest.param({"jit_compile": True}, marks=pytest.mark.slow),
        pytest.param({"jit_compile": True, "device_type": "GPU"}, marks=pytest.mark.slow),
    ],
    ids=["plain", "accumulated", "xla", "xla on a GPU"],
)
def test_loop_makes_same_updates_as_plain_step(plain, options):
    weights, rows = plain
    loop, reset = _plain_loop(**options)
    reset()
    model = loop.model
    iterator, before = loop.distribute(batches_dataset(4)), _weights(model)
    assert loop.make(iterator, 1).learning_rate == 0.0  # from the first step of the warm-up
    _assert_equal(_weights(model), before)
    result = loop.make(iterator, 3)
    _assert_close(_weights(model), weights)
    last = rows[1:]
    np.testing.assert_allclose(result.sums, sum(np.array(sums) for sums, _ in last), rtol=1e-5)
    weight = sum(float(sums.masked_lm_weight) for sums, _ in last)
    expected = {
        "masked_lm_loss": sum(float(sums.masked_lm_loss) for sums, _ in last) / weight,
        "masked_lm_accuracy": sum(float(sums.masked_lm_correct) for sums, _ in last) / weight,
        "next_sentence_loss": sum(float(sums.next_sentence_loss) for sums, _ in last) / 24,
        "next_sentence_accuracy": sum(float(sums.next_sentence_correct) for sums, _ in last) / 24,
    }
    found = objective.means(objective.PretrainingSums(*result.sums))
    assert found == pytest.approx(expected, rel=1e-5)
    assert result.gradient_norm == pytest.approx(np.mean([norm for _, norm in last]), rel=1e-5)
    assert result.learning_rate == pytest.approx(1e-2 * (1 - 3 / 20), rel=1e-5)
    assert (result.step, result.cursors) == (4, ((0, 3, 7),)) and result.waited >= 0.0
    assert min(norm for _, norm in rows) > CLIP_NORM


def test_next_sentence_measures_are_zero_without_head():
    loop = _loop(small_model(nsp=False))
    evaluated = loop.evaluate(batches_dataset(1))
    assert evaluated[5:] == (0.0, 0.0, 0.0, 0)
    assert evaluated.masked_lm_predictions > 0
    message = (
        "The evaluation data have no masked positions. Use more documents, or increase "
        "held_out_fraction"
    )
    with pytest.raises(ValueError, match=message):
        loop.evaluate(batches_dataset(1), 0)


@pytest.mark.slow
def test_large_table_gradients_accumulate_over_calls():
    """TensorFlow replaces sums only for large tensors, which failed on the second call."""
    config = BertConfig(
        vocab_size=30522, hidden_size=256, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=SEQUENCE,
    )  # fmt: skip
    loop = _loop(BertPretrainer(config), gradient_accumulation_steps=2)
    iterator = loop.distribute(batches_dataset(3))
    assert [loop.make(iterator, 1).step for _ in range(3)] == [1, 2, 3]


# === Dropout ===


def test_masks_depend_on_step_not_call():
    loop = _loop(small_model(dropout=0.5))
    reset = state_resetter(loop)
    loop.make(loop.distribute(batches_dataset(3)), 3)
    uninterrupted = _weights(loop.model)
    reset()
    iterator = loop.distribute(batches_dataset(3))
    loop.make(iterator, 1)
    result = loop.make(iterator, 1)
    assert result.cursors == ((0, 1, 7),)
    loop.make(iterator, 1)
    _assert_equal(_weights(loop.model), uninterrupted)


def test_masks_differ_between_micro_batches_steps_and_seeds():
    """Equal examples in every micro-batch have equal gradients, unless their masks differ."""
    model = small_model(dropout=0.5)
    batch = {
        key: tf.constant(np.repeat(value[:1], 4, axis=0))
        for key, value in random_batch(0).items()
        if key != features.CURSOR
    }

    def losses_of(seed):
        step, one = _loop(model, seed=seed, gradient_accumulation_steps=2).replica_step, [1.0, 1.0]
        return [
            float(step.part_gradients(batch, at, tf.constant(0), index, one)[1][0])
            for at in (0, 1)
            for index in (0, 1)
        ]

    assert len({*losses_of(seed=1), *losses_of(seed=2)}) == 8


# === Padding ===


_bert = functools.cache(bert)


def _gradients(leaves_out, remat=False, micro_batches=1):
    """The gradients, sums and norm of a padded batch, and whether padding was removed."""
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}
    assert (batch[features.INPUT_MASK].numpy() == 0).sum() > 10
    loop = _loop(_bert(), gradient_accumulation_steps=micro_batches)
    loop.model.encoder.recomputes_blocks = remat
    if not leaves_out:
        loop.model.encoder.trains_without_padding = False
        loop.objective.predicts_all = True
        loop.model.encoder.training_attention = None
    found, (sums, norm, _) = tf.function(loop.replica_step.reduce, autograph=False)(batch)
    return loop.model.encoder.trains_without_padding, [*found, sums / 100.0, norm]


@pytest.fixture(scope="module")
def with_padding():
    return _gradients(leaves_out=False)


@pytest.mark.parametrize(
    ("remat", "micro_batches"), [(False, 1), pytest.param(True, 2, marks=pytest.mark.slow)]
)
def test_gradients_without_padding_equal_those_with_padding(
    remat, micro_batches, with_padding, monkeypatch
):
    monkeypatch.setattr(attention, "_MAX_SCORES", 1)  # in groups
    left_out, ours = _gradients(True, remat, micro_batches)
    computed, theirs = with_padding
    assert left_out and not computed
    _assert_close(ours, theirs)


@pytest.mark.parametrize("options", [{"jit_compile": True}, {"device_type": "TPU"}])
def test_padding_is_kept_under_xla(options):
    loop = _loop(_bert(), **options)
    assert not loop.model.encoder.trains_without_padding
    # A TPU compiles the entire program.
    compiles = isinstance(loop.replica_step.run, tf.types.experimental.PolymorphicFunction)
    assert compiles == options.get("jit_compile", False)


# === State ===


def test_state_contains_weights_moments_and_step(fresh_names):
    loop = _loop(small_model(dropout=0.1))
    names = list(loop.state())
    weights = [
        "word/embeddings", "type/embeddings", "dense/kernel", "dense/bias", "norm/gamma",
        "norm/beta", "masked_lm/kernel", "masked_lm/bias", "next_sentence/kernel",
        "next_sentence/bias",
    ]  # fmt: skip
    moments = [
        f"optimizer/adam/{path.replace('/', '_')}_{moment}"
        for path in weights
        for moment in ("momentum", "velocity")
    ]
    expected = [f"model/{path}" for path in weights] + ["optimizer/adam/iteration", *moments]
    assert sorted(names) == sorted(expected)


class _DuplicateNames(keras.layers.Layer):
    def build(self, shape):
        self.first, self.second = (self.add_weight(shape=(), name="w") for _ in range(2))

    def call(self, inputs):
        return inputs * self.first * self.second


def test_duplicate_variable_names_raise_error():
    inputs = keras.Input((2,))
    loop = _loop(keras.Model(inputs, {"masked_lm_logits": _DuplicateNames(name="same")(inputs)}))
    message = "Two variables have the name 'model/same/w'. Use different names for the layers"
    with pytest.raises(ValueError, match=message):
        loop.state()


# === Failures ===


def test_short_data_and_zero_steps_raise_error():
    loop, reset = _plain_loop()
    reset()
    iterator = loop.distribute(batches_dataset(3))
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        loop.make(iterator, 0)
    loop.make(iterator, 1)
    message = "The data ended before 3 updates from step 1 were made. Pass a dataset that repeats"
    with pytest.raises(ValueError, match=message):
        loop.make(iterator, 3)


def _train(loop, batches):
    dataset = tf.data.Dataset.from_tensor_slices(
        {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}
    )
    return loop.make(loop.distribute(dataset), len(batches))


def test_bad_step_error_contains_step_and_data():
    loop, reset = _plain_loop()
    reset()
    loop.optimizer.iterations.assign(20)  # the learning rate is 0 after 20 steps
    batches = [random_batch(seed) for seed in range(5)]
    batches[3][features.MASKED_LM_WEIGHTS][-1] = np.nan
    with pytest.raises(BadStepError) as raised:
        _train(loop, batches)
    assert str(raised.value).startswith(
        "The loss or its gradient is not finite at step 23 (loss nan, gradient norm nan), in the "
        "batch that ends with row 7 of pool 3 in epoch 0"
    )
    assert str(raised.value).endswith(
        "), in the batch that ends with row 7 of pool 3 in epoch 0: resume from an earlier "
        "checkpoint with a lower learning rate or a longer warm-up."
    )
    assert raised.value.bad.cursors == ((0, 3, 7),)


def test_corrupted_weights_are_a_bad_step():
    """The losses of the steps are finite, but the last update corrupts the weights."""
    loop, reset = _plain_loop()
    reset()
    (moment,) = (v for name, v in loop.state().items() if name.endswith("dense_kernel_momentum"))
    moment.assign(tf.fill(moment.shape, 1e30))
    message = (
        r"norm of the weights is not finite at step 1 \(loss .*, gradient norm .*\), in the "
        r"batch that ends with row 7 of pool 1 in epoch 0"
    )
    with pytest.raises(BadStepError, match=message):
        _train(loop, [random_batch(0), random_batch(1)])  # the first step's learning rate is 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"gradient_accumulation_steps": 0},
            "gradient_accumulation_steps must be at least 1, got 0",
        ),
        ({}, "The optimizer is not built. Call optimizer.build"),
    ],
)
def test_invalid_arguments_raise_error(options, message):
    optimizer, strategy = keras.optimizers.SGD(0.1), tf.distribute.get_strategy()
    with pytest.raises(ValueError, match=message):
        PretrainingLoop(small_model(), optimizer, strategy, seed=0, **options)


@pytest.mark.slow
def test_many_trainings_cause_no_retracing_warning(caplog):
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    for _ in range(6):
        loop = _loop(small_model())
        loop.make(loop.distribute(batches_dataset(1)), 1)
    logger.removeHandler(caplog.handler)
    assert "retracing" not in caplog.text


@pytest.mark.slow
def test_step_compiles_with_xla_as_for_tpu():
    step = tf.function(_loop(bert(), device_type="TPU").replica_step, jit_compile=True)
    batch = {key: tf.constant(value) for key, value in random_batch(0).items()}
    sums, (loss, norm), _, cursors = step(batch)
    assert np.isfinite([*sums.numpy(), float(loss)]).all()
    assert float(norm) > 0.0
    assert cursors.numpy().tolist() == [[0, 0, 7]]


# === Evaluation ===


def _twin(model, rows):
    """Computes every measure from the model's logits, example by example in float64."""
    outputs = model.predict_on_batch(objective.model_inputs(rows))
    logits = outputs[features.MASKED_LM_LOGITS].astype(np.float64)
    weights = rows[features.MASKED_LM_WEIGHTS] > 0
    ids = rows[features.MASKED_LM_IDS]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_p, ids[..., None], -1)[..., 0]
    pair = outputs[features.NEXT_SENTENCE_LOGITS].astype(np.float64)
    labels = rows[features.NEXT_SENTENCE_LABELS]
    pair_log_p = pair - np.log(np.exp(pair).sum(-1, keepdims=True))
    return {
        "masked_lm_loss": nll[weights].mean(),
        "masked_lm_perplexity": np.exp(nll[weights].mean()),
        "masked_lm_accuracy": (logits.argmax(-1) == ids)[weights].mean(),
        "masked_lm_baseline": np.bincount(ids[weights]).max() / weights.sum(),
        "masked_lm_predictions": weights.sum(),
        "next_sentence_loss": -pair_log_p[np.arange(len(labels)), labels].mean(),
        "next_sentence_accuracy": (pair.argmax(-1) == labels).mean(),
        "next_sentence_baseline": max(labels.mean(), 1 - labels.mean()),
        "next_sentence_rows": len(labels),
    }


@pytest.fixture(scope="module")
def evaluated():
    model = small_model(dropout=0.5)
    return model, make_loop(model)


def test_evaluation_ignores_padding_and_disables_dropout(evaluated):
    model, loop = evaluated
    rows = random_batch(7, rows=15)
    padded = {key: np.concatenate([value, value[:1] * 0]) for key, value in rows.items()}
    dataset = tf.data.Dataset.from_tensor_slices(padded).batch(8, drop_remainder=True)
    result = loop.evaluate(dataset)
    assert result._asdict() == pytest.approx(_twin(model, rows), rel=1e-5)


def test_max_steps_limits_evaluation(evaluated):
    model, loop = evaluated
    result = loop.evaluate(batches_dataset(3), 1)
    assert result._asdict() == pytest.approx(_twin(model, random_batch(0)), rel=1e-5)
    # A function that creates the dataset is also accepted.
    assert loop.evaluate(lambda context: batches_dataset(3), 1) == result


@pytest.mark.parametrize(
    ("change", "divisors", "message"),
    [
        (lambda batches: batches.map(lambda batch: {k: batch[k] for k in batch if k != "cursor"}),
         (1, 1), "The batch has no key 'cursor'"),
        (lambda batches: batches.unbatch().batch(8), (1, 1),
         r"Feature '\w+': expected a static shape, got \(None, .*drop_remainder=True, or pad the "
         "last batch"),
        (lambda batches: batches, (2, 3), r"Batch size 8: expected a multiple of 6 \(2 replicas "
         r"times 3 micro-batches\)"),
    ],
)  # fmt: skip
def test_invalid_batches_raise_error(change, divisors, message):
    with pytest.raises(ValueError, match=message):
        check_static_batches(change(batches_dataset(1, rows=8)), *divisors)


def test_every_argument_changes_every_seed():
    drawn = {
        point: dropout_seeds(*point, 3).numpy()
        for point in itertools.product((0, 1, 1 << 31), (0, 1), (0, 1), (0, 1))
    }
    rows = [tuple(row) for seeds in drawn.values() for row in seeds]
    assert len(set(rows)) == len(rows) == 24 * 3


# === Speed ===


def test_speed_in_total_and_per_device():
    counted = {"tokens": 3000, "examples": 60, "devices": 4}
    made = StepResults(1, None, [], 0.0, 0.0, (), 0.5)
    expected = {
        "tokens_per_second": 1500.0,
        "device_tokens_per_second": 375.0,
        "examples_per_second": 30.0,
        "device_examples_per_second": 7.5,
        "input_wait_share": 0.25,
    }
    assert made.speed(seconds=2.0, **counted) == expected
    assert made._replace(waited=2.5).speed(seconds=2.0, **counted)["input_wait_share"] == 1.0
    del expected["input_wait_share"]
    assert made._replace(waited=None).speed(seconds=2.0, **counted) == expected
    one = made.speed(seconds=2.0, tokens=3000, examples=60, devices=1)
    assert list(one) == ["tokens_per_second", "examples_per_second", "input_wait_share"]


def test_loop_measures_time_without_batch():
    """The dataset delays batches by a known time and uses the loop's clock."""
    loop, spent = make_loop(small_model()), []

    def wait(index):
        began = time.time()
        time.sleep(0.5 * (index >= 2))
        spent.append(time.time() - began)
        return index

    def delay(index, batch):
        index = tf.numpy_function(wait, [index], tf.int64)
        with tf.control_dependencies([index]):
            return {key: tf.identity(value) for key, value in batch.items()}

    # Batches are produced on demand: the full delay is waited for, minus overlap with the last
    # step.
    ready = batches_dataset(1, rows=1 << 12).repeat()
    iterator = loop.distribute(ready.enumerate().map(delay))
    began = time.time()
    first, then = loop.make(iterator, 2), loop.make(iterator, 2)
    took = time.time() - began
    assert first.waited >= 0 and 0.2 < then.waited <= took
    assert sum(spent[2:]) >= 1.0
    # The time of a step itself, including after its loss, does not count as waiting for a batch.
    iterator = loop.distribute(ready)
    loop.make(iterator, 1)
    waited_fractions = []
    for _ in range(3):  # the minimum, as other load can slow down any step
        began = time.time()
        waited = loop.make(iterator, 5).waited
        waited_fractions.append(waited / (time.time() - began))
    assert min(waited_fractions) < 0.3


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="os.sched_setaffinity is missing")
def test_step_on_one_core_is_not_time_without_batch():
    code = (
        "import os, sys, pytest; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
        "sys.exit(pytest.main(['-q', '-n0', sys.argv[1]]))"
    )
    test = f"{__file__}::{test_loop_measures_time_without_batch.__name__}"
    run = run_python(code, test)
    assert run.returncode == 0, run.stdout
