"""The heads against rows made by hand, the model called on them, and NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.saved_models import heads

from .conftest import VOCAB

PAD, UNK, CLS, SEP, MASK = range(5)
THE, A, CAT, DOG, SAT, ON, MAT, UN, ABLE, S, STOP, BANG, OPEN, CLOSE, MASK_WORD, CLS_WORD = range(
    5, 21
)


def strings(*texts):
    return tf.constant(texts, tf.string)


def run(model, rows, types=None, positions=None):
    """Calls the model on rows of ids, each alone and without padding."""
    results = []
    for index, row in enumerate(rows):
        inputs = {
            "input_word_ids": tf.constant([row]),
            "input_mask": tf.ones([1, len(row)], tf.int32),
            "input_type_ids": tf.constant([types[index] if types else [0] * len(row)]),
        }
        states = model.encoder(inputs)
        answers = model(
            {**inputs, "masked_lm_positions": tf.constant([positions[index] if positions else [0]])}
        )
        outputs = {key: states[key] for key in ("sequence_output", "pooled_output")} | answers
        results.append({key: value[0].numpy() for key, value in outputs.items()})
    return results


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_rows_of_one_segment(tokenizer):
    ids = tf.ragged.constant([[CAT, SAT], [], [THE, CAT, SAT, ON, THE, MAT]], dtype=tf.int32)
    rows, truncated = heads.model_inputs(tokenizer, [ids], 7)
    assert rows["input_word_ids"].numpy().tolist() == [
        [CLS, CAT, SAT, SEP, PAD, PAD, PAD],
        [CLS, SEP, PAD, PAD, PAD, PAD, PAD],
        [CLS, THE, CAT, SAT, ON, THE, SEP],
    ]
    assert rows["input_mask"].numpy().sum(1).tolist() == [4, 2, 7]
    assert not rows["input_type_ids"].numpy().any()
    assert truncated.numpy().tolist() == [False, False, True]
    # As wide as the longest needs, and no wider.
    assert heads.model_inputs(tokenizer, [ids], 24)[0]["input_mask"].shape == (3, 8)


def test_rows_of_pairs_lose_the_longer_ones_end(tokenizer):
    first = tf.ragged.constant([[THE, CAT, SAT], [A], []], dtype=tf.int32)
    second = tf.ragged.constant([[ON, THE, MAT, STOP, BANG], [DOG], []], dtype=tf.int32)
    rows, truncated = heads.model_inputs(tokenizer, [first, second], 9)
    assert rows["input_word_ids"].numpy().tolist() == [
        [CLS, THE, CAT, SAT, SEP, ON, THE, MAT, SEP],
        [CLS, A, SEP, DOG, SEP, PAD, PAD, PAD, PAD],
        [CLS, SEP, SEP, PAD, PAD, PAD, PAD, PAD, PAD],
    ]
    assert rows["input_type_ids"].numpy().tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 1],
        [0, 0, 0, 1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 0, 0],
    ]
    assert truncated.numpy().tolist() == [True, False, False]


def test_filled_masks(model, tokenizer):
    texts = ["The [MASK] sat, un[MASK]s", "", "no mask", "[MASK]"]
    outputs = heads.fill_masks(model, tokenizer, strings(*texts), max_seq_length=16, top_k=3)
    rows = [[CLS, THE, MASK, SAT, UNK, UN, MASK, UNK, SEP], [CLS, MASK, SEP]]
    expected = run(model, rows, positions=[[2, 6], [1, 1]])
    scores = [softmax(row["masked_lm_logits"][:, : len(VOCAB)]) for row in expected]
    best = [np.argsort(-row, axis=-1)[:, :3] for row in scores]

    assert outputs["counts"].numpy().tolist() == [2, 0, 0, 1]
    ids = outputs["token_ids"].numpy()
    assert ids.shape == (4, 2, 3) and ids.dtype == np.int32
    np.testing.assert_array_equal(ids[0], best[0])
    np.testing.assert_array_equal(ids[3], [best[1][0], [-1] * 3])
    assert (ids[1:3] == -1).all()
    np.testing.assert_allclose(
        outputs["scores"][0], np.take_along_axis(scores[0], best[0], 1), atol=1e-6
    )
    assert (outputs["scores"].numpy()[1:3] == 0).all()
    tokens = outputs["tokens"].numpy()
    assert [[piece.decode() for piece in mask] for mask in tokens[0]] == [
        [VOCAB[i] for i in mask] for mask in best[0]
    ]
    assert (tokens[1:3] == b"").all()
    first, second = (VOCAB[mask[0]].removeprefix("##") for mask in best[0])
    only = VOCAB[best[1][0, 0]].removeprefix("##")
    assert outputs["filled"].numpy().tolist() == [
        f"The {first} sat, un{second}s".encode(),
        b"",
        b"no mask",
        only.encode(),
    ]
    assert not outputs["truncated"].numpy().any()


def test_rows_beyond_the_vocabulary_are_never_guessed(model, tokenizer):
    outputs = heads.fill_masks(
        model, tokenizer, strings("[MASK]", "the [MASK]"), max_seq_length=16, top_k=1000
    )
    assert outputs["token_ids"].shape == (2, 1, len(VOCAB))
    assert sorted(outputs["token_ids"].numpy()[0, 0]) == list(range(len(VOCAB)))
    np.testing.assert_allclose(outputs["scores"].numpy().sum(-1), 1, atol=1e-5)


def test_masks_cut_off_stay_in_the_text(model, tokenizer):
    text = "[MASK] " + "cat " * 10 + "[MASK]."
    outputs = heads.fill_masks(model, tokenizer, strings(text), max_seq_length=8)
    assert outputs["counts"].numpy().tolist() == [1]
    assert outputs["truncated"].numpy().tolist() == [True]
    filled = outputs["filled"].numpy()[0].decode()
    guess = outputs["tokens"].numpy()[0, 0, 0].decode().removeprefix("##")
    assert filled == text.replace("[MASK]", guess, 1)


def test_only_the_literal_mask_is_a_mask(model, tokenizer):
    texts = ["[mask] [CLS] [SEP] [PAD] [ MASK ]", "[[MASK]]", "[MASK][MASK]", b"a\xff[MASK]\xc3"]
    outputs = heads.fill_masks(model, tokenizer, strings(*texts), max_seq_length=24)
    assert outputs["counts"].numpy().tolist() == [0, 1, 2, 1]
    filled = outputs["filled"].numpy()
    assert filled[0].decode() == texts[0]
    # What is not UTF-8 is gone, as it is for the tokenizer.
    guess = outputs["tokens"].numpy()[3, 0, 0].decode().removeprefix("##")
    assert filled[3].decode() == f"a{guess}"


def test_embeddings(model, tokenizer):
    texts = ["The cat sat", "", "[MASK]", "the cat " * 20]
    outputs = heads.embed(model.encoder, tokenizer, strings(*texts), max_seq_length=10)
    expected = run(
        model,
        [
            [CLS, THE, CAT, SAT, SEP],
            [CLS, SEP],
            # Three words: no id of a special token comes from text.
            [CLS, OPEN, MASK_WORD, CLOSE, SEP],
            [CLS, *[THE, CAT] * 4, SEP],
        ],
    )
    np.testing.assert_allclose(
        outputs["pooled_output"], [row["pooled_output"] for row in expected], atol=1e-5
    )
    np.testing.assert_allclose(
        outputs["mean_output"], [row["sequence_output"].mean(0) for row in expected], atol=1e-5
    )
    assert outputs["truncated"].numpy().tolist() == [False, False, False, True]


def test_next_sentences(model, tokenizer):
    outputs = heads.next_sentence(
        model, tokenizer, strings("The cat", ""), strings("sat.", "dog"), max_seq_length=16
    )
    rows = [[CLS, THE, CAT, SEP, SAT, STOP, SEP], [CLS, SEP, DOG, SEP]]
    expected = run(model, rows, types=[[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1]])
    probabilities = [softmax(row["next_sentence_logits"])[0] for row in expected]
    np.testing.assert_allclose(outputs["probability"], probabilities, atol=1e-6)
    assert abs(probabilities[0] - 0.5) > 1e-3, "the two labels would look alike"
    assert outputs["truncated"].numpy().tolist() == [False, False]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_rows_do_not_depend_on_their_batch(model, tokenizer, size):
    texts = ["the [MASK] sat on the mat .", "", "[MASK]"]

    def ask(some):
        batch = strings(*some) if some else tf.zeros([0], tf.string)
        keywords = {"max_seq_length": 8}
        return {
            **heads.fill_masks(model, tokenizer, batch, **keywords),
            **heads.embed(model.encoder, tokenizer, batch, **keywords),
            **heads.next_sentence(model, tokenizer, batch, batch, **keywords),
        }

    together = ask(texts)
    few = ask(texts[:size])
    for key, value in few.items():
        assert value.shape[0] == size, key
        assert value.dtype == together[key].dtype
        expected = together[key].numpy()[:size]
        if value.dtype.is_floating:
            np.testing.assert_allclose(value, expected, atol=1e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(value, expected, err_msg=key)
