"""Rows of a tokenizer to batches of one length: data collators, and ``prepare_tf_dataset``."""

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
    """Rows of one length as a batch; ``label`` and ``label_ids`` become ``labels``."""
    batch: dict[str, Any] = {}
    for name, value in features[0].items():
        if value is None or isinstance(value, str):
            continue
        values = [np.asarray(row[name]) for row in features]
        batch["labels" if name in _LABELS else name] = as_tensor(np.stack(values), return_tensors)
    return batch


@dataclasses.dataclass
class DefaultDataCollator:
    """``default_data_collator`` as an object."""

    return_tensors: str = "tf"

    def __call__(self, features: Sequence[Row], return_tensors: str | None = None) -> Any:
        """A batch of rows."""
        return default_data_collator(features, return_tensors or self.return_tensors)


@dataclasses.dataclass
class DataCollatorWithPadding:
    """Pads rows to the longest of a batch, or as ``BertTokenizerFast.pad`` is told."""

    tokenizer: BertTokenizerFast
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "tf"

    def __call__(self, features: Sequence[Row], return_tensors: str | None = None) -> Any:
        """A batch of rows; ``label`` and ``label_ids`` become ``labels``."""
        rows: Any = features
        if not isinstance(rows, Mapping):  # a dict of columns, which may be given, too
            rows = [{key: v for key, v in row.items() if not isinstance(v, str)} for row in rows]
        batch = self._padded(rows)
        for name in _LABELS:
            if name in batch:
                batch["labels"] = batch.pop(name)
        kind = return_tensors or self.return_tensors
        return {name: as_tensor(values, kind) for name, values in batch.items()}

    def _padded(self, rows: Sequence[Row]) -> dict[str, Any]:
        padded = self.tokenizer.pad(rows, self.padding, self.max_length, self.pad_to_multiple_of)
        return dict(padded)


@dataclasses.dataclass
class DataCollatorForTokenClassification(DataCollatorWithPadding):
    """As ``DataCollatorWithPadding``, with labels as long as the rows."""

    label_pad_token_id: int = _IGNORED_LABEL

    def _padded(self, rows: Sequence[Row]) -> dict[str, Any]:
        name = "label" if "label" in rows[0] else "labels"
        others = [{key: value for key, value in row.items() if key != name} for row in rows]
        batch = super()._padded(others)
        if name in rows[0]:
            width = len(batch["input_ids"][0])
            padding = [[self.label_pad_token_id] * (width - len(row[name])) for row in rows]
            right = self.tokenizer.padding_side == "right"
            batch["labels"] = [
                [*row[name], *behind] if right else [*behind, *row[name]]
                for row, behind in zip(rows, padding, strict=True)
            ]
        return batch


@dataclasses.dataclass(init=False)
class DataCollatorForLanguageModeling(DataCollatorWithPadding):
    """Masks 15% of the tokens: 80% of these [MASK], 10% any token, 10% as they are.

    With ``mlm=False`` labels are the ids. Draws are NumPy's, of ``seed`` or of ``np.random.seed``.
    Source: Devlin et al. 2019, section 3.1.
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

    def _padded(self, rows: Sequence[Row]) -> dict[str, Any]:
        batch = super()._padded(rows)
        special = batch.pop("special_tokens_mask", None)
        ids = np.array(batch["input_ids"])
        if special is None:
            special = np.isin(ids, self.tokenizer.all_special_ids)
        if not self.mlm:
            labels = np.where(ids == self.tokenizer.pad_token_id, _IGNORED_LABEL, ids)
            return {**batch, "labels": labels}
        draw: Any = np.random
        if self.seed is not None:
            self._generator = getattr(self, "_generator", np.random.RandomState(self.seed))
            draw = self._generator
        chosen = (draw.uniform(size=ids.shape) < self.mlm_probability) & ~np.array(special, bool)
        kind = draw.uniform(size=ids.shape)
        words = draw.randint(len(self.tokenizer), size=ids.shape)
        is_masked, is_other = kind < MASK_SPLIT[0] / 100, kind >= 1 - MASK_SPLIT[1] / 100
        masked = np.where(chosen & is_masked, self.tokenizer.mask_token_id, ids)
        masked = np.where(chosen & is_other, words, masked)
        return {**batch, "input_ids": masked, "labels": np.where(chosen, ids, _IGNORED_LABEL)}


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
    row. As in transformers, a last batch that is not full is dropped where rows are shuffled.
    """
    if not hasattr(dataset, "to_tf_dataset"):
        raise TypeError(
            f"prepare_tf_dataset was given a {type(dataset).__name__}: expected a "
            "datasets.Dataset; for arrays, tf.data.Dataset.from_tensor_slices((inputs, labels))."
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


# === In which scripts keep texts and their ids ===


@dataclasses.dataclass
class InputExample:
    """A text or a pair of texts, and its label."""

    guid: str | None
    text_a: str
    text_b: str | None = None
    label: Any = None


@dataclasses.dataclass
class InputFeatures:
    """The ids of an example, its masks, and its label."""

    input_ids: list[int]
    attention_mask: list[int] | None = None
    token_type_ids: list[int] | None = None
    label: Any = None
