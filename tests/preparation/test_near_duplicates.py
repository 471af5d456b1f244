"""Shingles, MinHash and buckets, against sets of tuples of words."""

import re

import numpy as np
import pytest

from bert_tf.preparation import near_duplicates
from bert_tf.preparation.near_duplicates import NUM_BANDS


def shingles(text):
    """The set of a text's runs of five words, as tuples."""
    words = re.findall(r"\w+", text.lower())
    length = min(5, len(words))
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def jaccard(first, second):
    first, second = shingles(first), shingles(second)
    return len(first & second) / len(first | second)


def text(rng, count, words=5000):
    return " ".join(f"W{number}" for number in rng.integers(words, size=count))


def edited(rng, original, share):
    """A text some of whose words were replaced."""
    words = original.split()
    for place in np.flatnonzero(rng.random(len(words)) < share):
        words[place] = "Other"
    return " ".join(words)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.2, 1.0])
def test_the_similarity_is_that_of_sets_of_shingles(share):
    rng = np.random.default_rng(1)
    # Few words, so that shingles come more than once.
    first = text(rng, 3000, words=6)
    second = edited(rng, first, share)
    found = near_duplicates.jaccard(*map(near_duplicates.shingles, (first, second)))
    assert found == pytest.approx(jaccard(first, second), abs=1e-12)


def test_short_texts_are_one_shingle():
    hashes = [near_duplicates.shingles(words) for words in ("a b", "A, b!", "a b c", "b a")]
    assert [len(found) for found in hashes] == [1] * 4
    assert hashes[0] == hashes[1]
    assert len({int(found[0]) for found in hashes}) == 3


def test_characters_are_words_where_no_blanks_are_written():
    assert near_duplicates.words_of("京都の Mt. Fuji") == ["京", "都", "の", "mt", "fuji"]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.15])
def test_equal_minhash_values_estimate_the_similarity(share):
    rng = np.random.default_rng(2)
    first = text(rng, 2000)
    second = edited(rng, first, share)
    count = 4000
    signatures = [
        near_duplicates.signature(near_duplicates.shingles(each), count) for each in (first, second)
    ]
    expected = jaccard(first, second)
    found = np.mean(signatures[0] == signatures[1])
    assert 0.05 < expected < 0.95
    # Four standard deviations of the mean of as many draws.
    assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / count)


def test_a_signature_is_the_least_of_each_function():
    hashes = near_duplicates.shingles(text(np.random.default_rng(3), 5000))
    whole = near_duplicates.signature(hashes, 50)
    parts = [near_duplicates.signature(part, 50) for part in np.array_split(hashes, 7)]
    assert np.array_equal(whole, np.min(parts, axis=0))


def test_each_function_is_one_to_one():
    """An even factor would give numbers that differ in the highest bit alone one value."""
    first, second = (
        near_duplicates.signature(np.uint64([number << 32]), 200) for number in (1, 1 + (1 << 31))
    )
    assert (first != second).all()


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.95])
def test_nearly_all_pairs_of_the_threshold_meet(threshold):
    rows = near_duplicates.rows_per_band(threshold)
    assert 1 - (1 - threshold**rows) ** NUM_BANDS >= 0.99
    assert rows == 16 or 1 - (1 - threshold ** (rows + 1)) ** NUM_BANDS < 0.99


def test_one_is_the_strictest_threshold():
    assert near_duplicates.rows_per_band(1.0) == near_duplicates.rows_per_band(0.999)


def test_documents_meet_as_often_as_their_similarity_says():
    rng = np.random.default_rng(4)
    rows, met, expected = 7, 0, 0.0
    for _ in range(150):
        first = text(rng, 300)
        second = edited(rng, first, 0.08)
        similarity = jaccard(first, second)
        expected += 1 - (1 - similarity**rows) ** NUM_BANDS
        buckets = [
            near_duplicates.buckets(near_duplicates.shingles(each), rows)
            for each in (first, second)
        ]
        met += len(np.intersect1d(*buckets)) > 0
    assert 20 < expected < 130
    assert abs(met - expected) < 4 * np.sqrt(150 * 0.25)


def test_bands_share_no_bucket():
    buckets = near_duplicates.buckets(near_duplicates.shingles("one"), 2)
    assert len(np.unique(buckets)) == NUM_BANDS
