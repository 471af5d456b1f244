"""Exact search and ranking scores equal plain loops."""

import math

import numpy as np
import pytest

from bert_tf.tasks.similarity import retrieval
from bert_tf.tasks.similarity.retrieval import compare_rankings, search


@pytest.mark.parametrize("count", [1, 7, 40, 100])
def test_search_in_chunks_is_exact(monkeypatch, count):
    monkeypatch.setattr(retrieval, "_SCORES_CHUNK_SIZE", 170)
    rng = np.random.default_rng(0)
    # Integers, so that many scores are equal.
    queries, documents = rng.integers(-2, 3, (11, 3)), rng.integers(-2, 3, (40, 3))
    indices, scores = search(queries, documents, count)
    for query, found, query_scores in zip(queries, indices, scores, strict=True):
        products = [float(query @ document) for document in documents]
        expected = sorted(range(40), key=lambda n: (-products[n], n))[:count]
        assert found.tolist() == expected
        assert query_scores.tolist() == [products[n] for n in expected]


def test_ranking_scores_equal_plain_loops():
    rng = np.random.default_rng(1)
    relevance = rng.integers(0, 4, (9, 30)) * (rng.random((9, 30)) < 0.3)
    relevance[:, 3] += 1
    ranked = rng.permuted(np.tile(np.arange(30), [9, 1]), axis=1)
    found = compare_rankings(ranked, [dict(enumerate(map(float, row))) for row in relevance])
    hits = [[row[n] > 0 for n in indices] for row, indices in zip(relevance, ranked, strict=True)]
    expected = {"ndcg@10": 0.0, "map": 0.0}
    for row, indices, is_hit in zip(relevance, ranked, hits, strict=True):
        dcg = sum(row[n] / math.log2(at + 2) for at, n in enumerate(indices[:10]))
        ideal_dcg = sum(
            g / math.log2(at + 2) for at, g in enumerate(sorted(row, reverse=True)[:10])
        )
        expected["ndcg@10"] += dcg / ideal_dcg / 9
        precisions = [sum(is_hit[: at + 1]) / (at + 1) for at in range(30) if is_hit[at]]
        expected["map"] += sum(precisions) / len(precisions) / 9
    expected["mrr@10"] = np.mean(
        [next((1 / rank for rank, hit in enumerate(row[:10], 1) if hit), 0.0) for row in hits]
    )
    expected["accuracy"] = np.mean([row[0] for row in hits])
    for k in (10, 100):
        expected[f"recall@{k}"] = np.mean([sum(row[:k]) / sum(row) for row in hits])
    assert found.select(expected) == pytest.approx(expected)
    assert 0 < expected["accuracy"] < 1


def test_few_documents_and_no_relevant_one():
    relevant = [{0: 1.0, 5: 2.0}, {1: 1.0}, {0: 1.0, 5: 2.0}]
    comparison = compare_rankings(np.array([[1, -1], [0, 1], [0, -1]]), relevant)
    assert comparison.select(["ndcg@10", "mrr@10", "map", "recall@10"]) == pytest.approx(
        {
            "ndcg@10": (0 + 1 / math.log2(3) + 1 / (2 + 1 / math.log2(3))) / 3,
            "mrr@10": (0 + 1 / 2 + 1) / 3,
            "map": (0 + 1 / 2 + 1 / 2) / 3,  # includes relevant documents that are not found
            "recall@10": (0 + 1 + 1 / 2) / 3,
        }
    )
