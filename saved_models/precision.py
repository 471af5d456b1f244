"""The model that is exported: its arithmetic, its weights' storage, and each graph traced once.

bfloat16 arithmetic is Keras' ``mixed_bfloat16``, whose casts are part of the graph: a SavedModel
cannot carry the option by which training on a CPU has the graph rewritten. Embeddings, LayerNorm
and a task's logits stay float32.

What is stored smaller than it is read, or wider, is converted once, when a server loads the export,
and not in every request: converting MiniLM's matrices took as long as half a sentence. So storage
saves disk and transfer; memory it saves none. The converted copy is a resource that the SavedModel
initialises from the stored variables, as it does lookup tables.

"int8" keeps of each matrix (in, out) a scale for each output, and of each embedding table (V, H)
one for each row, the largest absolute value over 127; the arithmetic is float. TensorFlow's kernels
of int8 products need the range of the activations, which only calibration data tells. Vectors
(biases, LayerNorm) stay float32 in every storage: they are a thousandth of a model.
"""

import contextlib
import copy
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling import BertEncoder
from bert_tf.modeling.base import LOADED, BertModel
from bert_tf.modeling.pooling import most_tokens
from bert_tf.pipelines.vocabulary import check_vocabulary_fits
from bert_tf.pipelines.wordpiece import BertTokenizer

from .fill_mask import masked_lm_logits
from .served import ExportOptions, Served

# [CLS] A [SEP] B [SEP], with a token in each segment.
SHORTEST_SEQUENCE = 5
_LARGEST_INT8 = 127
# What an encoder's matrices may have together to be constants. Python has the graph in memory about
# twenty times while it loads an export.
_MOST_CONSTANT_BYTES = 32 << 20

# Of each variable that is read from its storage, in which dtype it is read.
Reading = list[tuple[keras.Variable, str]]
# A variable in a dtype, for the graph that is being traced.
Read = Callable[[keras.Variable, str], tf.Tensor]


def serve(model: BertModel, tokenizer: BertTokenizer, options: ExportOptions) -> Served:
    """Makes what the signatures of an export share.

    The tokenizer, the encoder and the whole model are traced once each, and the model calls the
    encoder's trace: so a graph is in the SavedModel once, whatever number of signatures uses it.
    Only ``serving_default`` has traces of its own, ``Served.quick``.
    """
    check_vocabulary_fits(tokenizer.vocab, model.config.vocab_size, "of the tokenizer")
    length = max_seq_length(model, options)
    copied = copy_model(model, "float32" if options.precision == "float32" else "mixed_bfloat16")
    storage = StoredWeights(copied, options.weights)
    exact = Served(
        model=copied,
        **_traces(copied, storage.read),
        tokenizer=traced_once(tokenizer),
        max_seq_length=length,
        options=options,
    )
    copied.encoder.infers_without_padding = True
    quick = dataclasses.replace(exact, **_traces(copied, _read_quickly(copied, storage)))
    copied.encoder.infers_without_padding = False
    return dataclasses.replace(
        exact, quick=quick, weights=storage.by_path, resources=storage.resources()
    )


def copy_model(model: BertModel, dtype: str) -> BertModel:
    """The same model with another dtype policy, in variables of its own, under no strategy."""
    copied = type(model).from_config({**model.get_config(), "dtype": dtype})
    copied.set_weights(model.get_weights())
    _leave_cudnn(copied)
    for name in LOADED:
        setattr(copied, name, getattr(model, name))
    return copied


