"""Base class of the models: config, input checks and serialization."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import keras
from keras import ops

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.graph_gradients import traced_in_owner
from bert_tf.io import runtime

from .pooling import SentenceEmbedding

# Attributes that ``bert_tf.load`` sets in addition to the weights, and that Keras does not save.
LOADED_ATTRIBUTES = (
    *("labels", "multi_label", "thresholds", "task", "activation", "problem_type"),
    *("max_seq_length", "sentence_embedding"),
)


def model_inputs(contract: Mapping[str, features.Feature]) -> dict[str, keras.KerasTensor]:
    """Creates symbolic inputs for features, with all sizes unknown."""
    shapes = {key: (None,) * (len(feature.dimensions) - 1) for key, feature in contract.items()}
    return {key: keras.Input(shapes[key], dtype=contract[key].dtype, name=key) for key in contract}


def _flatten_outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces each list of outputs with one output per item, named ``KEY_INDEX``."""
    lists = {key: value for key, value in outputs.items() if isinstance(value, list)}
    items = {f"{key}_{i}": item for key, values in lists.items() for i, item in enumerate(values)}
    return {**{key: value for key, value in outputs.items() if key not in lists}, **items}


def default_max_length(source: Any) -> int:
    """Returns a model's or checkpoint's default for the maximum number of tokens per sequence.

    This is ``max_seq_length`` of the sentence embedding, else of the tokenizer, and at most
    ``max_position_embeddings``.
    """
    positions: int = source.config.max_position_embeddings
    max_length = (source.sentence_embedding or source).max_seq_length
    return positions if max_length is None else min(max_length, positions)


# === Descriptions of the model classes ===

# Returns whether a value from an untrusted file is valid as a constructor argument.
Check = Callable[[Any], bool]
Shapes = dict[str, tuple[int, ...]]
_MAX_UNITS = 10**7


def is_flag(value: Any) -> bool:
    """Returns whether a value is a bool."""
    return isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Returns whether a value is valid as a number of classes or units."""
    return type(value) is int and 0 < value <= _MAX_UNITS


def is_rate(value: Any) -> bool:
    """Returns whether a value is valid as a dropout rate."""
    return isinstance(value, int | float) and not is_flag(value) and 0 <= value < 1


def optional(check: Check) -> Check:
    """Returns a check that also accepts ``None``."""
    return lambda value: value is None or check(value)


def dense_shapes(name: str, inputs: int, units: int) -> Shapes:
    """Returns the shapes of a dense layer's weights."""
    return {f"{name}/kernel": (inputs, units), f"{name}/bias": (units,)}


def normalization_shapes(name: str, width: int) -> Shapes:
    """Returns the shapes of a layer normalization's weights."""
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}


def _with_fork_check(method: str) -> Any:
    """Returns a method of ``keras.Model`` that first checks that TensorFlow can run."""

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        runtime.check_fork()
        return getattr(super(BertModel, self), method)(*arguments, **options)

    return functools.wraps(getattr(keras.Model, method))(run)


