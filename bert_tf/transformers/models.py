"""The model classes of transformers, built from this library's layers.

Each class is a ``TFPreTrainedModel`` with a head of ``heads.HEADS``. Custom classes that inherit
from these classes, or that contain a ``TFBertMainLayer``, load weights in the same way.
"""

import dataclasses
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec
from bert_tf.checkpoints.hugging_face_config import SEVERAL_CLASSES
from bert_tf.checkpoints.load import open_checkpoint, select
from bert_tf.checkpoints.weights import assign, get_spec, to_checkpoint
from bert_tf.io.checkpoint_formats import CONFIG
from bert_tf.io.files import read_json_object, write_json
from bert_tf.io.messages import warn
from bert_tf.modeling import keras_hooks
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.layers import new_initializer
from bert_tf.pipelines.replicas import clear_traced_steps

from . import NAMES, missing_attribute_error
from .collators import as_dataset
from .configuration import (
    AutoConfig,
    BertConfig,
    DistilBertConfig,
    PretrainedConfig,
    location_options,
    resolve_path,
)
from .fitting import LabelledModel
from .heads import HEADS, LAYERS, Head, compute_logits, keras_serializable, sum_losses
from .main_layer import TFBertMainLayer, TFDistilBertMainLayer, TransformersLayer, keras_2_error
from .outputs import OUTPUTS, ModelOutput

_LOGGER = logging.getLogger("bert_tf")
#: Class of the main layer by ``model_type``, which is also the model's attribute for the layer.
_MAIN_LAYERS: Mapping[str, type[TFBertMainLayer]] = {
    "bert": TFBertMainLayer,
    "distilbert": TFDistilBertMainLayer,
}
_WEIGHTS_SUFFIX = ".weights.h5"  # the only suffix that Keras 3 accepts
# Heads that have the same name in transformers' files.
_CLASSIFIER_NAMES = ("classifier", "regressor", "token_classifier", "choice")


