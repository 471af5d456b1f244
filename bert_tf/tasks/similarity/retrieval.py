"""Exact document retrieval in chunks, and scores of rankings.

Sources: Järvelin and Kekäläinen 2002 (nDCG); Thakur et al. 2021, "BEIR", and trec_eval. As in these
tools, the gain of a document is its relevance, and the discount of a rank is log2(rank + 1).

Dimensions: Q queries, N documents, D vector, K ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.evaluation.metrics import Comparison

# Number of ranked documents per query, as in BEIR.
_RANKS = 1000
# Number of scores per chunk; a chunk takes 32 MB.
_SCORES_CHUNK_SIZE = 1 << 23


def search(
    queries: NDArray[Any], documents: NDArray[Any], count: int = _RANKS + 1
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Returns the documents with the largest inner products for each query, the best first.

    The search is exact. It processes queries, (Q, D), in chunks, so memory does not grow with Q
    times the number of documents, (N, D). Documents with equal inner products keep their order.

    Returns:
        Document indices and inner products, shape (Q, K) each, where K is the minimum of ``count``
        and N.
    """
    blocks = []
    size = max(1, _SCORES_CHUNK_SIZE // len(documents))
    for first in range(0, len(queries), size):
        scores = queries[first : first + size] @ documents.T
        is_best = _are_greatest(scores, count)
        shape = len(scores), -1
        _, columns = np.nonzero(is_best)
        indices, best = columns.reshape(shape), scores[is_best].reshape(shape)
        order = np.argsort(-best, axis=1, kind="stable")
        blocks.append([np.take_along_axis(values, order, 1) for values in (indices, best)])
    indices, scores = zip(*blocks, strict=True)
    return np.concatenate(indices), np.concatenate(scores)


def _are_greatest(scores: NDArray[np.float32], count: int) -> NDArray[np.bool_]:
    """Returns a mask of the ``count`` largest scores per row; ties are broken by position."""
    if scores.shape[1] <= count:
        return np.ones(scores.shape, bool)
    minimum = -np.partition(-scores, count - 1, axis=1)[:, count - 1 : count]
    above, equal = scores > minimum, scores == minimum
    num_equal = count - above.sum(1, keepdims=True)
    return above | (equal & (equal.cumsum(1) <= num_equal))


def drop_own_text(ranked: NDArray[np.intp], excluded: NDArray[np.intp]) -> NDArray[np.intp]:
    """Removes each query's own document from the rankings, (Q, K), and pads them with -1.

    ``excluded``, (Q,), contains the indices of these documents, or -1 for queries without one.
    """
    is_excluded = ranked == excluded[:, None]
    order = np.argsort(is_excluded, axis=1, kind="stable")
    return np.where(
        np.take_along_axis(is_excluded, order, 1), -1, np.take_along_axis(ranked, order, 1)
    )


# === Scores ===


def _gain_at_10(gains: NDArray[Any]) -> NDArray[np.float64]:
    first = np.maximum(gains[:, :10], 0)
    return (first / np.log2(np.arange(2, first.shape[1] + 2))).sum(1)


def _average_precision(gains: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float64]:
    is_hit = gains > 0
    precisions = is_hit.cumsum(1) / np.arange(1, gains.shape[1] + 1)
    return (precisions * is_hit).sum(1) / counts


def _reciprocal_rank(gains: NDArray[Any]) -> NDArray[np.float64]:
    return ((gains > 0) / np.arange(1, gains.shape[1] + 1)).max(1, initial=0.0)


# Functions that compute scores, (Q,), from the relevance of the ranked documents, (Q, K), the ten
# highest relevances, (Q, 10), and the number of relevant documents, (Q,).
RANKING_SCORES: Mapping[str, Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]] = {
    "ndcg@10": lambda gains, ideal, counts: _gain_at_10(gains) / _gain_at_10(ideal),
    "mrr@10": lambda gains, ideal, counts: _reciprocal_rank(gains[:, :10]),
    "map": lambda gains, ideal, counts: _average_precision(gains, counts),
    "accuracy": lambda gains, ideal, counts: gains[:, 0] > 0,
    "recall@10": lambda gains, ideal, counts: (gains[:, :10] > 0).sum(1) / counts,
    "recall@100": lambda gains, ideal, counts: (gains[:, :100] > 0).sum(1) / counts,
}


def compare_rankings(
    ranked: NDArray[np.intp], relevant: Sequence[Mapping[int, float]]
) -> Comparison:
    """Compares rankings with the relevant documents; each row is a query.

    ``ranked``, (Q, K), contains document indices, the best first, padded with -1. For each query,
    ``relevant`` maps document indices to their relevance; at least one must be above 0. ``map`` is
    the mean average precision at 1,000, and ``accuracy`` is the fraction of queries whose first
    document is relevant.
    """
    ranked = ranked[:, :_RANKS]
    gains, ideal = np.zeros(ranked.shape), np.zeros([len(ranked), 10])
    counts = np.zeros(len(ranked))
    for row, (indices, gains_by_document) in enumerate(zip(ranked, relevant, strict=True)):
        gains[row] = [gains_by_document.get(int(index), 0.0) for index in indices]
        best = sorted((gain for gain in gains_by_document.values() if gain > 0), reverse=True)
        counts[row] = len(best)
        ideal[row, : len(best)] = best[:10]
    scores = {name: score(gains, ideal, counts).mean() for name, score in RANKING_SCORES.items()}
    return Comparison(len(ranked), scores)
