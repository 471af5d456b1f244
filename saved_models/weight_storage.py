"""A model's weights as an export stores them, and as its arithmetic reads them.

What is stored smaller than it is read, or wider, is converted once, when a server loads the export,
and not in every request: converting MiniLM's matrices took as long as half a sentence. So storage
saves disk and transfer; memory it saves none. The converted copy is a resource that the SavedModel
initialises from the stored variables, as it does lookup tables.

"int8" keeps of each matrix (in, out) a scale for each output, and of each embedding table (V, H)
one for each row, the largest absolute value over 127; the arithmetic is float. TensorFlow's kernels
of int8 products need the range of the activations, which only calibration data tells. Vectors
(biases, LayerNorm) stay float32 in every storage: they are a thousandth of a model.
"""

import hashlib
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.base import BertModel

_LARGEST_INT8 = 127


class StoredWeights:
    """The variables of an export, made of a Keras model's.

    With "float32" they are the model's own.

    Args:
        model: outside any strategy.
        weights: one of ``served.WEIGHTS``.
    """

    def __init__(self, model: BertModel, weights: str) -> None:
        tables = {id(table) for table in embedding_tables(model)}
        self._stored = {
            id(variable): _store(variable, weights, axis=1 if id(variable) in tables else 0)
            for variable in model.weights
        }
        self._converted: dict[tuple[int, str], _Converted] = {}

    def read(self, variable: keras.Variable, dtype: str) -> tf.Tensor:
        """A variable's value as the arithmetic wants it, for the graph that is being traced.

        Args:
            variable: of the model.
            dtype: "float32" or "bfloat16".
        """
        stored = self._stored[id(variable)]
        if stored.scales is None and stored.values.dtype == dtype:
            return stored.values.read_value()
        key = (id(variable), dtype)
        if key not in self._converted:
            with tf.init_scope():
                self._converted[key] = _Converted(stored, dtype, variable.path)
        return self._converted[key].read()

    def resources(self) -> tuple[Any, ...]:
        """What has been read converted so far, and the variables that it is made of.

        Whoever saves a function that reads them has to save them as well.
        """
        return tuple(
            trackable
            for converted in self._converted.values()
            for trackable in (converted, *filter(None.__ne__, converted.stored))
        )


def embedding_tables(model: BertModel) -> list[keras.Variable]:
    """The variables whose rows are looked up."""
    encoder: Any = getattr(model, "encoder", model)
    embeddings = encoder.embeddings
    return [
        embeddings.word_embeddings,
        embeddings.position_embeddings,
        embeddings.token_type_embeddings,
    ]


class _Stored(NamedTuple):
    """A variable as it is stored: its values, and of int8 what one step is of each scale."""

    values: tf.Variable
    scales: tf.Variable | None


def _store(variable: keras.Variable, weights: str, axis: int) -> _Stored:
    # A matrix of one column is no larger than a bias, and a regressor's has the scale of its
    # labels, which float16 may not hold.
    if weights == "float32" or len(variable.shape) != 2 or variable.shape[1] == 1:
        return _Stored(variable.value, None)
    values = variable.numpy()
    if weights != "int8":
        return _Stored(tf.Variable(tf.cast(values, weights), name=variable.name), None)
    integers, scales = quantize(values, axis)
    return _Stored(
        tf.Variable(integers, name=variable.name),
        tf.Variable(scales, name=f"{variable.name}_scales"),
    )


def quantize(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds a matrix to int8, symmetrically round 0.

    Args:
        values: (M, N) float.
        axis: along which numbers share a scale: 0, a scale for each column; 1, for each row.

    Returns:
        (M, N) int8 and float32 scales, (1, N) or (M, 1); their product is near ``values``.

    >>> integers, scales = quantize(np.array([[1.0, 0.0], [-2.0, 0.0]]), axis=0)
    >>> integers.tolist(), np.float64(integers * scales).round(2).tolist()
    ([[64, 0], [-127, 0]], [[1.01, 0.0], [-2.0, 0.0]])
    """
    largest = np.abs(values).max(axis=axis, keepdims=True)
    scales = np.where(largest > 0, largest / _LARGEST_INT8, 1.0).astype(np.float32)
    return np.rint(values / scales).astype(np.int8), scales


class _Converted(tf.saved_model.experimental.TrackableResource):
    """A variable's value in the dtype of the arithmetic, made when the SavedModel is loaded."""

    def __init__(self, stored: _Stored, dtype: str, name: str) -> None:
        super().__init__()
        self.stored = stored
        self._dtype = tf.as_dtype(dtype)
        # Two exports in one process must not share a resource, unless they are the same: a
        # handle's name says which it is.
        digest = hashlib.sha256(stored.values.numpy().tobytes())
        if stored.scales is not None:
            digest.update(stored.scales.numpy().tobytes())
        self._shared_name = f"{name}/{dtype}/{digest.hexdigest()}"
        self._initialize()

    def read(self) -> tf.Tensor:
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype)
        return tf.ensure_shape(value, self.stored.values.shape)

    def _create_resource(self) -> Any:
        return tf.raw_ops.VarHandleOp(
            dtype=self._dtype, shape=self.stored.values.shape, shared_name=self._shared_name
        )

    def _initialize(self) -> None:
        value = self.stored.values.read_value()
        if self.stored.scales is not None:
            value = tf.cast(value, tf.float32) * self.stored.scales
        tf.raw_ops.AssignVariableOp(
            resource=self.resource_handle, value=tf.cast(value, self._dtype)
        )
