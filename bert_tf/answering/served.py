"""Model copy that all signatures of an export share, with each graph traced once.

The tokenizer, the encoder and the model are traced once, and the model's graph calls the encoder's
graph. A SavedModel therefore contains each graph once, regardless of the number of signatures.

bfloat16 computation uses Keras' ``mixed_bfloat16``, whose casts are part of the graph, because a
SavedModel cannot store the graph rewriting used for training on CPUs. Embeddings, LayerNorm, task
logits and the stored weights remain float32.
"""

import copy
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.choices import DTYPE_POLICIES
from bert_tf.modeling import BertEncoder
from bert_tf.modeling.base import LOADED_ATTRIBUTES, BertModel, default_max_length
from bert_tf.modeling.encoder import build_outputs
from bert_tf.modeling.keras_hooks import seeds_from
from bert_tf.modeling.transformer import ComputePlan, TokenRows, attend_full_batch
from bert_tf.pipelines.vocabulary import check_vocabulary_fits
from bert_tf.pipelines.wordpiece import BertTokenizer

from .export_options import ExportOptions

Outputs = dict[str, tf.Tensor]
# [CLS] A [SEP] B [SEP] with one token per segment.
_SHORTEST_SEQUENCE = 5
# Maximum total size of encoder matrices that are stored as constants. Loading an export in Python
# needs about twenty times as much memory as the constants.
_MAX_CONSTANT_BYTES = 32 << 20

# Function that reads a variable in the compute dtype, in the graph that is being traced.
Read = Callable[[keras.Variable], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Served:
    """Model shared by all signatures of an export.

    Attributes:
        call: Function that maps features to the model's outputs at inference.
        encode: Function that maps features to the encoder's outputs at inference.
        guess: Function that maps states (P, H) to masked-LM logits, (P, V) float32; ``None``
            without a masked-LM head.
        weights: Variables by path; an export that is read as a checkpoint has these paths.
        resources: Resources of the graphs other than variables; they are saved with the signatures.
        quick: Faster variant for ``serving_default``, in which states of padding are not computed
            (they are 0). In float32, two threads share the work on a row (``TwoChains``); in
            bfloat16, the matrices of a small encoder are constants.
        unmasked: Variant of ``quick`` for rows of equal length, which need no mask. ``None`` in
            bfloat16, where the constants would be stored twice.
    """

    model: BertModel
    tokenizer: BertTokenizer
    max_seq_length: int
    options: ExportOptions
    call: Callable[[Mapping[str, tf.Tensor]], Any]
    encode: Callable[[Mapping[str, tf.Tensor]], Any]
    guess: Any = None
    weights: Mapping[str, tf.Variable] = dataclasses.field(default_factory=dict)
    resources: tuple[Any, ...] = ()
    quick: "Served | None" = None
    unmasked: "Served | None" = None

    def outputs(self, inputs: Mapping[str, tf.Tensor]) -> Any:
        """Returns the model's outputs for some rows; can be passed to ``run_rows`` as a head."""
        return self.call(inputs)

    @property
    def labels(self) -> list[str]:
        """Names of the classes in the order of their ids; "0", "1" and so on by default."""
        labels = self.model.labels
        if not labels:
            return [str(number) for number in range(self.model.num_classes)]
        for number, label in enumerate(labels):
            try:
                label.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"Class {number} has the name {label!r}, which is not valid UTF-8. Rename it "
                    "in model.labels."
                ) from error
        return list(labels)


def untraced(model: BertModel, tokenizer: BertTokenizer, options: ExportOptions) -> Served:
    """Returns a served model that calls the model directly, without a copy or graphs."""
    return Served(
        model,
        tokenizer,
        max_seq_length(model, options),
        options,
        call=lambda inputs: model(inputs, training=False),
        encode=lambda inputs: model.encoder(inputs, training=False),
        guess=lambda states: _masked_lm_logits(model, states),
    )


