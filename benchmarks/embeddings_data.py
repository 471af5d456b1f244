"""Data and metrics of ``benchmarks.embeddings``, the same for all libraries.

Shapes: N texts, D dimensions of a vector.
"""

import collections
import dataclasses
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_tf.evaluation.metrics import spearman_correlation
from bert_tf.readers.glue import read_glue
from bert_tf.tasks.similarity.retrieval import compare_rankings, search
from bert_tf.tasks.similarity.task import normalize_rows

from .finetune_data import read_squad_articles

STS, SEARCH, SST2, ARTICLES = "stsb", "squad", "sst2", "articles"
FEW_SHOT = (SST2, ARTICLES)
_SEARCH_PAIRS, _EXAMPLES_PER_CLASS = 3000, 8
_CLASSES, _TEST_TEXTS_PER_CLASS = 12, 40

Scores = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Data:
    """Training data of a task, the texts to predict, and the metric.

    Attributes:
        rows: Training examples: two texts, with or without a score, or a text and its class id.
        texts: N texts to embed or classify.
        score: Function from vectors (N, D) or classes (N,) to the scores in percent.
    """

    rows: list[tuple[Any, ...]]
    texts: list[str]
    score: Callable[[np.ndarray], Scores]


def read_data(task: str, folder: str, seed: int, rows: int | None) -> Data:
    """Reads the data of a task, at most ``rows`` pairs; few-shot examples depend on the seed."""
    if task == STS:
        return _similar_sentences(folder, rows)
    if task == SEARCH:
        return _questions(folder, rows)
    return _few_shot(*(_sentiments(folder) if task == SST2 else _articles(folder)), seed)


def _similar_sentences(folder: str, rows: int | None) -> Data:
    """STS-B: trains on the training set, scores dev and test."""
    sets = {
        name: read_glue("STS-B", os.path.join(folder, "glue"), name).items
        for name in ("train", "dev", "test")
    }
    scored = {name: sets[name] for name in ("dev", "test")}
    texts = [text for items in scored.values() for i in items for text in (i.text_a, i.text_b)]

    def score(vectors: np.ndarray) -> Scores:
        found, first = {}, 0
        for name, items in scored.items():
            pairs = normalize_rows(vectors[first : first + 2 * len(items)])
            first += 2 * len(items)
            cosines = (pairs[::2] * pairs[1::2]).sum(1)
            true = np.array([float(item.label) for item in items])
            found[f"{name}_spearman"] = 100 * spearman_correlation(true, cosines)
        return found

    train = [(i.text_a, i.text_b, float(i.label)) for i in _sample(sets["train"], rows)]
    return Data(train, texts, score)


def _questions(folder: str, rows: int | None) -> Data:
    """SQuAD: searches the paragraph of a question among all paragraphs of held-out articles."""
    train, dev = read_squad_articles(folder)
    pairs = [(item.question, item.context) for item in _sample(train, rows or _SEARCH_PAIRS)]
    paragraphs = list(dict.fromkeys(item.context for item in dev))
    questions = [item.question for item in dev]
    relevant = [{paragraphs.index(item.context): 1.0} for item in dev]

    def score(vectors: np.ndarray) -> Scores:
        ranked, _ = search(*np.split(normalize_rows(vectors), [len(questions)]), 1000)
        result = compare_rankings(ranked, relevant)
        return {name: 100 * value for name, value in result.select(["ndcg@10", "accuracy"]).items()}

    return Data(pairs, questions + paragraphs, score)


def _sample(items: Sequence[Any], count: int | None) -> list[Any]:
    """Draws ``count`` of the items, always the same ones."""
    return random.Random(0).sample(items, min(count or len(items), len(items)))


# === Few examples ===

Labeled = list[tuple[str, int]]


def _sentiments(folder: str) -> tuple[Labeled, Labeled]:
    """SST-2: draws examples from train, scores dev."""
    glue = os.path.join(folder, "glue")
    train, dev = (
        [(item.text_a, int(str(item.label))) for item in read_glue("SST-2", glue, name).items]
        for name in ("train", "dev")
    )
    return train, dev


def _articles(folder: str) -> tuple[Labeled, Labeled]:
    """SQuAD: classifies questions by article, among the twelve largest.

    Training examples are questions about the first half of the paragraphs of an article; test
    examples are about the second half.
    """
    train, dev = read_squad_articles(folder)
    by_title = collections.defaultdict(list)
    for item in train + dev:
        by_title[item.title].append(item)
    largest = sorted(by_title, key=lambda title: (-len(by_title[title]), title))[:_CLASSES]
    pools: tuple[Labeled, Labeled] = ([], [])
    for number, title in enumerate(largest):
        paragraphs = list(dict.fromkeys(item.context for item in by_title[title]))
        first = set(paragraphs[: len(paragraphs) // 2])
        questions: tuple[Labeled, Labeled] = ([], [])
        for item in by_title[title]:
            questions[item.context not in first].append((item.question, number))
        pools[0].extend(questions[0])
        pools[1].extend(random.Random(number).sample(questions[1], _TEST_TEXTS_PER_CLASS))
    return pools


def _few_shot(pool: Labeled, test: Labeled, seed: int) -> Data:
    """Draws some examples of each class with the seed, the same ones for all libraries."""
    drawn, rows = random.Random(seed), []
    for number in sorted({label for _, label in pool}):
        rows += drawn.sample([row for row in pool if row[1] == number], _EXAMPLES_PER_CLASS)
    true = np.array([label for _, label in test])

    def score(predicted: np.ndarray) -> Scores:
        return {"accuracy": 100 * float(np.mean(predicted == true))}

    return Data(rows, [text for text, _ in test], score)


def min_cosine(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Returns the minimum cosine between the vectors of two libraries for the same text."""
    pairs = (normalize_rows(np.asarray(vectors)) for vectors in (one, other))
    return float(np.multiply(*pairs).sum(1).min())