def _leave_cudnn(model: keras.Model) -> None:
    """Makes LSTMs compute by ordinary operations: what is traced on a GPU has to run on a CPU."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            _leave_cudnn(layer)
        elif isinstance(layer, keras.layers.Bidirectional):
            layer.forward_layer.use_cudnn = layer.backward_layer.use_cudnn = False


def max_seq_length(model: BertModel, options: ExportOptions) -> int:
    """The option's, else that of the model's sentence embedding, else all positions."""
    positions = model.config.max_position_embeddings
    default = most_tokens(model.sentence_embedding, positions)
    chosen = default if options.max_seq_length is None else options.max_seq_length
    if not SHORTEST_SEQUENCE <= chosen <= positions:
        raise ValueError(
            f"max_seq_length is {chosen}: expected {SHORTEST_SEQUENCE} to {positions}, the "
            "model's max_position_embeddings."
        )
    return chosen


# === Tracing ===


def _traces(model: BertModel, read: Read) -> dict[str, Any]:
    """The graphs of a ``Served``, by their names there."""
    encoder = model.encoder
    own, below = _readings(model, encoder)
    encode = _trace(encoder, read, below)
    return {
        "encode": encode,
        "call": encode if model is encoder else _trace(model, read, own, {encoder: encode}),
        "guess": None if model.masked_lm is None else _trace_masked_lm(model, read, own),
        "vectors": None if model.sentence_embedding is None else _trace_vectors(model, read),
    }


def _readings(model: BertModel, encoder: BertEncoder) -> tuple[Reading, Reading]:
    """Which of the model's own variables, and of its encoder's, are read from their storage."""
    # Their rows are added in float32; every other matrix is read in the dtype of the arithmetic,
    # or every request would cast it.
    tables = {id(table) for table in embedding_tables(encoder)}
    dense = {id(variable) for variable, _ in _dense(encoder)}
    below: Reading = [
        (variable, "float32" if id(variable) in tables else encoder.compute_dtype)
        for variable in encoder.weights
        if len(variable.shape) == 2 and id(variable) not in dense
    ]
    encoders = {id(variable) for variable in encoder.weights}
    own: Reading = [
        (variable, "float32")
        for variable in model.weights
        if len(variable.shape) == 2 and id(variable) not in encoders
    ]
    if model.masked_lm is not None:
        # The masked-LM head multiplies by it.
        own.append((encoder.embeddings.word_embeddings, encoder.compute_dtype))
    return own, below


def _trace(
    model: BertModel,
    read: Read,
    reading: Reading,
    traced: Mapping[BertModel, Callable[..., Any]] | None = None,
) -> Callable[[Mapping[str, tf.Tensor]], Any]:
    """A model as one graph; ``traced`` has, by models within it, what is called in their place."""
    specification = {
        key: tf.TensorSpec(tensor.shape, tensor.dtype, name=key)
        for key, tensor in model.input.items()
    }

    def run(inputs: Mapping[str, tf.Tensor]) -> Any:
        with _reading(read, reading), _called_in_place(traced or {}):
            return model(inputs, training=False)

    function = _traced(run, specification)
    return lambda inputs: function({key: inputs[key] for key in specification})


def _trace_masked_lm(
    model: BertModel, read: Read, reading: Reading
) -> Callable[[tf.Tensor], tf.Tensor]:
    """The masked-LM head by itself as one graph: states (P, H) to logits (P, V)."""

    def run(states: tf.Tensor) -> tf.Tensor:
        with _reading(read, reading):
            return masked_lm_logits(model.masked_lm, states)

    return _traced(run, tf.TensorSpec([None, model.config.hidden_size], model.compute_dtype))


def _trace_vectors(model: BertModel, read: Read) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """What makes a sentence's vector of its states, as one graph."""

    def run(inputs: tuple[tf.Tensor, tf.Tensor]) -> Any:
        with _reading(read, _dense(model)):
            return model.embed_states(*inputs)

    states = tf.TensorSpec([None, None, model.config.hidden_size], model.encoder.compute_dtype)
    function = _traced(run, (states, tf.TensorSpec([None, None], tf.int32)))
    return lambda states, mask: function((states, mask))


def _dense(model: BertModel) -> Reading:
    """The matrix of the layer of sentence embeddings, where there is one."""
    layer = model.sentence_dense
    return [] if layer is None else [(layer.kernel, "float32")]


def _traced(run: Callable[..., Any], specification: Any) -> Callable[..., Any]:
    function = tf.function(run, input_signature=[specification], autograph=False)
    function.get_concrete_function()
    return function


