import hashlib
import random
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pipelines.corpora.sources import from_documents
from bert_tf.pipelines.pretraining import dataset as pretraining
from bert_tf.pipelines.pretraining.dataset import (
    RowOptions,
    measure_coverage,
    pretraining_dataset,
    read_tokens,
)
from bert_tf.pipelines.pretraining.masking import Replacement
from bert_tf.pipelines.wordpiece import BertTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(400)]


def _documents(sizes=(6, 1, 9, 3, 14, 2), seed=0):
    """Documents of distinct words: an id determines its position in the corpus."""
    generator, words, documents = random.Random(seed), iter(WORDS), []
    for size in sizes:
        lengths = [generator.randint(1, 6) for _ in range(size)]
        documents.append([" ".join(next(words) for _ in range(n)) for n in lengths])
    return documents


class _Tokenizer:
    """Splits at spaces; builds a smaller graph than ``BertTokenizer``, with the same result."""

    vocab = (*SPECIAL, *WORDS)
    vocab_size = len(vocab)
    pad_id, _, cls_id, sep_id, mask_id = range(5)
    second_type, odd_to_longer = 1, False
    continuation = np.zeros(vocab_size, bool)

    def tokenize(self, strings):
        words = tf.strings.split(strings)
        return words.with_flat_values(
            5 + tf.strings.to_number(tf.strings.substr(words.flat_values, 1, 3), tf.int32)
        )


DOCUMENTS = _documents()
SENTENCES = [sentence for document in DOCUMENTS for sentence in document]
TOKENIZER = _Tokenizer()
# One block per document.
CORPUS = from_documents(DOCUMENTS, block_bytes=1)


OPTIONS = {"max_seq_length": 16, "blocks_per_pool": 3, "seed": 5}


def _dataset(corpus=CORPUS, tokenizer=TOKENIZER, **options):
    given = {"batch_size": 4, "num_epochs": 1, "drop_remainder": False, **OPTIONS, **options}
    return pretraining_dataset(corpus, tokenizer, **given)


def _concatenate(parts):
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _batches(dataset):
    """Concatenates the batches of a dataset as NumPy arrays."""
    return _concatenate(list(dataset.as_numpy_iterator()))


def _pools(make_rows, make_order, *, num_pools, num_epochs, **_):
    """Runs the functions of ``pool_batches`` eagerly, because tracing takes seconds."""
    for epoch in map(tf.constant, np.arange(num_epochs)):
        order = make_order(epoch)
        for pool in range(num_pools):
            rows = make_rows(epoch, tf.constant(pool, tf.int64), order)
            rows = {key: value.numpy() for key, value in rows.items()}
            cursors = np.int32([(epoch, pool, row) for row in range(len(rows["input_mask"]))])
            yield {**rows, "cursor": cursors}


def _rows(*given, **options):
    """Returns all rows of some epochs, without a dataset."""
    with mock.patch.object(pretraining, "pool_batches", _pools):
        return _concatenate(list(_dataset(*given, **options)))


def _digest(rows):
    digest = hashlib.sha256()
    for key in sorted(rows):
        digest.update(key.encode() + np.ascontiguousarray(rows[key]).tobytes())
    return digest.hexdigest()[:16]


def _unmasked(rows):
    """Restores the ids before masking."""
    ids = rows["input_word_ids"].copy()
    row, column = np.nonzero(rows["masked_lm_weights"])
    ids[row, rows["masked_lm_positions"][row, column]] = rows["masked_lm_ids"][row, column]
    return ids


@pytest.fixture(scope="module")
def two_epochs():
    return _rows(num_epochs=2)


def test_rows_have_correct_segments_types_and_labels(two_epochs):
    rows = two_epochs
    ids = _unmasked(rows)
    position = {word: i for i, word in enumerate(" ".join(SENTENCES).split())}
    owner = np.repeat(
        range(len(DOCUMENTS)), [len(" ".join(document).split()) for document in DOCUMENTS]
    )
    labels = rows["next_sentence_labels"]
    for row, mask, types, label in zip(
        ids, rows["input_mask"], rows["input_type_ids"], labels, strict=True
    ):
        size = mask.sum()
        assert mask.tolist() == [1] * size + [0] * (16 - size)
        assert not row[size:].any()
        first, second = np.flatnonzero(row == TOKENIZER.sep_id)
        assert (row[0], second) == (TOKENIZER.cls_id, size - 1)
        assert types.tolist() == [0] * (first + 1) + [1] * (second - first) + [0] * (16 - size)
        a, b = (
            np.array([position[TOKENIZER.vocab[token]] for token in segment])
            for segment in (row[1:first], row[first + 1 : second])
        )
        assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
        assert len(set(owner[a])) == len(set(owner[b])) == 1
        if label == 0:
            assert owner[a[0]] == owner[b[0]]
            assert b[0] > a[-1]
        else:
            assert owner[a[0]] != owner[b[0]]
    # A document of one sentence only has random next segments.
    is_single_sentence = np.isin(ids, TOKENIZER.tokenize([DOCUMENTS[1][0]]).flat_values)
    assert (labels[is_single_sentence[:, 1]] == 1).all()
    assert set(labels) == {0, 1}