class TFPreTrainedModel(TransformersLayer, LabelledModel):
    """Base class of the models: a Keras model with a config.

    Attributes:
        config: Config of the model.
        native: The bert_tf model with the same variables, for ``bert_tf.save``,
            ``bert_tf.Predictor`` and ``bert_tf.saved_models``; ``None`` in custom classes.

    As in transformers, only the keywords ``name``, ``trainable`` and ``add_pooling_layer`` of the
    constructor have an effect.
    """

    config_class: ClassVar[type[PretrainedConfig]] = PretrainedConfig
    base_model_prefix: ClassVar[str] = ""
    head: ClassVar[Any] = None
    label_logits: ClassVar[Mapping[str, str]] = {"labels": "logits"}

    def __init__(self, config: PretrainedConfig, *inputs: Any, **kwargs: Any) -> None:
        if not isinstance(config, PretrainedConfig):
            raise TypeError(
                f"{type(self).__name__}: expected a config of bert_tf.transformers, got "
                f"{type(config).__name__}. Use {type(self).__name__}.from_pretrained for weights."
            )
        super().__init__(name=kwargs.get("name"))
        keras_hooks.pass_training_argument(self)
        self.config = config
        self.num_labels = config.num_labels
        head = self.head
        if head is None:
            self.trainable = kwargs.get("trainable", True)
            return
        arguments = head.get_arguments(config)
        has_pooler = kwargs.get("add_pooling_layer", *inputs[:1])
        if head is HEADS["Model"] and has_pooler is False:
            arguments["pooler"] = False
        native_class: Any = head.native
        native = native_class(config.native(), **arguments)
        if native.config.is_decoder and native.encoder.pooler is not None:
            raise ValueError(
                f"is_decoder=True: {type(self).__name__} would pool the last token, unlike in "
                "transformers. Set is_decoder=False, or pass add_pooling_layer=False."
            )
        if config.tie_word_embeddings is False and native.masked_lm is not None:
            warn(
                ["tie_word_embeddings=False is ignored: the masked-LM head shares the embeddings."]
            )
        self.set_native(native)
        name = config.model_type
        setattr(self, name, _MAIN_LAYERS[name](config, encoder=native.encoder, name=name))
        if config.model_type == "distilbert" and native.encoder.pooler is not None:
            self.pre_classifier = native.encoder.pooler.dense
        for native_name, name in LAYERS.items():
            if (layer := getattr(native, native_name, None)) is not None:
                setattr(self, name, layer)
        self.trainable = kwargs.get("trainable", True)  # also applies to the layers set above
        self.built = True  # so that weights can be loaded before a call

    def run(self, inputs: dict[str, Any], training: bool | None, **switches: bool) -> ModelOutput:
        """Computes the outputs from a dict of tensors."""
        head = self.head
        tensors, leading = _flatten_choices(inputs)
        states = self.base_model(tensors, training=training, return_dict=True, **switches)
        output_class, pairs = OUTPUTS[head.output], head.label_logits
        outputs = {name: states.get(name) for name in output_class.names}
        outputs |= zip(pairs.values(), compute_logits(self, states, training), strict=True)
        if leading is not None:  # (B * K, 1) -> (B, K)
            outputs["logits"] = ops.reshape(outputs["logits"], leading)
        if head.loss is not None and all(label in inputs for label in pairs):
            labels: Any = {label: inputs[label] for label in pairs}
            logits: Any = [outputs[name] for name in pairs.values()]
            if len(pairs) == 1:  # as in transformers, for scripts that override hf_compute_loss
                (labels,), (logits,) = labels.values(), logits
            outputs["loss"] = self.hf_compute_loss(labels, logits)
        return output_class(**outputs)

    def hf_compute_loss(self, labels: Any, logits: Any) -> Any:
        """Computes the model's loss; several labels are passed as a dict, with a list of logits."""
        if self.head is None:  # another base of a custom class may define the method
            return super().hf_compute_loss(labels, logits)
        return sum_losses(self.head.get_loss(self.config), labels, logits)

    # === Components ===

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute_error(self, name)

    @property
    def base_model(self) -> Any:
        """Main layer."""
        return getattr(self, self.base_model_prefix, self)

    @property
    def name_or_path(self) -> str:
        """Path or name that was passed to ``from_pretrained``."""
        return str(self.config.name_or_path)

    @property
    def input_signature(self) -> dict[str, Any]:
        """Specs of ids, masks and types: (B, S), or (B, K, S) for multiple choice."""
        shape = [None] * (3 if "MultipleChoice" in type(self).__name__ else 2)
        names = ["input_ids", "attention_mask"]
        if getattr(self.config, "type_vocab_size", 0):
            names.append("token_type_ids")
        return {name: tf.TensorSpec(shape, "int32", name=name) for name in names}

    @property
    def serving(self) -> Any:
        """``tf.function`` that returns the outputs for a dict of inputs."""
        return self._serving(self.input_signature)

    def _serving(self, signature: dict[str, Any]) -> Any:
        def answer(inputs: dict[str, Any]) -> dict[str, Any]:
            return dict(self(inputs, output_attentions=False, output_hidden_states=False).items())

        return tf.function(answer, input_signature=[signature], autograph=False)

    def _serving_module(self) -> tf.Module:
        """Returns the contents of a SavedModel, with variables that TF Lite can read."""
        archive = tf.Module()
        archive.variables_of_model = [variable.value for variable in self.variables]
        archive.serving = self.serving
        return archive

    @property
    def dummy_inputs(self) -> dict[str, Any]:
        """Example batch."""
        return {"input_ids": ops.convert_to_tensor([[1, 2, 3], [3, 2, 1]])}

    def get_lm_head(self) -> Any:
        """Returns the masked-LM head, or ``None``."""
        return getattr(self, "mlm", None)

    def get_output_embeddings(self) -> Any:
        """Returns the embedding layer if the model has a masked-LM head, else ``None``."""
        return None if self.get_lm_head() is None else self.get_input_embeddings()

    def get_bias(self) -> dict[str, Any] | None:
        """Returns the bias of the masked-LM head, or ``None``."""
        head = self.get_lm_head()
        return None if head is None else {"bias": head.output_bias}

    def num_parameters(self, only_trainable: bool = False) -> int:
        """Returns the number of parameters."""
        weights = self.trainable_weights if only_trainable else self.weights
        return sum(int(ops.size(weight)) for weight in weights)

    def get_input_embeddings(self) -> Any:
        """Returns the embedding layer."""
        return self.base_model.embeddings

    def set_input_embeddings(self, value: Any) -> None:
        """Sets the word embeddings to a table (V, H), or to the ``weight`` of a layer."""
        table = getattr(value, "weight", value)
        if table.shape[0] != self.get_input_embeddings().weight.shape[0]:
            self.resize_token_embeddings(table.shape[0])
        self.get_input_embeddings().weight.assign(table)

    def resize_token_embeddings(self, new_num_tokens: int | None = None) -> Any:
        """Resizes the vocabulary; new rows are randomly initialized."""
        if new_num_tokens is not None and self.native is not None:
            _resize_embeddings(self.native, new_num_tokens)
            self.config.vocab_size = new_num_tokens
            # Functions that are already traced refer to the old table.
            self.train_function = self.test_function = self.predict_function = None
        return self.get_input_embeddings()

    def prepare_tf_dataset(self, dataset: Any, *args: Any, **options: Any) -> Any:
        """Converts a ``datasets.Dataset`` to batches, with the options of ``as_dataset``."""
        return as_dataset(dataset, [*self.label_logits], *args, **options)

    # === Loading and saving ===

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """Loads a model with the weights of a directory, a file or a model on the hub.

        Args:
            pretrained_model_name_or_path: Directory, file, or name on the hub.
            *inputs: Positional arguments of the constructor.
            **options: ``config``; ``ignore_mismatched_sizes``, whether to randomly initialize a
                head of a different size; ``output_loading_info``, whether to also return the keys
                that do not match; ``revision``; ``subfolder``; settings of the config, such as
                ``num_labels=3``; and arguments of the constructor. Options for downloads and
                formats are ignored.

        Returns:
            The model, or with ``output_loading_info`` a tuple of the model and a dict.

        Raises:
            TypeError: If an option is unknown.
            ValueError: If the weights cannot be loaded; see ``bert_tf.load``.
        """
        warn(
            f"{name}={options[name]} is ignored: the dtype policy of Keras applies, "
            f"{keras.config.dtype_policy().name} (keras.config.set_dtype_policy)."
            for name in ("dtype", "torch_dtype")
            if "16" in str(options.get(name))
        )
        path, values = resolve_path(pretrained_model_name_or_path, options)
        ignore_mismatched_sizes = values.pop("ignore_mismatched_sizes", False)
        wants_info = values.pop("output_loading_info", False)
        config = values.pop("config", None)
        if config is not None and not isinstance(config, PretrainedConfig):
            config = cls.config_class.from_pretrained(config)
        has_config = config is not None and os.path.isfile(path)  # a file without a config.json
        checkpoint = open_checkpoint(path, settings=config.to_dict() if has_config else None)
        if config is None:
            config = cls.config_class.from_checkpoint(checkpoint)
        rest = config.update(values)
        # The constructor of a custom class may have other options.
        has_default_options = cls.__init__ is TFPreTrainedModel.__init__
        if has_default_options and rest.keys() - {"name", "trainable", "add_pooling_layer"}:
            raise TypeError(
                f"{cls.__name__}.from_pretrained: expected config, ignore_mismatched_sizes, "
                f"revision or a setting of the config, got {', '.join(rest)}."
            )
        config.name_or_path = os.fspath(pretrained_model_name_or_path)
        model = cls(config, *inputs, **rest)
        info = _read_weights(model, checkpoint, bool(ignore_mismatched_sizes))
        return (model, info) if wants_info else model

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        saved_model: bool = False,
        version: int = 1,
        push_to_hub: bool = False,
        signatures: Any = None,
        **options: Any,
    ) -> None:
        """Writes ``config.json`` and ``model.safetensors``, which transformers loads in PyTorch.

        ``saved_model=True`` also writes a SavedModel to ``saved_model/VERSION``, with the
        signatures ``serving_default`` and ``int64_serving``.
        """
        if push_to_hub or signatures is not None:
            raise ValueError(
                "save_pretrained does not support push_to_hub or signatures. Upload the directory "
                "with huggingface_hub; pass signatures to tf.saved_model.save."
            )
        directory = os.fspath(save_directory)
        _write(self, directory)
        if saved_model:
            archive, signature = self._serving_module(), self.input_signature
            int64_signature = {
                name: tf.TensorSpec(spec.shape, "int64", name=name)
                for name, spec in signature.items()
            }
            signatures = {
                "serving_default": archive.serving,
                "int64_serving": self._serving(int64_signature),
            }
            folder = os.path.join(directory, "saved_model", str(version))
            tf.saved_model.save(archive, folder, signatures=signatures)

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> Any:
        """Returns the objects that ``tf.saved_model.save`` writes."""
        if save_type == "savedmodel" and type(self).call is TransformersLayer.call:
            archive = self._serving_module()
            return {"serving": archive.serving, "served": archive}
        return super()._trackable_children(save_type, **options)

    def export(self, filepath: Any, *args: Any, input_signature: Any = None, **kwargs: Any) -> None:
        """Exports as Keras does, by default with ids, masks and types as inputs."""
        signature = input_signature or [self.input_signature]
        super().export(filepath, *args, input_signature=signature, **kwargs)

    def save_weights(self, filepath: str | os.PathLike[str], **options: Any) -> None:
        """Saves weights as Keras does, with any file name; ignores options of Keras 2's formats."""
        path = os.fspath(filepath)
        options = {key: value for key, value in options.items() if key == "overwrite"}
        if path.endswith(_WEIGHTS_SUFFIX):
            super().save_weights(path, **options)
            return
        folder = os.path.dirname(path) or "."
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            file = os.path.join(scratch, f"model{_WEIGHTS_SUFFIX}")
            super().save_weights(file)
            os.replace(file, path)

    def load_weights(self, filepath: str | os.PathLike[str], **options: Any) -> None:
        """Loads weights from ``save_weights``, this library, or transformers with Keras 2."""
        path = os.fspath(filepath)
        if not hugging_face.is_keras_3_file(path):
            checkpoint = open_checkpoint(path, settings=self.config.to_dict())
            _read_weights(self, checkpoint, ignore_mismatched_sizes=None)
        elif path.endswith(_WEIGHTS_SUFFIX):
            super().load_weights(path)
        else:
            with tempfile.TemporaryDirectory() as scratch:
                file = os.path.join(scratch, f"model{_WEIGHTS_SUFFIX}")
                shutil.copyfile(path, file)
                super().load_weights(file)

    def get_config(self) -> dict[str, Any]:
        """Returns the config and arguments for serialization."""
        values = {"config": self.config.to_dict(), "name": self.name}
        if self.head is HEADS["Model"] and self.base_model.native.pooler is None:
            values["add_pooling_layer"] = False
        frozen = [index for index, weight in enumerate(self.weights) if not weight.trainable]
        if frozen and self.native is not None:  # as Keras does for functional models
            values["frozen"] = frozen
        return values if self.trainable else {**values, "trainable": False}

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None, **options: Any) -> Any:
        """Creates a model from a config or the result of ``get_config``, with new weights."""
        if isinstance(config, PretrainedConfig):
            config.update(options)
            return cls(config)
        if "config" not in config:  # a config of Keras 2 contains only transformers' settings
            raise keras_2_error(cls)
        rest = {key: value for key, value in config.items() if key not in ("config", "frozen")}
        new_config: Any = cls.config_class if cls.config_class.model_type else AutoConfig.for_model
        model = cls(new_config(**config["config"]), **{"name": None, **rest})
        for index in config.get("frozen", ()):
            model.weights[index].trainable = False
        return model

    _from_config = from_config