def serve(model: BertModel, tokenizer: BertTokenizer, options: ExportOptions) -> Served:
    """Copies a model and traces its graphs, including those of ``Served.quick``."""
    check_vocabulary_fits(tokenizer.vocab, model.config.vocab_size, "of the tokenizer")
    length = max_seq_length(model, options)
    copied = copy_model(model, DTYPE_POLICIES[options.precision])
    weights = Weights(copied)
    shared = (copied, traced_once(tokenizer), length, options)

    def make_served(read: Read, plan: ComputePlan | None = None, unpadded: bool = False) -> Served:
        return Served(*shared, **_graphs(copied, weights, read, plan, unpadded))

    exact = make_served(weights.read)
    if weights.copies:
        quick = make_served(weights.read_quickly, ComputePlan())
    else:
        chains = TwoChains(weights.read_columns)
        unmasked = make_served(weights.read, chains, unpadded=True)
        quick = dataclasses.replace(make_served(weights.read, chains), unmasked=unmasked)
    return dataclasses.replace(
        exact,
        quick=quick,
        weights={variable.path: variable.value for variable in copied.weights},
        resources=(*weights.copies.values(), *weights.columns.values()),
    )


def copy_model(model: BertModel, dtype: str) -> BertModel:
    """Copies a model to new variables with another dtype policy, outside any strategy."""
    with seeds_from():
        copied = type(model).from_config({**model.get_config(), "dtype": dtype})
    copied.set_weights(model.get_weights())
    _leave_cudnn(copied)
    for name in LOADED_ATTRIBUTES:
        setattr(copied, name, getattr(model, name))
    return copied


def _leave_cudnn(model: keras.Model) -> None:
    """Disables cuDNN in LSTMs, because graphs traced on a GPU must also run on a CPU."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            _leave_cudnn(layer)
        elif isinstance(layer, keras.layers.Bidirectional):
            layer.forward_layer.use_cudnn = layer.backward_layer.use_cudnn = False


def max_seq_length(model: BertModel, options: ExportOptions) -> int:
    """Returns ``options.max_seq_length`` or, if it is ``None``, the model's default."""
    positions = model.config.max_position_embeddings
    length = options.max_seq_length
    if length is None:
        length = default_max_length(model)
    if not _SHORTEST_SEQUENCE <= length <= positions:
        raise ValueError(
            f"max_seq_length={length}: expected {_SHORTEST_SEQUENCE} to {positions}, the "
            "model's max_position_embeddings."
        )
    return length


# === Weights ===


class Columns(NamedTuple):
    """Columns ``begin`` to ``end`` of each of ``groups`` equal parts of a kernel or bias."""

    groups: int
    begin: int
    end: int

    def select(self, values: tf.Tensor) -> tf.Tensor:
        """Selects the columns: (..., groups * W) -> (..., groups * (end - begin))."""
        *rows, width = values.shape
        grouped = tf.reshape(values, [*rows, self.groups, width // self.groups])
        size = self.groups * (self.end - self.begin)
        return tf.reshape(grouped[..., self.begin : self.end], [*rows, size])


class Weights:
    """Weights of a model, in the form that its graphs read.

    Attributes:
        matrices: Encoder matrices whose dtype differs from the compute dtype, except the embeddings
            and ``sentence_dense``.
        table: The word embeddings, if their dtype differs from the compute dtype and a masked-LM
            head multiplies by them. The encoder itself reads the embeddings in float32.
        copies: Copies in the compute dtype by the variable's id; saved with the signatures.
        columns: Copies of columns by variable id and ``Columns``; saved with the signatures.
    """

    def __init__(self, model: BertModel) -> None:
        encoder = model.encoder
        read_in_float32 = (encoder.embeddings, encoder.sentence_dense)
        excluded = {id(v) for layer in read_in_float32 if layer is not None for v in layer.weights}
        matrices = [v for v in encoder.weights if len(v.shape) == 2 and id(v) not in excluded]
        table = [] if model.masked_lm is None else [encoder.embeddings.word_embeddings]
        dtype = model.compute_dtype
        self.matrices, self.table = (
            [v for v in variables if v.dtype != dtype] for variables in (matrices, table)
        )
        self.copies = {id(v): _Copy(v, dtype) for v in (*self.matrices, *self.table)}
        self.columns: dict[tuple[int, Columns], _Copy] = {}

    def read(self, variable: keras.Variable) -> tf.Tensor:
        """Reads the copy of a variable, or the variable itself if it has no copy."""
        if id(variable) in self.copies:
            return self.copies[id(variable)].read()
        return variable.value.read_value()

    def read_columns(self, variable: keras.Variable, columns: Columns) -> tf.Tensor:
        """Reads columns of a variable from a copy, to avoid slicing in every request."""
        key = (id(variable), columns)
        if key not in self.columns:
            with tf.init_scope():
                self.columns[key] = _Copy(variable, variable.dtype, columns)
        return self.columns[key].read()

    def read_quickly(self, variable: keras.Variable) -> tf.Tensor:
        """Reads the matrices of a small encoder as constants, other variables as ``read`` does.

        oneDNN packs constants only once, but packs variables in every request. In float32,
        constants save only 10% of the time, which is not worth the memory.
        """
        size = sum(math.prod(v.shape) for v in self.matrices) * tf.bfloat16.size
        is_matrix = any(variable is matrix for matrix in self.matrices)
        if id(variable) not in self.copies or not is_matrix or size > _MAX_CONSTANT_BYTES:
            return self.read(variable)
        with tf.init_scope():
            values = tf.cast(variable.value, tf.bfloat16).numpy()
        return tf.constant(values)


def reading(read: Read, variables: Sequence[keras.Variable]) -> keras.StatelessScope:
    """Returns a scope in which variables are read in the compute dtype."""
    scope = keras.StatelessScope()
    # The constructor would cast the values to the variables' dtypes.
    scope.state_mapping.update({id(variable): read(variable) for variable in variables})
    return scope


class _Copy(tf.saved_model.experimental.TrackableResource):
    """Copy of a variable in another dtype, or of its columns, made when an export is loaded."""

    def __init__(
        self, variable: keras.Variable, dtype: str, columns: Columns | None = None
    ) -> None:
        super().__init__()
        self.stored = variable.value
        self._dtype = tf.as_dtype(dtype)
        self._columns = columns
        value = self._value()
        self._shape = value.shape
        # Two exports in one process must not share a resource unless its values are identical, so
        # the handle's name contains a digest of the values.
        digest = hashlib.sha256(value.numpy().tobytes()).hexdigest()
        self._shared_name = f"{variable.path}/{dtype}/{digest}"
        self._initialize()

    def read(self) -> tf.Tensor:
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=self._dtype)
        return tf.ensure_shape(value, self._shape)

    def _value(self) -> tf.Tensor:
        value = tf.cast(self.stored.read_value(), self._dtype)
        return value if self._columns is None else self._columns.select(value)

    def _create_resource(self) -> Any:
        return tf.raw_ops.VarHandleOp(
            dtype=self._dtype, shape=self._shape, shared_name=self._shared_name
        )

    def _initialize(self) -> None:
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=self._value())