def test_resumed_shard_continues_with_its_rows(two_epochs):
    # With two pools per epoch, the second of two shards reads the second pool of each epoch.
    in_shard = two_epochs["cursor"][:, 1] == 1
    epoch, pool, row = two_epochs["cursor"][in_shard][1].tolist()
    options = {"num_epochs": 2, "num_parallel_calls": 1, "drop_remainder": True}
    options |= {"num_shards": 2, "shard_index": 1, "start": (epoch, pool, row + 1)}
    dataset = _dataset(**options)
    features.check_batch(dataset.element_spec, features.PRETRAINING_FEATURES)
    shapes = {key: tuple(spec.shape) for key, spec in dataset.element_spec.items()}
    assert (shapes["masked_lm_ids"], shapes["input_mask"]) == ((4, 3), (4, 16))
    assert dataset.element_spec[features.CURSOR] == tf.TensorSpec([4, 3], tf.int32)
    rest = _batches(dataset)
    count = len(rest["cursor"])
    assert in_shard.sum() - 2 - 4 < count >= 8
    assert rest.keys() == two_epochs.keys()
    for key, values in rest.items():
        np.testing.assert_array_equal(values, two_epochs[key][in_shard][2 : 2 + count], key)


def test_replacement_of_predicted_tokens(two_epochs):
    masked, same = (_rows(replacement=Replacement(fraction, 0.0)) for fraction in (1.0, 0.0))
    count = len(masked["cursor"])  # rows of the first epoch
    np.testing.assert_array_equal(same["input_word_ids"], _unmasked(two_epochs)[:count])
    row, column = np.nonzero(masked["masked_lm_weights"])
    seen = masked["input_word_ids"][row, masked["masked_lm_positions"][row, column]]
    assert len(seen) > 25 and (seen == TOKENIZER.mask_id).all()
    for key in ("masked_lm_positions", "masked_lm_ids"):  # predictions are unchanged
        np.testing.assert_array_equal(masked[key], two_epochs[key][:count])


