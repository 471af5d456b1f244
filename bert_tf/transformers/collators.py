"""Data collators and ``as_dataset``, which batch the rows that a tokenizer returns."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.choices import MASK_SPLIT

from .encoding import as_tensor
from .main_layer import TENSORS
from .tokenization import BertTokenizerFast

Row = Mapping[str, Any]
_IGNORED_LABEL = -100
_LABELS = ("label", "label_ids")


def default_data_collator(features: Sequence[Row], return_tensors: str = "tf") -> dict[str, Any]:
    """Stacks rows of equal length; ``label`` and ``label_ids`` are renamed to ``labels``."""
    batch: dict[str, Any] = {}
    for name, value in features[0].items():
        if value is None or isinstance(value, str):
            continue
        values = [np.asarray(row[name]) for row in features]
        batch["labels" if name in _LABELS else name] = as_tensor(np.stack(values), return_tensors)
    return batch


@dataclasses.dataclass
class DefaultDataCollator:
    """Callable form of ``default_data_collator``."""

    return_tensors: str = "tf"

    def __call__(self, features: Sequence[Row], return_tensors: str | None = None) -> Any:
        """Returns the rows as a batch."""
        return default_data_collator(features, return_tensors or self.return_tensors)


@dataclasses.dataclass
class DataCollatorWithPadding:
    """Collator that pads rows, with the ``padding`` options of ``BertTokenizerFast.pad``."""

    tokenizer: BertTokenizerFast
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "tf"

    def __call__(self, features: Sequence[Row], return_tensors: str | None = None) -> Any:
        """Returns the padded batch; ``label`` and ``label_ids`` are renamed to ``labels``."""
        rows: Any = features
        if not isinstance(rows, Mapping):  # otherwise a dict of columns
            rows = [{key: v for key, v in row.items() if not isinstance(v, str)} for row in rows]
        batch = self._pad(rows)
        for name in _LABELS:
            if name in batch:
                batch["labels"] = batch.pop(name)
        tensor_type = return_tensors or self.return_tensors
        return {name: as_tensor(values, tensor_type) for name, values in batch.items()}

    def _pad(self, rows: Sequence[Row]) -> dict[str, Any]:
        return dict(
            self.tokenizer.pad(rows, self.padding, self.max_length, self.pad_to_multiple_of)
        )


@dataclasses.dataclass
class DataCollatorForTokenClassification(DataCollatorWithPadding):
    """``DataCollatorWithPadding`` that also pads the labels of the tokens."""

    label_pad_token_id: int = _IGNORED_LABEL

    def _pad(self, rows: Sequence[Row]) -> dict[str, Any]:
        name = "label" if "label" in rows[0] else "labels"
        inputs = [{key: value for key, value in row.items() if key != name} for row in rows]
        batch = super()._pad(inputs)
        if name in rows[0]:
            width = len(batch["input_ids"][0])
            paddings = [[self.label_pad_token_id] * (width - len(row[name])) for row in rows]
            pads_right = self.tokenizer.padding_side == "right"
            batch["labels"] = [
                [*row[name], *padding] if pads_right else [*padding, *row[name]]
                for row, padding in zip(rows, paddings, strict=True)
            ]
        return batch


@dataclasses.dataclass(init=False)
class DataCollatorForLanguageModeling(DataCollatorWithPadding):
    """Collator that masks tokens for masked language modeling (Devlin et al. 2019, section 3.1).

    Of the 15% of the tokens that are selected, 80% are replaced with [MASK] and 10% with random
    tokens. With ``mlm=False``, no tokens are masked, and the labels are the token ids. Random
    numbers depend on ``seed`` or, without a seed, on ``np.random.seed``.
    """

    mlm: bool = True
    mlm_probability: float = 0.15
    seed: int | None = None

    def __init__(
        self,
        tokenizer: BertTokenizerFast,
        mlm: bool = True,
        mlm_probability: float = 0.15,
        pad_to_multiple_of: int | None = None,
        tf_experimental_compile: bool = False,
        return_tensors: str = "tf",
        seed: int | None = None,
    ) -> None:
        super().__init__(tokenizer, True, None, pad_to_multiple_of, return_tensors)
        self.mlm, self.mlm_probability, self.seed = mlm, mlm_probability, seed

    def _pad(self, rows: Sequence[Row]) -> dict[str, Any]:
        batch = super()._pad(rows)
        special = batch.pop("special_tokens_mask", None)
        ids = np.array(batch["input_ids"])
        if special is None:
            special = np.isin(ids, self.tokenizer.all_special_ids)
        if not self.mlm:
            labels = np.where(ids == self.tokenizer.pad_token_id, _IGNORED_LABEL, ids)
            return {**batch, "labels": labels}
        generator: Any = np.random
        if self.seed is not None:
            self._generator = getattr(self, "_generator", np.random.RandomState(self.seed))
            generator = self._generator
        is_selected = generator.uniform(size=ids.shape) < self.mlm_probability
        is_selected &= ~np.array(special, bool)
        draws = generator.uniform(size=ids.shape)
        random_ids = generator.randint(len(self.tokenizer), size=ids.shape)
        is_masked, is_random = draws < MASK_SPLIT[0] / 100, draws >= 1 - MASK_SPLIT[1] / 100
        masked = np.where(is_selected & is_masked, self.tokenizer.mask_token_id, ids)
        masked = np.where(is_selected & is_random, random_ids, masked)
        return {**batch, "input_ids": masked, "labels": np.where(is_selected, ids, _IGNORED_LABEL)}


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
    """Converts a ``datasets.Dataset`` to a ``tf.data.Dataset`` of (inputs, labels).

    Columns that are neither inputs nor labels of the model are removed. With a tokenizer, batches
    are padded to their longest rows. As in transformers, shuffling drops an incomplete last batch.
    """
    if not hasattr(dataset, "to_tf_dataset"):
        raise TypeError(
            f"dataset: expected a datasets.Dataset, got {type(dataset).__name__}. For arrays, use "
            "tf.data.Dataset.from_tensor_slices((inputs, labels))."
        )
    if collate_fn is None:
        collate_fn = (
            DefaultDataCollator("np")
            if tokenizer is None
            else DataCollatorWithPadding(tokenizer, return_tensors="np")
        )
    known = {*TENSORS, *labels, *(_LABELS if "labels" in labels else ())}
    dataset = dataset.remove_columns([name for name in dataset.features if name not in known])
    sample = collate_fn([dataset[0]], **(collate_fn_args or {}))
    label_names = [name for name in sample if name in labels]
    inputs = [name for name in sample if name not in label_names]
    return dataset.to_tf_dataset(
        columns=inputs[0] if len(inputs) == 1 else inputs,
        label_cols=label_names[0] if len(label_names) == 1 else label_names or None,
        batch_size=batch_size,
        shuffle=shuffle,
        drop_remainder=shuffle if drop_remainder is None else drop_remainder,
        collate_fn=collate_fn,
        collate_fn_args=collate_fn_args or {},
        prefetch=prefetch,
    )


# === Containers for texts and ids ===


@dataclasses.dataclass
class InputExample:
    """A text or a pair of texts, and its label."""

    guid: str | None
    text_a: str
    text_b: str | None = None
    label: Any = None


@dataclasses.dataclass
class InputFeatures:
    """The ids, masks and label of an example."""

    input_ids: list[int]
    attention_mask: list[int] | None = None
    token_type_ids: list[int] | None = None
    label: Any = None
