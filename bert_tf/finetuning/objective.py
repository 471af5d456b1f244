"""Objectives of fine-tuning: the loss of a task's model, and that of pairs of few examples."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import SIMILARITY_LOSSES
from bert_tf.evaluation.evaluation import Inference, outputs_of
from bert_tf.modeling.base import BertModel, SentenceEmbedding
from bert_tf.pipelines.classification import similarity_examples
from bert_tf.pipelines.length_buckets import Examples
from bert_tf.pipelines.replicas import Share
from bert_tf.readers.examples import ExampleSet, SimilarityExample
from bert_tf.tasks.similarity.task import SimilarityTask, at_length_1
from bert_tf.tasks.task import TargetScale, Task
from bert_tf.training.step import Batch, Objective

# The parts of a batch: features, targets, and perhaps sample weights.
_PARTS = ("rows", "targets", "weights")
_MOST_ROUNDS = 5000  # of the regression of few examples' head


class TaskObjective(Objective):
    """The mean loss of the rows, as ``model.compute_loss`` has it; the sums: it, real tokens.

    ``weight_of`` says of targets what their mean loss counts among others'; where the loss
    ``compares_rows``, each replica computes it of the outputs of all.
    """

    num_sums = 2

    def __init__(
        self,
        model: BertModel,
        weight_of: Callable[[Any], tf.Tensor],
        *,
        compares_rows: bool = False,
    ) -> None:
        self._model = model
        self._weight_of = weight_of
        self._compares_rows = compares_rows

    def totals(self, batch: Batch) -> list[tf.Tensor]:
        """Weight of the whole batch, by which the loss is divided."""
        return [self._weight_of(batch["targets"])]

    def part(self, batch: Batch, totals: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """The loss by what the part counts in the batch."""
        share = Share(batch)
        outputs = outputs_of(self._model, share.rows["rows"], training=True)
        if self._compares_rows:
            outputs, counted, copies = share.join(outputs), batch, share.num_replicas
        else:
            outputs, counted, copies = share.real(outputs), share.real(share.rows), 1
        rows, targets = counted["rows"], counted["targets"]
        loss = self._model.compute_loss(
            rows, targets, outputs, counted.get("weights"), training=True
        )
        # Keras divides by the number of replicas, as it expects their sum.
        loss *= share.num_replicas * tf.math.divide_no_nan(self._weight_of(targets), totals[0])
        tokens = tf.zeros(())
        if features.INPUT_MASK in rows:
            tokens = tf.reduce_sum(tf.cast(rows[features.INPUT_MASK], tf.float32))
        return loss, tf.stack([loss, tokens]) / copies

    def loss(self, sums: tf.Tensor) -> tf.Tensor:
        """The mean loss."""
        return sums[0]


def training_batches(
    examples: Examples,
    scale: TargetScale,
    batch_size: int,
    *,
    epochs: int,
    seed: int,
    first_step: int,
    length_multiple: int,
    few_shapes: bool,
) -> tf.data.Dataset:
    """The batches from a step on, for a ``TrainingLoop``, with the places of their last rows."""
    batches = scale.scaled(
        examples.training_batches(
            batch_size,
            epochs=epochs,
            seed=seed,
            first_step=first_step,
            length_multiple=length_multiple,
            few_shapes=few_shapes,
        )
    )
    each_epoch, most = examples.num_batches(batch_size), len(examples)

    def with_place(step: tf.Tensor, parts: tuple[Any, ...]) -> dict[str, Any]:
        epoch, place = step // each_epoch, step % each_epoch
        last = tf.minimum((place + 1) * batch_size, most) - 1
        zero = tf.zeros_like(step)
        cursor = tf.cast([[zero, epoch, zero, last]], tf.int32)
        return {**dict(zip(_PARTS, parts, strict=False)), features.CURSOR: cursor}

    # Nothing here or below needs AutoGraph, whose first conversion takes seconds.
    with_place = tf.autograph.experimental.do_not_convert(with_place)
    return batches.enumerate(first_step).map(with_place)


# === Few examples ===


class Learner(NamedTuple):
    """Learner of another objective than the task's: a part of the model, from other examples.

    ``fit`` is called before each evaluation, and makes the rest of the model fit that part.
    """

    model: Any
    task: Task
    examples: Examples
    fit: Callable[[], None] = lambda: None


def few_shot_learner(task: Task, inference: Inference, pairs_each: int, seed: int) -> Learner:
    """Learning from few examples: pairs of texts move the vectors, then a head is fitted to these.

    Two texts of one class are to have vectors of the same direction, two of different classes of
    perpendicular ones. The result is a classifier as any other: the head reads the same vectors.
    Source: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts" (SetFit), section 3.
    """
    items, length, classifier = task.training_items(), inference.max_seq_length, inference.model
    ids = np.array([task.labels.index(item.label) for item in items])
    pairs = [
        SimilarityExample(str(number), (items[one].text_a, items[other].text_a), score)
        for number, (one, other, score) in enumerate(draw_pairs(ids, pairs_each, seed))
    ]
    print(f"Few examples: {len(pairs):,} pairs of the {len(items):,} texts.", flush=True)
    encoder = classifier.encoder
    encoder.sentence_embedding = SentenceEmbedding(classifier.pooling, False, length)
    options = SimilarityTask.Options(similarity_loss=SIMILARITY_LOSSES[1])
    learned = SimilarityTask(task.name, ExampleSet(pairs, (), []), {}, {}, options=options)
    texts = similarity_examples(
        inference.tokenizer, [[item.text_a for item in items]], max_seq_length=length
    )

    def fit() -> None:
        embedder = Inference(encoder, inference.tokenizer, length, inference.batch_size)
        vectors = embedder.in_order(texts)[:, 0]
        head: Any = getattr(classifier, type(classifier).head)
        head.set_weights(fit_head(vectors, ids, len(task.labels)))

    examples = learned.training_examples(inference.tokenizer, length)
    return Learner(encoder, learned, examples, fit)


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
    directions = at_length_1(vectors)
    rows = np.concatenate([directions, np.ones([len(vectors), 1])], 1).astype(np.float64)
    targets = np.eye(classes)[ids]
    penalty = np.append(np.ones(rows.shape[1] - 1), 0.0)[:, None]
    step = 1 / (0.5 * np.linalg.norm(rows, 2) ** 2 + 1)
    weights = ahead = np.zeros([rows.shape[1], classes])
    for number in range(_MOST_ROUNDS):
        logits = rows @ ahead
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        gradient = rows.T @ (shares - targets) + penalty * ahead
        if np.abs(gradient).max() < 1e-7:
            break
        before, weights = weights, ahead - step * gradient
        ahead = weights + number / (number + 3) * (weights - before)
    return weights[:-1] / scale, weights[-1]
