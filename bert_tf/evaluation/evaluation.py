"""Evaluation of a model on one data set: outputs, thresholds, scores and mistakes.

Dimensions: N examples, C classes.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.answering.classes import log_probabilities
from bert_tf.choices import PAIR_MARK
from bert_tf.features import TEMPERATURE
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.long_texts import mean_of_windows
from bert_tf.pipelines.replicas import compute_batches, get_traced_step
from bert_tf.pipelines.tokenized_examples import LENGTH_MULTIPLE, Examples
from bert_tf.pipelines.wordpiece import BertTokenizer

from .calibration import Calibration, calibrate_classes, fit_temperature, row_blocks
from .metrics import Comparison, Confusion

Thresholds = Mapping[str, float]
_MAX_MISTAKES = 50


# === Outputs ===


@dataclasses.dataclass(frozen=True)
class Inference:
    """Model together with the settings for running it on a data set.

    Attributes:
        cache: Outputs by data set name, so that evaluation and prediction run the model only once.
            Code that changes the weights must clear the cache. ``None`` disables caching.
        length_multiple: Multiple to which the lengths of batches are rounded up.
    """

    model: BertModel
    tokenizer: BertTokenizer
    max_seq_length: int
    batch_size: int
    cache: dict[str, Any] | None = None
    length_multiple: int = LENGTH_MULTIPLE

    def outputs(self, examples: Examples) -> Iterator[tuple[Mapping[str, np.ndarray], np.ndarray]]:
        """Runs the model without dropout on every example, the longest first.

        The model is traced once for all batch sizes and lengths.

        Yields:
            The features of a batch, including ``example_index``, and its outputs. Non-finite
                outputs are replaced by finite numbers, so that a diverged model can be evaluated.
        """
        batch_size = max(self.batch_size // examples.rows_per_example, 1)
        batches, spec = examples.sorted_batches(batch_size, self.length_multiple)
        step = get_traced_step(self.model, _rows_and_outputs, spec)
        for _, (rows, outputs) in compute_batches(step, batches):
            rows = {key: value.numpy() for key, value in rows.items()}
            yield rows, np.nan_to_num(outputs.numpy())

    def ordered_outputs(self, examples: Examples) -> np.ndarray:
        """Returns the model's outputs in the order of the examples, shape (N, ...).

        All outputs have the same shape, and the batches contain each example once.
        """
        ordered = np.empty(0)
        for rows, outputs in self.outputs(examples):
            if not ordered.size:
                ordered = np.empty((len(examples), *outputs.shape[1:]), outputs.dtype)
            ordered[rows[features.EXAMPLE_INDEX]] = outputs
        return ordered


def _rows_and_outputs(model: BertModel, rows: Any) -> tuple[Any, Any]:
    return rows, model.activated(run_model(model, rows, training=False))


def run_model(model: Any, rows: Any, *, training: bool) -> Any:
    """Runs a model on a batch, and averages the outputs of each text's windows.

    Returns:
        The model's outputs. For an embedding model, the vectors of the texts, shape (B, K, D)
            float32 for ids of shape (B, K, S).
    """
    if getattr(model, "sentence_embedding", None) is not None:
        shape = tf.shape(rows[features.INPUT_WORD_IDS])
        flat = {key: tf.reshape(rows[key], [-1, shape[2]]) for key in features.ENCODER_FEATURES}
        vectors = model.embed(flat, training=training)
        return tf.reshape(vectors, [shape[0], shape[1], vectors.shape[-1]])
    if features.NUM_WINDOWS not in rows:
        return model(rows, training=training)
    counts = rows[features.NUM_WINDOWS]
    is_window = tf.sequence_mask(counts, tf.shape(rows[features.INPUT_WORD_IDS])[1])
    flat = {key: tf.boolean_mask(rows[key], is_window) for key in features.ENCODER_FEATURES}
    return mean_of_windows(model(flat, training=training), counts)


# === Scores and mistakes ===


@dataclasses.dataclass(frozen=True)
class Mistake:
    """Example that the model predicted incorrectly.

    Attributes:
        texts: Texts of the example by name; a single text has the name "".
        loss: Negative log-likelihood of the expected answer, or the squared error.
        probabilities: Calibrated probabilities of the expected and the predicted class
            (single-label only).
    """

    id: str
    texts: Mapping[str, str]
    expected: str
    predicted: str
    loss: float
    probabilities: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """All texts, joined by a separator."""
        return join_texts(self.texts)


def join_texts(texts: Mapping[str, str]) -> str:
    """Joins the texts of an example by a separator."""
    return PAIR_MARK.join(texts.values())


def get_temperature(thresholds: Thresholds | None, logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the temperature in ``thresholds``, or fits one if ``thresholds`` is ``None``."""
    if thresholds is None:
        return fit_temperature(logits, labels)
    return thresholds.get(TEMPERATURE, 1.0)


