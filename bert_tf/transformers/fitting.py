"""``compile``, ``fit`` and related methods as in transformers.

Without a loss in ``compile()``, a model is trained on the loss that it computes from the labels. A
loss in ``compile()`` is applied to the logits. Labels can be among the inputs or separate.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from keras.activations import linear

from bert_tf.graph_gradients import traced_in_owner
from bert_tf.io import runtime
from bert_tf.modeling import keras_hooks
from bert_tf.modeling.task_models import LOGITS_MESSAGE, expects_probabilities

from .encoding import as_tensor
from .outputs import ModelOutput

_MODEL_LOSS_NAMES = ("auto_with_warning", "auto", "passthrough")


def _with_checked_inputs(method: str) -> Any:
    """Returns a method of ``keras.Model`` that also accepts dicts of lists, and rejects strings."""
    original = getattr(keras.Model, method)

    def run(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        runtime.check_fork()
        if isinstance(x, Mapping):
            x = {k: as_tensor(v, "np") if isinstance(v, list) else v for k, v in x.items()}
        is_text = isinstance(x, list) and x and isinstance(x[0], str)
        if is_text or (isinstance(x, np.ndarray) and x.dtype.kind in "USO"):
            raise ValueError(
                f"{self.name}: expected token ids (B, S), got strings. Use tokenizer(texts, "
                "padding=True, return_tensors='np')."
            )
        call = inspect.signature(original).bind(self, x, *args, **kwargs)
        bound = call.arguments
        if bound.get("sample_weight") is not None and bound.get("y") is None:
            bound["x"], bound["y"] = self._split_labels(x)
        match bound.get("validation_data"):
            case (inputs, None, weights) if weights is not None:
                bound["validation_data"] = (*self._split_labels(inputs), weights)
        return getattr(super(LabelledModel, self), method)(*call.args[1:], **call.kwargs)

    return functools.wraps(original)(run)


class LabelledModel(keras.Model):
    """Keras model that outputs a ``ModelOutput``; ``label_logits`` maps labels to logits."""

    label_logits: ClassVar[Mapping[str, str]]
    _computes_loss = _names_loss = False

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = _MODEL_LOSS_NAMES[0],
        metrics: Any = None,  # the third argument, which is the fourth in Keras 3
        loss_weights: Any = None,
        **kwargs: Any,
    ) -> None:
        """Compiles as Keras does, by default with the loss that the model computes.

        As in transformers, XLA is used only with ``jit_compile=True``.
        """
        is_name = isinstance(loss, str) and loss in _MODEL_LOSS_NAMES
        self._computes_loss = is_name or loss == self.compute_loss
        self._names_loss = self._computes_loss or loss == getattr(self, "hf_compute_loss", self)
        loss = None if self._computes_loss else loss
        head = getattr(self, "classifier", None)  # a script may have set a softmax
        if expects_probabilities(loss) and getattr(head, "activation", None) in (None, linear):
            warnings.warn(f"{type(self).__name__} {LOGITS_MESSAGE}.", stacklevel=2)
        metrics = _metrics_by_output(metrics, tuple(self.label_logits.values()))
        kwargs = {"jit_compile": False, "loss_weights": loss_weights, **kwargs}
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    fit, evaluate, predict = map(_with_checked_inputs, ("fit", "evaluate", "predict"))

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the arguments of ``compile`` for serialization."""
        loss = {"loss": _MODEL_LOSS_NAMES[0]} if self._names_loss else {}
        return {**super().get_compile_config(), **loss}

    compile_from_config = keras_hooks.compile_from_config

    @traced_in_owner
    def train_step(self, data: Any) -> Any:
        """Trains on a batch."""
        x, y, weights = self._with_labels(data)
        if not self._computes_loss:
            return super().train_step((x, y, weights))
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self._tracked_loss(x, y, y_pred, weights, training=True)
            replicas = self.distribute_strategy.num_replicas_in_sync
            loss = self.optimizer.scale_loss(loss / replicas)
        variables = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return self.compute_metrics(x, y, y_pred, weights)

    def test_step(self, data: Any) -> Any:
        """Evaluates a batch."""
        x, y, weights = self._with_labels(data)
        if not self._computes_loss:
            return super().test_step((x, y, weights))
        y_pred = self(x, training=False)
        self._tracked_loss(x, y, y_pred, weights, training=False)
        return self.compute_metrics(x, y, y_pred, weights)

    def _tracked_loss(self, x: Any, y: Any, y_pred: Any, weights: Any, training: bool) -> Any:
        """Computes the loss; its weight in the epoch's mean is the number of loss values."""
        loss = self.compute_loss(x, y, y_pred, weights, training)
        keras_hooks.track_loss(self, loss, ops.shape(y_pred.loss)[0])
        return loss

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the mean of the losses in the model's output, or the compiled loss."""
        if not self._computes_loss:
            y, y_pred = self._match_labels(y, y_pred)
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        loss = y_pred.loss
        if loss is None:
            raise ValueError(
                f"{self.name}: the batch has no labels. Pass {' and '.join(self.label_logits)}, "
                "or a loss to compile()."
            )
        if sample_weight is not None:
            weights = ops.cast(sample_weight, loss.dtype)
            if loss.shape[0] == 1 != weights.shape[0]:
                raise ValueError(
                    f"sample_weight: the loss of {self.name} is a mean over all tokens of a batch. "
                    "Pass a loss for the logits to compile()."
                )
            loss = loss * ops.reshape(weights, ops.shape(loss))
        return ops.sum([ops.mean(loss), *self.losses])

    def compute_metrics(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> Any:
        """Computes the metrics of the logits that correspond to the labels."""
        if isinstance(y, tuple | list) and len(y) == len(self.label_logits) > 1:
            y = dict(zip(self.label_logits, y, strict=True))  # by name, like the metrics
        y, y_pred = self._match_labels(y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _split_labels(self, x: Any) -> tuple[Any, Any]:
        """Splits a batch into inputs and labels, because Keras ignores weights without ``y``."""
        names = [name for name in self.label_logits if isinstance(x, Mapping) and name in x]
        if not names:
            return x, None
        y = {name: x[name] for name in names}
        inputs = {name: value for name, value in x.items() if name not in y}
        return inputs, y if len(self.label_logits) > 1 else y[names[0]]

    def _with_labels(self, data: Any) -> Any:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        if isinstance(weights, Mapping):  # Keras repeats a single array for each label
            weights = next(iter(weights.values()))
        if isinstance(x, Mapping):
            x = dict(x)
        names = tuple(self.label_logits)
        if self._computes_loss and y is not None:
            x = x if isinstance(x, dict) else {"input_ids": x}
            if isinstance(y, Mapping):
                by_logits = {logits: label for label, logits in self.label_logits.items()}
                x = {**{by_logits.get(key, key): value for key, value in y.items()}, **x}
            elif len(names) == 1:
                x = {names[0]: y, **x}
        if y is None and isinstance(x, dict):
            y = {name: x[name] for name in names if name in x} or None
            if y is None and not self._computes_loss:
                raise ValueError(
                    f"{self.name}: the batch has no labels. Pass {' and '.join(names)}."
                )
        return x, y, weights

    def _match_labels(self, y: Any, y_pred: Any) -> tuple[Any, Any]:
        """Returns the labels and the corresponding logits."""
        if not isinstance(y_pred, ModelOutput):
            return y, y_pred
        outputs = {name: value for name, value in y_pred.items() if name != "loss"}
        if isinstance(y, Mapping):
            labels = {self.label_logits.get(name, name): value for name, value in y.items()}
            if len(labels) > 1:
                return labels, {name: outputs[name] for name in labels}
            ((name, y),) = labels.items()
            return y, outputs.get(name, next(iter(outputs.values())))
        if isinstance(y, tuple | list):
            return y, tuple(outputs.values())[: len(y)]
        return y, next(iter(outputs.values()))


def _metrics_by_output(metrics: Any, logits: tuple[str, ...]) -> Any:
    """Assigns metrics to outputs; as in Keras 2, a list applies to each of several logits."""
    if metrics is None or isinstance(metrics, dict):
        return metrics
    metrics = list(metrics) if isinstance(metrics, list | tuple) else [metrics]  # as in Keras 2
    if len(logits) < 2 or any(isinstance(metric, list | tuple) for metric in metrics):
        return metrics
    # Each output needs its own metric objects.
    return {
        name: [m.from_config(m.get_config()) if isinstance(m, keras.Metric) else m for m in metrics]
        for name in logits
    }


# === Metrics of all predictions after each epoch ===

_PADDING_VALUE = -100  # for rows that are shorter than others
_LABEL_COLUMNS = (("labels",), ("start_positions", "end_positions"))


class KerasMetricCallback(keras.callbacks.Callback):
    """Callback that adds metrics on an evaluation set to each epoch's logs.

    Place callbacks that read the metrics, such as ``EarlyStopping``, after this callback.

    Args:
        metric_fn: Function that takes a tuple of predictions and labels (each an array or a dict of
            arrays, in which shorter rows are padded with -100) and returns a dict of numbers.
        eval_dataset: A ``tf.data.Dataset`` of batches, or arrays with a ``batch_size``.
        output_cols: Names of the outputs; by default all except the loss.
        label_cols: Names of the labels among the inputs; by default ``labels``, or
            ``start_positions`` and ``end_positions``.
        batch_size: Batch size for arrays.
        predict_with_generate: Not supported.
        **options: Options of text generation, which are ignored.

    Raises:
        ValueError: If the dataset has no labels or an argument is not supported.
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
            raise ValueError("predict_with_generate=True: text generation is not supported.")
        if not isinstance(eval_dataset, tf.data.Dataset):
            if batch_size is None:
                raise ValueError("batch_size=None: arrays require a batch_size.")
            eval_dataset = tf.data.Dataset.from_tensor_slices(eval_dataset).batch(batch_size)
        self.metric_fn, self.eval_dataset = metric_fn, eval_dataset
        self.output_cols, self.label_cols = output_cols, label_cols
        spec = eval_dataset.element_spec
        if isinstance(spec, tuple):
            spec, *targets = spec
            if targets and label_cols is None:
                return
        inputs = spec if isinstance(spec, Mapping) else {}
        choices = _LABEL_COLUMNS if label_cols is None else [label_cols]
        self.label_cols = next((cols for cols in choices if set(cols) <= inputs.keys()), None)
        if self.label_cols is None:
            raise ValueError(
                f"label_cols={label_cols!r}: expected names of inputs, got a dataset with "
                f"{', '.join(inputs) or 'unnamed inputs'}."
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Predicts on the evaluation set and adds the metrics to the logs."""
        predictions, labels = [], []
        for batch in self.eval_dataset:
            inputs, *targets = batch if isinstance(batch, tuple) else (batch,)
            outputs = self.model.predict_on_batch(inputs)
            if isinstance(outputs, ModelOutput | Mapping):
                by_name = dict(outputs.items())
                names = self.output_cols or [name for name in by_name if name != "loss"]
                outputs = {name: by_name[name] for name in names}
            predictions.append(outputs)
            labels.append(
                {name: inputs[name] for name in self.label_cols} if self.label_cols else targets[0]
            )
        scores = self.metric_fn((_concatenate_batches(predictions), _concatenate_batches(labels)))
        if not isinstance(scores, dict):
            raise TypeError(f"metric_fn: expected a dict of numbers, got {scores!r}.")
        if logs is not None:
            logs.update(scores)


def _concatenate_batches(batches: Sequence[Any]) -> Any:
    """Concatenates the arrays of all batches; a dict or list of one array becomes the array."""
    arrays = keras.tree.map_structure(_concatenate, *batches)
    if isinstance(arrays, Mapping | list | tuple) and len(arrays) == 1:
        (arrays,) = arrays.values() if isinstance(arrays, Mapping) else arrays
    return arrays


def _concatenate(*batches: Any) -> np.ndarray:
    """Concatenates batches of one array, padding shorter rows with -100."""
    shapes = np.array([np.shape(batch) for batch in batches])
    missing = shapes.max(0) - shapes
    missing[:, 0] = 0
    padded = [
        np.pad(batch, [(0, count) for count in counts], constant_values=_PADDING_VALUE)
        for batch, counts in zip(batches, missing, strict=True)
    ]
    return np.concatenate(padded)
