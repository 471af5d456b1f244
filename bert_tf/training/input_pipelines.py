"""Distribution of a dataset's batches over replicas and the hosts that read them.

A host reads for its own replicas, in its *input pipeline*. There is one pipeline on one machine,
and one for each host of a cluster or of a TPU slice.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features

# Makes a pipeline's dataset.
MakeBatches = Callable[[tf.distribute.InputContext], tf.data.Dataset]


def check_static_batches(
    dataset: tf.data.Dataset, num_replicas: int = 1, micro_batches: int = 1
) -> None:
    """Checks a dataset of pre-training batches before it is distributed: features, shapes, size.

    A batch must be shared equally by the replicas, and a share by its micro-batches.
    """
    spec = dataset.element_spec
    features.check_batch(
        spec, {**features.PRETRAINING_FEATURES, features.CURSOR: features.Feature("int32", "BC")}
    )
    for key, feature in spec.items():
        if not feature.shape.is_fully_defined():
            raise ValueError(
                f"Feature {key!r} has the shape {tuple(feature.shape)}: training needs static "
                "shapes, so batch with drop_remainder=True, or fill the last batch with padding."
            )
    batch_size = spec[features.INPUT_WORD_IDS].shape[0]
    if batch_size % (num_replicas * micro_batches):
        raise ValueError(
            f"A batch of {batch_size} rows cannot be shared equally by {num_replicas} replicas "
            f"with {micro_batches} micro-batches each: choose a multiple of "
            f"{num_replicas * micro_batches}."
        )


def distribute(
    strategy: tf.distribute.Strategy,
    batches: tf.data.Dataset | MakeBatches,
    micro_batches: int = 1,
    *,
    reads_all: bool = False,
) -> Any:
    """Hands each replica its share of every batch, with the pipeline's number before each cursor.

    Every pipeline reads the whole of a dataset, and keeps its replicas' rows of each batch. What a
    function makes is the pipeline's own share of every batch, unless it ``reads_all``.
    """

    def of_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        here = replicas // context.num_input_pipelines
        dataset = batches if isinstance(batches, tf.data.Dataset) else batches(context)
        parts, first = here, 0
        if reads_all or dataset is batches:
            parts, first = replicas, context.input_pipeline_id * here
        check_static_batches(dataset, parts, micro_batches)

        @tf.autograph.experimental.do_not_convert
        def share(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            numbered = tf.pad(
                batch[features.CURSOR], [[0, 0], [1, 0]], constant_values=context.input_pipeline_id
            )
            # (B, ...) -> (replicas of this pipeline, rows of a replica, ...)
            return {
                key: tf.reshape(value, [parts, -1, *value.shape[1:]])[first : first + here]
                for key, value in {**batch, features.CURSOR: numbered}.items()
            }

        return dataset.map(share).unbatch().prefetch(here)

    return strategy.distribute_datasets_from_function(of_pipeline)


def last_cursors(of_replicas: Iterable[Sequence[int]]) -> tuple[tuple[int, int, int], ...]:
    """The last cursor of each pipeline, from those of the replicas.

    >>> last_cursors([(0, 0, 2, 3), (0, 0, 2, 7), (1, 0, 1, 4), (1, 0, 3, 0)])
    ((0, 2, 7), (0, 3, 0))
    """
    last: dict[int, tuple[int, int, int]] = {}
    for pipeline, epoch, pool, row in of_replicas:
        last[pipeline] = max(last.get(pipeline, (0, 0, 0)), (epoch, pool, row))
    return tuple(cursor for _, cursor in sorted(last.items()))