def _reading(read: Read, reading: Reading) -> keras.StatelessScope:
    """A scope in which variables are read from the storage."""
    scope = keras.StatelessScope()
    # Not by the constructor, which would cast to the variable's own dtype.
    scope.state_mapping.update({id(v): read(v, dtype) for v, dtype in reading})
    return scope


def _read_quickly(model: BertModel, storage: "StoredWeights") -> Read:
    """Reads the matrices that an encoder multiplies by in bfloat16 as constants.

    oneDNN packs a constant once and a variable in every request. In float32 the gain is a tenth,
    which is not worth the memory; and weights are stored smaller to make a small file.
    """
    encoder = model.encoder
    tables = {id(table) for table in embedding_tables(model)}
    matrices = {id(v): v for v in encoder.weights if len(v.shape) == 2 and id(v) not in tables}
    size = sum(math.prod(v.shape) for v in matrices.values()) * tf.bfloat16.size
    if encoder.compute_dtype != "bfloat16" or not storage.is_exact or size > _MOST_CONSTANT_BYTES:
        return storage.read

    def read(variable: keras.Variable, dtype: str) -> tf.Tensor:
        if id(variable) not in matrices:
            return storage.read(variable, dtype)
        with tf.init_scope():
            values = tf.cast(variable.value, dtype).numpy()
        return tf.constant(values)

    return read


@contextlib.contextmanager
def _called_in_place(traced: Mapping[BertModel, Callable[..., Any]]) -> Iterator[None]:
    """Makes models call functions in place of their layers; their own ``call`` comes back."""
    for model, function in traced.items():
        model.call = lambda inputs, function=function, **_: function(inputs)
    try:
        yield
    finally:
        for model in traced:
            del model.call


def traced_once(tokenizer: BertTokenizer) -> BertTokenizer:
    """A tokenizer whose graphs are traced, and written, once for all signatures that call it."""
    traced = copy.copy(tokenizer)
    strings = tf.TensorSpec([None], tf.string)
    for name in ("tokenize", "tokenize_with_offsets"):
        function = tf.function(getattr(tokenizer, name), [strings], autograph=False)
        traced.__dict__[name] = function
    return traced


# === The weights' storage ===


class StoredWeights:
    """A model's variables as an export stores them; ``by_path`` has them and int8's scales."""

    def __init__(self, model: BertModel, weights: str) -> None:
        self.is_exact = weights == "float32"
        tables = {id(table) for table in embedding_tables(model)}
        self._stored = {
            id(variable): _store(variable, weights, axis=1 if id(variable) in tables else 0)
            for variable in model.weights
        }
        self.by_path: dict[str, tf.Variable] = {}
        for variable in model.weights:
            stored = self._stored[id(variable)]
            self.by_path[variable.path] = stored.values
            if stored.scales is not None:
                self.by_path[f"{variable.path}_scales"] = stored.scales
        self._converted: dict[tuple[int, str], _Converted] = {}

    def read(self, variable: keras.Variable, dtype: str) -> tf.Tensor:
        """A variable as the arithmetic wants it, for the graph that is being traced."""
        stored = self._stored[id(variable)]
        if stored.scales is None and stored.values.dtype == dtype:
            return stored.values.read_value()
        key = (id(variable), dtype)
        if key not in self._converted:
            with tf.init_scope():
                self._converted[key] = _Converted(stored, dtype, variable.path)
        return self._converted[key].read()

    def resources(self) -> tuple[Any, ...]:
        """What has been read converted so far, to be saved with every function that reads it."""
        return tuple(self._converted.values())


def embedding_tables(model: BertModel) -> list[keras.Variable]:
    """The variables whose rows are looked up."""
    embeddings = model.encoder.embeddings
    tables = (
        embeddings.word_embeddings,
        embeddings.position_embeddings,
        embeddings.token_type_embeddings,
    )
    return [table for table in tables if table is not None]


class _Stored(NamedTuple):
    """A variable as it is stored: its values, and with int8 the step of each scale."""

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
    """Rounds a matrix to int8: (M, N), and float32 scales (1, N) for axis 0, (M, 1) for axis 1."""
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