def _read_weights(
    model: Any, checkpoint: Checkpoint, ignore_mismatched_sizes: bool | None
) -> dict[str, Any]:
    """Assigns a checkpoint's weights to a model; returns and logs the keys that do not match.

    ``ignore_mismatched_sizes`` is whether a head of a different size is randomly initialized, or
    ``None`` if the caller has no such option.
    """
    # In a custom class, a layer may contain the variables.
    natives = [getattr(layer, "native", None) for layer in (model, *model.layers)]
    native = next((native for native in natives if native is not None), None)
    if native is None:
        raise ValueError(f"{type(model).__name__}: expected a model with a TFBertMainLayer.")
    spec = get_spec(native)
    renamed = dataclasses.replace(_rename_head(checkpoint, spec), config=native.config)
    shapes, tensors = spec.head_shapes(native.config), renamed.tensors
    mismatched = [n for n, shape in shapes.items() if n in tensors and tensors[n].shape != shape]
    could_ignore = mismatched and ignore_mismatched_sizes is False
    tensors, report = select(
        renamed,
        spec,
        new_head=bool(mismatched and ignore_mismatched_sizes),
        head_option="ignore_mismatched_sizes=True" if could_ignore else "",
    )
    assign(native, tensors)
    # Notes on the tokenizer are omitted, because scripts load the tokenizer separately.
    for message in report.messages(checkpoint.path):
        _LOGGER.warning(message)
    return {
        "missing_keys": [*report.new],
        "unexpected_keys": [*report.unused],
        "mismatched_keys": mismatched,
        "error_msgs": [],
    }