# === Graphs ===


def encode(
    encoder: BertEncoder, plan: ComputePlan, unpadded: bool, inputs: Mapping[str, tf.Tensor]
) -> dict[str, Any]:
    """Returns the encoder's outputs at inference, which are 0 at padding.

    ``unpadded`` means that the rows contain no padding.
    """
    mask = inputs[features.INPUT_MASK]
    embedded = encoder.embeddings(inputs[features.INPUT_WORD_IDS], inputs[features.INPUT_TYPE_IDS])
    all_real = unpadded and not encoder.config.is_decoder
    rows = TokenRows(mask, without_padding=not unpadded, all_real=all_real)
    matrix, states = rows.from_batch(embedded), [embedded]
    for block in encoder.blocks:
        matrix = block.transform(matrix, rows, plan)
        states.append(rows.to_batch(matrix))
    return build_outputs(states, mask, encoder.pooler)


def _graphs(
    model: BertModel, weights: Weights, read: Read, plan: ComputePlan | None, unpadded: bool
) -> dict[str, Any]:
    """Returns the fields of a ``Served`` that are graphs.

    With a ``plan``, states of padding are not computed. ``unpadded`` rows have the same length.
    """
    encoder, table = model.encoder, weights.table
    planned_encode = functools.partial(encode, encoder, plan, unpadded) if plan else None
    encoded = _trace_model(encoder, read, weights.matrices, planned_encode)
    call = encoded if model is encoder else _trace_model(model, read, table, encoded)
    graphs = {"encode": encoded, "call": call}
    if model.masked_lm is not None:

        def guess(states: tf.Tensor) -> tf.Tensor:
            with reading(read, table):
                return _masked_lm_logits(model, states)

        states = tf.TensorSpec([None, model.config.hidden_size], model.compute_dtype)
        graphs["guess"] = _traced(guess, states)
    return graphs


