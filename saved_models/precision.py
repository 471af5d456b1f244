"""The model that is exported: its arithmetic, and each graph traced once.

bfloat16 arithmetic is Keras' ``mixed_bfloat16``, whose casts are part of the graph: a SavedModel
cannot carry the option by which training on a CPU has the graph rewritten. Embeddings, LayerNorm
and a task's logits stay float32, and so do the stored weights.

Matrices that are multiplied in bfloat16 are converted once, when a server loads the export, and not
in every request: converting MiniLM's took as long as half a sentence. The copy is a resource that
the SavedModel initialises from the variables, as it does lookup tables.
"""

import contextlib
import copy
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling import BertEncoder
from bert_tf.modeling.base import LOADED, BertModel, most_tokens
from bert_tf.pipelines.vocabulary import check_vocabulary_fits
from bert_tf.pipelines.wordpiece import BertTokenizer

from .fill_mask import masked_lm_logits
from .served import ExportOptions, Served

# [CLS] A [SEP] B [SEP], with a token in each segment.
SHORTEST_SEQUENCE = 5
# What an encoder's matrices may have together to be constants. Python has the graph in memory about
# twenty times while it loads an export.
_MOST_CONSTANT_BYTES = 32 << 20

# A variable in the dtype of the arithmetic, for the graph that is being traced.
Read = Callable[[keras.Variable], tf.Tensor]


def serve(model: BertModel, tokenizer: BertTokenizer, options: ExportOptions) -> Served:
    """Makes what the signatures of an export share.

    The tokenizer, the encoder and the whole model are traced once each, and the model calls the
    encoder's trace: so a graph is in the SavedModel once, whatever number of signatures uses it.
    Only ``serving_default`` has traces of its own, ``Served.quick``.
    """
    check_vocabulary_fits(tokenizer.vocab, model.config.vocab_size, "of the tokenizer")
    length = max_seq_length(model, options)
    copied = copy_model(model, "float32" if options.precision == "float32" else "mixed_bfloat16")
    copies = Copies(copied.compute_dtype)
    exact = Served(
        model=copied,
        **_traces(copied, copies.read),
        tokenizer=traced_once(tokenizer),
        max_seq_length=length,
        options=options,
    )
    copied.encoder.infers_without_padding = True
    quick = dataclasses.replace(exact, **_traces(copied, _read_quickly(copied.encoder, copies)))
    copied.encoder.infers_without_padding = False
    weights = {variable.path: variable.value for variable in copied.weights}
    return dataclasses.replace(exact, quick=quick, weights=weights, resources=copies.made())


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
    encode = _trace(encoder, read, _matrices(encoder))
    masked_lm = model.masked_lm
    # Its rows are added in float32, and the masked-LM head multiplies by it.
    table = [] if masked_lm is None else [encoder.embeddings.word_embeddings]
    return {
        "encode": encode,
        "call": encode if model is encoder else _trace(model, read, table, {encoder: encode}),
        "guess": None if masked_lm is None else _trace_masked_lm(model, read, table),
        "vectors": None if model.sentence_embedding is None else _trace_vectors(model),
    }


def _matrices(encoder: BertEncoder) -> list[keras.Variable]:
    """Matrices of an encoder, without its tables of embeddings and ``sentence_dense``."""
    embeddings, dense = encoder.embeddings, encoder.sentence_dense
    others = [
        embeddings.word_embeddings,
        embeddings.position_embeddings,
        embeddings.token_type_embeddings,
        None if dense is None else dense.kernel,
    ]
    left = {id(variable) for variable in others}
    return [v for v in encoder.weights if len(v.shape) == 2 and id(v) not in left]


def _trace(
    model: BertModel,
    read: Read,
    variables: Sequence[keras.Variable],
    traced: Mapping[BertModel, Callable[..., Any]] | None = None,
) -> Callable[[Mapping[str, tf.Tensor]], Any]:
    """A model as one graph; ``traced`` has, by models within it, what is called in their place."""
    specification = {
        key: tf.TensorSpec(tensor.shape, tensor.dtype, name=key)
        for key, tensor in model.input.items()
    }

    def run(inputs: Mapping[str, tf.Tensor]) -> Any:
        with _reading(read, variables), _called_in_place(traced or {}):
            return model(inputs, training=False)

    function = _traced(run, specification)
    return lambda inputs: function({key: inputs[key] for key in specification})


def _trace_masked_lm(
    model: BertModel, read: Read, variables: Sequence[keras.Variable]
) -> Callable[[tf.Tensor], tf.Tensor]:
    """The masked-LM head by itself as one graph: states (P, H) to logits (P, V)."""

    def run(states: tf.Tensor) -> tf.Tensor:
        with _reading(read, variables):
            return masked_lm_logits(model.masked_lm, states)

    return _traced(run, tf.TensorSpec([None, model.config.hidden_size], model.compute_dtype))


def _trace_vectors(model: BertModel) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Graph that makes a sentence's vector from its states."""
    states = tf.TensorSpec([None, None, model.config.hidden_size], model.encoder.compute_dtype)
    mask = tf.TensorSpec([None, None], tf.int32)
    function = _traced(lambda inputs: model.embed_states(*inputs), (states, mask))
    return lambda states, mask: function((states, mask))


def _traced(run: Callable[..., Any], specification: Any) -> Callable[..., Any]:
    function = tf.function(run, input_signature=[specification], autograph=False)
    function.get_concrete_function()
    return function


def _reading(read: Read, variables: Sequence[keras.Variable]) -> keras.StatelessScope:
    """A scope in which variables are read in the dtype of the arithmetic."""
    scope = keras.StatelessScope()
    # Not by the constructor, which would cast to the variable's own dtype.
    scope.state_mapping.update({id(variable): read(variable) for variable in variables})
    return scope


def _read_quickly(encoder: BertEncoder, copies: "Copies") -> Read:
    """Reads the matrices that an encoder multiplies by in bfloat16 as constants.

    oneDNN packs a constant once and a variable in every request. In float32 the gain is a tenth,
    which is not worth the memory.
    """
    matrices = {id(variable) for variable in _matrices(encoder)}
    size = sum(math.prod(v.shape) for v in _matrices(encoder)) * tf.bfloat16.size
    if encoder.compute_dtype != "bfloat16" or size > _MOST_CONSTANT_BYTES:
        return copies.read

    def read(variable: keras.Variable) -> tf.Tensor:
        if id(variable) not in matrices:
            return copies.read(variable)
        with tf.init_scope():
            values = tf.cast(variable.value, tf.bfloat16).numpy()
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


# === Copies of the weights ===


class Copies:
    """Variables in the dtype of the arithmetic."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._made: dict[int, _Copy] = {}

    def read(self, variable: keras.Variable) -> tf.Tensor:
        """A variable as the arithmetic wants it, for the graph that is being traced."""
        if variable.dtype == self._dtype:
            return variable.value.read_value()
        if id(variable) not in self._made:
            with tf.init_scope():
                self._made[id(variable)] = _Copy(variable, self._dtype)
        return self._made[id(variable)].read()

    def made(self) -> tuple[Any, ...]:
        """Variables converted so far, to be saved with every function that reads them."""
        return tuple(self._made.values())


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