def test_without_pairs_every_token_occurs_once():
    rows = _rows(pairs=False, short_seq_prob=0.0)
    assert not rows["next_sentence_labels"].any()
    assert not rows["input_type_ids"].any()
    ids = _unmasked(rows)
    expected = TOKENIZER.tokenize(SENTENCES).flat_values.numpy()
    assert sorted(ids[ids > 4]) == sorted(expected)
    np.testing.assert_array_equal((ids == TOKENIZER.sep_id).sum(1), 1)
    np.testing.assert_array_equal(ids[:, 0], TOKENIZER.cls_id)
    full = sum(len(" ".join(document).split()) // 14 for document in DOCUMENTS)
    assert (rows["input_mask"].sum(1) == 16).sum() == full


def test_pools_have_at_least_two_documents():
    # Six blocks of one document each are three pools, not six.
    rows = _rows(blocks_per_pool=1, max_seq_length=5, max_predictions_per_seq=4)
    assert set(rows["cursor"][:, 1]) == {0, 1, 2}
    assert (rows["input_mask"] == 1).all() and rows["masked_lm_ids"].shape[1] == 4


def test_rows_do_not_change_between_versions(two_epochs):
    """Resumed runs need the same rows: the digests come from earlier versions."""
    assert _digest(two_epochs) == "221ed314c33e3bdb"
    assert _digest(_rows(pairs=False)) == "5d57b5d624b652a7"
    corpus = from_documents(_long_texts(6, 200), block_bytes=1)
    assert _digest(_rows(corpus, blocks_per_pool=None)) == "51aa92a55eb753ae"


def _long_texts(count, words):
    """Documents of one sentence each."""
    return [[" ".join(random.Random(i).choices(WORDS, k=words))] for i in range(count)]


def _coverage(documents, **options):
    rows = RowOptions(max_seq_length=16, **options)
    return measure_coverage(from_documents(documents), TOKENIZER, rows)


@pytest.mark.parametrize(("count", "words"), [(60, 400), (200, 27)])
def test_texts_without_full_stops_are_covered_and_half_the_pairs_are_random(count, words):
    documents = _long_texts(count, words)
    fraction, tokens, random = _coverage(documents)
    assert tokens == count * words and fraction > 0.85 and abs(random - 0.5) < 0.25
    labels = _rows(from_documents(documents), batch_size=64)["next_sentence_labels"]
    assert abs(labels.mean() - 0.5) < 3 * 0.5 / len(labels) ** 0.5
    assert _coverage(documents, pairs=False)[0] == 1


def test_coverage_is_sampled_and_counts_each_token_once():
    # Two sentences fit into the 13 tokens of a pair.
    fitting = [["w1 " * 7, "w2 " * 6] * 2000, ["w3 " * 7, "w4 " * 6] * 2000]
    assert _coverage(fitting, short_seq_prob=0)[0] == 1
    truncated = [["w1 " * 12, "w2 " * 12] * 2000, ["w3 " * 12, "w4 " * 12] * 2000]
    fraction, *_ = _coverage(truncated, short_seq_prob=0)
    # A pair of 24 tokens keeps 13. A random pair counts only the 7 of A, because B is used again.
    np.testing.assert_allclose(fraction, 13 / 24, rtol=0.05)
    large = [["w1 " * 250_000]] * 10
    assert _coverage(large, pairs=False) == (1, 1_000_000, 0)


def test_pool_size_is_limited_in_bytes():
    """A pool of texts without full stops would otherwise be the entire corpus."""
    corpus = from_documents([["w1 " * 350_000]] * 24)
    with pytest.raises(ValueError, match="pool below 6"):
        _dataset(corpus, blocks_per_pool=None, start=(0, 99, 0))


def test_sentences_without_tokens_are_dropped():
    corpus = from_documents([["\x01", "w1 w2"], ["\x02"], ["w3", "\x01", "w4"]])
    tokenizer = BertTokenizer([*SPECIAL, *WORDS])
    tokens = read_tokens(corpus, tokenizer, tf.constant([0], tf.int64))
    assert tokens.ids.numpy().tolist() == [6, 7, 8, 9]
    assert tokens.token_splits.numpy().tolist() == [0, 2, 3, 4]
    assert tokens.sentence_splits.numpy().tolist() == [0, 1, 3]


def test_pool_without_tokens_raises_error():
    tokenizer = _Tokenizer()
    tokenizer.tokenize = lambda strings: TOKENIZER.tokenize(tf.zeros_like(strings))
    with pytest.raises(tf.errors.InvalidArgumentError, match="No sentence of this pool"):
        _rows(tokenizer=tokenizer)


class _NoDocuments:
    num_documents = num_blocks = 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"masked_lm_prob": 1.5}, "masked_lm_prob: expected a probability from 0 to 1, got 1.5."),
        ({"short_seq_prob": -1}, "short_seq_prob: expected a probability from 0 to 1, got -1."),
        ({"max_seq_length": 4}, "max_seq_length: expected at least 5, got 4."),
        ({"max_seq_length": 3, "pairs": False}, "max_seq_length: expected at least 4, got 3."),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq: expected at least 1, got 0."),
        ({"seed": 2**63}, f"seed: expected a 64-bit integer, got {2**63}."),
        ({"blocks_per_pool": 0}, "blocks_per_pool: expected at least 1, got 0."),
        ({"corpus": _NoDocuments()}, "The corpus has no documents. Pass at least one."),
        (
            {"corpus": from_documents([DOCUMENTS[0]])},
            "The corpus has one document, but next-sentence pairs need at least 2. Add documents, "
            'use input_format="google" if blank lines separate them, or pretrain with pairs=False.',
        ),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_error(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        _dataset(**options)


def test_ltr_rows_are_unmasked_and_each_token_predicts_the_next():
    # Without pairs, one document suffices.
    options = {"corpus": from_documents([DOCUMENTS[2]]), "pairs": False}
    masked, left_to_right = (_rows(objective=name, **options) for name in ("mlm", "ltr"))
    ids = left_to_right["input_word_ids"]
    np.testing.assert_array_equal(ids, _unmasked(masked))
    np.testing.assert_array_equal(left_to_right["masked_lm_ids"], ids[:, 1:])
    np.testing.assert_array_equal(
        left_to_right["masked_lm_weights"], left_to_right["input_mask"][:, 1:]
    )
    np.testing.assert_array_equal(left_to_right["cursor"], masked["cursor"])