def _trace_model(
    model: BertModel,
    read: Read,
    variables: Sequence[keras.Variable],
    encode: Callable[..., Any] | None = None,
) -> Callable[[Mapping[str, tf.Tensor]], Any]:
    """Traces a model as one graph, which calls ``encode`` in place of the encoder's layers."""
    specification = {
        key: tf.TensorSpec(tensor.shape, tensor.dtype, name=key)
        for key, tensor in model.input.items()
    }

    def run(inputs: Mapping[str, tf.Tensor]) -> Any:
        if encode is not None:
            model.encoder.call = lambda inputs, **_: encode(inputs)
        try:
            with reading(read, variables):
                return model(inputs, training=False)
        finally:
            model.encoder.__dict__.pop("call", None)  # restores the method of the class

    function = _traced(run, specification)
    return lambda inputs: function({key: inputs[key] for key in specification})


def _masked_lm_logits(model: BertModel, states: tf.Tensor) -> tf.Tensor:
    """Returns the masked-LM logits, (P, V), for independent states, (P, H)."""
    positions = tf.range(tf.shape(states)[0])
    return model.masked_lm(states[None], positions[None], training=False)[0]


def _traced(run: Callable[..., Any], specification: Any) -> Callable[..., Any]:
    function = tf.function(run, input_signature=[specification], autograph=False)
    function.get_concrete_function()
    return function


def traced_once(tokenizer: BertTokenizer) -> BertTokenizer:
    """Returns a tokenizer whose graphs are traced and saved once for all signatures."""
    traced = copy.copy(tokenizer)
    strings = tf.TensorSpec([None], tf.string)
    for name in ("tokenize", "tokenize_with_offsets"):
        function = tf.function(getattr(tokenizer, name), [strings], autograph=False)
        traced.__dict__[name] = function
    return traced


# === Two chains for two threads ===

# Each chain computes half of a block's attention heads, then half of its feed-forward units, with
# its own columns of the kernels (Shoeybi et al. 2019, Megatron-LM, section 3), so the threads
# synchronize only twice per block. For a single sentence, a matrix product spends most of its time
# reading the matrices from memory, which two threads can share. Threads within one operation would
# take longer to start than they save.
# Dimensions: H hidden, K inputs, R rows.

# Function that reads some columns of a variable.
ReadColumns = Callable[[keras.Variable, Columns], tf.Tensor]


class TwoChains(ComputePlan):
    """Compute plan of ``serving_default`` in float32: two parallel chains for two threads."""

    def __init__(self, read: ReadColumns) -> None:
        self._read = read

    def attention(self, block: Any, states: Any, rows: Any, training: bool) -> tf.Tensor:
        """Computes attention in two halves of the heads and adds the input: (R, H) -> (R, H)."""
        heads, layer = block.config.num_attention_heads, block.attention
        size = block.config.hidden_size // heads

        def contexts(begin: int, end: int) -> tf.Tensor:
            columns = Columns(3, begin * size, end * size)
            projected = self._project(layer.query_key_value, states, columns)
            causal = block.config.is_decoder
            return attend_full_batch(projected, rows, end - begin, lambda x: x, causal)

        return _sum(layer.attention_output, [contexts(*half) for half in _halves(heads)], states)

    def feed_forward(self, block: Any, states: Any, training: bool) -> tf.Tensor:
        """Computes the feed-forward layers in two halves and adds the input: (R, H) -> (R, H)."""

        def inner(begin: int, end: int) -> tf.Tensor:
            columns = Columns(1, begin, end)
            return block.activation(self._project(block.intermediate, states, columns), False)

        halves = _halves(block.config.intermediate_size)
        return _sum(block.feed_forward_output, [inner(*half) for half in halves], states)

    def _project(self, dense: Any, x: tf.Tensor, columns: Columns) -> tf.Tensor:
        """Computes some columns of a dense layer's output: (R, K) -> (R, columns)."""
        product = tf.matmul(x, self._read(dense.kernel, columns))
        return tf.nn.bias_add(product, self._read(dense.bias, columns))


def _halves(count: int) -> list[tuple[int, int]]:
    """Returns the ranges of two halves, or of one part if ``count`` is 1."""
    middle = count // 2
    return [(0, middle), (middle, count)] if middle else [(0, count)]


def _sum(dense: Any, parts: list[tf.Tensor], residual: tf.Tensor) -> tf.Tensor:
    """Applies a dense layer to adjacent parts of its input and adds the residual, (R, H)."""
    kernel, begin, products = dense.kernel.value.read_value(), 0, []
    for part in parts:
        end = begin + part.shape[-1]
        products.append(tf.matmul(part, kernel[begin:end]))  # slicing rows does not copy
        begin = end
    products[0] = tf.nn.bias_add(products[0], dense.bias.value.read_value())
    return tf.add_n([residual, *products])
