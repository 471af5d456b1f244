"""What the training asks of its batches: static shapes, shared equally by the replicas."""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf import features

# What `BertPretrainer` takes: the encoder's features and where the predictions stand.
_MODEL_INPUTS = (*features.ENCODER_FEATURES, features.MASKED_LM_POSITIONS)


def model_inputs(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The part of a pre-training batch that `BertPretrainer` takes."""
    return {key: batch[key] for key in _MODEL_INPUTS}


def check_static_batches(
    dataset: tf.data.Dataset, num_replicas: int = 1, micro_batches: int = 1
) -> None:
    """Checks a dataset of pre-training batches before it is distributed.

    Args:
        dataset: batches of ``features.PRETRAINING_FEATURES`` and ``features.CURSOR``.
        num_replicas: how many replicas share a batch.
        micro_batches: how many micro-batches a replica cuts its share into.

    Raises:
        ValueError: a feature is missing, a shape is not static, or the batch cannot be shared
            equally.
    """
    spec = dataset.element_spec
    features.check_batch(
        spec,
        {**features.PRETRAINING_FEATURES, features.CURSOR: features.Feature("int32", "BC")},
    )
    for key, feature in spec.items():
        if not feature.shape.is_fully_defined():
            raise ValueError(
                f"Feature {key!r} has the shape {tuple(feature.shape)}: training needs static "
                "shapes, so batch with drop_remainder=True, or pad with pad_batches."
            )
    batch_size = spec[features.INPUT_WORD_IDS].shape[0]
    if batch_size % (num_replicas * micro_batches):
        raise ValueError(
            f"A batch of {batch_size} rows cannot be shared equally by {num_replicas} replicas "
            f"with {micro_batches} micro-batches each: choose a multiple of "
            f"{num_replicas * micro_batches}."
        )


def pad_batches(dataset: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
    """Fills a short last batch with rows of padding that weigh nothing, for evaluation.

    A row of padding is 0 everywhere (so ``input_mask`` and ``masked_lm_weights`` are 0) and its
    cursor is -1.

    Args:
        dataset: batches of ``features.PRETRAINING_FEATURES``, at most ``batch_size`` rows each.
        batch_size: the number of rows of every batch that comes out.

    Returns:
        The dataset with static shapes.

    >>> import tensorflow as tf
    >>> short = tf.data.Dataset.from_tensors({"cursor": tf.constant([[0, 0, 7]])})
    >>> next(iter(pad_batches(short, 2)))["cursor"].numpy().tolist()
    [[0, 0, 7], [-1, -1, -1]]
    """

    def pad(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        padded = {}
        for key, value in batch.items():
            missing = batch_size - tf.shape(value)[0]
            paddings = [[0, missing]] + [[0, 0]] * (value.shape.rank - 1)
            filled = tf.pad(value, paddings, constant_values=-1 if key == features.CURSOR else 0)
            padded[key] = tf.ensure_shape(filled, [batch_size, *value.shape[1:]])
        return padded

    return dataset.map(pad, num_parallel_calls=1, deterministic=True)
