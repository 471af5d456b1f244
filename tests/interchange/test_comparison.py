"""Two checkpoints that differ anywhere are not taken for one model."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf.interchange import comparison
from bert_tf.interchange.weights import assign, build_model
from tests.interchange.small_checkpoints import (
    CONFIG,
    MODELS,
    make_checkpoint,
    read_all,
    stored,
    variables_of,
)


def _compare(first, second):
    return comparison.compare(comparison.take_sample(first), comparison.take_sample(second))


OUTPUTS = {
    "encoder": {"sequence_output", "encoder_outputs", "embedding_output", "pooled_output"},
    "pretrainer": {"masked_lm_logits", "next_sentence_logits"},
    "span predictor": {"start_logits", "end_logits"},
    "multiple choice": {"logits"},
    "regressor": {"logits"},
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_checkpoint_and_itself(name):
    checkpoint = make_checkpoint(MODELS[name])
    differences = _compare(checkpoint, checkpoint)
    assert differences == dict.fromkeys(OUTPUTS[name], 0.0)


def test_a_narrower_dtype_is_the_same_model():
    half = make_checkpoint(MODELS["classifier"], dtype="float16")
    tensors = {
        name: stored(name, array.astype("float32")) for name, array in read_all(half).items()
    }
    _compare(half, dataclasses.replace(half, tensors=tensors))


def _changed(checkpoint, name, change):
    array = checkpoint.tensors[name].read().copy()
    change(array)
    tensors = {**checkpoint.tensors, name: stored(name, array)}
    return dataclasses.replace(checkpoint, tensors=tensors)


def _without(checkpoint, spec, names):
    tensors = {name: t for name, t in checkpoint.tensors.items() if not name.startswith(names)}
    return dataclasses.replace(checkpoint, model=spec, tensors=tensors)


def _last_bit(array):
    array.flat[-1] = np.nextafter(array.flat[-1], np.float32(9))


def test_every_weight_is_compared_to_the_last_bit(monkeypatch):
    checkpoint = make_checkpoint(MODELS["pretrainer"])
    monkeypatch.setattr(comparison, "_run", None)
    for name in checkpoint.tensors:
        other = _changed(checkpoint, name, _last_bit)
        with pytest.raises(
            ValueError, match=rf"^What was made of memory has other weights: {name}\.$"
        ):
            _compare(checkpoint, other)


def test_a_transposed_matrix_is_another():
    checkpoint = make_checkpoint(MODELS["encoder"])
    name = "layer_0/intermediate/kernel"
    turned = {name: stored(name, checkpoint.tensors[name].read().reshape(12, 8))}
    other = dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **turned})
    with pytest.raises(ValueError, match=r"has other weights: layer_0/intermediate/kernel\.$"):
        _compare(checkpoint, other)


def test_a_weight_more():
    checkpoint = make_checkpoint(MODELS["pretrainer"])
    less = _without(checkpoint, MODELS["next sentence"], "masked_lm/")
    with pytest.raises(
        ValueError, match=r"has other weights: masked_lm/dense/kernel, masked_lm/de"
    ):
        _compare(less, checkpoint)


@pytest.mark.parametrize(
    "changes",
    [{"hidden_act": "relu"}, {"layer_norm_eps": 0.1}, {"num_attention_heads": 4}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_config_that_computes_otherwise(changes):
    checkpoint = make_checkpoint(MODELS["classifier"])
    other = dataclasses.replace(checkpoint, config=dataclasses.replace(CONFIG, **changes))
    with pytest.raises(
        ValueError, match=r"^What was made of memory gives other outputs: they differ in logits by"
        r" \d.*, where at most 1e-05 was expected\.$"
    ):  # fmt: skip
        _compare(checkpoint, other)


def test_weights_that_are_no_numbers():
    checkpoint = make_checkpoint(MODELS["regressor"])
    broken = _changed(checkpoint, "regressor/bias", lambda array: array.fill(np.nan))
    with pytest.raises(ValueError, match=r"they differ in logits by nan"):
        _compare(broken, broken)


def test_other_outputs():
    checkpoint = make_checkpoint(MODELS["pretrainer"])
    other = _without(checkpoint, MODELS["masked lm"], ("pooler/", "next_sentence/"))
    with pytest.raises(
        ValueError, match=r"^memory gives masked_lm_logits, next_sentence_logits, and what was made"
        r" of it gives masked_lm_logits\.$"
    ):  # fmt: skip
        _compare(checkpoint, other)


@pytest.mark.parametrize("name", ["pretrainer", "multiple choice"])
def test_the_input_is_such_that_every_weight_counts(name):
    checkpoint = make_checkpoint(MODELS[name])
    model = build_model(CONFIG, MODELS[name])
    assign(model, checkpoint.tensors)
    inputs = comparison._random_inputs(model)
    mask = inputs["input_mask"]
    assert 0 < (mask == 0).mean() < 0.5 and (mask[..., 0] == 1).all()
    assert set(inputs["input_type_ids"].flat) == {0, 1, 2}
    assert len(set(inputs["input_word_ids"].flat)) > 10
    first = keras.tree.flatten(model(inputs))
    for variable in model.weights:
        before = np.array(variable)
        # Not all by the same amount, which a normalisation would take out again.
        variable.assign(before + 0.1 * np.random.default_rng(2).normal(size=before.shape))
        second = keras.tree.flatten(model(inputs))
        changes = [np.max(np.abs(a - b)) for a, b in zip(first, second, strict=True)]
        assert max(changes) > comparison.TOLERANCE, variable.path
        variable.assign(before)


def test_few_words_are_the_models_own():
    config = dataclasses.replace(CONFIG, vocab_size=500)
    checkpoint = make_checkpoint(MODELS["masked lm"], config)
    few = comparison._with_few_words(checkpoint)
    assert few.config == dataclasses.replace(config, vocab_size=64)
    table = checkpoint.tensors["embeddings/word_embeddings"].read()
    bias = checkpoint.tensors["masked_lm/output_bias"].read()
    rows = few.tensors["embeddings/word_embeddings"].read()
    words = [int(np.flatnonzero((table == row).all(1))[0]) for row in rows]
    assert len(set(words)) == 64
    assert np.array_equal(few.tensors["masked_lm/output_bias"].read(), bias[words])
    model = build_model(few.config, few.model)
    assign(model, few.tensors)
    assert variables_of(model)["embeddings/word_embeddings"].shape == (64, 8)
