"""The model as all signatures of an export share it: a copy, each of whose graphs is traced once.

The tokenizer, the encoder and the whole model are traced once each, and the model calls the
encoder's trace: so a graph is in the SavedModel once, whatever number of signatures uses it.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.base import LOADED, TEMPERATURE, BertModel, most_tokens
from bert_tf.pipelines.vocabulary import check_vocabulary_fits
from bert_tf.pipelines.wordpiece import BertTokenizer

from .arithmetic import Read, Weights, reading
from .options import ExportOptions

Outputs = dict[str, tf.Tensor]
# [CLS] A [SEP] B [SEP], with a token in each segment.
_SHORTEST_SEQUENCE = 5


@dataclasses.dataclass(frozen=True)
class Served:
    """A model as all signatures of one export share it.

    Attributes:
        call: features to the model's outputs, at inference.
        encode: features to the encoder's outputs, at inference.
        guess: states (P, H) to the logits of the masked-LM head, (P, V) float32, if there is one.
        weights: the variables, by the paths by which ``checkpoints.exports`` finds them.
        resources: what the graphs read besides variables; to be saved with the signatures.
        quick: the same for ``serving_default``, where speed counts most: states of padding are not
            computed and are 0, and in bfloat16 the matrices of a small encoder are constants.
            ``None`` in ``quick`` itself.
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

    @property
    def temperature(self) -> float:
        """Divisor of the logits."""
        return self.model.thresholds.get(TEMPERATURE, 1.0)

    @property
    def labels(self) -> list[str]:
        """The classes' names in the order of their ids: "0", "1" and so on if they have none."""
        labels = self.model.labels
        if not labels:
            return [str(number) for number in range(self.model.num_classes)]
        for number, label in enumerate(labels):
            try:
                label.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"The name of class {number} is {label!r}, which cannot be written as UTF-8: "
                    "rename it in model.labels."
                ) from error
        return list(labels)


def untraced(model: BertModel, tokenizer: BertTokenizer, options: ExportOptions) -> Served:
    """A model served by calls of itself, without copy or graphs."""
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
    """Copies a model and traces its graphs; ``serving_default`` has its own, ``Served.quick``."""
    check_vocabulary_fits(tokenizer.vocab, model.config.vocab_size, "of the tokenizer")
    length = max_seq_length(model, options)
    copied = copy_model(model, "float32" if options.precision == "float32" else "mixed_bfloat16")
    weights = Weights(copied)
    shared = (copied, traced_once(tokenizer), length, options)
    exact = Served(*shared, **_graphs(copied, weights, weights.read))
    copied.encoder.infers_without_padding = True
    quick = Served(*shared, **_graphs(copied, weights, weights.read_quickly))
    copied.encoder.infers_without_padding = False
    return dataclasses.replace(
        exact,
        quick=quick,
        weights={variable.path: variable.value for variable in copied.weights},
        resources=tuple(weights.copies.values()),
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
    """The option, else the length of the model's sentence embedding, else all positions."""
    positions = model.config.max_position_embeddings
    length = options.max_seq_length
    if length is None:
        length = most_tokens(model.sentence_embedding, positions)
    if not _SHORTEST_SEQUENCE <= length <= positions:
        raise ValueError(
            f"max_seq_length is {length}: expected {_SHORTEST_SEQUENCE} to {positions}, the "
            "model's max_position_embeddings."
        )
    return length


# === Graphs ===


def _graphs(model: BertModel, weights: Weights, read: Read) -> dict[str, Any]:
    """The graphs of a ``Served``, by their names there."""
    encoder, table = model.encoder, weights.table
    encode = call = _trace_model(encoder, read, weights.matrices)
    if model is not encoder:
        call = _trace_model(model, read, table, encode)
    graphs = {"encode": encode, "call": call}
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
    """A model as one graph, which calls ``encode`` in place of its encoder's layers."""
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
            model.encoder.__dict__.pop("call", None)  # its own call comes back

    function = _traced(run, specification)
    return lambda inputs: function({key: inputs[key] for key in specification})


def _masked_lm_logits(model: BertModel, states: tf.Tensor) -> tf.Tensor:
    """The masked-LM head's logits for states by themselves: (P, H) to (P, V)."""
    positions = tf.range(tf.shape(states)[0])
    return model.masked_lm(states[None], positions[None], training=False)[0]


def _traced(run: Callable[..., Any], specification: Any) -> Callable[..., Any]:
    function = tf.function(run, input_signature=[specification], autograph=False)
    function.get_concrete_function()
    return function


def traced_once(tokenizer: BertTokenizer) -> BertTokenizer:
    """A tokenizer whose graphs are traced, and written, once for all signatures that call it."""
    traced = copy.copy(tokenizer)
    strings = tf.TensorSpec([None], tf.string)
    for name in ("tokenize", "tokenize_with_offsets"):
        function = tf.function(getattr(tokenizer, name), [strings], autograph=False)
        traced.__dict__[name] = function
    return traced
