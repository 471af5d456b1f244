"""A model on one set: its outputs for each example, and what they are worth.

Letters: N examples, C classes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.answering.class_probabilities import log_probabilities
from bert_tf.choices import PAIR_MARK
from bert_tf.modeling.base import TEMPERATURE, BertModel
from bert_tf.pipelines.long_texts import mean_of_windows
from bert_tf.pipelines.replicas import compute_batches, get_traced_step
from bert_tf.pipelines.tokenized_examples import Examples
from bert_tf.pipelines.wordpiece import BertTokenizer

from .calibration import Calibration, calibrate_classes, fit_temperature
from .scores import Comparison, Confusion

Thresholds = Mapping[str, float]
T = TypeVar("T")
_MAX_MISTAKES = 50


# === Outputs ===


@dataclasses.dataclass(frozen=True)
class Inference:
    """A model, and how it is run on a data set.

    ``cache`` has the outputs on each set by its name, so that its evaluation and its predictions
    run the model once; code that changes the weights clears it. ``None``: nothing is kept.
    """

    model: BertModel
    tokenizer: BertTokenizer
    max_seq_length: int
    batch_size: int
    cache: dict[str, Any] | None = None

    def cached(self, set_name: str, compute: Callable[[], T]) -> T:
        """Outputs on a set, from memory or computed now."""
        if self.cache is None:
            return compute()
        if set_name not in self.cache:
            self.cache[set_name] = compute()
        outputs: T = self.cache[set_name]
        return outputs

    def outputs(self, examples: Examples) -> Iterator[tuple[Mapping[str, np.ndarray], np.ndarray]]:
        """Runs the model without dropout on every example, the longest first.

        The model is traced once, for batches of any size and length and for later calls. Yields a
        batch's features, ``example_index`` among them, and its outputs, where 0 stands for what is
        not finite: a diverged model is evaluated like others.
        """
        batches, spec = _batches(examples, max(self.batch_size // examples.rows_per_example, 1))
        step = get_traced_step(self.model, _rows_and_outputs, spec)
        for _, (rows, outputs) in compute_batches(step, batches):
            rows = {key: value.numpy() for key, value in rows.items()}
            yield rows, np.nan_to_num(outputs.numpy())

    def ordered_outputs(self, examples: Examples) -> np.ndarray:
        """The model's output for each example, (N, ...)."""
        batches = [(rows[features.EXAMPLE_INDEX], out) for rows, out in self.outputs(examples)]
        indices, outputs = map(np.concatenate, zip(*batches, strict=True))
        return outputs[np.argsort(indices)]


def _batches(examples: Examples, batch_size: int) -> tuple[Iterable[Any], Any]:
    """The batches, and the spec of all batches of this form, which is that of a dataset of them."""
    if len(examples) <= batch_size:
        batch, width = examples.single_batch()
        sizes = [part.shape[1:].as_list() for part in tf.nest.flatten(batch)]
        # To build the dataset takes longer than a few rows do. Where no other size is the same
        # number, the sizes that batches do not have in common are known without it.
        if all(each.count(width) <= 1 for each in sizes):
            return [batch], tf.nest.map_structure(lambda part: _spec(part, width), batch)
    dataset = examples.evaluation_batches(batch_size, longest_first=True)
    return dataset, dataset.element_spec


def _spec(part: tf.Tensor, width: int) -> tf.TensorSpec:
    sizes = (None if size == width else size for size in part.shape[1:])
    return tf.TensorSpec([None, *sizes], part.dtype)


def _rows_and_outputs(model: BertModel, rows: Any) -> tuple[Any, Any]:
    return rows, model.activated(run_model(model, rows, training=False))


