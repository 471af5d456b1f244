"""A model that is run on a data set: each example once, the longest first."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.length_buckets import Examples
from bert_tf.pipelines.long_texts import mean_of_windows
from bert_tf.pipelines.replicas import traced_step
from bert_tf.pipelines.wordpiece import BertTokenizer

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Inference:
    """A model, and how it is run on a data set.

    ``kept`` is what the model gave for a set, by the set's name, so that its evaluation and its
    predictions run the model once; who changes the weights clears it. ``None``: nothing is kept.
    """

    model: BertModel
    tokenizer: BertTokenizer
    max_seq_length: int
    batch_size: int
    kept: dict[str, Any] | None = None

    def once(self, set_name: str, compute: Callable[[], T]) -> T:
        """Outputs on a set, from memory or computed now."""
        if self.kept is None:
            return compute()
        if set_name not in self.kept:
            self.kept[set_name] = compute()
        found: T = self.kept[set_name]
        return found

    def outputs(self, examples: Examples) -> Iterator[tuple[Mapping[str, np.ndarray], np.ndarray]]:
        """Runs the model without dropout on every example, the longest first.

        The model is traced once, for batches of any size and length and for later calls; one batch
        is in memory at a time. Yields a batch's features, ``example_index`` among them, and what
        was found for it, where 0 stands for what is not finite: a diverged model is evaluated like
        others.
        """
        batches, spec = _batches(examples, max(self.batch_size // examples.rows_each, 1))
        step = traced_step(self.model, _rows_and_outputs, spec)
        for batch in batches:
            rows, outputs = step(batch)
            numbers = np.nan_to_num(outputs.numpy())
            yield {key: value.numpy() for key, value in rows.items()}, numbers

    def in_order(self, examples: Examples) -> np.ndarray:
        """The model's output for each example, (N, ...)."""
        places, found = [], []
        for rows, outputs in self.outputs(examples):
            places.append(rows[features.EXAMPLE_INDEX])
            found.append(outputs)
        return np.concatenate(found)[np.argsort(np.concatenate(places))]


def _batches(examples: Examples, batch_size: int) -> tuple[Iterable[Any], Any]:
    """The batches, and the spec of all batches of this form, which is that of a dataset of them."""
    if len(examples) <= batch_size:
        batch, width = examples.whole_batch()
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
    return rows, outputs_of(model, rows, training=False)


def outputs_of(model: Any, rows: Any, *, training: bool) -> Any:
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
