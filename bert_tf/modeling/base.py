"""Base of the models: a ``BertConfig``, checks of inputs, serialisation."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import keras
from keras import ops

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.features import NULL_THRESHOLD as NULL_THRESHOLD
from bert_tf.features import PROBABILITY_THRESHOLD as PROBABILITY_THRESHOLD
from bert_tf.features import TEMPERATURE as TEMPERATURE
from bert_tf.graph_gradients import traced_in_owner
from bert_tf.io import load_hook, runtime

from .layers import normalize, pool

# Attributes that ``bert_tf.load`` reads beside a model's weights and Keras does not know.
LOADED_ATTRIBUTES = (
    *("labels", "multi_label", "thresholds", "task", "activation", "problem_type"),
    *("max_seq_length", "sentence_embedding"),
)


def model_inputs(contract: Mapping[str, features.Feature]) -> dict[str, keras.KerasTensor]:
    """Symbolic inputs for features: the batch and every other dimension are left open."""
    shapes = {key: (None,) * (len(feature.dimensions) - 1) for key, feature in contract.items()}
    return {key: keras.Input(shapes[key], dtype=contract[key].dtype, name=key) for key in contract}


def _flatten_outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs by name, each of a list by its number, too."""
    several = {key: value for key, value in outputs.items() if isinstance(value, list)}
    numbered = {f"{key}_{at}": it for key, its in several.items() for at, it in enumerate(its)}
    return {**{key: value for key, value in outputs.items() if key not in several}, **numbered}


@dataclasses.dataclass(frozen=True)
class SentenceEmbedding:
    """Steps from the states of a text's tokens to its vector, in a model of sentence embeddings.

    ``bert_tf.load`` reads it, and gives it as a model's ``sentence_embedding``; ``model.embed``
    does all of it but the prefixes.

    Attributes:
        pooling: one of ``POOLINGS`` but ``none``.
        normalize: whether the vector has the Euclidean length 1.
        max_seq_length: the most tokens of a text, [CLS] and [SEP] included.
        query_prefix: what stands before a text that asks, or the first of two.
        document_prefix: what stands before a text that may be found, or the second of two.
        dims: how many numbers, the first ones, are kept of the vector; ``None``: all.
        rescale: whether it is what is kept that has the length 1, and not the whole vector.

    >>> embedding = SentenceEmbedding("max", normalize=True, max_seq_length=128)
    >>> states = ops.array([[[3.0, 1.0], [1.0, 4.0], [9.0, 9.0]]])
    >>> ops.convert_to_numpy(embedding(states, ops.array([[1, 1, 0]]))).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """

    pooling: str
    normalize: bool
    max_seq_length: int
    query_prefix: str = ""
    document_prefix: str = ""
    dims: int | None = None
    rescale: bool = True

    def __call__(self, states: Any, mask: Any, dense: Any = None) -> Any:
        """(B, S, H) states, the (B, S) mask and the model's dense layer, if any -> (B, D)."""
        vectors = pool(states, mask, self.pooling)
        vectors = vectors if dense is None else dense(vectors)
        if self.normalize and not self.rescale:
            vectors = normalize(vectors)
        vectors = vectors[:, : self.dims]
        return normalize(vectors) if self.normalize and self.rescale else vectors


def default_max_length(source: Any) -> int:
    """The tokens of a row by default, of a model or a checkpoint.

    They are those of its sentence embedding, else those of its tokenizer, else all positions.
    """
    positions: int = source.config.max_position_embeddings
    max_length = (source.sentence_embedding or source).max_seq_length
    return positions if max_length is None else min(max_length, positions)


# === Declared by a model class ===

# True if a value, which a stranger's file may give, can be a constructor's argument.
Check = Callable[[Any], bool]
Shapes = dict[str, tuple[int, ...]]
_MAX_UNITS = 10**7


def is_flag(value: Any) -> bool:
    """True if a value is true or false."""
    return isinstance(value, bool)


def is_count(value: Any) -> bool:
    """True if a value can be a number of classes or units."""
    return type(value) is int and 0 < value <= _MAX_UNITS


def is_rate(value: Any) -> bool:
    """True if a value can be a dropout rate."""
    return isinstance(value, int | float) and not is_flag(value) and 0 <= value < 1


def optional(check: Check) -> Check:
    """The check of an argument that may be ``None``."""
    return lambda value: value is None or check(value)


def dense_shapes(name: str, inputs: int, units: int) -> Shapes:
    """The weights of a dense layer."""
    return {f"{name}/kernel": (inputs, units), f"{name}/bias": (units,)}


