"""The classes of models: this library's layers, called and named as transformers' were.

Each is ``TFPreTrainedModel`` with a row of ``heads.HEADS``; a class of one's own that inherits from
one of them, or that holds a ``TFBertMainLayer``, is loaded as they are.
"""

import dataclasses
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from types import MappingProxyType
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
from bert_tf.io.wording import warn
from bert_tf.modeling import keras_hooks
from bert_tf.modeling.base import BertModel
from bert_tf.modeling.layers import new_initializer
from bert_tf.pipelines.replicas import clear_traced_steps

from . import NAMES, missing_attribute_error
from .collators import as_dataset
from .configuration import (
    LOCATION_OPTIONS,
    AutoConfig,
    BertConfig,
    DistilBertConfig,
    PretrainedConfig,
    resolve_path,
)
from .fitting import LabelledModel
from .heads import HEADS, LAYERS, Head, compute_logits, sum_losses
from .main_layer import TFBertMainLayer, TFDistilBertMainLayer, TransformersLayer, keras_2_error
from .outputs import OUTPUTS, ModelOutput

_LOGGER = logging.getLogger("bert_tf")
#: By ``model_type``, which is its name in a model: the main layer's class.
_MAIN_LAYERS: Mapping[str, type[TFBertMainLayer]] = {
    "bert": TFBertMainLayer,
    "distilbert": TFDistilBertMainLayer,
}
_WEIGHTS_SUFFIX = ".weights.h5"  # the end of the only names that Keras 3 takes
# These heads have one name in transformers' files.
_CLASSIFIER_NAMES = ("classifier", "regressor", "token_classifier", "choice")


