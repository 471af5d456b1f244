"""Fine-tuning's batches: examples in a random order, each batch as wide as its longest needs.

The examples are tokenised once; an epoch then is a plan, made of nothing but their lengths, the
seed and the epoch's number, and a gather and a pack for each batch. So the epochs differ, none
costs tokenisation, and a run that was interrupted goes on with the batches that it would have had.

Letters: N examples, B batch, S sequence length, C classes.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import features

from .packing import Range, check_at_least, fit_segments, pack_from_table, token_table
from .randomness import Operation, fold, permutation
from .wordpiece import BertTokenizer

_LENGTH_MULTIPLE = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Tokenised examples, ready to be put into batches.

    Attributes:
        lengths: (N,) int32, the tokens of each example as packed, [CLS] and [SEP] among them; from
            1 to ``max_seq_length``.
        max_seq_length: the most columns that a batch has.
        make_batch: takes the numbers of a batch's examples, (B,) int32, and S, scalar int32 (no
            smaller than any of their lengths); returns what the dataset yields. Runs in the graph,
            several batches at a time, and is not converted by AutoGraph.
        num_too_long: how many examples have more tokens than ``max_seq_length`` has room for.
        num_lost: how many have a label that no row can have.
        rows_per_example: maximum number of rows per example; evaluation batches are smaller for it.

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
            raise ValueError("There are no examples: expected one at least.")
        shortest, longest = self.lengths.min(), self.lengths.max()
        if not 1 <= shortest <= longest <= self.max_seq_length:
            raise ValueError(
                f"lengths: expected 1 to {self.max_seq_length}, max_seq_length; got lengths of "
                f"{shortest} to {longest}."
            )

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.lengths)

    def few_lengths(self) -> np.ndarray:
        """Lists four lengths or fewer that batches can be padded to, ascending int32.

        >>> Examples(np.int32([5, 52, 9]), 128, None).few_lengths()
        array([16, 32, 48, 64], dtype=int32)
        """
        longest = int(self.lengths.max())
        multiple = 8 * -(-longest // 32)
        limit = min(-(-longest // multiple) * multiple, self.max_seq_length)
        return padded_lengths(limit, multiple)

    def num_batches(self, batch_size: int) -> int:
        """Number of an epoch's batches (``fit``'s ``steps_per_epoch``); the last may be smaller."""
        check_at_least("batch_size", batch_size, 1)
        return -(-len(self) // batch_size)

    def training_batches(
        self,
        batch_size: int,
        *,
        epochs: int | None = None,
        seed: int = 0,
        first_step: int = 0,
        length_multiple: int = _LENGTH_MULTIPLE,
        few_shapes: bool = False,
        num_parallel_calls: int | None = None,
    ) -> tf.data.Dataset:
        """Makes the batches to train on, each epoch in another order; what ``make_batch`` returns.

        Each pass over the dataset is the next epoch, as ``fit`` makes them (``shuffle=False``
        spares a warning). A run that may be gone on with has all its epochs in one dataset::

            model.fit(examples.training_batches(32), epochs=3, shuffle=False)
            # the same, from its second epoch on
            steps = examples.num_batches(32)
            batches = examples.training_batches(32, epochs=3, first_step=steps)
            model.fit(batches, epochs=3, initial_epoch=1, steps_per_epoch=steps, shuffle=False)

        Args:
            batch_size: B; an epoch's last batch is smaller where B does not divide N.
            epochs: how many epochs there are, from the run's start, one after the other; ``None``:
                one, of which each pass makes another (with a ``first_step`` it is the first). This
                process counts the passes: TensorFlow's data service, whose workers are others,
                serves what has ``epochs``.
            seed: any integer of 64 bits. Batch i of epoch e depends on the seed, i, e, N and
                ``batch_size``, and on nothing else.
            first_step: how many batches, counted through the epochs, have been seen before.
            length_multiple: S is the batch's greatest length, rounded up to a multiple of this,
                and at most ``max_seq_length``.
            few_shapes: S is one of ``few_lengths``, whatever the multiple, and the greatest of
                them for an epoch's smaller last batch: five shapes at most, for XLA to compile.
            num_parallel_calls: how many batches are made at once, by default as tf.data sees fit.

        Raises:
            ValueError: an argument is out of its range.
        """
        steps = self.num_batches(batch_size)
        counts_passes = epochs is None and not first_step
        epochs = 1 if epochs is None else epochs
        check_at_least("epochs", epochs, 1)
        if not 0 <= first_step < epochs * steps:
            raise ValueError(
                f"first_step: expected 0 to {epochs * steps - 1}, as {epochs} epochs have "
                f"{steps} batches of {batch_size} each; got {first_step}."
            )
        if not -(2**63) <= seed < 2**63:
            raise ValueError(f"seed: expected an integer of 64 bits; got {seed}.")
        with tf.device("CPU:0"):
            lengths = tf.constant(self.lengths, tf.int32)
        first_epoch, first_batch = divmod(first_step, steps)

        # Nothing here or below needs AutoGraph, whose first conversion takes seconds.
        @tf.autograph.experimental.do_not_convert
        def make_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            order = plan_epoch(lengths, batch_size, seed, epoch)
            skipped = tf.where(epoch == first_epoch, first_batch * batch_size, 0)
            return tf.data.Dataset.from_tensor_slices(order[skipped:]).batch(batch_size)

        numbers = tf.data.Dataset.range(first_epoch, epochs)
        if counts_passes:
            passes = itertools.count()
            # It is called anew for each pass, when that begins.
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
        self, batch_size: int, *, longest_first: bool = False
    ) -> tf.data.Dataset:
        """Makes the batches of one pass over the examples, in the order of ``model.predict``.

        They are what ``make_batch`` returns, of known cardinality; the last is smaller where
        ``batch_size`` does not divide N. With ``longest_first`` the examples are sorted by their
        lengths, which takes less time: batches have almost no padding, and the first one shows
        whether the memory suffices. Results go back into the examples' order by the batches'
        ``example_index``.
        """
        check_at_least("batch_size", batch_size, 1)
        keys = -self.lengths if longest_first else np.zeros(len(self))
        order = np.argsort(keys, kind="stable").astype(np.int32)
        dataset = tf.data.Dataset.from_tensor_slices(order).batch(batch_size)
        return self._packed(dataset, padded_lengths(self.max_seq_length)).prefetch(tf.data.AUTOTUNE)

    def single_batch(self) -> tuple[Any, int]:
        """All examples as one batch, and S: the only one of ``evaluation_batches``, longest first.

        It is made at once: to build a ``tf.data`` pipeline takes longer than a few rows do.
        """
        widths = padded_lengths(self.max_seq_length)
        width = int(widths[np.searchsorted(widths, self.lengths.max())])
        with tf.device("CPU:0"):
            order = tf.constant(np.argsort(-self.lengths, kind="stable"), tf.int32)
            return self.make_batch(order, tf.constant(width)), width

    def _packed(
        self,
        dataset: tf.data.Dataset,
        widths: np.ndarray,
        full_size: int = 0,
        num_parallel_calls: int | None = None,
    ) -> tf.data.Dataset:
        """Makes batches from example indices; those below ``full_size`` get the largest width."""
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
    """The examples in random order, (N,) int32, but those of a full batch by their lengths."""
    order = permutation(tf.size(lengths), fold(seed, Operation.EXAMPLE_ORDER, epoch))
    num_full = tf.size(lengths) // batch_size
    batches = tf.reshape(order[: num_full * batch_size], [num_full, batch_size])
    by_length = tf.argsort(tf.gather(lengths, batches), stable=True)
    batches = tf.gather(batches, by_length, batch_dims=1)
    return tf.concat([tf.reshape(batches, [-1]), order[num_full * batch_size :]], 0)


def padded_lengths(max_seq_length: int, length_multiple: int = _LENGTH_MULTIPLE) -> np.ndarray:
    """Lists the lengths that batches are padded to, ascending int32: multiples, and the longest."""
    check_at_least("length_multiple", length_multiple, 1)
    shorter = range(length_multiple, max_seq_length, length_multiple)
    return np.array([*shorter, max_seq_length], np.int32)


# === Examples of rows ===


def packed_examples(
    tokenizer: BertTokenizer,
    ids: tf.Tensor,
    segments: Sequence[Range],
    max_seq_length: int,
    targets: Sequence[Any],
    extra_features: Mapping[str, tf.Tensor] = MappingProxyType({}),
    **attributes: int,
) -> Examples:
    """Examples whose rows are made of one or two segments, ranges of ``ids``, cut where too long.

    The ranges are (N,), or (N, K) where an example is K rows. ``targets`` are nests of (N, ...)
    tensors or arrays; with any a batch is a tuple, the features and then these.
    ``extra_features`` has further features, (N, ...) each; ``attributes`` are of ``Examples``.
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
    """Examples whose rows are made already, (N,) int32 tokens each.

    ``columns`` have by name the values of all tokens, (T, ...), row after row, and what stands
    where a row is padded.
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
