"""The data of ``benchmarks.embeddings``, and the scores: one reader, one metric for all libraries.

Letters: N texts, D numbers of a vector.
"""

import collections
import dataclasses
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_tf.evaluation.scores import spearman_correlation
from bert_tf.readers.glue import read_glue
from bert_tf.tasks.similarity.retrieval import compare_rankings, search
from bert_tf.tasks.similarity.task import normalize_rows

from .finetune_data import read_squad_articles

STS, SEARCH, SST2, ARTICLES = "stsb", "squad", "sst2", "articles"
FEW_SHOT = (SST2, ARTICLES)
_SEARCH_PAIRS, _EACH = 3000, 8
_CLASSES, _TEXTS_OF_CLASS = 12, 40

Scores = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Data:
    """What is trained on, what is asked of the model afterwards, and what scores its answer.

    Attributes:
        rows: two texts, perhaps with a score, or a text with its class's number.
        texts: N, whose vectors (N, D), or classes (N,), are asked for.
        score: of those the scores, in points of 100.
    """

    rows: list[tuple[Any, ...]]
    texts: list[str]
    score: Callable[[np.ndarray], Scores]


def read_data(task: str, folder: str, seed: int, rows: int | None) -> Data:
    """The data of a task, ``rows`` pairs of it at most; the seed draws the examples of a few."""
    if task == STS:
        return _similar_sentences(folder, rows)
    if task == SEARCH:
        return _questions(folder, rows)
    return _few(*(_opinions(folder) if task == SST2 else _articles(folder)), seed)


def _similar_sentences(folder: str, rows: int | None) -> Data:
    """STS-B: trained on its training set, scored on dev and test."""
    sets = {
        name: read_glue("STS-B", os.path.join(folder, "glue"), name).items
        for name in ("train", "dev", "test")
    }
    asked = {name: sets[name] for name in ("dev", "test")}
    texts = [text for items in asked.values() for i in items for text in (i.text_a, i.text_b)]

    def score(vectors: np.ndarray) -> Scores:
        found, first = {}, 0
        for name, items in asked.items():
            pairs = normalize_rows(vectors[first : first + 2 * len(items)])
            first += 2 * len(items)
            cosines = (pairs[::2] * pairs[1::2]).sum(1)
            true = np.array([float(item.label) for item in items])
            found[f"{name}_spearman"] = 100 * spearman_correlation(true, cosines)
        return found

    train = [(i.text_a, i.text_b, float(i.label)) for i in _some(sets["train"], rows)]
    return Data(train, texts, score)


def _questions(folder: str, rows: int | None) -> Data:
    """SQuAD: a question asks for its paragraph, among all those of the held-out articles."""
    train, dev = read_squad_articles(folder)
    pairs = [(item.question, item.context) for item in _some(train, rows or _SEARCH_PAIRS)]
    paragraphs = list(dict.fromkeys(item.context for item in dev))
    questions = [item.question for item in dev]
    relevant = [{paragraphs.index(item.context): 1.0} for item in dev]

    def score(vectors: np.ndarray) -> Scores:
        ranked, _ = search(*np.split(normalize_rows(vectors), [len(questions)]), 1000)
        judged = compare_rankings(ranked, relevant)
        return {name: 100 * value for name, value in judged.select(["ndcg@10", "accuracy"]).items()}

    return Data(pairs, questions + paragraphs, score)


def _some(items: Sequence[Any], count: int | None) -> list[Any]:
    """So many of the items, the same ones always."""
    return random.Random(0).sample(items, min(count or len(items), len(items)))


# === Few examples ===

Labelled = list[tuple[str, int]]


def _opinions(folder: str) -> tuple[Labelled, Labelled]:
    """SST-2: examples from train, scored on dev."""
    glue = os.path.join(folder, "glue")
    train, dev = (
        [(item.text_a, int(str(item.label))) for item in read_glue("SST-2", glue, name).items]
        for name in ("train", "dev")
    )
    return train, dev


def _articles(folder: str) -> tuple[Labelled, Labelled]:
    """SQuAD's twelve largest articles, of which a question is to be told.

    Examples are questions about the first half of an article's paragraphs, scored on others about
    the second.
    """
    train, dev = read_squad_articles(folder)
    by_title = collections.defaultdict(list)
    for item in train + dev:
        by_title[item.title].append(item)
    largest = sorted(by_title, key=lambda title: (-len(by_title[title]), title))[:_CLASSES]
    pools: tuple[Labelled, Labelled] = ([], [])
    for number, title in enumerate(largest):
        paragraphs = list(dict.fromkeys(item.context for item in by_title[title]))
        first = set(paragraphs[: len(paragraphs) // 2])
        own: tuple[Labelled, Labelled] = ([], [])
        for item in by_title[title]:
            own[item.context not in first].append((item.question, number))
        pools[0].extend(own[0])
        pools[1].extend(random.Random(number).sample(own[1], _TEXTS_OF_CLASS))
    return pools


def _few(pool: Labelled, asked: Labelled, seed: int) -> Data:
    """Some examples of each class, drawn with the seed: the same ones for all libraries."""
    drawn, rows = random.Random(seed), []
    for number in sorted({label for _, label in pool}):
        rows += drawn.sample([row for row in pool if row[1] == number], _EACH)
    true = np.array([label for _, label in asked])

    def score(predicted: np.ndarray) -> Scores:
        return {"accuracy": 100 * float(np.mean(predicted == true))}

    return Data(rows, [text for text, _ in asked], score)


def same_vectors(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The least cosine between two libraries' vectors of one text."""
    pairs = (normalize_rows(np.asarray(vectors)) for vectors in (one, other))
    return float(np.multiply(*pairs).sum(1).min())