class TFPreTrainedModel(TransformersLayer, LabelledModel):
    """A Keras model with a config, read and written as directories of weights.

    ``native`` is this library's model of the same variables, which ``bert_tf.save``,
    ``bert_tf.Predictor`` and ``bert_tf.saved_models`` take; ``None`` in a class of one's own that
    is no row of the table. Of the arguments ``name`` and ``trainable`` count, as in transformers.
    """

    config_class: ClassVar[type[PretrainedConfig]] = PretrainedConfig
    base_model_prefix: ClassVar[str] = ""
    head: ClassVar[Any] = None
    label_logits: Mapping[str, str] = MappingProxyType({"labels": "logits"})

    def __init__(self, config: PretrainedConfig, *inputs: Any, **kwargs: Any) -> None:
        if not isinstance(config, PretrainedConfig):
            raise TypeError(
                f"{type(self).__name__} was given {type(config).__name__}: expected a config of "
                f"bert_tf.transformers; for weights, {type(self).__name__}.from_pretrained(...)."
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
                f"is_decoder is true, and the pooler of {type(self).__name__} reads the last token "
                "here, in transformers the first: leave it out, or give add_pooling_layer=False."
            )
        if config.tie_word_embeddings is False and native.masked_lm is not None:
            warn(["tie_word_embeddings is false: here the masked-LM head shares the embeddings."])
        self.set_native(native)
        name = config.model_type
        setattr(self, name, _MAIN_LAYERS[name](config, encoder=native.encoder, name=name))
        if config.model_type == "distilbert" and native.encoder.pooler is not None:
            self.pre_classifier = native.encoder.pooler.dense
        for native_name, name in LAYERS.items():
            if (layer := getattr(native, native_name, None)) is not None:
                setattr(self, name, layer)
        self.trainable = kwargs.get("trainable", True)  # also of the layers set above
        self.built = True  # the layers are built, and weights can be read before a call

    def run(self, inputs: dict[str, Any], training: bool | None, **switches: bool) -> ModelOutput:
        """A dict of tensors -> the outputs of its row in the table."""
        head = self.head
        tensors, leading = _flatten_choices(inputs)
        states = self.base_model(tensors, training=training, return_dict=True, **switches)
        kind, pairs = OUTPUTS[head.output], head.label_logits
        outputs = {name: states.get(name) for name in kind.names}
        outputs |= zip(pairs.values(), compute_logits(self, states, training), strict=True)
        if leading is not None:  # (B * K, 1) -> (B, K)
            outputs["logits"] = ops.reshape(outputs["logits"], leading)
        if head.loss is not None and all(label in inputs for label in pairs):
            labels: Any = {label: inputs[label] for label in pairs}
            logits: Any = [outputs[name] for name in pairs.values()]
            if len(pairs) == 1:  # as in transformers, whose method a script may override
                (labels,), (logits,) = labels.values(), logits
            outputs["loss"] = self.hf_compute_loss(labels, logits)
        return kind(**outputs)

    def hf_compute_loss(self, labels: Any, logits: Any) -> Any:
        """The loss that the model computes itself; of several outputs a dict and their logits."""
        if self.head is None:  # of a class of one's own another base may have it
            return super().hf_compute_loss(labels, logits)
        return sum_losses(self.head.get_loss(self.config), labels, logits)

    # === Parts ===

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute_error(self, name)

    @property
    def base_model(self) -> Any:
        """The main layer."""
        return getattr(self, self.base_model_prefix, self)

    @property
    def name_or_path(self) -> str:
        """The name of ``from_pretrained``."""
        return str(self.config.name_or_path)

    @property
    def input_signature(self) -> dict[str, Any]:
        """Specs of ids, masks and types by name: (B, S), of choices (B, K, S)."""
        shape = [None] * (3 if "MultipleChoice" in type(self).__name__ else 2)
        names = ["input_ids", "attention_mask"]
        if getattr(self.config, "type_vocab_size", 0):
            names.append("token_type_ids")
        return {name: tf.TensorSpec(shape, "int32", name=name) for name in names}

    @property
    def serving(self) -> Any:
        """A ``tf.function`` of the inputs that gives the outputs by their names."""
        return self._serving(self.input_signature)

    def _serving(self, signature: dict[str, Any]) -> Any:
        def answer(inputs: dict[str, Any]) -> dict[str, Any]:
            return dict(self(inputs, output_attentions=False, output_hidden_states=False).items())

        return tf.function(answer, input_signature=[signature], autograph=False)

    def _serving_module(self) -> tf.Module:
        """Objects of a SavedModel, with TensorFlow's variables: TF Lite does not read Keras'."""
        archive = tf.Module()
        archive.variables_of_model = [variable.value for variable in self.variables]
        archive.serving = self.serving
        return archive

    @property
    def dummy_inputs(self) -> dict[str, Any]:
        """A batch that every model takes."""
        return {"input_ids": ops.convert_to_tensor([[1, 2, 3], [3, 2, 1]])}

    def get_lm_head(self) -> Any:
        """The masked-LM head, or ``None``."""
        return getattr(self, "mlm", None)

    def get_output_embeddings(self) -> Any:
        """The layer with the word embeddings, where a head reads them."""
        return None if self.get_lm_head() is None else self.get_input_embeddings()

    def get_bias(self) -> dict[str, Any] | None:
        """The bias of the masked-LM head, where there is one."""
        head = self.get_lm_head()
        return None if head is None else {"bias": head.output_bias}

    def num_parameters(self, only_trainable: bool = False) -> int:
        """Number of parameters."""
        weights = self.trainable_weights if only_trainable else self.weights
        return sum(int(ops.size(weight)) for weight in weights)

    def get_input_embeddings(self) -> Any:
        """The layer with the word embeddings."""
        return self.base_model.embeddings

    def set_input_embeddings(self, value: Any) -> None:
        """Puts a table (V, H), or that of a layer with a ``weight``, in its place."""
        table = getattr(value, "weight", value)
        if table.shape[0] != self.get_input_embeddings().weight.shape[0]:
            self.resize_token_embeddings(table.shape[0])
        self.get_input_embeddings().weight.assign(table)

    def resize_token_embeddings(self, new_num_tokens: int | None = None) -> Any:
        """Gives the vocabulary another size: rows are kept, and new ones start anew."""
        if new_num_tokens is not None and self.native is not None:
            _resize_embeddings(self.native, new_num_tokens)
            self.config.vocab_size = new_num_tokens
            # Traced functions hold the old table.
            self.train_function = self.test_function = self.predict_function = None
        return self.get_input_embeddings()

    def prepare_tf_dataset(self, dataset: Any, *arguments: Any, **options: Any) -> Any:
        """A ``datasets.Dataset`` as batches; ``collators.as_dataset`` has the options."""
        return as_dataset(dataset, [*self.label_logits], *arguments, **options)

    # === In and out ===

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The model with the weights of a directory, a file, or a model of the hub.

        Options are ``config``; ``ignore_mismatched_sizes``, whether a head of another size starts
        anew; ``revision``; ``subfolder``; settings of the config (``num_labels=3``); and the
        constructor's; ``output_loading_info`` adds the keys that do not match. Options on fetching
        and on the weights' format are ignored: the format is recognised. Errors are those of
        ``bert_tf.load``, or a ``TypeError``.
        """
        warn(
            f"{name} is {options[name]}: weights are computed with in Keras' policy, "
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
        if config is not None and os.path.isfile(path):  # which has no config.json beside it
            checkpoint = open_checkpoint(path, settings=config.to_dict())
        else:
            checkpoint = open_checkpoint(path)
        if config is None:
            config = cls.config_class.from_checkpoint(checkpoint)
        others = config.update(values)
        # A script's class may have a constructor, whose options are its own.
        has_default_options = cls.__init__ is TFPreTrainedModel.__init__
        if has_default_options and others.keys() - {"name", "trainable", "add_pooling_layer"}:
            raise TypeError(
                f"{cls.__name__}.from_pretrained has no option {', '.join(others)}: expected "
                "config, ignore_mismatched_sizes, revision, or a setting of the config."
            )
        config.name_or_path = os.fspath(pretrained_model_name_or_path)
        model = cls(config, *inputs, **others)
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

        With ``saved_model=True`` a SavedModel with transformers' signatures, ``serving_default``
        and ``int64_serving``, is beside them, in ``saved_model/1`` or that of another ``version``.
        """
        if push_to_hub or signatures is not None:
            raise ValueError(
                "save_pretrained has no push_to_hub and no signatures: upload the directory with "
                "huggingface_hub; give signatures to tf.saved_model.save."
            )
        directory = os.fspath(save_directory)
        _write(self, directory)
        if saved_model:
            archive, signature = self._serving_module(), self.input_signature
            of_int64 = {
                name: tf.TensorSpec(spec.shape, "int64", name=name)
                for name, spec in signature.items()
            }
            signatures = {
                "serving_default": archive.serving,
                "int64_serving": self._serving(of_int64),
            }
            folder = os.path.join(directory, "saved_model", str(version))
            tf.saved_model.save(archive, folder, signatures=signatures)

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> Any:
        """TensorFlow's hook: what ``tf.saved_model.save`` writes, and the function it serves."""
        if save_type == "savedmodel" and type(self).call is TransformersLayer.call:
            archive = self._serving_module()
            return {"serving": archive.serving, "served": archive}
        return super()._trackable_children(save_type, **options)

    def export(self, filepath: Any, *how: Any, input_signature: Any = None, **options: Any) -> None:
        """Keras' own, by default of ids, masks and types."""
        signature = input_signature or [self.input_signature]
        super().export(filepath, *how, input_signature=signature, **options)

    def save_weights(self, filepath: str | os.PathLike[str], **options: Any) -> None:
        """Keras' own, into a file of any name; options of Keras 2's formats mean nothing."""
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
        """Loads a file of ``save_weights``, of this library, or transformers' in Keras 2."""
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
        """The settings, ready for JSON."""
        values = {"config": self.config.to_dict(), "name": self.name}
        if self.head is HEADS["Model"] and self.base_model.native.pooler is None:
            values["add_pooling_layer"] = False
        frozen = [at for at, weight in enumerate(self.weights) if not weight.trainable]
        if frozen and self.native is not None:  # of a functional model Keras itself says it
            values["frozen"] = frozen
        return values if self.trainable else {**values, "trainable": False}

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None, **options: Any) -> Any:
        """The model of a config, or of what ``get_config`` gave, with new weights."""
        if isinstance(config, PretrainedConfig):
            config.update(options)
            return cls(config)
        if "config" not in config:  # a config of Keras 2: transformers' settings alone
            raise keras_2_error(cls)
        others = {key: value for key, value in config.items() if key not in ("config", "frozen")}
        kind: Any = cls.config_class if cls.config_class.model_type else AutoConfig.for_model
        model = cls(kind(**config["config"]), **{"name": None, **others})
        for at in config.get("frozen", ()):
            model.weights[at].trainable = False
        return model

    _from_config = from_config


