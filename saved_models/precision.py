"""The model that is exported: its arithmetic, its weights' storage, and each graph traced once.

bfloat16 arithmetic is Keras' ``mixed_bfloat16``, whose casts are part of the graph: a SavedModel
cannot carry the option by which training on a CPU has the graph rewritten. Embeddings, LayerNorm
and a task's logits stay float32.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling import BertEncoder
from bert_tf.modeling.base import BertModel
from bert_tf.pipelines.vocabulary import check_vocabulary_fits
from bert_tf.pipelines.wordpiece import BertTokenizer

from .fill_mask import masked_lm_logits
from .served import ExportOptions, Outputs, Served
from .weight_storage import StoredWeights, embedding_tables

# [CLS] A [SEP] B [SEP], with a token in each segment.
SHORTEST_SEQUENCE = 5

# Of each variable that is not read as it is, in which dtype it is read.
Reading = list[tuple[keras.Variable, str]]


def serve(model: BertModel, tokenizer: BertTokenizer, options: ExportOptions) -> Served:
    """Makes what the signatures of an export share.

    The weights are copied out of any strategy and dtype policy. The tokenizer, the encoder and the
    whole model are traced once each, for any batch and length, and the model calls the encoder's
    trace: so a graph is in the SavedModel once, whatever number of signatures uses it.

    Args:
        model: any of the library's models.
        tokenizer: the one it was trained with.
        options: how it is served.

    Raises:
        ValueError: the vocabulary is larger than the model's, or ``max_seq_length`` is out of its
            range.
    """
    check_vocabulary_fits(tokenizer.vocab, model.config.vocab_size, "of the tokenizer")
    max_seq_length = _max_seq_length(model, options)
    copied = copy_model(model, "float32" if options.precision == "float32" else "mixed_bfloat16")
    storage = StoredWeights(copied, options.weights)
    encoder = copied.encoder
    own, below = _readings(copied, encoder, options)
    encode = _trace(encoder, storage, below)
    call = encode if copied is encoder else _trace(copied, storage, own, {encoder: encode})
    guess = _trace_masked_lm(copied, storage, own) if copied.masked_lm is not None else None
    return Served(
        model=copied,
        call=call,
        encode=encode,
        tokenizer=_traced_once(tokenizer),
        max_seq_length=max_seq_length,
        options=options,
        resources=storage.resources(),
        guess=guess,
    )


def copy_model(model: BertModel, dtype: str) -> BertModel:
    """The same model with the same weights, under no strategy and of another dtype policy.

    Args:
        model: any of the library's models.
        dtype: a Keras dtype policy, such as ``"mixed_bfloat16"``.

    Returns:
        A model with variables of its own.
    """
    copied = type(model).from_config({**model.get_config(), "dtype": dtype})
    copied.set_weights(model.get_weights())
    for name in ("labels", "multi_label", "thresholds"):
        setattr(copied, name, getattr(model, name))
    return copied


def _max_seq_length(model: BertModel, options: ExportOptions) -> int:
    """The option's, else all positions."""
    positions = model.config.max_position_embeddings
    chosen = positions if options.max_seq_length is None else options.max_seq_length
    if not SHORTEST_SEQUENCE <= chosen <= positions:
        raise ValueError(
            f"max_seq_length is {chosen}: expected {SHORTEST_SEQUENCE} to {positions}, the "
            "model's max_position_embeddings."
        )
    return chosen


# === Tracing ===


def _readings(
    model: BertModel, encoder: BertEncoder, options: ExportOptions
) -> tuple[Reading, Reading]:
    """What of the model's own variables, and of its encoder's, is not read as it is."""
    stored_apart = options.weights != "float32"
    # Their rows are added in float32; every other matrix is read in the dtype of the arithmetic,
    # or every request would cast it.
    tables = {id(table) for table in embedding_tables(encoder)}
    below: Reading = []
    for variable in encoder.weights:
        dtype = "float32" if id(variable) in tables else encoder.compute_dtype
        if len(variable.shape) == 2 and (stored_apart or dtype != "float32"):
            below.append((variable, dtype))
    encoders = {id(variable) for variable in encoder.weights}
    own: Reading = [
        (variable, "float32")
        for variable in model.weights
        if stored_apart and len(variable.shape) == 2 and id(variable) not in encoders
    ]
    if model.masked_lm is not None:
        # The masked-LM head multiplies by it.
        own.append((encoder.embeddings.word_embeddings, encoder.compute_dtype))
    return own, below


