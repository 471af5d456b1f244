"""Search: texts in, the nearest texts of a corpus out, exact; the corpus is in the export.

Letters: B batch, N texts of the corpus, H numbers of a vector, K texts that are found.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.pipelines.bounded_memory import in_blocks

from .embeddings import sentence_vectors
from .served import Outputs, Served

# A server holds the vectors in memory whole, and compares each text with all of them.
MOST_BYTES = 2 << 30
# So many scores of a request are computed at once, 64 MB.
_SCORES_AT_ONCE = 1 << 24


@dataclasses.dataclass(frozen=True)
class Corpus:
    """N texts to be found."""

    texts: Sequence[str]
    vectors: np.ndarray  # (N, H) float32 of length 1
    nearest: int  # K


def check_size(count: int, width: int, nearest: int) -> None:
    """Raises a ``ValueError`` where so many texts cannot be served, or so few cannot be found."""
    if not 1 <= nearest <= count:
        raise ValueError(
            f"The corpus has {count:,} texts, and {nearest} are to be found: expected as many or "
            "fewer."
        )
    size = 4 * count * width
    if size > MOST_BYTES:
        raise ValueError(
            f"The corpus has {count:,} texts, whose vectors of {width:,} numbers take "
            f"{size / 2**30:,.1f} GiB: an export searches at most {MOST_BYTES >> 30} GiB, "
            f"{MOST_BYTES // (4 * width):,} texts; give several exports a part each."
        )


class Index:
    """A corpus in variables, as graphs read it."""

    def __init__(self, corpus: Corpus) -> None:
        check_size(len(corpus.texts), corpus.vectors.shape[1], corpus.nearest)
        self.nearest = corpus.nearest
        self.vectors = tf.Variable(corpus.vectors, trainable=False, name="corpus_vectors")
        self.texts = tf.Variable([*corpus.texts], trainable=False, name="corpus_texts")

    def find(self, vectors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Vectors (B, H) at length 1 to cosines, (B, K), the greatest first, and texts' numbers."""
        corpus, size = self.vectors.read_value(), tf.shape(vectors)[0]
        most = max(1, _SCORES_AT_ONCE // max(1, self.vectors.shape[0]))

        def step(begin: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
            scores = tf.matmul(vectors[begin : begin + most], corpus, transpose_b=True)
            found = tf.math.top_k(scores, self.nearest)
            return begin + most, (found.values, found.indices)

        scores, places = in_blocks(size, step)
        return scores, places

    def answer(self, vectors: tf.Tensor) -> Outputs:
        """Vectors (B, H) at length 1 to ``texts``, ``scores`` and ``places`` (B, K)."""
        scores, places = self.find(vectors)
        texts = tf.gather(self.texts.read_value(), places)
        return {"texts": texts, "scores": scores, "places": places}


def search(served: Served, text: tf.Tensor) -> Outputs:
    """Finds the corpus' texts that are nearest to each text, (B,) string.

    Returns, the nearest first, ``texts``, ``scores``, which are cosines, and ``places`` (B, K), the
    numbers in the corpus from 0; ``truncated`` (B,).
    """
    index = served.index
    if index is None:
        raise ValueError("The model is served without a corpus: expected one to search.")
    vectors, truncated = sentence_vectors(served, text)
    return {**index.answer(vectors), "truncated": truncated}
