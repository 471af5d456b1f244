"""Cache of a frozen encoder's states for the words of a data set, stored in a file.

Dimensions: R rows, W words of all rows, L hidden states per word, H hidden, B batch.
"""

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.modeling import BertFeatureTagger
from bert_tf.modeling.feature_based import frozen_states
from bert_tf.pipelines.replicas import compute_batches, get_traced_step
from bert_tf.pipelines.tokenized_examples import Examples, row_examples
from bert_tf.training.progress import Progress, print_progress

_BATCH_SIZE = 32  # constant, because the rounding of sums depends on shapes
_MAX_DISK_FRACTION = 0.9
_COUNT, _LABELS = "count", "labels"


class WordStates:
    """Stores the encoder states that ``BertFeatureTagger`` reads for each data set.

    A word has L * H floats; all words of CoNLL-2003's training set take 0.6 to 7.5 GB for
    BERT-base. Until the process ends, the states are stored in an anonymous temporary file in
    ``folder`` or, if ``folder`` is remote or "", in the system's temporary directory. If there is
    not enough disk space, the encoder runs on each batch.
    """

    def __init__(self, folder: str) -> None:
        is_remote = "://" in folder
        self._folder = tempfile.gettempdir() if is_remote or not folder else folder
        self._variant: str | None = None
        # Examples and their states by ``id(examples)``.
        self._states: dict[int, tuple[Examples, Examples]] = {}

    def encode(self, model: BertFeatureTagger, examples: Examples) -> Examples:
        """Returns the examples with the encoder's states in place of tokens.

        Batches contain ``word_states`` (B, W, L, H), ``word_index`` (B, W), ``example_index`` (B,)
        and, if the examples have labels, labels (B, W). The order of the rows can differ. If there
        is not enough disk space, the examples are returned unchanged. States are stored until a
        model with another variant is passed; the encoder's weights must not change.
        """
        if model.variant != self._variant:
            self._states.clear()
            self._variant = model.variant
        if id(examples) not in self._states:
            self._states[id(examples)] = (examples, self._compute(model, examples))
        _, states = self._states[id(examples)]
        return states

    def _compute(self, model: BertFeatureTagger, examples: Examples) -> Examples:
        dtype = tf.as_dtype(model.compute_dtype)
        _, _, *size = model.reader.input[features.WORD_STATES].shape
        num_words = _count_words(examples)
        needed = num_words * int(np.prod(size)) * dtype.size
        free = shutil.disk_usage(self._folder).free
        if needed > _MAX_DISK_FRACTION * free:
            print_progress(
                f"The features of {num_words:,} words need {needed / 1e9:.1f} GB, but "
                f"{self._folder} has only {free / 1e9:.1f} GB free. The features are not stored, "
                "so the encoder runs on each batch.",
                flush=True,
            )
            return examples
        words: list[dict[str, np.ndarray]] = []
        with tempfile.TemporaryFile(dir=self._folder) as file:
            progress = Progress("Frozen features", len(examples), "rows")
            done = 0
            for states, small in _encoded(model, examples):
                file.write(states.tobytes())
                words.append(small)
                done += len(small[features.EXAMPLE_INDEX])
                progress.update(done)
            progress.close()
            file.flush()
            mapped = _mapped(file, (num_words, *size), dtype.size)
        columns = {key: np.concatenate([small[key] for small in words]) for key in words[0]}
        return _as_examples(mapped, dtype, columns, examples.num_too_long)


def _count_words(examples: Examples) -> int:
    batches, _ = examples.sorted_batches(_BATCH_SIZE)
    return sum(int(np.sum(_rows(batch)[features.WORD_INDEX] >= 0)) for batch in batches)


def _rows(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple) else batch


def _encoded(
    model: BertFeatureTagger, examples: Examples
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields the states of each batch's words, (words, L, H), and the batch's other columns."""
    batches, spec = examples.sorted_batches(_BATCH_SIZE)
    encode = get_traced_step(model, _states, spec)
    for batch, states in compute_batches(encode, batches):
        rows = {key: value.numpy() for key, value in _rows(batch).items()}
        is_word = rows[features.WORD_INDEX] >= 0
        small = {
            features.EXAMPLE_INDEX: rows[features.EXAMPLE_INDEX],
            features.WORD_INDEX: rows[features.WORD_INDEX][is_word],
            _COUNT: np.count_nonzero(is_word, 1),
        }
        if isinstance(batch, tuple):
            _, labels = batch
            small[_LABELS] = labels.numpy()[is_word]
        yield tf.boolean_mask(states, is_word).numpy(), small


def _states(model: BertFeatureTagger, rows: Any) -> tf.Tensor:
    """Returns the L hidden states that the model's variant uses, (B, S, L, H)."""
    return tf.stack(frozen_states(model.variant, model.encoder, rows), 2)


def _mapped(file: IO[bytes], shape: tuple[int, ...], bytes_per_value: int) -> tf.Tensor:
    """Maps a file to memory as a tensor of integers that have the size of the stored values.

    Reading the tensor does not call Python: otherwise, when the process exits, a pending batch
    would wait for Python forever.
    """
    integers = np.memmap(file, f"u{bytes_per_value}", "r+", shape=shape)
    with tf.device("CPU:0"):
        return tf.experimental.dlpack.from_dlpack(integers.__dlpack__())


def _as_examples(
    states: tf.Tensor, dtype: tf.DType, columns: dict[str, np.ndarray], num_too_long: int
) -> Examples:
    """Builds examples from the states of words.

    ``states`` are the states of all rows, (W, L, H), as integers with the bits of ``dtype`` values.
    ``columns`` contains ``example_index`` and ``count`` per row, (R,), and ``word_index`` and
    optionally ``labels`` per word, (W,).
    """
    counts = columns.pop(_COUNT).astype(np.int32)
    numbers = columns.pop(features.EXAMPLE_INDEX)
    paddings = {features.WORD_INDEX: -1, _LABELS: features.NO_LABEL}
    word_columns = {key: (values, paddings[key]) for key, values in columns.items()}
    rows = row_examples(
        counts, {features.WORD_STATES: (states, 0), **word_columns}, int(counts.max())
    )

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> Any:
        batch = rows.make_batch(indices, width)
        batch[features.WORD_STATES] = tf.bitcast(batch[features.WORD_STATES], dtype)
        batch[features.EXAMPLE_INDEX] = tf.gather(numbers, indices)
        return (batch, batch.pop(_LABELS)) if _LABELS in batch else batch

    return dataclasses.replace(rows, make_batch=make_batch, num_too_long=num_too_long)
