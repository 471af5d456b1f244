import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.token_rows import TokenRows

MASK = np.array([[1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]], "int32")
# A text's first token counts as real, in the last row too.
KEPT = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0)]
BATCH = np.random.default_rng(0).normal(size=(3, 4, 2))


def test_rows_are_the_real_tokens_and_go_back_to_their_places():
    rows = TokenRows(MASK, without_padding=True)
    matrix = rows.from_batch(tf.constant(BATCH)).numpy()
    np.testing.assert_array_equal(matrix, [BATCH[place] for place in KEPT])
    expected = np.zeros_like(BATCH)
    for place in KEPT:
        expected[place] = BATCH[place]
    np.testing.assert_array_equal(rows.to_batch(tf.constant(matrix)), expected)


def test_with_padding_it_only_reshapes():
    rows = TokenRows(MASK, without_padding=False)
    matrix = rows.from_batch(tf.constant(BATCH))
    np.testing.assert_array_equal(matrix, BATCH.reshape(12, 2))
    np.testing.assert_array_equal(rows.to_batch(matrix), BATCH)


@pytest.mark.parametrize("without_padding", [True, False])
def test_gradients(without_padding):
    rows = TokenRows(MASK, without_padding)
    places = KEPT if without_padding else list(np.ndindex(3, 4))
    batch = tf.constant(BATCH)
    matrix = rows.from_batch(batch)
    weights = np.random.default_rng(1).normal(size=matrix.shape)
    with tf.GradientTape() as tape:
        tape.watch(batch)
        total = tf.reduce_sum(rows.from_batch(batch) * weights)
    expected = np.zeros_like(BATCH)
    for place, row in zip(places, weights, strict=True):
        expected[place] = row
    np.testing.assert_array_equal(tape.gradient(total, batch), expected)

    weights = np.random.default_rng(2).normal(size=BATCH.shape)
    with tf.GradientTape() as tape:
        tape.watch(matrix)
        total = tf.reduce_sum(rows.to_batch(matrix) * weights)
    gradient = tape.gradient(total, matrix)
    np.testing.assert_array_equal(gradient, [weights[place] for place in places])


def test_in_a_graph_of_unknown_sizes():
    signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None, 2])]

    @tf.function(input_signature=signature)
    def there_and_back(mask, batch):
        rows = TokenRows(mask, without_padding=True)
        return rows.to_batch(2.0 * rows.from_batch(batch))

    for mask in (MASK, MASK[:1, :2], 0 * MASK):
        batch = np.ones((*mask.shape, 2), "float32")
        kept = mask | (np.arange(mask.shape[1]) == 0)
        np.testing.assert_array_equal(there_and_back(mask, batch), 2 * batch * kept[:, :, None])