def _rename_head(checkpoint: Checkpoint, spec: ModelSpec) -> Checkpoint:
    """Renames a checkpoint's classifier to the classifier's name in the model."""
    head = next(iter(spec.head_shapes(checkpoint.config)), "").split("/")[0]
    tensors = dict(checkpoint.tensors)
    if head in _CLASSIFIER_NAMES:
        for name in checkpoint.tensors:
            part, _, leaf = name.partition("/")
            if part in _CLASSIFIER_NAMES and part != head:
                tensors[f"{head}/{leaf}"] = tensors.pop(name)
    return dataclasses.replace(checkpoint, tensors=tensors)


def _write(model: TFPreTrainedModel, directory: str) -> None:
    """Writes ``config.json`` and ``model.safetensors`` into a directory."""
    if model.native is None:
        raise ValueError(
            f"{type(model).__name__}: custom classes have no config format. Use save_weights."
        )
    os.makedirs(directory, exist_ok=True)
    for native_name, name in LAYERS.items():  # a script may have replaced a layer
        native: Any = getattr(model.native, native_name, None)
        layer: Any = getattr(model, name, None)
        if native is None or layer is native:
            continue
        if [weight.shape for weight in layer.weights] != [
            weight.shape for weight in native.weights
        ]:
            raise ValueError(
                f"{model.name}: the weight shapes of layer {layer.name} do not match the model. "
                "Use save_weights."
            )
        native.set_weights(layer.get_weights())
    config = model.config
    checkpoint = to_checkpoint(model.native)
    if model.head.has_classes:
        multi_label = config.problem_type == SEVERAL_CLASSES
        checkpoint = dataclasses.replace(checkpoint, labels=config.labels, multi_label=multi_label)
    hugging_face.write(checkpoint, directory)
    file = os.path.join(directory, CONFIG)
    written = read_json_object(file)
    # The source may have a dtype of lower precision, to which transformers would round the weights.
    config.dtype = written["dtype"]
    values = {**config.to_dict(), "architectures": written["architectures"]}
    values.pop("torch_dtype", None)  # the former name of dtype
    write_json(file, values)