def normalization_shapes(name: str, width: int) -> Shapes:
    """The weights of a layer normalisation."""
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}


def _with_fork_check(method: str) -> Any:
    """Returns Keras' own method, which first checks that the process can run TensorFlow."""

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        runtime.check_fork()
        return getattr(super(BertModel, self), method)(*arguments, **options)

    return functools.wraps(getattr(keras.Model, method))(run)


class BertModel(keras.Model):
    """A functional model made from a ``BertConfig``; its inputs are a dict of features.

    Each class says here what it has, so that a checkpoint can be read and written before, or
    without, a model being built.

    Attributes:
        config: what the model is made from.
        preprocessor: strings to the model's inputs, no layer of the model; or ``None``. This and
            the next eight are there where ``bert_tf.load`` found them. ``bert_tf.save``, ``pickle``
            and ``copy`` keep them, Keras' own ``save`` does not.
        labels: the names of the classes in the order of their ids.
        multi_label: whether several classes may hold at once.
        thresholds: by name (``NULL_THRESHOLD``, ``PROBABILITY_THRESHOLD``), what fine-tuning
            decided on its dev set.
        task: what fine-tuning says of its task (``task.json``: the kind, columns, lengths).
        activation: the function of a regressor's number, which ``Predictor`` and exports apply:
            ``"sigmoid"``, or ``""`` for none.
        problem_type: the word of a Hugging Face ``config.json``; ``""`` where there was none.
        max_seq_length: the most tokens of a row that a tokenizer's file says, or ``None``.
        sentence_embedding: how texts become vectors, a ``SentenceEmbedding``.
        masked_lm: the masked-LM head, or ``None``.
        sentence_dense: the layer that texts' vectors go through last, or ``None``.

    Attributes of the class:
        argument_checks: by the name of each argument of the constructor besides ``config``,
            ``name`` and ``dtype``: which values it can have.
        pooler_by_default: whether the encoder has a pooler where no argument ``pooler`` says it.
        hugging_face: the name of Hugging Face's class of the same weights.
        hub_task: what model hubs call its task, their ``pipeline_tag``; "": nothing.
        has_portable_format: whether other libraries' formats have a place for the model.
    """

    argument_checks: ClassVar[Mapping[str, Check]]
    pooler_by_default: ClassVar[bool] = True
    hugging_face: ClassVar[str] = ""
    hub_task: ClassVar[str] = ""
    has_portable_format: ClassVar[bool] = True

    masked_lm: Any = None
    sentence_dense: Any = None
    preprocessor: Any = None
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    thresholds: Mapping[str, float] = MappingProxyType({})
    task: Mapping[str, Any] | None = None
    activation: str = ""
    problem_type: str | None = ""
    max_seq_length: int | None = None
    sentence_embedding: SentenceEmbedding | None = None

    def __init__(
        self,
        config: BertConfig,
        policy: keras.DTypePolicy,
        inputs: Any,
        outputs: Any,
        name: str,
        trainable: bool = True,
    ) -> None:
        # One by one: Keras' functional model takes any keyword, and ignores it in silence.
        super().__init__(inputs=inputs, outputs=outputs, name=name, trainable=trainable)
        self.config = config
        self.dtype_policy = policy

    @classmethod
    def has_pooler(cls, arguments: Mapping[str, Any]) -> bool:
        """True if the encoder has a pooler when the constructor gets these arguments."""
        pooler = arguments.get("pooler")
        return cls.pooler_by_default if pooler is None else bool(pooler)

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """The shapes of the weights outside encoders, by their paths below the model's name."""
        raise NotImplementedError

    @classmethod
    def hugging_face_class(cls, config: BertConfig, arguments: Mapping[str, Any]) -> str:
        """The name of Hugging Face's class of the same weights."""
        return cls.hugging_face

    @classmethod
    def get_hub_task(cls, config: BertConfig, arguments: Mapping[str, Any]) -> str:
        """Name of the task on model hubs; "" if it has none."""
        return cls.hub_task

    @classmethod
    def from_checkpoint(cls, path: str, **arguments: Any) -> Self:
        """Makes this model from a checkpoint of any format; a head that it lacks starts anew.

        ``path`` is what ``bert_tf.load`` takes, whose errors these are; ``arguments`` are the
        constructor's, besides the config (``num_classes=3``), and ``load``'s.
        """
        model: Self = load_hook.load(path, model_class=cls, **arguments)
        return model

    def embed(self, batch: Mapping[str, Any], training: bool = False) -> Any:
        """The vectors of texts, (B, D) float32, as the model's ``sentence_embedding`` says.

        ``batch`` is what the preprocessor makes of texts that begin with their prefix already.
        """
        states = self(batch, training=training)[features.SEQUENCE_OUTPUT]
        return self.embed_states(states, batch[features.INPUT_MASK])

    def activated(self, numbers: Any) -> Any:
        """A regressor's numbers, of any shape, through its ``activation``."""
        return ops.sigmoid(numbers) if self.activation else numbers

    def embed_states(self, states: Any, mask: Any) -> Any:
        """The vectors, from the last block's states (B, S, H) and the mask (B, S)."""
        if self.sentence_embedding is None:
            raise ValueError(f"{self.name} has no sentence_embedding: set one.")
        return self.sentence_embedding(ops.cast(states, "float32"), mask, self.sentence_dense)

    @property
    def embedding_size(self) -> int:
        """D, the numbers of a text's vector."""
        dense, embedding = self.sentence_dense, self.sentence_embedding
        size: int = self.config.hidden_size if dense is None else dense.units
        return min(size, (embedding and embedding.dims) or size)

    def __setattr__(self, name: str, value: Any) -> None:
        # Keras takes every layer that is set as an attribute for a layer of the model, and wraps
        # containers.
        if name == "preprocessor" or name in LOADED_ATTRIBUTES:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        """Returns Keras' own pickle, with the attributes that ``bert_tf.load`` sets."""
        kept = {
            name: vars(self)[name]
            for name in ("preprocessor", *LOADED_ATTRIBUTES)
            if name in vars(self)
        }
        # Read-only mappings have no pickle.
        return *super().__reduce__(), {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in kept.items()
        }

    def __dir__(self) -> list[str]:
        """All but the preprocessor: Keras saves every layer that it finds here."""
        return [name for name in super().__dir__() if name != "preprocessor"]

    fit, evaluate, predict = map(_with_fork_check, ("fit", "evaluate", "predict"))
    train_step = traced_in_owner(keras.Model.train_step)

    def make_train_function(self, force: bool = False) -> Any:
        """Makes the function that ``fit`` runs; refuses options that XLA cannot compile."""
        for name, off in (("trains_without_padding", False), ("training_attention", None)):
            if self.jit_compile and getattr(self.encoder, name) != off:
                raise ValueError(
                    f"{self.name} is to be compiled with jit_compile=True, and its encoder has "
                    f"{name}, which XLA cannot compile: set encoder.{name} = {off}, or compile "
                    "with jit_compile=False."
                )
        return super().make_train_function(force)

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the model on a batch, which may hold further features."""
        runtime.check_fork()
        is_batch = isinstance(inputs, Mapping)
        missing = [key for key in self.input if not is_batch or key not in inputs]
        if missing:
            keys = ", ".join(inputs) if is_batch else type(inputs).__name__
            raise ValueError(
                f"{self.name} has no {', '.join(missing)} to run on: expected the keys "
                f"{', '.join(self.input)}, which model.preprocessor makes of strings; got {keys}."
            )
        length = inputs[features.INPUT_WORD_IDS].shape[-1]
        limit = self.config.max_position_embeddings
        if length is not None and length > limit:
            raise ValueError(
                f"The sequence of {length} tokens is longer than the {limit} positions that "
                f"{self.name} has embeddings for: cut it, or raise max_position_embeddings."
            )
        return super().__call__({key: inputs[key] for key in self.input}, *args, **kwargs)

    def export(self, filepath: Any, format: str = "tf_saved_model", **options: Any) -> None:
        """Keras' own; a list among the outputs goes to ONNX as ``encoder_outputs_0`` and so on.

        ONNX needs ``tf2onnx``, and has the inputs' names, batch and length open.
        """
        model: Any = self
        if format == "onnx":  # which names tensors alone, and wants a model that was called
            outputs = self.output if isinstance(self.output, dict) else {"outputs": self.output}
            model = keras.Model(self.input, _flatten_outputs(outputs), name=self.name)
            model(
                {
                    key: ops.zeros((2,) * len(spec.shape), "int32")
                    for key, spec in self.input.items()
                }
            )
        keras.Model.export(model, filepath, format=format, **options)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """The model that ``get_config`` describes, with new weights."""
        return cls(**{**config, "config": BertConfig.from_dict(config["config"])})
