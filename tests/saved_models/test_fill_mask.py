"""Filled masks equal direct calls of the model and NumPy."""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.answering import fill_mask, rows
from bert_tf.answering.fill_mask import fill_masks

from .conftest import VOCAB, ask, assert_same, features_of, serve, softmax, texts_of

PAD, UNK, CLS, SEP, MASK = range(5)
THE, A, CAT, DOG, SAT, ON, MAT, UN, ABLE, S, STOP, BANG, OPEN, CLOSE, MASK_WORD, CLS_WORD = range(
    5, 21
)


def scores_of(model, row, positions):
    """Returns (M, V) probabilities of the pieces at the masks of one row without padding."""
    inputs = {**features_of(row), "masked_lm_positions": tf.constant([positions])}
    return softmax(model(inputs)["masked_lm_logits"].numpy()[0, :, : len(VOCAB)])


def test_filled_masks_equal_numpy(model, monkeypatch):
    monkeypatch.setattr(fill_mask, "_GUESSES", 3)
    texts = ["The [MASK] sat, un[MASK]s", "", "no mask", "[MASK]"]
    outputs = ask(fill_masks, serve(model), text=texts)
    scores = [
        scores_of(model, [CLS, THE, MASK, SAT, UNK, UN, MASK, UNK, SEP], [2, 6]),
        scores_of(model, [CLS, MASK, SEP], [1]),
    ]
    best = [np.argsort(-row, axis=-1)[:, :3] for row in scores]

    assert outputs["counts"].tolist() == [2, 0, 0, 1]
    ids = outputs["token_ids"]
    assert ids.shape == (4, 2, 3) and ids.dtype == np.int32
    np.testing.assert_array_equal(ids[0], best[0])
    np.testing.assert_array_equal(ids[3], [best[1][0], [-1] * 3])
    assert (ids[1:3] == -1).all()
    np.testing.assert_allclose(
        outputs["scores"][0], np.take_along_axis(scores[0], best[0], 1), atol=1e-6
    )
    assert (outputs["scores"][1:3] == 0).all()
    tokens = outputs["tokens"]
    assert texts_of(tokens[0]) == [[VOCAB[i] for i in mask] for mask in best[0]]
    assert (tokens[1:3] == b"").all()
    first, second = (VOCAB[mask[0]].removeprefix("##") for mask in best[0])
    single = VOCAB[best[1][0, 0]].removeprefix("##")
    assert texts_of(outputs["filled"]) == [f"The {first} sat, un{second}s", "", "no mask", single]
    assert not outputs["truncated"].any()


def test_embeddings_beyond_the_vocabulary_are_never_predicted(model, monkeypatch):
    monkeypatch.setattr(fill_mask, "_GUESSES", 1000)
    outputs = ask(fill_masks, serve(model), text=["[MASK]", "the [MASK]"])
    assert outputs["token_ids"].shape == (2, 1, len(VOCAB))
    assert sorted(outputs["token_ids"][0, 0]) == list(range(len(VOCAB)))
    np.testing.assert_allclose(outputs["scores"].sum(-1), 1, atol=1e-5)


def test_truncated_end_of_text_is_returned(model, monkeypatch):
    text = "the [MASK] sat " * 30 + "[MASK]\xe9 cat"
    expected = ask(fill_masks, serve(model), text=[text, "[MASK]"])
    monkeypatch.setattr(rows, "_BYTES_PER_TOKEN", 3)
    assert_same(ask(fill_masks, serve(model), text=[text, "[MASK]"]), expected)
    assert expected["truncated"].tolist() == [True, False]
    assert expected["counts"][0] == 5 and expected["filled"][0].endswith("[MASK]é cat".encode())


def test_only_the_literal_mask_token_is_filled(model):
    texts = ["[mask] [CLS] [SEP] [PAD] [ MASK ]", "[[MASK]]", "[MASK][MASK]", b"a\xff[MASK]\xc3"]
    outputs = ask(fill_masks, serve(model, 24), text=texts)
    assert outputs["counts"].tolist() == [0, 1, 2, 1]
    filled = texts_of(outputs["filled"])
    assert filled[0] == texts[0]
    # Invalid UTF-8 is removed, as by the tokenizer.
    guess = outputs["tokens"][3, 0, 0].decode().removeprefix("##")
    assert filled[3] == f"a{guess}"


def test_memory_depends_on_the_number_of_masks(model, monkeypatch):
    texts = ["the [MASK] sat", "[MASK] " * 20, "a [MASK]", "cat"] * 3
    expected = ask(fill_masks, serve(model, 24), text=texts)
    served, sizes = serve(model, 24), []

    def guess(states):
        sizes.append(states.shape[0])
        return served.guess(states)

    monkeypatch.setattr(fill_mask, "_LOGITS_CHUNK_SIZE", 4 * len(VOCAB))
    counted = dataclasses.replace(served, guess=guess)
    assert_same(ask(fill_masks, counted, text=texts), expected, atol=1e-5)
    assert max(sizes) == 4 and sum(sizes) == 3 * 22