def run_model(model: Any, rows: Any, *, training: bool) -> Any:
    """A model's outputs for a batch; for texts that are read in windows their means.

    Of a model of embeddings they are the vectors of texts, (B, K, D) float32 of (B, K, S) ids.
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


# === What they are worth ===


@dataclasses.dataclass(frozen=True)
class Mistake:
    """An example that the model got wrong, for a person to read.

    ``texts`` has the example's texts by their names, ``""`` for an only one. ``loss`` is the
    negative log-likelihood of what was expected, or the squared error. ``probabilities`` are those
    of what was expected and of what was predicted, where one of several was to be chosen.
    """

    id: str
    texts: Mapping[str, str]
    expected: str
    predicted: str
    loss: float
    probabilities: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """All texts, with the mark between them."""
        return join_texts(self.texts)


def join_texts(texts: Mapping[str, str]) -> str:
    """Named texts as one, with the mark between them."""
    return PAIR_MARK.join(texts.values())


def get_temperature(thresholds: Thresholds | None, logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature that is given, or with ``None`` that of logits (N, C) and ids (N,)."""
    if thresholds is None:
        return fit_temperature(logits, labels)
    return thresholds.get(TEMPERATURE, 1.0)


def is_constant(true: np.ndarray, predicted: np.ndarray) -> bool:
    """True if all predictions are one though the labels are not."""
    return bool((predicted == predicted[0]).all() and (true != true[0]).any())


class PredictedClasses(NamedTuple):
    """The predictions of one class each: ids and negative log-likelihoods, (N,) each.

    ``fields`` are those of an ``Evaluation``.
    """

    predicted: np.ndarray
    losses: np.ndarray
    log_probabilities: np.ndarray  # (N, C)
    fields: dict[str, Any]


def predict_classes(
    logits: np.ndarray, true: np.ndarray, thresholds: Thresholds | None
) -> PredictedClasses:
    """Predicts one class each by logits (N, C), and compares with the true ids, (N,)."""
    temperature = get_temperature(thresholds, logits, true)
    logs = log_probabilities(logits).numpy()
    predicted = logs.argmax(1)
    fields = {
        "thresholds": {TEMPERATURE: temperature},
        "calibrate": functools.partial(calibrate_classes, logits, true, temperature),
        "constant": is_constant(true, predicted),
    }
    return PredictedClasses(predicted, -logs[np.arange(len(true)), true], logs, fields)


def worst_mistakes(
    items: Sequence[Any],
    losses: np.ndarray,
    wrong: np.ndarray,
    show: Callable[[int], tuple[Mapping[str, str], str, str]],
    log_probabilities: np.ndarray | None = None,
) -> list[Mistake]:
    """The wrong examples, (N,) bool, of the greatest losses, at most 50, the greatest first.

    ``show`` gives, for an example's number, its texts, what was expected and what was predicted.
    ``log_probabilities`` (N, C) are those of the choices, of which the likeliest was predicted and
    ``losses`` has what was expected.
    """

    def probabilities(index: int) -> tuple[float, float] | None:
        if log_probabilities is None:
            return None
        return math.exp(-losses[index]), math.exp(log_probabilities[index].max())

    numbers = np.flatnonzero(wrong)
    order = np.argsort(-losses[numbers], kind="stable")[:_MAX_MISTAKES]
    return [
        Mistake(items[index].id, *show(index), float(losses[index]), probabilities(index))
        for index in numbers[order]
    ]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A model's scores and mistakes on one set.

    Scores are fractions of 1, or 0 to 100 where the official script says so; ``comparison`` has
    those of each class. ``constant`` says that the run has collapsed: every prediction is the same
    and should not be, or what ``constant_description`` says. ``confusion`` counts the pairs of an
    expected and a predicted class. ``thresholds`` are those of the scores, by name, such as
    ``null``, that of no answer, and the temperature of the probabilities: decided on this set, or
    given. ``calibrate`` compares the probabilities with what is so.
    """

    scores: Mapping[str, float]
    constant: bool
    mistakes: Sequence[Mistake] = ()
    confusion: Confusion | None = None
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    constant_description: str = "every prediction is the same"
    calibrate: Callable[[], Calibration] | None = None
    comparison: Comparison = dataclasses.field(default_factory=lambda: Comparison(0, {}))
