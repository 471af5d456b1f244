"""The weights of a served model in its arithmetic.

bfloat16 arithmetic is Keras' ``mixed_bfloat16``, whose casts are part of the graph: a SavedModel
cannot carry the option by which training on a CPU has the graph rewritten. Embeddings, LayerNorm
and a task's logits stay float32, and so do the stored weights.

Matrices that are multiplied in bfloat16 are converted once, when a server loads the export, and not
in every request. The copy is a resource that the SavedModel initialises from the variables, as it
does lookup tables.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.base import BertModel

# What an encoder's matrices may have together to be constants. Python has the graph in memory about
# twenty times while it loads an export.
_MOST_CONSTANT_BYTES = 32 << 20

# A variable in the dtype of the arithmetic, for the graph that is being traced.
Read = Callable[[keras.Variable], tf.Tensor]


class Weights:
    """Weights that a model multiplies by, as its graphs read them.

    Attributes:
        matrices: those of the encoder, without its tables of embeddings and ``sentence_dense``.
        table: the word embeddings, by which a masked-LM head multiplies; the encoder adds their
            rows in float32.
        copies: by a variable's id, its value in another dtype; to be saved with the signatures.
    """

    def __init__(self, model: BertModel) -> None:
        encoder = model.encoder
        embeddings, dense = encoder.embeddings, encoder.sentence_dense
        others = [
            embeddings.word_embeddings,
            embeddings.position_embeddings,
            embeddings.token_type_embeddings,
            None if dense is None else dense.kernel,
        ]
        excluded = {id(variable) for variable in others}
        self.matrices = [v for v in encoder.weights if len(v.shape) == 2 and id(v) not in excluded]
        self.table = [] if model.masked_lm is None else [embeddings.word_embeddings]
        dtype = model.compute_dtype
        self.copies = {
            id(v): _Copy(v, dtype) for v in (*self.matrices, *self.table) if v.dtype != dtype
        }

    def read(self, variable: keras.Variable) -> tf.Tensor:
        """Reads a variable or its copy."""
        if id(variable) in self.copies:
            return self.copies[id(variable)].read()
        return variable.value.read_value()

    def read_quickly(self, variable: keras.Variable) -> tf.Tensor:
        """Reads the copies of a small encoder's matrices as constants.

        oneDNN packs a constant once and a variable in every request. In float32 the gain is a
        tenth, which is not worth the memory.
        """
        size = sum(math.prod(v.shape) for v in self.matrices) * tf.bfloat16.size
        is_matrix = any(variable is matrix for matrix in self.matrices)
        if id(variable) not in self.copies or not is_matrix or size > _MOST_CONSTANT_BYTES:
            return self.read(variable)
        with tf.init_scope():
            values = tf.cast(variable.value, tf.bfloat16).numpy()
        return tf.constant(values)


def reading(read: Read, variables: Sequence[keras.Variable]) -> keras.StatelessScope:
    """A scope in which variables are read in the dtype of the arithmetic."""
    scope = keras.StatelessScope()
    # Not by the constructor, which would cast to the variable's own dtype.
    scope.state_mapping.update({id(variable): read(variable) for variable in variables})
    return scope


class _Copy(tf.saved_model.experimental.TrackableResource):
    """A variable's value in another dtype, made when the SavedModel is loaded."""

    def __init__(self, variable: keras.Variable, dtype: str) -> None:
        super().__init__()
        self.stored = variable.value
        self._dtype = tf.as_dtype(dtype)
        # Two exports in one process must not share a resource, unless they are the same: a
        # handle's name says which it is.
        digest = hashlib.sha256(self.stored.numpy().tobytes()).hexdigest()
        self._shared_name = f"{variable.path}/{dtype}/{digest}"
        self._initialize()

    def read(self) -> tf.Tensor:
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype)
        return tf.ensure_shape(value, self.stored.shape)

    def _create_resource(self) -> Any:
        return tf.raw_ops.VarHandleOp(
            dtype=self._dtype, shape=self.stored.shape, shared_name=self._shared_name
        )

    def _initialize(self) -> None:
        tf.raw_ops.AssignVariableOp(
            resource=self.resource_handle, value=tf.cast(self.stored.read_value(), self._dtype)
        )
