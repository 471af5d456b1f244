"""Few-shot training: contrastive learning on pairs of texts, then a head on their embeddings.

Source: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts" (SetFit), section 3.
"""

from typing import Any

import numpy as np

from bert_tf.choices import COSINE
from bert_tf.evaluation.evaluation import Inference
from bert_tf.modeling.pooling import SentenceEmbedding
from bert_tf.pipelines.classification import similarity_examples
from bert_tf.readers.examples import ExampleSet, SimilarityExample
from bert_tf.tasks.similarity.task import SimilarityTask, normalize_rows
from bert_tf.tasks.task import Task
from bert_tf.training.progress import print_progress

from .objective import FewShotTraining

_MAX_ROUNDS = 5000  # iterations of the logistic regression


def few_shot_training(
    task: Task, inference: Inference, pairs_each: int, seed: int
) -> FewShotTraining:
    """Prepares few-shot training: training the encoder on pairs, then fitting the head.

    The target cosine similarity is 1 for two texts of the same class and 0 for other pairs. The
    result is a standard classifier.
    """
    items, length, classifier = task.training_items(), inference.max_seq_length, inference.model
    ids = np.array([task.labels.index(item.label) for item in items])
    pairs = [
        SimilarityExample(str(number), (items[one].text_a, items[other].text_a), score)
        for number, (one, other, score) in enumerate(draw_pairs(ids, pairs_each, seed))
    ]
    print_progress(f"Few-shot training: {len(pairs):,} pairs of {len(items):,} texts.", flush=True)
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
    """Draws pairs of examples at random.

    Args:
        ids: Class ids of the N examples, of shape (N,).
        each: Number of pairs to draw for each example, both within its class and across classes.
        seed: Random seed.

    Returns:
        Indices of both examples of each pair, and the target: 1.0 for equal classes, else 0.0.
    """
    random, pairs = np.random.default_rng(seed), []
    for one, class_id in enumerate(ids):
        same = np.flatnonzero(ids == class_id)
        different = np.flatnonzero(ids != class_id)
        for candidates, score in ((same[same != one], 1.0), (different, 0.0)):
            if len(candidates):
                drawn = random.choice(candidates, each).tolist()
                pairs += [(one, other, score) for other in drawn]
    return pairs


def fit_head(vectors: np.ndarray, ids: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Fits a multinomial logistic regression.

    Minimizes the objective of scikit-learn's ``LogisticRegression`` (cross-entropy with an L2
    penalty) on normalized vectors, because cosine similarity trains only their directions. The
    kernel is then scaled for vectors of the mean length. Uses Nesterov's method; the step size is
    derived from the maximum curvature.

    Args:
        vectors: Embeddings of shape (N, H).
        ids: Class ids of shape (N,).
        classes: Number of classes C.

    Returns:
        Kernel of shape (H, C) and bias of shape (C,).
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
        probabilities = np.exp(logits - logits.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        gradient = rows.T @ (probabilities - targets) + penalty * ahead
        if np.abs(gradient).max() < 1e-7:
            break
        previous, weights = weights, ahead - step * gradient
        ahead = weights + number / (number + 3) * (weights - previous)
    return weights[:-1] / scale, weights[-1]
