"""Gradients of each model's variables in bfloat16, compared with float32."""

import dataclasses
import functools
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features, modeling
from bert_tf.choices import SIMILARITY_LOSSES
from bert_tf.config import BertConfig
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.tasks.losses import (
    ChoiceCrossEntropy,
    SmoothedClasses,
    SmoothedCrossEntropy,
    squared_error,
)
from bert_tf.tasks.similarity.losses import similarity_loss
from bert_tf.training.attention import attend_in_groups
from bert_tf.training.cross_entropy import predicted_sums
from bert_tf.training.precision import (
    is_rewritten,
    preserved_arithmetic,
    set_precision,
    training_in_process,
)

ROWS, LENGTH = 40, 128
CONFIG = BertConfig(
    vocab_size=400,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=128,
    max_position_embeddings=LENGTH,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.1,
)
# Gradients whose float32 norm is below this fraction of the model's largest are skipped: exactly
# they are 0, so only rounding remains. A key bias shifts all scores of a query equally, as does a
# bias shared by all logits of a softmax over tokens or choices. Such norms are at most 1e-7; all
# others are at least 1e-3.
NO_GRADIENT = 1e-5
CPU_INFO = pathlib.Path("/proc/cpuinfo")
needs_bfloat16 = pytest.mark.skipif(
    not CPU_INFO.is_file() or "avx512_bf16" not in CPU_INFO.read_text(),
    reason="this processor does not compute in bfloat16: it has no AVX-512 with bf16",
)


