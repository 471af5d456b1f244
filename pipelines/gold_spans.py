"""Where a known answer stands: from bytes of the context to columns of its windows' rows.

Source: google-research/bert ``run_squad.py``, ``convert_examples_to_features``. Its
``_improve_answer_span`` looks for the answer's text among the pieces of the words around it; here
the tokens' offsets say which of them the answer's bytes belong to.

Letters: B questions, W windows.
"""

import tensorflow as tf

from .context_windows import QuestionTokens, Windows, context_columns


def find_tokens(
    tokens: QuestionTokens, byte_starts: tf.Tensor, byte_ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the tokens that a range of each context's bytes overlaps.

    Args:
        tokens: of B questions.
        byte_starts: (B,) int64, the first byte; -1 where there is no range.
        byte_ends: (B,) int64, the byte behind the last.

    Returns:
        The numbers of the first and of the last token, counted from the context's first,
        (B,) int32 each; -1 both where no token overlaps the range, or there is none.
    """
    limits = tokens.context_starts + tokens.context_lengths
    places = tf.ragged.range(tokens.context_starts, limits)
    questions = places.value_rowids()

    def count(condition: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(
            tf.cast(condition, tf.int32), questions, tf.size(byte_starts)
        )

    first = count(tf.gather(tokens.byte_ends, places.values) <= tf.gather(byte_starts, questions))
    last = count(tf.gather(tokens.byte_starts, places.values) < tf.gather(byte_ends, questions)) - 1
    found = (byte_starts >= 0) & (first <= last)
    return tf.where(found, first, -1), tf.where(found, last, -1)


def window_spans(
    windows: Windows, firsts: tf.Tensor, lasts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Says in which columns of each window's row its question's answer begins and ends.

    Args:
        windows: W of them.
        firsts: (B,) int32, from ``find_tokens``.
        lasts: (B,) int32, likewise.

    Returns:
        (W,) int32 each; 0, the column of [CLS], where the answer is not wholly in the window.
    """
    first = tf.gather(firsts, windows.questions)
    last = tf.gather(lasts, windows.questions)
    inside = (first >= windows.firsts) & (last < windows.firsts + windows.lengths)
    shift = context_columns(windows) - windows.firsts
    return tf.where(inside, first + shift, 0), tf.where(inside, last + shift, 0)
