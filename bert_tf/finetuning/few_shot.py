"""Learning from few examples: pairs of their texts, then a head on the vectors.

Source: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts" (SetFit), section 3.
"""

from typing import Any

import numpy as np

from bert_tf.choices import COSINE
from bert_tf.evaluation.evaluation import Inference
from bert_tf.modeling.base import SentenceEmbedding
from bert_tf.pipelines.classification import similarity_examples
from bert_tf.readers.examples import ExampleSet, SimilarityExample
from bert_tf.tasks.similarity.task import SimilarityTask, normalize_rows
from bert_tf.tasks.task import Task
from bert_tf.training.progress import print_progress

from .objective import FewShotTraining

_MAX_ROUNDS = 5000  # of the regression of the head


def few_shot_training(
    task: Task, inference: Inference, pairs_each: int, seed: int
) -> FewShotTraining:
    """Learning from few examples: pairs of texts move the vectors, then a head is fitted to these.

    Two texts of one class are to have vectors of the same direction, two of different classes of
    perpendicular ones. The result is a classifier as any other: the head reads the same vectors.
    """
    items, length, classifier = task.training_items(), inference.max_seq_length, inference.model
    ids = np.array([task.labels.index(item.label) for item in items])
    pairs = [
        SimilarityExample(str(number), (items[one].text_a, items[other].text_a), score)
        for number, (one, other, score) in enumerate(draw_pairs(ids, pairs_each, seed))
    ]
    print_progress(f"Few examples: {len(pairs):,} pairs of the {len(items):,} texts.", flush=True)
    encoder = classifier.encoder
    encoder.sentence_embedding = SentenceEmbedding(classifier.pooling, False, length)
    options = SimilarityTask.Options(similarity_loss=COSINE)
    learned = SimilarityTask(task.name, ExampleSet(pairs, (), []), {}, {}, options=options)
    texts = similarity_examples(
        inference.tokenizer, [[item.text_a for item in items]], max_seq_length=length
    )

    def fit() -> None:
        embedder = Inference(encoder, inference.tokenizer, length, inference.batch_size)
        vectors = embedder.ordered_outputs(texts)[:, 0]
        head: Any = getattr(classifier, type(classifier).head)
        head.set_weights(fit_head(vectors, ids, len(task.labels)))

    examples = learned.training_examples(inference.tokenizer, length)
    return FewShotTraining(encoder, learned, examples, fit)


def draw_pairs(ids: np.ndarray, each: int, seed: int) -> list[tuple[int, int, float]]:
    """Pairs of examples of the classes ``ids`` (N,): the numbers of the two, and 1.0 for one class.

    Each example is in ``each`` pairs with others of its class, where it has any, and in as many
    with others of other classes, drawn at random.
    """
    random, pairs = np.random.default_rng(seed), []
    for one, own in enumerate(ids):
        same = np.flatnonzero(ids == own)
        for others, score in ((same[same != one], 1.0), (np.flatnonzero(ids != own), 0.0)):
            if len(others):
                drawn = random.choice(others, each).tolist()
                pairs += [(one, other, score) for other in drawn]
    return pairs


def fit_head(vectors: np.ndarray, ids: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Multinomial logistic regression of N vectors (N, H) on C classes: kernel (H, C), bias (C,).

    The sum of the cross-entropies and half the kernel's squared norm is least for the vectors at
    length 1: scikit-learn's ``LogisticRegression``. The pairs taught directions alone, and of a few
    examples the longest would count most. The kernel is for vectors of any length, those of the
    mean length as if it were 1. Nesterov's method, whose step the largest curvature bounds.
    """
    scale = np.linalg.norm(vectors, axis=1).mean()
    directions = normalize_rows(vectors)
    rows = np.concatenate([directions, np.ones([len(vectors), 1])], 1).astype(np.float64)
    targets = np.eye(classes)[ids]
    penalty = np.append(np.ones(rows.shape[1] - 1), 0.0)[:, None]
    step = 1 / (0.5 * np.linalg.norm(rows, 2) ** 2 + 1)
    weights = ahead = np.zeros([rows.shape[1], classes])
    for number in range(_MAX_ROUNDS):
        logits = rows @ ahead
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        gradient = rows.T @ (shares - targets) + penalty * ahead
        if np.abs(gradient).max() < 1e-7:
            break
        before, weights = weights, ahead - step * gradient
        ahead = weights + number / (number + 3) * (weights - before)
    return weights[:-1] / scale, weights[-1]
