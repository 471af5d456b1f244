"""Documents that are found for queries: exact search in blocks, and how good the rankings are.

Sources: Järvelin and Kekäläinen 2002 (nDCG); Thakur et al. 2021, "BEIR", and trec_eval, whose
conventions these are: the gain of a document is its relevance, a rank's discount log2(rank + 1).

Letters: Q queries, N documents, D numbers of a vector, K ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_tf.evaluation.scores import Comparison

# How many documents of each query are ranked, as BEIR does.
_RANKS = 1000
# A block of this many scores takes 32 MB.
_SCORES_CHUNK_SIZE = 1 << 23


def search(
    queries: NDArray[Any], documents: NDArray[Any], count: int = _RANKS + 1
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The documents of the greatest inner products with each query, exact, the best first.

    Vectors are (Q, D) and (N, D), taken in blocks, so that the memory does not grow with Q times N.
    Returns the documents' numbers and the products, (Q, K) each, K the smaller of ``count`` and N;
    documents of equal products are in the order of their numbers.
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
    """True at the ``count`` greatest scores of each row; of equal ones the first."""
    if scores.shape[1] <= count:
        return np.ones(scores.shape, bool)
    minimum = -np.partition(-scores, count - 1, axis=1)[:, count - 1 : count]
    above, equal = scores > minimum, scores == minimum
    num_equal = count - above.sum(1, keepdims=True)
    return above | (equal & (equal.cumsum(1) <= num_equal))


def drop_own_text(ranked: NDArray[np.intp], own: NDArray[np.intp]) -> NDArray[np.intp]:
    """Rankings (Q, K) without each query's own document, (Q,) numbers or -1; -1 stands behind."""
    is_own = ranked == own[:, None]
    order = np.argsort(is_own, axis=1, kind="stable")
    return np.where(np.take_along_axis(is_own, order, 1), -1, np.take_along_axis(ranked, order, 1))


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


# Each score, (Q,), is of the relevances of the ranked documents, (Q, K), of the ten greatest
# relevances, (Q, 10), and of how many documents are relevant, (Q,).
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
    """Rankings compared with what is relevant; a row is a query.

    ``ranked`` (Q, K) has documents' numbers, the best first, -1 behind a shorter ranking;
    ``relevant`` has of each query the documents' relevance by their numbers, one above 0 at least.
    ``map`` is the mean average precision of the first 1,000; ``accuracy`` the share of queries
    whose first document is relevant.
    """
    ranked = ranked[:, :_RANKS]
    gains, ideal = np.zeros(ranked.shape), np.zeros([len(ranked), 10])
    counts = np.zeros(len(ranked))
    for row, (indices, gains_by_document) in enumerate(zip(ranked, relevant, strict=True)):
        gains[row] = [gains_by_document.get(int(place), 0.0) for place in indices]
        best = sorted((gain for gain in gains_by_document.values() if gain > 0), reverse=True)
        counts[row] = len(best)
        ideal[row, : len(best)] = best[:10]
    scores = {name: score(gains, ideal, counts).mean() for name, score in RANKING_SCORES.items()}
    return Comparison(len(ranked), scores)