def _read_weights(
    model: Any, checkpoint: Checkpoint, ignore_mismatched_sizes: bool | None
) -> dict[str, Any]:
    """Assigns a checkpoint's weights to a model; returns and logs the keys that do not match.

    ``ignore_mismatched_sizes``: a head of another size starts anew; ``None``: there is no option.
    """
    # A class of one's own may have the variables in part.
    natives = [getattr(part, "native", None) for part in (model, *model.layers)]
    native = next((native for native in natives if native is not None), None)
    if native is None:
        raise ValueError(
            f"{type(model).__name__} holds no TFBertMainLayer that weights could go into."
        )
    spec = get_spec(native)
    renamed = dataclasses.replace(_rename_head(checkpoint, spec), config=native.config)
    own, tensors = spec.head_shapes(native.config), renamed.tensors
    mismatched = [name for name in own if name in tensors and tensors[name].shape != own[name]]
    could_ignore = mismatched and ignore_mismatched_sizes is False
    tensors, report = select(
        renamed,
        spec,
        new_head=bool(mismatched and ignore_mismatched_sizes),
        head_option="ignore_mismatched_sizes=True" if could_ignore else "",
    )
    assign(native, tensors)
    # Notes are on the tokenizer, which scripts load by itself.
    for message in report.messages(checkpoint.path):
        _LOGGER.warning(message)
    return {
        "missing_keys": [*report.new],
        "unexpected_keys": [*report.unused],
        "mismatched_keys": mismatched,
        "error_msgs": [],
    }