def _trace(
    model: BertModel,
    storage: StoredWeights,
    reading: Reading,
    traced: Mapping[BertModel, Callable[..., Any]] | None = None,
) -> Callable[[Mapping[str, tf.Tensor]], Any]:
    """A model at inference as one graph for any batch and length.

    Args:
        model: with variables of its own.
        storage: of its variables.
        reading: those that are read from the storage, and in which dtype.
        traced: of models within it, the functions to call in their place.
    """
    specification = {
        key: tf.TensorSpec(tensor.shape, tensor.dtype, name=key)
        for key, tensor in model.input.items()
    }

    def run(inputs: Mapping[str, tf.Tensor]) -> Any:
        with _reading(storage, reading), _called_in_place(traced or {}):
            return model(inputs, training=False)

    function = tf.function(run, input_signature=[specification], autograph=False)
    function.get_concrete_function()
    return lambda inputs: function({key: inputs[key] for key in specification})


def _trace_masked_lm(
    model: BertModel, storage: StoredWeights, reading: Reading
) -> Callable[[tf.Tensor], tf.Tensor]:
    """The masked-LM head by itself as one graph: states (P, H) to logits (P, V)."""

    def run(states: tf.Tensor) -> tf.Tensor:
        with _reading(storage, reading):
            return masked_lm_logits(model.masked_lm, states)

    specification = tf.TensorSpec([None, model.config.hidden_size], model.compute_dtype)
    function = tf.function(run, input_signature=[specification], autograph=False)
    function.get_concrete_function()
    return function


def _reading(storage: StoredWeights, reading: Reading) -> keras.StatelessScope:
    """A scope in which variables are read from the storage."""
    scope = keras.StatelessScope()
    # Not by the constructor, which would cast to the variable's own dtype.
    scope.state_mapping.update({id(v): storage.read(v, dtype) for v, dtype in reading})
    return scope


@contextlib.contextmanager
def _called_in_place(traced: Mapping[BertModel, Callable[..., Any]]) -> Iterator[None]:
    """Has models call functions in place of their layers; their own ``call`` comes back."""
    for model, function in traced.items():
        model.call = lambda inputs, function=function, **_: function(inputs)
    try:
        yield
    finally:
        for model in traced:
            del model.call


def _traced_once(tokenizer: BertTokenizer) -> BertTokenizer:
    """A tokenizer whose graphs are traced, and written, once for all signatures that call it."""
    traced = copy.copy(tokenizer)
    strings = tf.TensorSpec([None], tf.string)
    for name in ("tokenize", "tokenize_with_offsets"):
        function = tf.function(getattr(tokenizer, name), [strings], autograph=False)
        traced.__dict__[name] = function
    return traced


# === What lower precision costs ===


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far an output is from the reference's.

    Attributes:
        largest: the largest absolute difference of two numbers.
        mean: the mean of the absolute differences.
        cosine: the least cosine of two vectors of the last axis; ``None`` of an output whose last
            axis are no vectors: one number, or a column.
    """

    largest: float
    mean: float
    cosine: float | None


def differences(reference: Outputs, outputs: Outputs) -> dict[str, Difference]:
    """Compares the answers of two exports to one request.

    Args:
        reference: outputs by name, tensors or arrays; float32's.
        outputs: those that are compared to it.

    Returns:
        The difference of each float output; of one whose shape is another (there were more
        entities, say) none can be told, and it is left out.

    >>> vectors = {"mean_output": np.array([[3.0, 4.0]]), "truncated": np.array([False])}
    >>> differences(vectors, {**vectors, "mean_output": np.array([[3.0, 4.5]])})
    {'mean_output': Difference(largest=0.5, mean=0.25, cosine=0.9984...)}
    """
    found = {}
    for name, value in reference.items():
        expected, got = (np.asarray(array) for array in (value, outputs[name]))
        is_comparable = expected.dtype.kind == "f" and expected.shape == got.shape and got.size
        if not is_comparable:
            continue
        expected, got = expected.astype(np.float64), got.astype(np.float64)
        absolute = np.abs(expected - got)
        found[name] = Difference(
            float(absolute.max()), float(absolute.mean()), _least_cosine(expected, got)
        )
    return found


def _least_cosine(expected: np.ndarray, got: np.ndarray) -> float | None:
    if expected.ndim < 2 or expected.shape[-1] < 2:
        return None
    lengths = np.linalg.norm(expected, axis=-1) * np.linalg.norm(got, axis=-1)
    products = (expected * got).sum(axis=-1)
    return float((products[lengths > 0] / lengths[lengths > 0]).min(initial=1.0))
