"""A batch's tokens as the rows of a matrix, with its padding or without.

Legend: B batch, S sequence, R rows, W width of any.
"""

from typing import Any

from keras import ops


class TokenRows:
    """How the tokens of a batch lie in a matrix: all B * S of them, or the real ones alone.

    Everything in a Transformer but attention is done to each token by itself, so it is done to
    rows of a matrix; and padding, whose rows nobody reads, can be left out of it. What is computed
    for real tokens is the same, and so are the gradients.

    The number of real tokens is known when the batch is there. XLA wants it before: a step that
    XLA compiles, on TPUs every one, has to keep its padding.

    Args:
        real_tokens: (B, S), 1 = real and 0 = padding.
        without_padding: whether R is the number of real tokens. The first token of each text counts
            as one of them, whatever the mask says: what is pooled is there.

    >>> rows = TokenRows(ops.array([[1, 1, 0], [1, 0, 0]]), without_padding=True)
    >>> matrix = rows.from_batch(ops.array([[[1], [2], [3]], [[4], [5], [6]]]))
    >>> ops.convert_to_numpy(matrix)[:, 0], ops.convert_to_numpy(rows.to_batch(matrix))[:, :, 0]
    (array([1, 2, 4], dtype=int32), array([[1, 2, 0],
           [4, 0, 0]], dtype=int32))
    """

    def __init__(self, real_tokens: Any, without_padding: bool) -> None:
        self._batch, self._sequence = ops.shape(real_tokens)
        self._without_padding = without_padding
        if without_padding:
            first = ops.arange(self._sequence) == 0
            # (B * S,)
            kept = ops.reshape(ops.logical_or(ops.cast(real_tokens, "bool"), first), (-1,))
            # (R,) the places of the rows among B * S, and (B * S,) the rows of the places; one that
            # is left out has the row behind the last.
            self._places = ops.cast(ops.nonzero(kept)[0], "int32")
            count = ops.cumsum(ops.cast(kept, "int32"))
            self._rows = ops.where(kept, count - 1, ops.shape(self._places)[0])

    def from_batch(self, batch: Any) -> Any:
        """(B, S, W) -> (R, W)."""
        matrix = ops.reshape(batch, (-1, batch.shape[-1]))
        if not self._without_padding:
            return matrix
        # Written out: the derived gradient of a gather adds row by row.
        return ops.custom_gradient(lambda x: (self._leave_out(x), self._fill_in))(matrix)

    def to_batch(self, matrix: Any) -> Any:
        """(R, W) -> (B, S, W), 0 where padding was left out."""
        if self._without_padding:
            matrix = ops.custom_gradient(lambda x: (self._fill_in(x), self._leave_out))(matrix)
        return ops.reshape(matrix, (self._batch, self._sequence, matrix.shape[-1]))

    def _leave_out(self, matrix: Any) -> Any:
        return ops.take(matrix, self._places, axis=0)

    def _fill_in(self, matrix: Any) -> Any:
        behind = ops.zeros((1, matrix.shape[-1]), matrix.dtype)
        return ops.take(ops.concatenate([matrix, behind], axis=0), self._rows, axis=0)
