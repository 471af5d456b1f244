"""``transformers.keras_callbacks``: a function of all predictions and labels, after each epoch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .outputs import ModelOutput

_FILLING = -100  # behind rows of fewer tokens than others have
_LABELS = (("labels",), ("start_positions", "end_positions"))


class KerasMetricCallback(keras.callbacks.Callback):
    """Adds the scores that a function gives of an evaluation set to each epoch's logs.

    It is called with a tuple, of the predictions and of the labels: an array each, or a dict of
    arrays by their names where there are several. Where batches are of several lengths, the shorter
    rows are filled with -100. For what reads the scores, as ``EarlyStopping``, this callback comes
    first.

    Args:
        metric_fn: what is called; it gives a dict of numbers by their names.
        eval_dataset: batches, with labels beside the inputs or among them; or arrays.
        output_cols: the outputs to predict, by name; by default all but the loss.
        label_cols: the labels among the inputs, by name; by default those of the models here.
        batch_size: of arrays, how many rows are predicted at once.
        predict_with_generate: refused: no text is generated.
        **options: mean nothing, as they are of generated text.

    Raises:
        ValueError: there are no labels, or arrays without a batch size.
        TypeError: of an epoch's end: the function gives no dict.
    """

    def __init__(
        self,
        metric_fn: Callable[[Any], dict[str, Any]],
        eval_dataset: Any,
        output_cols: Sequence[str] | None = None,
        label_cols: Sequence[str] | None = None,
        batch_size: int | None = None,
        predict_with_generate: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if predict_with_generate:
            raise ValueError("predict_with_generate is for models that write text: leave it out.")
        if not isinstance(eval_dataset, tf.data.Dataset):
            if batch_size is None:
                raise ValueError("eval_dataset is no tf.data.Dataset: give batch_size with it.")
            eval_dataset = tf.data.Dataset.from_tensor_slices(eval_dataset).batch(batch_size)
        self.metric_fn, self.eval_dataset = metric_fn, eval_dataset
        self.output_cols, self.label_cols = output_cols, label_cols
        spec = eval_dataset.element_spec
        if isinstance(spec, tuple):
            spec, *beside = spec
            if beside and label_cols is None:
                return
        known = spec if isinstance(spec, Mapping) else {}
        wanted = _LABELS if label_cols is None else [label_cols]
        self.label_cols = next((cols for cols in wanted if set(cols) <= known.keys()), None)
        if self.label_cols is None:
            raise ValueError(
                f"label_cols is {label_cols!r}, and the dataset's inputs are "
                f"{', '.join(known) or 'without names'}: expected labels beside or among them."
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Predicts the whole set, and adds what the function says of it."""
        predictions, labels = [], []
        for batch in self.eval_dataset:
            inputs, *beside = batch if isinstance(batch, tuple) else (batch,)
            outputs = self.model.predict_on_batch(inputs)
            if isinstance(outputs, ModelOutput | Mapping):
                by_name = dict(outputs.items())
                names = self.output_cols or [name for name in by_name if name != "loss"]
                outputs = {name: by_name[name] for name in names}
            predictions.append(outputs)
            labels.append(
                {name: inputs[name] for name in self.label_cols} if self.label_cols else beside[0]
            )
        found = self.metric_fn((_together(predictions), _together(labels)))
        if not isinstance(found, dict):
            raise TypeError(f"metric_fn gave {found!r}: expected a dict of numbers by their names.")
        if logs is not None:
            logs.update(found)


def _together(batches: Sequence[Any]) -> Any:
    """The arrays of all batches as one, by their names or in their order; of one alone itself."""
    first = batches[0]
    if isinstance(first, Mapping):
        found: Any = {name: _together([batch[name] for batch in batches]) for name in first}
        return next(iter(found.values())) if len(found) == 1 else found
    if isinstance(first, list | tuple):
        found = [_together(parts) for parts in zip(*batches, strict=True)]
        return found[0] if len(found) == 1 else found
    arrays = [np.asarray(batch) for batch in batches]
    if arrays[0].ndim > 1:
        length = max(array.shape[1] for array in arrays)
        arrays = [
            np.pad(
                array,
                [(0, 0), (0, length - array.shape[1]), *[(0, 0)] * (array.ndim - 2)],
                constant_values=_FILLING,
            )
            for array in arrays
        ]
    return np.concatenate(arrays)
