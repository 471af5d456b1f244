import collections
import itertools
import random
import types

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import Tokenization
from bert_tf.checkpoints.tokenizer_files import build_tokenizer
from bert_tf.pipelines import packing
from bert_tf.pipelines.packing import Segments
from bert_tf.pipelines.randomness import fold
from bert_tf.pipelines.vocabulary import SPECIAL_TOKENS
from tests.pipelines.pretraining import twins as twins

IDS = tf.constant([10, 11, 12, 13, 14], tf.int32)
SPECIAL = types.SimpleNamespace(cls_id=2, sep_id=3, pad_id=0, second_type=1, odd_to_longer=False)


def _pack(a, b):
    return packing.pack(IDS, [a, b], 12, SPECIAL)


A = tf.constant([0, 3], tf.int64), tf.constant([4, 2], tf.int64)
B = tf.constant([1, 0], tf.int64), tf.constant([1, 5], tf.int64)
PAIRS = {
    "input_word_ids": [
        [2, 10, 11, 12, 13, 3, 11, 3, 0, 0, 0, 0],
        [2, 13, 14, 3, 10, 11, 12, 13, 14, 3, 0, 0],
    ],
    "input_mask": [[1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]],
    "input_type_ids": [[0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0]],
}


def _assert_equal(rows, expected):
    assert rows.keys() == expected.keys()
    for key, values in expected.items():
        assert rows[key].dtype == tf.int32
        np.testing.assert_array_equal(rows[key], values)


def test_pack_pairs_eagerly_in_dataset_and_from_table():
    _assert_equal(_pack(A, B), PAIRS)
    dataset = tf.data.Dataset.from_tensors((A, B)).map(_pack)
    assert dataset.element_spec["input_type_ids"].shape.as_list() == [2, 12]
    _assert_equal(next(iter(dataset)), PAIRS)
    _assert_equal(
        packing.pack_from_table(packing.token_table(IDS, SPECIAL), [A, B], tf.constant(12)), PAIRS
    )


def test_pack_full_row_custom_special_ids_and_empty_batch():
    ids = [[2, 10, 11, 12, 13, 14, 3]]
    expected = {"input_word_ids": ids, "input_mask": [[1] * 7], "input_type_ids": [[0] * 7]}
    _assert_equal(packing.pack(IDS, [(tf.constant([0]), tf.constant([5]))], 7, SPECIAL), expected)
    special = types.SimpleNamespace(cls_id=7, sep_id=8, pad_id=9, second_type=1)
    row = packing.pack(IDS, [(tf.constant([1]), tf.constant([1]))], 5, special)
    assert row["input_word_ids"].numpy().tolist() == [[7, 11, 8, 9, 9]]
    empty = tf.zeros([0], tf.int32), tf.zeros([0], tf.int32)
    assert packing.pack(IDS, [empty, empty], 12, SPECIAL)["input_mask"].shape == (0, 12)


def test_longest_first_matches_googles_loop():
    generator = random.Random(0)
    for max_tokens in (2, 3, 7, 8):
        lengths = list(itertools.product(range(12), repeat=2))
        kept = packing.longest_first(*map(tf.constant, zip(*lengths, strict=True)), max_tokens)
        for (a, b), length_a, length_b in zip(lengths, *kept, strict=True):
            twin = twins.truncate(range(a), range(b), max_tokens, generator)
            assert (length_a, length_b) == tuple(map(len, twin)), (a, b, max_tokens)


def test_longest_first_matches_hf_tokenizers():
    pieces = [*SPECIAL_TOKENS, "a"]
    tokenizer = build_tokenizer(Tokenization(tuple(pieces), True))
    lengths = list(itertools.product(range(1, 9), repeat=2))
    for max_tokens in (2, 3, 7, 8):
        tokenizer.enable_truncation(max_tokens + 3)
        kept = packing.longest_first(
            *map(tf.constant, zip(*lengths, strict=True)), max_tokens, odd_to_longer=True
        )
        for (a, b), length_a, length_b in zip(lengths, *kept, strict=True):
            row = tokenizer.encode("a " * a, "a " * b)
            theirs = [
                sum(t == side and i == 5 for t, i in zip(row.type_ids, row.ids, strict=True))
                for side in (0, 1)
            ]
            assert [length_a, length_b] == theirs, (a, b, max_tokens)


def test_cut_pairs_has_the_distribution_of_googles_loop():
    n, generator = 4000, random.Random(1)
    bounds = [tf.fill([n], tf.constant(at, tf.int64)) for at in (100, 109, 200, 208)]
    cut = packing.cut_pairs(Segments(*bounds, labels=tf.zeros([n], tf.int32)), 12, fold(3))
    ours = collections.Counter(map(tuple, np.stack(cut[:4], 1).tolist()))
    theirs = collections.Counter()
    for _ in range(n):
        a, b = twins.truncate(range(100, 109), range(200, 208), 12, generator)
        theirs[a[0], a[-1] + 1, b[0], b[-1] + 1] += 1
    # A loses three tokens and B two: independent binomials with weights 1 3 3 1 and 1 2 1.
    assert len(ours) == len(theirs) == 12
    for outcome, count in theirs.items():
        assert abs(ours[outcome] - count) < 4 * (2 * count) ** 0.5, outcome