def random_batch(rows=ROWS, choices=(), alike=True, length=LENGTH):
    """Returns examples with at least 4,096 real tokens; if ``alike``, a few ids are most frequent.

    Losses that compare texts need ``alike=False``, since common parts cancel and leave rounding.
    """
    rng = np.random.default_rng(0)
    shape = (rows, *choices, length)
    ids = np.minimum(rng.zipf(1.3, shape) + 4, CONFIG.vocab_size - 1)
    if not alike:
        most = CONFIG.vocab_size - 40
        ids = rng.integers(40, size=shape) + rng.integers(most, size=(*shape[:-1], 1))
    lengths = rng.integers(104, length + 1, shape[:-1])[..., None]
    mask = np.arange(length) < lengths
    types = mask & (np.arange(length) > lengths // 3)
    values = {"input_word_ids": ids * mask, "input_mask": mask, "input_type_ids": types}
    return {key: tf.constant(value, tf.int32) for key, value in values.items()}


def skewed(classes, shape=(ROWS,)):
    """Returns labels, most of which are 0."""
    rng = np.random.default_rng(1)
    return tf.constant(rng.integers(classes, size=shape) * (rng.random(shape) < 0.4), tf.int32)


def pretraining(**config):
    """Returns a pre-training model and the loss of a batch."""
    model = modeling.BertPretrainer(dataclasses.replace(CONFIG, **config))
    rng = np.random.default_rng(2)
    batch = random_batch()
    positions = np.sort([rng.choice(LENGTH - 30, 20, replace=False) for _ in range(ROWS)])
    batch |= {
        "masked_lm_positions": tf.constant(positions, tf.int32),
        "masked_lm_ids": tf.gather(batch["input_word_ids"], positions, batch_dims=1),
        "masked_lm_weights": tf.constant(rng.random(positions.shape) < 0.9, tf.float32),
        "next_sentence_labels": skewed(2),
    }
    return model, batch


def pretrained(predicts_all, **config):
    model, batch = pretraining(**config)
    objective = PretrainingObjective(model, "CPU", predicts_all=predicts_all)
    return model, lambda: objective.part(batch, objective.totals(batch))[0]


def trained(model_class, loss, labels, batch=None, switches=None, config=(), **arguments):
    """Returns a model of a task and its loss."""
    model = model_class(dataclasses.replace(CONFIG, **dict(config)), **arguments)
    for name, value in (switches or {}).items():
        setattr(model.encoder, name, value)
    model.compile(loss=loss, jit_compile=False)
    batch = batch or random_batch()
    return model, lambda: model.compute_loss(batch, labels, model(batch, training=True))


def embedding(loss, labels):
    """Returns an encoder of text pairs with a dense layer, and a loss of their embeddings."""
    model = BertEncoder(CONFIG, dense_size=32, pooler=False)
    model.sentence_embedding = SentenceEmbedding("mean", True, LENGTH)
    batch = random_batch(alike=False)

    def compute():
        vectors = tf.reshape(model.embed(batch, training=True), [ROWS // 2, 2, 32])
        return tf.reduce_mean(loss(labels, vectors))

    return model, compute


def cross_entropy():
    return SmoothedCrossEntropy(0.1)


def spans():
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return dict.fromkeys((features.START_LOGITS, features.END_LOGITS), entropy)


def classified(**given):
    return trained(modeling.BertClassifier, cross_entropy(), skewed(3), num_classes=3, **given)


def feature_tagged(variant, rows=ROWS, length=LENGTH):
    batch = random_batch(rows, length=length)
    index = tf.range(length) * batch["input_mask"] + batch["input_mask"] - 1
    return trained(
        modeling.BertFeatureTagger,
        cross_entropy(),
        skewed(5, (rows, length)),
        {**batch, features.WORD_INDEX: index},
        num_classes=5,
        variant=variant,
        lstm_units=16,
        config={"num_hidden_layers": 4, "max_position_embeddings": length},
    )


def similar(name):
    labels = tf.reshape(tf.range(ROWS), [ROWS // 2, 2])
    scores = tf.linspace(0.0, 1.0, ROWS // 2)
    loss = similarity_loss(name)
    return embedding(loss, scores if name.startswith("cos") else labels)


CASES = {
    "pretraining": lambda: pretrained(False),
    "pretraining, all predictions": lambda: pretrained(True),
    "pretraining, left to right": lambda: pretrained(False, is_decoder=True),
    "classifier": classified,
    "classifier, mean": lambda: classified(pooling="mean"),
    "classifier, max": lambda: classified(pooling="max"),
    "classifier, no padding": lambda: classified(switches={"trains_without_padding": True}),
    "classifier, groups": lambda: classified(
        switches={"trains_without_padding": True, "training_attention": attend_in_groups}
    ),
    "classifier, recomputed": lambda: classified(switches={"recomputes_blocks": True}),
    "classifier, relu": lambda: classified(config={"hidden_act": "relu"}),
    "classifier, gelu_new": lambda: classified(config={"hidden_act": "gelu_new"}),
    "classifier, DistilBERT": lambda: classified(config={"type_vocab_size": 0}),
    "several classes": lambda: trained(
        modeling.BertClassifier, SmoothedClasses(0.1), skewed(2, (ROWS, 4)), num_classes=4
    ),
    "regressor": lambda: trained(
        modeling.BertRegressor, squared_error, tf.linspace(-1.0, 2.0, ROWS)
    ),
    "token classifier": lambda: trained(
        modeling.BertTokenClassifier, cross_entropy(), skewed(5, (ROWS, LENGTH)), num_classes=5
    ),
    "spans": lambda: trained(
        modeling.BertSpanPredictor,
        spans(),
        {key: skewed(100) for key in (features.START_LOGITS, features.END_LOGITS)},
    ),
    "choices": lambda: trained(
        modeling.BertMultipleChoice,
        ChoiceCrossEntropy(),
        tf.stack([skewed(4, (ROWS // 4,)), tf.fill([ROWS // 4], 4)], axis=1),
        random_batch(ROWS // 4, (4,)),
    ),
    "frozen, a sum": lambda: feature_tagged("weighted_sum_all"),
    "frozen, side by side": lambda: feature_tagged("concat_last_four"),
    "frozen, long rows": lambda: feature_tagged("last", 16, 512),
    **{name: lambda name=name: similar(name) for name in SIMILARITY_LOSSES},
}


def named_gradients(variable, gradient):
    """Splits a variable's gradient by name; queries, keys and values are separate."""
    path = variable.path.split("/", 1)[-1]
    if "query_key_value" not in path:
        return {path: gradient}
    thirds = np.split(gradient, 3, axis=-1)
    return {f"{path}, {name}": third for name, third in zip("qkv", thirds, strict=True)}


# By name, as in training on a CPU, and through Keras' policy, as in ``fit``.
FORMS = {"rewritten": ("bfloat16", None), "mixed": ("float32", "mixed_bfloat16")}
EXACT = ("float32", None)
FAST = ("pretraining", "classifier, mean")


@functools.cache
def gradients(case, precision, policy):
    """Returns the float64 gradients of a case's variables by name, for fixed weights."""
    rewritten = is_rewritten(precision, "CPU")
    with training_in_process(is_rewritten=rewritten), preserved_arithmetic():
        set_precision(precision, "CPU")
        if policy:
            keras.config.set_dtype_policy(policy)
        keras.utils.set_random_seed(0)
        model, loss = CASES[case]()
        variables = model.trainable_variables

        @tf.function(autograph=False)
        def compute():
            with tf.GradientTape() as tape:
                value = loss()
            return tape.gradient(value, [v.value for v in variables], unconnected_gradients="zero")

        found = [np.asarray(gradient, np.float64) for gradient in compute()]
    by_name = {}
    for variable, gradient in zip(variables, found, strict=True):
        by_name |= named_gradients(variable, gradient)
    return by_name


@needs_bfloat16
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "case", [case if case in FAST else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_bfloat16_gradients_match_float32(case, form):
    exact, found = gradients(case, *EXACT), gradients(case, *FORMS[form])
    least = NO_GRADIENT * max(map(np.linalg.norm, exact.values()))
    compared, wrong = 0, []
    for name, gradient in exact.items():
        norm, other = np.linalg.norm(gradient), np.linalg.norm(found[name])
        if norm < least:
            continue
        compared += 1
        cosine = np.vdot(gradient, found[name]) / (norm * other)
        if not (0.95 < other / norm < 1.05 and cosine > 0.99):
            wrong.append(f"{name}: {other / norm:.3f} of the norm, cosine {cosine:.4f}")
    assert compared >= len(exact) - 5
    assert not wrong, "\n".join(wrong)


def test_row_of_frequent_label_sums_all_gradients():
    # In bfloat16, 256 - 1 is 255 and -256 - 1 is -256.
    count, width = 1024, 8
    states, table = tf.ones([count, width]), tf.zeros([16, width])
    labels, weights = tf.zeros([count], tf.int32), tf.ones([count])

    def gradient(dtype):
        with tf.GradientTape() as tape:
            rows = tf.cast(table, dtype)
            tape.watch(rows)
            sums = predicted_sums(tf.cast(states, dtype), rows, tf.zeros([16]), labels, weights)
        return tf.cast(tape.gradient(sums.loss, rows), tf.float32)

    np.testing.assert_allclose(gradient(tf.bfloat16), gradient(tf.float32), rtol=0.01)
