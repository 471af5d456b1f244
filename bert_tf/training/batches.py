"""What the training asks of its batches: static shapes, shared equally by the replicas."""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf import features

# What `BertPretrainer` takes: the encoder's features and where the predictions stand.
_MODEL_INPUTS = (*features.ENCODER_FEATURES, features.MASKED_LM_POSITIONS)


def model_inputs(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The part of a pre-training batch that `BertPretrainer` takes.

    >>> batch = dict.fromkeys([*features.PRETRAINING_FEATURES, features.CURSOR], 0)
    >>> sorted(model_inputs(batch))
    ['input_mask', 'input_type_ids', 'input_word_ids', 'masked_lm_positions']
    """
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
                "shapes, so batch with drop_remainder=True, or fill the last batch with padding."
            )
    batch_size = spec[features.INPUT_WORD_IDS].shape[0]
    if batch_size % (num_replicas * micro_batches):
        raise ValueError(
            f"A batch of {batch_size} rows cannot be shared equally by {num_replicas} replicas "
            f"with {micro_batches} micro-batches each: choose a multiple of "
            f"{num_replicas * micro_batches}."
        )