def _rename_head(checkpoint: Checkpoint, spec: ModelSpec) -> Checkpoint:
    """The checkpoint with its classifier by the name of the model's own."""
    head = next(iter(spec.head_shapes(checkpoint.config)), "").split("/")[0]
    tensors = dict(checkpoint.tensors)
    if head in _CLASSIFIER_NAMES:
        for name in checkpoint.tensors:
            part, _, leaf = name.partition("/")
            if part in _CLASSIFIER_NAMES and part != head:
                tensors[f"{head}/{leaf}"] = tensors.pop(name)
    return dataclasses.replace(checkpoint, tensors=tensors)


def _write(model: TFPreTrainedModel, directory: str) -> None:
    """Writes ``config.json`` and ``model.safetensors``; what else is there stays."""
    if model.native is None:
        raise ValueError(
            f"{type(model).__name__} is no model of transformers' that has a format: use "
            "save_weights, or save the model that it holds."
        )
    os.makedirs(directory, exist_ok=True)
    for native_name, name in LAYERS.items():
        _copy_layer(model, getattr(model.native, native_name, None), getattr(model, name, None))
    config = model.config
    checkpoint = to_checkpoint(model.native)
    if model.head.has_classes:
        several = config.problem_type == SEVERAL_CLASSES
        checkpoint = dataclasses.replace(checkpoint, labels=config.labels, multi_label=several)
    hugging_face.write(checkpoint, directory)
    file = os.path.join(directory, CONFIG)
    written = read_json_object(file)
    # The source's numbers may have been rounded: its dtype would have transformers round these.
    config.dtype = written["dtype"]
    values = {**config.to_dict(), "architectures": written["architectures"]}
    values.pop("torch_dtype", None)  # the older name of it
    write_json(file, values)


def _copy_layer(model: Any, native: Any, layer: Any) -> None:
    """Copies weights into a native model's layer, from a layer that a script put in its place."""
    if native is None or layer is native:
        return
    if [weight.shape for weight in layer.weights] != [weight.shape for weight in native.weights]:
        raise ValueError(
            f"{model.name} has another {layer.name} than its class, of other sizes, for which "
            "config.json has no place: use save_weights."
        )
    native.set_weights(layer.get_weights())