class BertModel(keras.Model):
    """Base class of functional models that are built from a ``BertConfig``.

    The inputs are a dict of features. The class methods describe the weights, so that checkpoints
    can be read and written without building the model.

    ``bert_tf.load`` sets the attributes from ``preprocessor`` to ``sentence_embedding``.
    ``bert_tf.save``, ``pickle`` and ``copy`` preserve these attributes; Keras' ``save`` does not.

    Attributes:
        config: The ``BertConfig`` of the model.
        preprocessor: ``BertPreprocessor`` that converts strings to model inputs, or ``None``. The
            preprocessor is not a layer of the model.
        labels: Class names in the order of the class ids.
        multi_label: Whether a text can have several classes.
        thresholds: Thresholds that were chosen on the dev set, by name (``NULL_THRESHOLD``,
            ``PROBABILITY_THRESHOLD``, ``TEMPERATURE``).
        task: Contents of ``task.json`` of a fine-tuned model, or ``None``.
        activation: Activation that ``Predictor`` and exports apply to the output of a regressor:
            ``"sigmoid"``, or ``""`` for none.
        problem_type: Value of ``problem_type`` in a Hugging Face ``config.json``, or ``""``.
        max_seq_length: Maximum number of tokens per sequence from the tokenizer's files, or
            ``None``.
        sentence_embedding: ``SentenceEmbedding`` of the model, or ``None``.
        masked_lm: Masked-LM head, or ``None``.
        sentence_dense: Dense layer that ``sentence_embedding`` applies, or ``None``.

    Class attributes:
        argument_checks: Checks by constructor argument, except ``config``, ``name`` and ``dtype``.
        pooler_by_default: Whether the encoder has a pooler if ``pooler`` is not passed.
        hugging_face: Name of the Hugging Face class with the same weights.
        hub_task: ``pipeline_tag`` on model hubs, or ``""``.
        has_portable_format: Whether formats of other libraries can store the model.
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
        arguments: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        # The keywords are explicit, because Keras' functional model ignores unknown ones.
        super().__init__(inputs=inputs, outputs=outputs, name=name, trainable=trainable)
        self.config = config
        self.dtype_policy = policy
        self._arguments = dict(arguments)  # arguments of the subclass, for ``get_config``

    @classmethod
    def has_pooler(cls, arguments: Mapping[str, Any]) -> bool:
        """Returns whether the encoder has a pooler with these constructor arguments."""
        pooler = arguments.get("pooler")
        return cls.pooler_by_default if pooler is None else bool(pooler)

    @classmethod
    def head_shapes(cls, config: BertConfig, arguments: Mapping[str, Any]) -> Shapes:
        """Returns the shapes of the weights outside the encoder, by path within the model."""
        raise NotImplementedError

    @classmethod
    def hugging_face_class(cls, config: BertConfig, arguments: Mapping[str, Any]) -> str:
        """Returns the name of the Hugging Face class with the same weights."""
        return cls.hugging_face

    @classmethod
    def get_hub_task(cls, config: BertConfig, arguments: Mapping[str, Any]) -> str:
        """Returns the ``pipeline_tag`` on model hubs, or ``""``."""
        return cls.hub_task

    @classmethod
    def from_checkpoint(cls, path: str, **arguments: Any) -> Self:
        """Loads the model from a checkpoint of any format.

        A head that the checkpoint does not have is randomly initialized.

        Args:
            path: Checkpoint, as in ``bert_tf.load``.
            **arguments: Arguments of the constructor, such as ``num_classes=3``, and of
                ``bert_tf.load``.

        Raises:
            ValueError: If the checkpoint cannot be loaded; see ``bert_tf.load``.
        """
        model: Self = runtime.load_hook(path, model_class=cls, **arguments)
        return model

    def embed(self, batch: Mapping[str, Any], training: bool = False) -> Any:
        """Computes sentence embeddings of texts with ``sentence_embedding``.

        Args:
            batch: Outputs of the preprocessor for texts that include their prefixes.
            training: Whether dropout is active.

        Returns:
            Vectors of shape (B, D), float32.

        Raises:
            ValueError: If the model has no ``sentence_embedding``.
        """
        states = self(batch, training=training)[features.SEQUENCE_OUTPUT]
        return self.embed_states(states, batch[features.INPUT_MASK])

    def activated(self, numbers: Any) -> Any:
        """Applies ``activation`` to the outputs of a regressor, of any shape."""
        return ops.sigmoid(numbers) if self.activation else numbers

    def embed_states(self, states: Any, mask: Any) -> Any:
        """Computes vectors (B, D) from the last hidden states (B, S, H) and the mask (B, S)."""
        if self.sentence_embedding is None:
            raise ValueError(f"{self.name} has no sentence_embedding. Set this attribute.")
        return self.sentence_embedding(ops.cast(states, "float32"), mask, self.sentence_dense)

    @property
    def embedding_size(self) -> int:
        """Number of dimensions of a text's vector."""
        dense, embedding = self.sentence_dense, self.sentence_embedding
        size: int = self.config.hidden_size if dense is None else dense.units
        return min(size, (embedding and embedding.dims) or size)

    def __setattr__(self, name: str, value: Any) -> None:
        # Keras would register layers as part of the model, and wrap containers.
        if name in ("preprocessor", "_arguments", *LOADED_ATTRIBUTES):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        """Adds the attributes that ``bert_tf.load`` sets to Keras' pickle."""
        names = [name for name in ("preprocessor", *LOADED_ATTRIBUTES) if name in vars(self)]
        values = {name: vars(self)[name] for name in names}
        # ``MappingProxyType`` cannot be pickled.
        return *super().__reduce__(), {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }

    def __dir__(self) -> list[str]:
        """Hides the preprocessor, because Keras saves every layer that it finds here."""
        return [name for name in super().__dir__() if name != "preprocessor"]

    fit, evaluate, predict = map(_with_fork_check, ("fit", "evaluate", "predict"))
    train_step = traced_in_owner(keras.Model.train_step)

    def make_train_function(self, force: bool = False) -> Any:
        """Creates the function that ``fit`` runs. Raises an error if options conflict with XLA."""
        for name, off in (("trains_without_padding", False), ("training_attention", None)):
            if self.jit_compile and getattr(self.encoder, name) != off:
                raise ValueError(
                    f"{self.name}: jit_compile=True does not support encoder.{name}. Set it to "
                    f"{off}, or compile with jit_compile=False."
                )
        return super().make_train_function(force)

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Runs the model on a batch; additional features are ignored."""
        runtime.check_fork()
        is_batch = isinstance(inputs, Mapping)
        missing = [key for key in self.input if not is_batch or key not in inputs]
        if missing:
            keys = ", ".join(inputs) if is_batch else type(inputs).__name__
            raise ValueError(
                f"{self.name}: the batch lacks {', '.join(missing)}: expected the keys "
                f"{', '.join(self.input)}, got {keys}. Use model.preprocessor for strings."
            )
        length = inputs[features.INPUT_WORD_IDS].shape[-1]
        limit = self.config.max_position_embeddings
        if length is not None and length > limit:
            raise ValueError(
                f"{self.name}: sequence length {length} exceeds the maximum of {limit} "
                "(max_position_embeddings). Truncate the sequences."
            )
        return super().__call__({key: inputs[key] for key in self.input}, *args, **kwargs)

    def export(self, filepath: Any, format: str = "tf_saved_model", **options: Any) -> None:
        """Exports the model as Keras does. List outputs are named ``encoder_outputs_0`` and so on.

        ``format="onnx"`` requires ``tf2onnx``. The batch size and length stay dynamic.
        """
        model: Any = self
        if format == "onnx":  # requires a model that was called and whose outputs are tensors
            outputs = self.output if isinstance(self.output, dict) else {"outputs": self.output}
            model = keras.Model(self.input, _flatten_outputs(outputs), name=self.name)
            shapes = {key: (2,) * len(spec.shape) for key, spec in self.input.items()}
            model({key: ops.zeros(shape, "int32") for key, shape in shapes.items()})
        keras.Model.export(model, filepath, format=format, **options)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for serialization."""
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "trainable": self.trainable,
            **self._arguments,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Creates the model from the result of ``get_config``, with new weights."""
        return cls(**{**config, "config": BertConfig.from_dict(config["config"])})
