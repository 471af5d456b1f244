"""Texts of more tokens than a row holds: both of their ends, or windows over them; in-graph.

Core TensorFlow operations on flat vectors: fine-tuning's batches and an export's requests are cut
alike. ``room`` is how many tokens of a text a row holds, [CLS] and [SEP] left out.

Letters: B texts, W windows of a text.
"""

import tensorflow as tf

from .bounded_memory import value_rows

# The most windows of a text; of a longer one the rest is left out.
MOST_WINDOWS = 16


def head_and_tail(ids: tf.RaggedTensor, room: int) -> tf.RaggedTensor:
    """Leaves out the middle of each text of more than ``room`` tokens, [B, (tokens)] int32.

    A quarter of the row is the text's first tokens, as of 510 tokens 128, and the rest its last.
    Source: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", section 5.3.1.

    >>> head_and_tail(tf.ragged.constant([[1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8]]), 5).to_list()
    [[1, 2, 3], [1, 5, 6, 7, 8]]
    """
    head = max(room * 128 // 510, 1)
    lengths = ids.row_lengths()
    length = tf.gather(lengths, value_rows(ids.row_splits))
    place = tf.ragged.range(lengths).values
    kept = (place < head) | (place >= length - (room - head)) | (length <= room)
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(ids.values, kept), tf.minimum(lengths, room), validate=False
    )


def cut_windows(lengths: tf.Tensor, room: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Where the windows over texts of (B,) tokens begin, and how long they are: [B, (W)] each.

    Each but the last begins three quarters of ``room`` after the one before it, so that what is at
    an end of one is within another; the last is as long as the others, and ends with the text. A
    text that fits is one window, also one without tokens.

    >>> begins, sizes = cut_windows(tf.constant([0, 8, 9, 15]), 8)
    >>> begins.to_list(), sizes.to_list()
    ([[0], [0], [0, 1], [0, 6, 7]], [[0], [8], [8, 8], [8, 8, 8]])
    """
    stride = _stride(room)
    left = tf.maximum(lengths - room, 0)
    counts = tf.minimum(-(-left // stride) + 1, MOST_WINDOWS)
    rows = tf.RaggedTensor.from_row_lengths(
        tf.repeat(tf.range(tf.size(lengths)), counts), counts, validate=False
    )
    places = tf.cast(tf.ragged.range(counts).values, lengths.dtype)
    begins = tf.minimum(places * stride, tf.gather(left, rows.values))
    sizes = tf.gather(tf.minimum(lengths, room), rows.values)
    return rows.with_values(begins), rows.with_values(sizes)


def most_tokens(room: int) -> int:
    """The most tokens of a text that its windows read."""
    return (MOST_WINDOWS - 1) * _stride(room) + room


def _stride(room: int) -> int:
    return max(room * 3 // 4, 1)


def mean_of_windows(outputs: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Each text's mean, (B, ...) float32, of what a model gives for its windows, in their order.

    ``counts`` (B,) are the windows of each text.

    >>> mean_of_windows(tf.constant([1.0, 2.0, 4.0]), tf.constant([1, 2])).numpy()
    array([1., 3.], dtype=float32)
    """
    texts = tf.repeat(tf.range(tf.size(counts)), counts)
    return tf.math.unsorted_segment_mean(tf.cast(outputs, tf.float32), texts, tf.size(counts))
