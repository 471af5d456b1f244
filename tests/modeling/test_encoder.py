"""``BertEncoder`` and its embeddings."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.encoder import BertEmbeddings
from bert_tf.training import attention
from tests.modeling.conftest import TINY, encoder_batch, made, randomize, weights_by_path
from tests.modeling.numpy_bert import encode

IDS = np.array([[3, 14, 0], [0, 7, 7]], "int32")
TYPES = np.array([[0, 0, 1], [1, 0, 0]], "int32")


def test_embeddings_are_truncated_normal_with_dropout_in_training():
    config = dataclasses.replace(TINY, vocab_size=20_000, initializer_range=0.05)
    layer = BertEmbeddings(config)
    for training in (False, True):
        assert (layer(IDS, TYPES, training=training).numpy() == 0.0).any() == training
    values = layer.word_embeddings.numpy()
    assert np.abs(values).max() <= 0.1  # cut at two deviations
    # A normal distribution cut at two deviations has 0.8796 of its deviation.
    np.testing.assert_allclose(values.std(), 0.05 * 0.8796, rtol=0.01)
    assert np.abs(values[:12] - layer.position_embeddings.numpy()).max() > 0.01


@pytest.mark.parametrize("name", ["word", "type", "position"])
@pytest.mark.parametrize("wrong", [-100, -1, 50_000])
def test_invalid_id_is_error_or_nan(name, wrong):
    layer = BertEmbeddings(TINY)
    ids = {"word": IDS, "type": TYPES, "position": 0 * IDS}
    ids[name] = np.where(np.arange(6).reshape(2, 3) == 4, wrong, ids[name])
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"\[1,1\] = {wrong} is not in \[0,"):
        layer(*ids.values())
    # A GPU and XLA look up another row, and cannot raise.
    run = tf.function(lambda *inputs: layer(*inputs), jit_compile=True, autograph=False)
    is_nan = np.isnan(run(*map(tf.constant, ids.values())).numpy())
    np.testing.assert_array_equal(is_nan.all(-1), [[False] * 3, [False, True, False]])
    assert is_nan.sum() == TINY.hidden_size


def test_single_token_type_applies_to_both_texts():
    encoder = randomize(BertEncoder(dataclasses.replace(TINY, type_vocab_size=1)))
    batch = encoder_batch()
    assert batch["input_type_ids"].max() == 1
    alone = {**batch, "input_type_ids": 0 * batch["input_type_ids"]}
    outputs = [encoder(rows)["sequence_output"].numpy() for rows in (batch, alone)]
    np.testing.assert_array_equal(*outputs)


def test_distilbert_pooler_uses_relu():
    encoder = randomize(BertEncoder(dataclasses.replace(TINY, type_vocab_size=0)))
    outputs = encoder(encoder_batch())
    first = outputs["sequence_output"].numpy()[:, 0]
    dense = encoder.pooler.dense
    expected = np.maximum(first @ dense.kernel.numpy() + dense.bias.numpy(), 0)
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-5)
    assert (expected > 0).any() and (expected == 0).any()


def test_adam_squares_summed_gradients_of_rows():
    layer = BertEmbeddings(dataclasses.replace(TINY, hidden_dropout_prob=0.0))
    layer(IDS, TYPES)
    wanted = np.random.default_rng(0).normal(size=(2, 3, TINY.hidden_size)).astype("float32")
    tables = [layer.word_embeddings, layer.token_type_embeddings]
    before = [table.numpy() for table in tables]
    with tf.GradientTape(persistent=True) as tape:
        outputs = layer(IDS, TYPES, training=True)
        loss = tf.reduce_sum(outputs * wanted)
        # The gradient of each token separately, with a separate row.
        rows = tf.gather(before[0], IDS)
        types = tf.gather(before[1], TYPES)
        tape.watch([rows, types])
        summed = rows + types + layer.position_embeddings[:3]
        apart = tf.reduce_sum(layer.layer_norm(summed) * wanted)
    optimizer = keras.optimizers.Adam(0.1, beta_1=0.9, beta_2=0.5, epsilon=1e-3)
    optimizer.build(tables)
    for _ in range(2):  # in the first step, the second moment would cancel out
        optimizer.apply(tape.gradient(loss, [table.value for table in tables]), tables)
    for table, start, ids, tokens in zip(
        tables, before, (IDS, TYPES), tape.gradient(apart, [rows, types]), strict=True
    ):
        gradient = np.zeros_like(start)
        np.add.at(gradient, ids, tokens.numpy())
        expected = start - 2 * 0.1 * gradient / (np.abs(gradient) + 1e-3)
        np.testing.assert_allclose(table.numpy(), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_vectors_positions_and_attentions_equal_plain_loops(causal):
    """Also compares the outputs of the pre-training heads."""
    config = dataclasses.replace(TINY, is_decoder=causal)
    encoder = made(BertEncoder, config, dtype="float64")
    mask, types = (encoder_batch()[key] for key in ("input_mask", "input_type_ids"))
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 6, 8))
    positions = np.stack([rng.permutation(12)[:6] for _ in range(2)])
    embedded = encoder.embeddings(vectors, types, positions)
    outputs = encoder.from_embedded(embedded, mask, attentions=True)
    assert "attentions" not in encoder.from_embedded(embedded, mask)
    weights, tables = weights_by_path(encoder), "bert_encoder/embeddings/"
    position_table = weights[tables + "position_embeddings"]
    for b in range(2):
        weights[tables + "word_embeddings"] = vectors[b]
        weights[tables + "position_embeddings"] = position_table[positions[b]]
        states, pooled = encode(weights, config, range(6), mask[b], types[b])
        found = [outputs["embedding_output"], *outputs["encoder_outputs"]]
        for state, expected in zip(found, states, strict=True):
            np.testing.assert_allclose(state[b], expected, atol=1e-10)
        np.testing.assert_allclose(outputs["pooled_output"][b], pooled, atol=1e-10)
        for layer, found in enumerate(outputs["attentions"]):
            path = f"bert_encoder/layer_{layer}/attention/query_key_value"
            projected = states[layer] @ weights[path + "/kernel"] + weights[path + "/bias"]
            for head, to in np.ndindex(2, 6):
                query = projected[to, 4 * head : 4 * head + 4]
                scores = projected[:, 8 + 4 * head : 12 + 4 * head] @ query / 2
                seen = mask[b] * (np.arange(6) <= to if causal else 1)
                shares = np.exp(scores) * seen
                np.testing.assert_allclose(
                    found[b, head, to], shares / shares.sum(), rtol=0, atol=1e-10
                )


def test_input_vectors_are_cast_to_the_embedding_dtype():
    vectors = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    exact, mixed = BertEmbeddings(TINY), BertEmbeddings(TINY, dtype="mixed_bfloat16")
    expected = exact(vectors, TYPES)
    mixed.build()
    mixed.set_weights(exact.get_weights())
    found = mixed(vectors, TYPES)
    assert found.dtype == "bfloat16"
    np.testing.assert_allclose(tf.cast(found, "float32"), expected, rtol=0, atol=0.05)


def test_without_a_pooler():
    full = made(BertEncoder)
    encoder = made(BertEncoder, pooler=False)
    assert encoder.pooler is None
    assert [v.path for v in encoder.weights] == [v.path for v in full.weights[:-2]]
    encoder.set_weights(full.get_weights()[:-2])
    outputs, expected = encoder(encoder_batch()), full(encoder_batch())
    assert set(expected) - set(outputs) == {"pooled_output"}
    np.testing.assert_array_equal(outputs["sequence_output"], expected["sequence_output"])


def test_xla_conflicts_with_training_without_padding(tmp_path):
    encoder = BertEncoder(TINY)
    encoder.trains_without_padding = True
    message = "encoder.trains_without_padding. Set it to False, or compile with jit_compile=False"
    # Keras chooses the default, also for a model that contains the encoder.
    assert not any(block.supports_jit for block in encoder.blocks)
    encoder.compile(optimizer="sgd", loss="mse")
    encoder.trains_without_padding = False
    assert all(block.supports_jit for block in encoder.blocks)
    encoder.compile(optimizer="sgd", loss="mse", jit_compile=True)
    assert encoder.jit_compile
    encoder.trains_without_padding = True
    with pytest.raises(ValueError, match=message):
        encoder.fit(encoder_batch(), None)
    encoder.trains_without_padding = False
    encoder.training_attention = attention.attend_in_groups
    assert not any(block.supports_jit for block in encoder.blocks)
    with pytest.raises(ValueError, match="encoder.training_attention. Set it to None"):
        encoder.fit(encoder_batch(), None)
    encoder.save(tmp_path / "a.keras")
    assert keras.saving.load_model(tmp_path / "a.keras").jit_compile


def test_encoder_attribute_is_the_model():
    encoder = made(BertEncoder)
    assert encoder.encoder is encoder and "encoder" not in dir(encoder)


def test_variable_paths_do_not_depend_on_earlier_layers():
    first, second = ([v.path for v in BertEncoder(TINY).weights] for _ in range(2))
    assert first == second
    dense, norm = ("kernel", "bias"), ("gamma", "beta")
    block = [
        *(("attention/query_key_value", dense), ("attention/output", dense)),
        *(("attention_layer_norm", norm), ("intermediate", dense)),
        *(("output", dense), ("output_layer_norm", norm)),
    ]
    parts = [
        ("embeddings", [f"{kind}_embeddings" for kind in ("word", "position", "token_type")]),
        ("embeddings/layer_norm", norm),
        *((f"layer_{number}/{part}", leaves) for number in range(2) for part, leaves in block),
        ("pooler/dense", dense),
    ]
    assert first == [f"bert_encoder/{part}/{leaf}" for part, leaves in parts for leaf in leaves]
    assert BertEncoder(TINY, name="query").weights[0].path == "query/embeddings/word_embeddings"


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("bert-tiny", 4_385_920),  # Turc et al. 2019, table 1: 4.4 million
        pytest.param("bert-base", 109_482_240, marks=pytest.mark.slow),
    ],
)
def test_parameter_count(preset, count):
    assert BertEncoder(BertConfig.from_preset(preset)).count_params() == count


def test_invalid_inputs_are_rejected():
    encoder = made(BertEncoder)
    with pytest.raises(ValueError) as error:
        encoder(encoder_batch(sequence=13))
    assert str(error.value) == (
        "bert_encoder: sequence length 13 exceeds the maximum of 12 (max_position_embeddings). "
        "Truncate the sequences."
    )
    assert encoder(encoder_batch(sequence=12))["sequence_output"].shape == (2, 12, 8)
    batch = encoder_batch()
    del batch["input_mask"]
    with pytest.raises(ValueError) as error:
        encoder(batch)
    assert str(error.value) == (
        "bert_encoder: the batch lacks input_mask: expected the keys input_word_ids, input_mask, "
        "input_type_ids, got input_word_ids, input_type_ids. Use model.preprocessor for strings."
    )
    with pytest.raises(ValueError, match="got list. Use model.preprocessor"):
        encoder(["the cat sat"])


def test_shapes_are_dynamic_or_inferred():
    encoder = made(BertEncoder)
    assert encoder.output["sequence_output"].shape == (None, None, 8)
    spec = {
        key: tf.TensorSpec((4, 6), feature.dtype, key)
        for key, feature in features.ENCODER_FEATURES.items()
    }
    run = tf.function(encoder, autograph=False)
    outputs = run.get_concrete_function(spec).structured_outputs
    assert outputs["sequence_output"].shape == (4, 6, 8)
    assert outputs["pooled_output"].shape == (4, 8)
    batch = {key: tf.constant(value) for key, value in encoder_batch(batch=4).items()}
    eager, graph = encoder(batch), run(batch)
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(graph[key], eager[key], atol=1e-5)


@pytest.mark.parametrize(("dtype", "bound"), [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)])
def test_mixed_precision_is_close(dtype, bound):
    exact, mixed = made(BertEncoder), made(BertEncoder, dtype=dtype)
    mixed.set_weights(exact.get_weights())
    assert {str(w.dtype) for w in mixed.weights} == {"float32"}
    assert keras.backend.standardize_dtype(mixed(encoder_batch())["pooled_output"].dtype) in dtype
    # Outputs are layer-normalized, so they are of order 1.
    difference = exact(encoder_batch())["sequence_output"] - tf.cast(
        mixed(encoder_batch())["sequence_output"], "float32"
    )
    assert 0.0 < np.abs(difference).max() < bound


def test_encoder_inside_saved_functional_model(tmp_path):
    encoder = randomize(BertEncoder(TINY))
    score = keras.layers.Dense(3, name="score")(encoder.output["pooled_output"])
    model = keras.Model(encoder.input, score)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(loaded(encoder_batch()), model(encoder_batch()))


# === Causal: no token sees a later one, however attention is computed ===

CAUSAL = dataclasses.replace(
    TINY, is_decoder=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)
# Options of the encoder, and whether the call is in training.
WAYS = {
    "without padding": ({"infers_without_padding": True}, False),
    "in groups": (
        {"trains_without_padding": True, "training_attention": attention.attend_in_groups},
        True,
    ),
    "recomputed": ({"recomputes_blocks": True}, True),
    "compiled": ({}, False),
}


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_causal_outputs_do_not_depend_on_later_tokens(dtype):
    """The float32 outputs equal plain loops."""
    encode, batch = made(BertEncoder, CAUSAL, dtype=dtype), encoder_batch()
    expected = np.array(encode(batch)["sequence_output"])
    for position in (2, 5):
        changed = {key: value.copy() for key, value in batch.items()}
        changed["input_word_ids"][:, position] = (batch["input_word_ids"][:, position] + 1) % 15
        states = np.array(encode(changed)["sequence_output"])
        np.testing.assert_array_equal(states[:, :position], expected[:, :position])
        # Later tokens attend to the changed one.
        assert (states[0, position:] != expected[0, position:]).any(-1).all()


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way == "compiled")) for way in WAYS]
)
def test_compute_options_agree_and_ignore_padding(way, monkeypatch):
    encoder, batch = made(BertEncoder, CAUSAL), encoder_batch()
    expected = encoder(batch)
    monkeypatch.setattr(attention, "_MAX_SCORES", CAUSAL.num_attention_heads * 6**2)  # of a text
    switches, training = WAYS[way]
    for name, value in switches.items():
        monkeypatch.setattr(encoder, name, value)
    encode = functools.partial(encoder, training=training)
    if way == "without padding":
        assert all(block.plan.infers_without_padding for block in encoder.blocks)
    if way == "compiled":
        encode = tf.function(encode, jit_compile=True, autograph=False)
    real = batch["input_mask"].astype(bool)
    without = {**batch, "input_word_ids": batch["input_word_ids"] * real}
    for outputs in (encode(batch), encode(without)):
        states = np.array(outputs["sequence_output"])[real]
        np.testing.assert_allclose(states, expected["sequence_output"][real], atol=1e-5)
        np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-5)


@pytest.mark.parity
def test_onnx_output_names(tmp_path):
    pytest.importorskip("tf2onnx")
    runtime = pytest.importorskip("onnxruntime")
    encoder = randomize(BertEncoder(TINY))
    encoder.export(str(tmp_path / "encoder.onnx"), format="onnx", verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "encoder.onnx"))
    batch = encoder_batch()
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, batch), strict=True))
    expected = encoder(batch)
    states = expected.pop("encoder_outputs")
    expected |= {f"encoder_outputs_{at}": state for at, state in enumerate(states)}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.numpy(), atol=1e-5)
