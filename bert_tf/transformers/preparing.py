"""``prepare_tf_dataset``: rows that a tokenizer made, as batches for ``fit``."""

from collections.abc import Sequence
from typing import Any

from .collators import DataCollatorWithPadding, DefaultDataCollator
from .inputs import TENSORS

_ALIASES = ("label", "label_ids")  # columns that collators call labels


def as_dataset(
    dataset: Any,
    labels: Sequence[str],
    batch_size: int = 8,
    shuffle: bool = True,
    tokenizer: Any = None,
    collate_fn: Any = None,
    collate_fn_args: dict[str, Any] | None = None,
    drop_remainder: bool | None = None,
    prefetch: bool = True,
) -> Any:
    """A ``datasets.Dataset`` as a ``tf.data.Dataset`` of (inputs, labels).

    Columns that the model does not take are dropped. A tokenizer pads each batch to its longest
    row. As there, a last batch that is not full is dropped where rows are shuffled.
    """
    if not hasattr(dataset, "to_tf_dataset"):
        raise TypeError(
            f"prepare_tf_dataset was given a {type(dataset).__name__}: expected a "
            "datasets.Dataset; for arrays, tf.data.Dataset.from_tensor_slices((inputs, labels))."
        )
    if collate_fn is None:
        with_padding = tokenizer is not None
        collate_fn = (
            DataCollatorWithPadding(tokenizer, return_tensors="np")
            if with_padding
            else DefaultDataCollator(return_tensors="np")
        )
    wanted = {*TENSORS, *labels, *(_ALIASES if "labels" in labels else ())}
    dataset = dataset.remove_columns([name for name in dataset.features if name not in wanted])
    sample = collate_fn([dataset[0]], **(collate_fn_args or {}))
    given = [name for name in sample if name in labels]
    inputs = [name for name in sample if name not in given]
    return dataset.to_tf_dataset(
        columns=inputs[0] if len(inputs) == 1 else inputs,
        label_cols=given[0] if len(given) == 1 else given or None,
        batch_size=batch_size,
        shuffle=shuffle,
        drop_remainder=shuffle if drop_remainder is None else drop_remainder,
        collate_fn=collate_fn,
        collate_fn_args=collate_fn_args or {},
        prefetch=prefetch,
    )
