"""Batches of tokenized examples for fine-tuning, with little padding.

Columns of texts and labels are validated and tokenized once. The order of an epoch's examples
depends only on the lengths, the seed and the epoch's index, so an interrupted run resumes with the
same batches. Each batch then takes one gather and one packing operation.

Letters: N examples, B batch, S sequence length, C classes.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features

from .packing import Range, check_at_least, fit_segments, pack_from_table, token_table
from .randomness import Operation, fold, permutation
from .wordpiece import BertTokenizer

LENGTH_MULTIPLE = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Tokenized examples, ready to be batched.

    Attributes:
        lengths: Number of tokens per example, including [CLS] and [SEP].
            Shape `(N,)`, int32.
        max_seq_length: Maximum number of columns in a batch.
        make_batch: Function that creates a dataset element from the indices of a batch's examples,
            `(B,)` int32, and S, a scalar int32, at least the largest of their lengths. It runs
            eagerly, and in a graph, in parallel and without AutoGraph.
        num_too_long: Number of examples that were truncated.
        num_lost: Number of examples whose label is not in any row.
        rows_per_example: Maximum number of rows per example; evaluation batches have
            correspondingly fewer examples.

    >>> def make_batch(indices, width):
    ...     return {"example_index": indices, "width": width}
    >>> examples = Examples(np.int32([5, 3, 9, 3]), 12, make_batch)
    >>> for batch in examples.evaluation_batches(2).as_numpy_iterator():
    ...     print(batch["example_index"], batch["width"])
    [0 1] 8
    [2 3] 12
    """

    lengths: np.ndarray
    max_seq_length: int
    make_batch: Callable[[tf.Tensor, tf.Tensor], Any]
    num_too_long: int = 0
    num_lost: int = 0
    rows_per_example: int = 1

    def __post_init__(self) -> None:
        if not len(self.lengths):
            raise ValueError("Expected at least one example, got none.")
        shortest, longest = self.lengths.min(), self.lengths.max()
        if not 1 <= shortest <= longest <= self.max_seq_length:
            raise ValueError(
                f"lengths: expected 1 to max_seq_length={self.max_seq_length}, got {shortest} to "
                f"{longest}."
            )

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.lengths)

    def few_lengths(self) -> np.ndarray:
        """Returns up to four lengths to which batches can be padded, ascending int32.

        >>> Examples(np.int32([5, 52, 9]), 128, None).few_lengths()
        array([16, 32, 48, 64], dtype=int32)
        """
        longest = int(self.lengths.max())
        multiple = 8 * -(-longest // 32)
        limit = min(-(-longest // multiple) * multiple, self.max_seq_length)
        return padded_lengths(limit, multiple)

    def num_batches(self, batch_size: int) -> int:
        """Returns the number of batches per epoch, for ``steps_per_epoch`` of ``fit``."""
        check_at_least("batch_size", batch_size, 1)
        return -(-len(self) // batch_size)

    def training_batches(
        self,
        batch_size: int,
        *,
        epochs: int | None = None,
        seed: int = 0,
        first_step: int = 0,
        length_multiple: int = LENGTH_MULTIPLE,
        few_shapes: bool = False,
        num_parallel_calls: int | None = None,
    ) -> tf.data.Dataset:
        """Creates batches for training, in a different order in each epoch.

        Each pass over the dataset is the next epoch, as in ``fit`` with ``shuffle=False``. To
        resume a run, create a dataset of all epochs::

            model.fit(examples.training_batches(32), epochs=3, shuffle=False)
            # The same, from the second epoch on:
            steps = examples.num_batches(32)
            batches = examples.training_batches(32, epochs=3, first_step=steps)
            model.fit(batches, epochs=3, initial_epoch=1, steps_per_epoch=steps, shuffle=False)

        Args:
            batch_size: Batch size; the last batch of an epoch may be smaller.
            epochs: Number of epochs of the run, which follow each other in the dataset. With
                ``None``, the dataset is one epoch, and each pass in this process is the next epoch;
                the tf.data service requires a number.
            seed: 64-bit integer. A batch only depends on the seed, epoch, index, N and
                ``batch_size``.
            first_step: Number of batches to skip, counted over all epochs.
            length_multiple: Multiple to which S is rounded up, up to ``max_seq_length``.
            few_shapes: Whether to round S up to one of ``few_lengths`` (for a smaller last batch,
                to the largest), so that XLA compiles at most five shapes.
            num_parallel_calls: Number of batches to create in parallel; tuned by default.

        Returns:
            A dataset of the results of ``make_batch``.

        Raises:
            ValueError: If an argument is out of range.
        """
        steps = self.num_batches(batch_size)
        counts_passes = epochs is None and not first_step
        epochs = 1 if epochs is None else epochs
        check_at_least("epochs", epochs, 1)
        if not 0 <= first_step < epochs * steps:
            raise ValueError(
                f"first_step: expected 0 to {epochs * steps - 1} ({epochs} epochs of {steps} "
                f"batches), got {first_step}."
            )
        if not -(2**63) <= seed < 2**63:
            raise ValueError(f"seed: expected a 64-bit integer, got {seed}.")
        with tf.device("CPU:0"):
            lengths = tf.constant(self.lengths, tf.int32)
        first_epoch, first_batch = divmod(first_step, steps)

        # Skips AutoGraph, whose first conversion takes seconds.
        @tf.autograph.experimental.do_not_convert
        def make_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            order = plan_epoch(lengths, batch_size, seed, epoch)
            skipped = tf.where(epoch == first_epoch, first_batch * batch_size, 0)
            return tf.data.Dataset.from_tensor_slices(order[skipped:]).batch(batch_size)

        numbers = tf.data.Dataset.range(first_epoch, epochs)
        if counts_passes:
            passes = itertools.count()
            # The generator is called at the start of each pass.
            numbers = tf.data.Dataset.from_generator(
                lambda: [next(passes)], output_signature=tf.TensorSpec((), tf.int64)
            )
        dataset = numbers.flat_map(make_epoch)
        if few_shapes:
            widths, full_size = self.few_lengths(), batch_size
        else:
            widths, full_size = padded_lengths(self.max_seq_length, length_multiple), 0
        dataset = self._packed(dataset, widths, full_size, num_parallel_calls)
        return dataset.apply(
            tf.data.experimental.assert_cardinality(epochs * steps - first_step)
        ).prefetch(tf.data.AUTOTUNE)

    def evaluation_batches(
        self, batch_size: int, *, length_multiple: int = LENGTH_MULTIPLE
    ) -> tf.data.Dataset:
        """Creates batches of one pass over the examples, in order, as for ``model.predict``.

        Args:
            batch_size: Batch size; the last batch may be smaller.
            length_multiple: Multiple to which S is rounded up, up to ``max_seq_length``.

        Returns:
            A dataset of the results of ``make_batch``, with a known cardinality.
        """
        check_at_least("batch_size", batch_size, 1)
        dataset = tf.data.Dataset.range(len(self), output_type=tf.int32).batch(batch_size)
        widths = padded_lengths(self.max_seq_length, length_multiple)
        return self._packed(dataset, widths).prefetch(tf.data.AUTOTUNE)

    def sorted_batches(
        self, batch_size: int, length_multiple: int = LENGTH_MULTIPLE
    ) -> tuple[Iterator[Any], Any]:
        """Creates the batches of one pass over the examples, the longest first.

        This order minimizes padding, and the first batch shows whether the memory suffices;
        ``example_index`` restores the original order. Batches are computed eagerly, because
        building a ``tf.data`` pipeline takes half a second, in which a model computes a few hundred
        short texts.

        Args:
            batch_size: Batch size; the last batch may be smaller.
            length_multiple: Multiple to which S is rounded up, up to ``max_seq_length``.

        Returns:
            An iterator over the results of ``make_batch``, and their element spec, as of a dataset.
        """
        check_at_least("batch_size", batch_size, 1)
        widths = padded_lengths(self.max_seq_length, length_multiple)
        order = np.argsort(-self.lengths, kind="stable").astype(np.int32)

        def make(begin: int) -> tuple[Any, int]:
            indices = order[begin : begin + batch_size]
            width = int(widths[np.searchsorted(widths, self.lengths[indices[0]])])
            return self._eager_batch(indices, width), width

        first, width = make(0)
        others = (make(begin)[0] for begin in range(batch_size, len(order), batch_size))
        return itertools.chain([first], others), self._element_spec(first, width)

    def _element_spec(self, batch: Any, width: int) -> Any:
        """Returns the element spec, given a batch."""
        compared = []
        if any(width in part.shape[1:-1] for part in tf.nest.flatten(batch)):
            # The dimension could be a fixed size that equals S. A batch with another S shows this.
            shortest = self.lengths.argmin()
            length = int(self.lengths[shortest])
            other_width = length if length != width else length + 1
            compared.append(self._eager_batch(np.array([shortest], np.int32), other_width))

        def spec(part: tf.Tensor, *others: tf.Tensor) -> tf.TensorSpec:
            dimensions = zip(*(each.shape[1:] for each in (part, *others)), strict=True)
            sizes = (None if size == width and size not in o else size for size, *o in dimensions)
            return tf.TensorSpec([None, *sizes], part.dtype)

        return tf.nest.map_structure(spec, batch, *compared)

    def _eager_batch(self, indices: np.ndarray, width: int) -> Any:
        with tf.device("CPU:0"):
            return self.make_batch(tf.constant(indices), tf.constant(width, tf.int32))

    def _packed(
        self,
        dataset: tf.data.Dataset,
        widths: np.ndarray,
        full_size: int = 0,
        num_parallel_calls: int | None = None,
    ) -> tf.data.Dataset:
        """Creates batches from indices; those smaller than ``full_size`` get the largest width."""
        with tf.device("CPU:0"):
            lengths = tf.constant(self.lengths, tf.int32)
            widths = tf.constant(widths)

        @tf.autograph.experimental.do_not_convert
        def make(indices: tf.Tensor) -> Any:
            longest = tf.reduce_max(tf.gather(lengths, indices))
            width = tf.gather(widths, tf.searchsorted(widths, longest[None])[0])
            width = tf.where(tf.size(indices) < full_size, widths[-1], width)
            return self.make_batch(indices, width)

        parallel = num_parallel_calls or tf.data.AUTOTUNE
        return dataset.map(make, num_parallel_calls=parallel, deterministic=True)


def plan_epoch(
    lengths: tf.Tensor, batch_size: int, seed: int | tf.Tensor, epoch: int | tf.Tensor
) -> tf.Tensor:
    """Returns a random order of examples, (N,) int32, sorted by length in each full batch."""
    order = permutation(tf.size(lengths), fold(seed, Operation.EXAMPLE_ORDER, epoch))
    num_full = tf.size(lengths) // batch_size
    batches = tf.reshape(order[: num_full * batch_size], [num_full, batch_size])
    by_length = tf.argsort(tf.gather(lengths, batches), stable=True)
    batches = tf.gather(batches, by_length, batch_dims=1)
    return tf.concat([tf.reshape(batches, [-1]), order[num_full * batch_size :]], 0)


def prediction_length_multiple() -> int:
    """Returns the multiple to which the lengths of batches in predictions are rounded up.

    A CPU computes every length at the same rate, and multiples of 8 would take a fifth more time
    for texts of 13 tokens. Training runs evaluate with multiples of 8 on every device, because a
    resumed run must compute the same scores as the version that started it.
    """
    has_accelerator = any(map(tf.config.list_logical_devices, ("GPU", "TPU")))
    return LENGTH_MULTIPLE if has_accelerator else 1


def padded_lengths(max_seq_length: int, length_multiple: int = LENGTH_MULTIPLE) -> np.ndarray:
    """Returns the lengths to which batches are padded, ascending int32."""
    check_at_least("length_multiple", length_multiple, 1)
    shorter = range(length_multiple, max_seq_length, length_multiple)
    return np.array([*shorter, max_seq_length], np.int32)


# === Examples from rows ===


def packed_examples(
    tokenizer: BertTokenizer,
    ids: tf.Tensor,
    segments: Sequence[Range],
    max_seq_length: int,
    targets: Sequence[Any],
    extra_features: Mapping[str, tf.Tensor] = MappingProxyType({}),
    **attributes: int,
) -> Examples:
    """Creates examples of one or two segments per row, truncated where needed.

    Args:
        tokenizer: Tokenizer of the model.
        ids: All token ids.
        segments: Ranges of ``ids``, `(N,)`, or `(N, K)` for K rows per example.
        max_seq_length: Maximum number of tokens per row.
        targets: Nests of labels and weights, `(N, ...)`, that follow the features in a batch.
        extra_features: Further features, `(N, ...)`.
        **attributes: Attributes of the ``Examples``.
    """
    with tf.device("CPU:0"):
        fitted = fit_segments(segments, max_seq_length, tokenizer)
        table = token_table(ids, tokenizer)
        columns = tf.nest.map_structure(tf.convert_to_tensor, tuple(targets))
    count, *choices = fitted.lengths.shape
    truncated = np.reshape(fitted.truncated, [count, -1]).any(1)

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> Any:
        ranges = tf.nest.map_structure(
            lambda part: tf.reshape(tf.gather(part, indices), [-1]), fitted.ranges
        )
        batch = pack_from_table(table, ranges, width, tokenizer.second_type)
        if choices:
            batch = {k: tf.reshape(rows, [-1, *choices, width]) for k, rows in batch.items()}
        batch[features.EXAMPLE_INDEX] = indices
        batch |= {key: tf.gather(values, indices) for key, values in extra_features.items()}
        picked = tf.nest.map_structure(lambda column: tf.gather(column, indices), columns)
        return (batch, *picked) if picked else batch

    lengths = np.reshape(fitted.lengths, [count, -1]).max(1)
    return Examples(
        lengths, max_seq_length, make_batch, **{"num_too_long": int(truncated.sum()), **attributes}
    )


def row_examples(
    lengths: np.ndarray, columns: Mapping[str, tuple[Any, int]], max_seq_length: int
) -> Examples:
    """Creates examples from finished rows.

    ``columns`` maps names to the values of all tokens, (T, ...), row after row, and a padding
    value. ``lengths`` contains the number of tokens per row, (N,) int32.
    """
    with tf.device("CPU:0"):
        counts = tf.constant(lengths, tf.int32)
        starts = tf.cumsum(counts, exclusive=True)
        tensors = {
            key: (tf.convert_to_tensor(values), padding)
            for key, (values, padding) in columns.items()
        }

    def make_batch(indices: tf.Tensor, width: tf.Tensor) -> dict[str, tf.Tensor]:
        # (B, S)
        is_real = tf.sequence_mask(tf.gather(counts, indices), width)
        index = tf.where(is_real, tf.gather(starts, indices)[:, None] + tf.range(width), 0)
        batch = {}
        for key, (values, padding) in tensors.items():
            real = is_real
            for _ in values.shape[1:]:
                real = real[..., None]
            batch[key] = tf.where(real, tf.gather(values, index), tf.cast(padding, values.dtype))
        return {**batch, features.EXAMPLE_INDEX: indices}

    return Examples(lengths, max_seq_length, make_batch)


# === Columns of texts, labels and weights ===

# Batch size at which the tokenizer is fastest.
_STRINGS_CHUNK_SIZE = 1024
_MAX_EAGER_STRINGS = 8 * _STRINGS_CHUNK_SIZE


def tokenize_column(tokenizer: BertTokenizer, strings: Any, name: str) -> tf.RaggedTensor:
    """Tokenizes a column of strings: [N, (tokens)] int32, on the CPU."""
    (ids,) = _in_chunks(lambda chunk: (tokenizer.tokenize(chunk),), string_column(strings, name))
    return ids


def tokenize_with_offsets(
    tokenizer: BertTokenizer, strings: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Runs ``BertTokenizer.tokenize_with_offsets`` on a column."""
    ids, starts, ends = _in_chunks(tokenizer.tokenize_with_offsets, strings)
    return ids, starts, ends


def string_column(strings: Any, name: str) -> tf.Tensor:
    """Converts a list, array or tensor of strings to a tensor (N,) on the CPU."""
    if isinstance(strings, tf.Tensor):
        if strings.dtype != tf.string or strings.shape.rank != 1:
            raise ValueError(
                f"{name}: expected strings of shape (N,), got {strings.dtype.name} of shape "
                f"{strings.shape}."
            )
    elif isinstance(strings, (str, bytes)):
        raise ValueError(f"{name}: expected a vector of strings, got {strings!r:.40}.")
    else:
        strings = list(strings)
        for index, item in enumerate(strings):
            if not isinstance(item, (str, bytes)):
                raise ValueError(f"{name}[{index}]: expected a string, got {item!r:.40}.")
    with tf.device("CPU:0"):
        column = tf.convert_to_tensor(strings, tf.string)
    if not len(column):
        raise ValueError(f"{name}: expected at least one string, got none.")
    return column


def flat_column(rows: Any, name: str) -> tuple[Any, np.ndarray]:
    """Flattens (N,) lists, or a tensor's rows; returns the items and (N,) int32 counts."""
    if isinstance(rows, tf.RaggedTensor):
        return rows.values, rows.row_lengths().numpy().astype(np.int32)
    lists = list(rows.numpy() if isinstance(rows, tf.Tensor) else rows)
    for index, row in enumerate(lists):
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise ValueError(f"{name}[{index}]: expected a list of {name}, got {row!r:.40}.")
    return [item for row in lists for item in row], np.array([*map(len, lists)], np.int32)


def _in_chunks(
    tokenize: Callable[[tf.Tensor], Sequence[tf.RaggedTensor]], strings: tf.Tensor
) -> list[tf.RaggedTensor]:
    """Computes ragged tensors with equal row splits, in chunks; many chunks in parallel."""
    if len(strings) <= _MAX_EAGER_STRINGS:  # Tracing a graph would take longer.
        starts = range(0, len(strings), _STRINGS_CHUNK_SIZE)
        parts = [tokenize(strings[start : start + _STRINGS_CHUNK_SIZE]) for start in starts]
        with tf.device("CPU:0"):
            columns = zip(*parts, strict=True)
            return [tf.concat(column, 0) if len(column) > 1 else column[0] for column in columns]

    @tf.autograph.experimental.do_not_convert
    def one_chunk(start: tf.Tensor) -> tuple[tf.Tensor, ...]:
        outputs = tokenize(strings[start : start + _STRINGS_CHUNK_SIZE])
        return outputs[0].row_lengths(), *(output.values for output in outputs)

    starts = tf.data.Dataset.range(0, len(strings), _STRINGS_CHUNK_SIZE)
    chunks = starts.map(one_chunk, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    with tf.device("CPU:0"):
        row_lengths, *values = (tf.concat(parts, 0) for parts in zip(*chunks, strict=True))
        return [tf.RaggedTensor.from_row_lengths(value, row_lengths) for value in values]


def label_column(labels: Any, num_examples: int) -> np.ndarray:
    """Validates labels, and converts class ids to int32 and other labels to float32."""
    forms = "integers of shape (N,), floats of shape (N,), or numbers of shape (N, C)"
    array = check_column("labels", labels, num_examples, forms, "biuf", 2)
    if array.ndim == 1 and array.dtype.kind != "f":
        return class_column(array, num_examples)
    low, high = (0, 1) if array.ndim == 2 else (-np.inf, np.inf)
    _check_range("labels", array, low, high)
    return array.astype(np.float32)


def class_column(labels: Any, num_examples: int, counts: np.ndarray | None = None) -> np.ndarray:
    """Validates class ids below ``counts`` and converts them to (N,) int32."""
    array = check_column("labels", labels, num_examples, "integers of shape (N,)", "biu")
    _check_range("labels", array, 0, np.iinfo(np.int32).max)
    if counts is not None and (array >= counts).any():
        index = int(np.flatnonzero(array >= counts)[0])
        expected = f"expected 0 to {counts[index] - 1}, got {array[index]}"
        raise ValueError(f"labels[{index}]: {expected}.")
    return array.astype(np.int32)


def weight_column(weights: Any, num_examples: int) -> np.ndarray:
    """Validates non-negative weights and converts them to (N,) float32."""
    array = check_column("sample_weights", weights, num_examples, "numbers of shape (N,)", "biuf")
    _check_range("sample_weights", array, 0, np.inf)
    return array.astype(np.float32)


def check_column(
    name: str, values: Any, num_examples: int, expected: str, kinds: str, max_rank: int = 1
) -> np.ndarray:
    """Converts a column to an array with one row per example and the expected dtype and rank."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: expected rows of equal length, got {values!r:.80}.") from error
    if not 1 <= array.ndim <= max_rank or array.dtype.kind not in kinds:
        raise ValueError(
            f"{name}: expected {expected}, got dtype {array.dtype} and shape {array.shape}."
        )
    check_rows(name, len(array), num_examples)
    return array


def check_rows(name: str, received: int, num_examples: int) -> None:
    """Raises a ValueError unless a column has one row per example."""
    if received != num_examples:
        raise ValueError(
            f"{name}: expected one row for each of the {num_examples} examples, got {received}."
        )


def _check_range(name: str, array: np.ndarray, low: float, high: float) -> None:
    """Checks that all values are finite and within bounds."""
    good = (array >= low) & (array <= high) & np.isfinite(array)
    if not good.all():
        index = tuple(np.argwhere(~good)[0].tolist())
        expected = f"a finite number, {low} to {high}" if high == np.inf else f"{low} to {high}"
        raise ValueError(
            f"{name}[{', '.join(map(str, index))}]: expected {expected}, got {array[index]}."
        )