def is_constant(true: np.ndarray, predicted: np.ndarray) -> bool:
    """Returns whether all predictions are equal although the labels are not."""
    return bool((predicted == predicted[0]).all() and (true != true[0]).any())


def predict_classes(
    logits: np.ndarray, true: np.ndarray, thresholds: Thresholds | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Predicts a class for each row of logits (N, C) and compares it with the true id, (N,).

    Returns:
        The predicted ids, (N,); the negative log-likelihoods of the true ids, (N,); the calibrated
        probabilities of the true and the predicted ids, (N, 2); and keyword arguments for
        ``Evaluation``.
    """
    temperature = get_temperature(thresholds, logits, true)
    count = len(true)
    predicted, losses, pairs = np.zeros(count, np.int64), np.zeros(count), np.zeros((count, 2))
    for block in row_blocks(logits):
        raw, calibrated = (log_probabilities(logits[block], t).numpy() for t in (1.0, temperature))
        rows, labels, best = np.arange(len(raw)), true[block], raw.argmax(1)
        predicted[block], losses[block] = best, -raw[rows, labels]
        pairs[block] = np.exp(np.stack([calibrated[rows, labels], calibrated[rows, best]], axis=1))
    fields = {
        "thresholds": {TEMPERATURE: temperature},
        "calibrate": functools.partial(calibrate_classes, logits, true, temperature),
        "constant": is_constant(true, predicted),
    }
    return predicted, losses, pairs, fields


def worst_mistakes(
    items: Sequence[Any],
    losses: np.ndarray,
    is_wrong: np.ndarray,
    show: Callable[[int], tuple[Mapping[str, str], str, str]],
    probabilities: np.ndarray | None = None,
) -> list[Mistake]:
    """Returns up to 50 mistakes with the largest losses, in descending order of loss.

    Args:
        items: The N examples.
        losses: Loss of each example, shape (N,).
        is_wrong: Whether each prediction is incorrect, shape (N,).
        show: Function that maps an example's index to the texts, the label and the prediction.
        probabilities: Probabilities of the expected and the predicted class, shape (N, 2)
            (single-label only).
    """

    def pair(index: int) -> tuple[float, float] | None:
        if probabilities is None:
            return None
        expected, predicted = probabilities[index].tolist()
        return expected, predicted

    numbers = np.flatnonzero(is_wrong)
    order = np.argsort(-losses[numbers], kind="stable")[:_MAX_MISTAKES]
    return [
        Mistake(items[index].id, *show(index), float(losses[index]), pair(index))
        for index in numbers[order]
    ]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores and mistakes of a model on one data set.

    Attributes:
        scores: Scores from 0 to 1, or from 0 to 100 if the official script uses percentages.
        constant: Whether the model collapsed: all predictions are equal although the labels are
            not, or the model matches ``constant_description``.
        mistakes: The worst mistakes.
        confusion: Counts of expected and predicted classes.
        thresholds: Thresholds by name, including the temperature, tuned on this data set or given.
        calibrate: Function that compares the probabilities with the labels.
        comparison: Comparison of predictions with labels, including the scores of each class.
    """

    scores: Mapping[str, float]
    constant: bool
    mistakes: Sequence[Mistake] = ()
    confusion: Confusion | None = None
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    constant_description: str = "every prediction is the same"
    calibrate: Callable[[], Calibration] | None = None
    comparison: Comparison = dataclasses.field(default_factory=lambda: Comparison(0, {}))
