import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pipelines.bounded_memory import map_blocks
from bert_tf.pipelines.pretraining import pairing
from bert_tf.pipelines.wordpiece import BertTokenizer

# A table with this many rows and columns takes 10 GB of booleans or 80 GB of integers.
MANY = 100_000


@pytest.mark.parametrize("long_item", ["document", "sentence"])
def test_pool_with_one_long_text_fits_in_memory(long_item):
    sizes, lengths = np.ones(MANY, np.int64), np.full(MANY, 5, np.int64)
    if long_item == "document":
        sizes[7], lengths = MANY, np.full(2 * MANY - 1, 5, np.int64)
    else:
        lengths[7] = 10 * MANY
    ids = tf.zeros([lengths.sum()], tf.int32)
    pool = pairing.without_empty(ids, tf.constant(lengths), tf.constant(sizes))
    targets = tf.fill([MANY], tf.constant(20, tf.int64))
    pool, targets = pairing.cut_long_sentences(pool, targets, 20)
    seed = tf.constant([1, 2])
    draws = pairing.draw_pairs(tf.size(pool.token_splits) - 1, targets, seed)
    segments = pairing.pair_sentences(pool, draws)
    assert len(segments.labels) > MANY
    chunks = pairing.chunk_documents(pool, targets, 20)
    assert int(tf.reduce_sum(chunks.a_end - chunks.a_start)) == lengths.sum()


def test_tokenizing_one_long_text_fits_in_memory():
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    texts = tf.constant(["a"] * MANY + ["a " * MANY])
    ids, starts, _ = tokenizer.tokenize_with_offsets(texts)
    assert ids.row_lengths().numpy()[[0, -2, -1]].tolist() == [1, 1, MANY]
    assert starts.values[-1] == 2 * (MANY - 1)


def count_in_blocks_of_three(size):
    """Returns one row per integer below ``size``, computed three at a time."""
    begins = []

    def step(begin):
        begins.append(begin)
        numbers = tf.range(begin, tf.minimum(begin + 3, size))
        return begin + 3, {
            "rows": tf.tile(numbers[:, None], [1, 2]),
            "texts": tf.as_string(numbers),
        }

    return map_blocks(size, step), begins


@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_blocks_are_concatenated_in_order(size):
    graph = tf.function(lambda size: count_in_blocks_of_three(size)[0], autograph=False)
    eager, begins = count_in_blocks_of_three(tf.constant(size))
    assert [int(begin) for begin in begins] == list(range(0, max(size, 1), 3))
    for found in (eager, graph(tf.constant(size))):
        assert found["rows"].dtype == tf.int32 and found["rows"].shape == (size, 2)
        np.testing.assert_array_equal(found["rows"], np.arange(size)[:, None].repeat(2, 1))
        assert found["texts"].numpy().tolist() == [str(number).encode() for number in range(size)]