def _flatten_choices(inputs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Choices (B, K, S) as rows (B * K, S), and (B, K); other inputs as they are, and ``None``."""
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
    """Gives a model's word embeddings, and the bias of its masked-LM head, ``size`` rows.

    Rows are kept as far as there is room, and new ones start as BERT's do, the bias at 0.
    """
    if size < 1:
        raise ValueError(f"The vocabulary is to have {size} pieces: expected 1 or more.")
    encoder: Any = model.encoder
    embeddings, head = encoder.embeddings, model.masked_lm
    table = _replace_variable(embeddings, "word_embeddings", size, new_initializer(model.config))
    if head is not None:
        head.embedding_table = lambda: table
        _replace_variable(head, "output_bias", size, keras.initializers.Zeros())
    config = dataclasses.replace(model.config, vocab_size=size)
    for part in (model, encoder, embeddings, *([] if head is None else [head])):
        part.config = config
    clear_traced_steps(model)


def _replace_variable(layer: Any, name: str, size: int, initializer: Any) -> Any:
    """A variable of another length in place of one of a built layer's, with the old rows."""
    old = getattr(layer, name)
    rows = ops.convert_to_numpy(old)[:size]
    new = keras_hooks.replace_variable(layer, name, (size, *old.shape[1:]), initializer)
    values = np.array(ops.convert_to_numpy(new))
    values[: len(rows)] = rows
    new.assign(values)
    return new


class TFBertPreTrainedModel(TFPreTrainedModel):
    """Base of the models of a BERT."""

    config_class = BertConfig
    base_model_prefix = "bert"


class TFDistilBertPreTrainedModel(TFPreTrainedModel):
    """Base of the models of a DistilBERT."""

    config_class = DistilBertConfig
    base_model_prefix = "distilbert"


def _model_class(family: type[TFPreTrainedModel], name: str, head: Head) -> Any:
    """The class of a family's models with a head, under transformers' name of it."""
    native = head.native.__name__
    body = {
        "__doc__": f"``transformers.{name}``: a ``bert_tf.{native}``, called as there.",
        "__module__": __name__,
        "head": head,
        "label_logits": head.label_logits,
    }
    model_class = type(name, (family,), body)
    return keras.saving.register_keras_serializable(package="bert_tf.transformers")(model_class)


# By ``model_type``: what the classes' names begin with, and their base.
_FAMILIES: Mapping[str, tuple[str, type[TFPreTrainedModel]]] = {
    "bert": ("TFBert", TFBertPreTrainedModel),
    "distilbert": ("TFDistilBert", TFDistilBertPreTrainedModel),
}
#: The classes by their names.
MODELS: Mapping[str, type[TFPreTrainedModel]] = {
    f"{prefix}{name}": _model_class(family, f"{prefix}{name}", head)
    for prefix, family in _FAMILIES.values()
    for name, head in HEADS.items()
    if f"{prefix}{name}" in NAMES
}
globals().update(MODELS)


# === By a directory ===


class _TFAutoModel:
    """The classes of one head, one for each kind of model."""

    head: ClassVar[str] = ""

    def __init__(self) -> None:
        raise OSError(
            f"{type(self).__name__} is made by from_pretrained(name) or from_config(config)."
        )

    @classmethod
    def _model_class_for(cls, config: PretrainedConfig) -> Any:
        is_pretrained = config.model_type == "distilbert" and cls.head == "ForPreTraining"
        prefix, _ = _FAMILIES[config.model_type]
        name = f"{prefix}{'ForMaskedLM' if is_pretrained else cls.head}"
        if name not in MODELS:
            raise ValueError(f"{cls.__name__}: a {config.model_type} has no {name}.")
        return MODELS[name]

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The model of a directory or of the hub; see ``TFPreTrainedModel.from_pretrained``."""
        path, config = pretrained_model_name_or_path, options.get("config")
        if not isinstance(config, PretrainedConfig):
            place = {key: options[key] for key in LOCATION_OPTIONS if key in options}
            config = AutoConfig.from_pretrained(config or path, **place)
        return cls._model_class_for(config).from_pretrained(path, *inputs, **options)

    @classmethod
    def from_config(cls, config: PretrainedConfig, **options: Any) -> Any:
        """The model of a config, with new weights."""
        return cls._model_class_for(config)(config, **options)


def _auto_class(name: str) -> Any:
    head = _HEADS.get(name, name.removeprefix("TFAutoModel"))
    doc = f"``transformers.{name}``: a ``TFBert{head}`` or its like."
    return type(name, (_TFAutoModel,), {"head": head, "__doc__": doc, "__module__": __name__})


# Of the classes that are not named after their head.
_HEADS = {
    **dict.fromkeys(("TFAutoModel", "TFAutoModelForTextEncoding"), "Model"),
    **{"TFAutoModelWithLMHead": "ForMaskedLM", "TFAutoModelForCausalLM": "LMHeadModel"},
}
#: The classes that find out from a directory which model it is of, by their names.
AUTO_MODELS = {name: _auto_class(name) for name in NAMES if name.startswith("TFAuto")}
globals().update(AUTO_MODELS)