def _flatten_choices(inputs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Reshapes choices (B, K, S) to (B * K, S) and returns (B, K), or ``None`` for other inputs."""
    name = next((key for key in ("input_ids", "inputs_embeds") if key in inputs), None)
    if name is None or len(inputs[name].shape) != {"input_ids": 3, "inputs_embeds": 4}[name]:
        return inputs, None
    leading = ops.shape(inputs[name])[:2]
    rows = {}
    for key, value in inputs.items():
        if len(value.shape) >= 3:
            value = ops.reshape(value, (-1, *ops.shape(value)[2:]))
        rows[key] = value
    return rows, leading


def _resize_embeddings(model: BertModel, size: int) -> None:
    """Resizes the word embeddings and the bias of the masked-LM head to ``size`` rows.

    New embeddings are randomly initialized, and new biases are 0.
    """
    if size < 1:
        raise ValueError(f"new_num_tokens={size}: expected 1 or more.")
    encoder: Any = model.encoder
    embeddings, head = encoder.embeddings, model.masked_lm
    table = _replace_variable(embeddings, "word_embeddings", size, new_initializer(model.config))
    if head is not None:
        head.embedding_table = lambda: table
        _replace_variable(head, "output_bias", size, keras.initializers.Zeros())
    config = dataclasses.replace(model.config, vocab_size=size)
    for layer in (model, encoder, embeddings, *([] if head is None else [head])):
        layer.config = config
    clear_traced_steps(model)


def _replace_variable(layer: Any, name: str, size: int, initializer: Any) -> Any:
    """Replaces a built layer's variable with one of a different length, keeping the old rows."""
    old = getattr(layer, name)
    rows = ops.convert_to_numpy(old)[:size]
    new = keras_hooks.replace_variable(layer, name, (size, *old.shape[1:]), initializer)
    values = np.array(ops.convert_to_numpy(new))
    values[: len(rows)] = rows
    new.assign(values)
    return new


class TFBertPreTrainedModel(TFPreTrainedModel):
    """Base class of BERT models."""

    config_class = BertConfig
    base_model_prefix = "bert"


class TFDistilBertPreTrainedModel(TFPreTrainedModel):
    """Base class of DistilBERT models."""

    config_class = DistilBertConfig
    base_model_prefix = "distilbert"


def _model_class(family: type[TFPreTrainedModel], name: str, head: Head) -> Any:
    """Creates a model class with transformers' name from a family's base class and a head."""
    body = {
        "__doc__": f"``transformers.{name}``, based on ``bert_tf.{head.native.__name__}``.",
        "__module__": __name__,
        "head": head,
        "label_logits": head.label_logits,
    }
    return keras_serializable(type(name, (family,), body))


# Prefix and base of the classes by ``model_type``.
_FAMILIES: Mapping[str, tuple[str, type[TFPreTrainedModel]]] = {
    "bert": ("TFBert", TFBertPreTrainedModel),
    "distilbert": ("TFDistilBert", TFDistilBertPreTrainedModel),
}
#: The classes by name.
MODELS: Mapping[str, type[TFPreTrainedModel]] = {
    f"{prefix}{name}": _model_class(family, f"{prefix}{name}", head)
    for prefix, family in _FAMILIES.values()
    for name, head in HEADS.items()
    if f"{prefix}{name}" in NAMES
}
globals().update(MODELS)


# === Automatic classes ===


class _TFAutoModel:
    """Factory of models with one head, by model type."""

    head: ClassVar[str] = ""

    def __init__(self) -> None:
        raise OSError(f"Use {type(self).__name__}.from_pretrained(name) or .from_config(config).")

    @classmethod
    def _model_class_for(cls, config: PretrainedConfig) -> Any:
        is_pretrained = config.model_type == "distilbert" and cls.head == "ForPreTraining"
        prefix, _ = _FAMILIES[config.model_type]
        name = f"{prefix}{'ForMaskedLM' if is_pretrained else cls.head}"
        if name not in MODELS:
            raise ValueError(
                f"{cls.__name__} does not support {config.model_type}: there is no class {name}."
            )
        return MODELS[name]

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """Loads a model of the config's class, as ``TFPreTrainedModel.from_pretrained`` does."""
        path, config = pretrained_model_name_or_path, options.get("config")
        if not isinstance(config, PretrainedConfig):
            config = AutoConfig.from_pretrained(config or path, **location_options(options))
        return cls._model_class_for(config).from_pretrained(path, *inputs, **options)

    @classmethod
    def from_config(cls, config: PretrainedConfig, **options: Any) -> Any:
        """Creates a model from a config, with new weights."""
        return cls._model_class_for(config)(config, **options)


def _auto_class(name: str) -> Any:
    head = _HEADS.get(name, name.removeprefix("TFAutoModel"))
    doc = f"``transformers.{name}``: factory of ``TFBert{head}`` or a related class."
    return type(name, (_TFAutoModel,), {"head": head, "__doc__": doc, "__module__": __name__})


# Heads of the classes that are not named after their head.
_HEADS = {
    **dict.fromkeys(("TFAutoModel", "TFAutoModelForTextEncoding"), "Model"),
    **{"TFAutoModelWithLMHead": "ForMaskedLM", "TFAutoModelForCausalLM": "LMHeadModel"},
}
#: The factories by name.
AUTO_MODELS = {name: _auto_class(name) for name in NAMES if name.startswith("TFAuto")}
globals().update(AUTO_MODELS)
