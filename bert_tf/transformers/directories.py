"""A model's weights out of a checkpoint of any format, and into a directory of transformers'."""

import dataclasses
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.checkpoint_formats import CONFIG
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints.checkpoint import Checkpoint, ModelSpec
from bert_tf.checkpoints.hugging_face_config import SEVERAL_CLASSES, head_dropout
from bert_tf.checkpoints.load import open_checkpoint, select
from bert_tf.checkpoints.weights import assign, checkpoint_of, spec_of
from bert_tf.files import read_json_object, write_json
from bert_tf.modeling.base import BertModel

from .configuration import PretrainedConfig
from .heads import LAYERS, Head

_LOGGER = logging.getLogger("bert_tf")
_SUFFIX = ".weights.h5"
# These heads have one name in their files.
_CLASSIFIERS = ("classifier", "regressor", "token_classifier", "choice")


def arguments_of(head: Head, config: PretrainedConfig) -> dict[str, Any]:
    """Arguments of a native model besides its sizes."""
    arguments = dict(head.arguments)
    if head.has_classes:
        arguments["num_classes"] = config.num_labels
    if "pooler" in arguments and config.model_type == "distilbert":
        arguments["pooler"] = False  # it has one in front of a classifier alone
    if "dropout" in head.native.argument_checks:
        arguments["dropout"] = head_dropout(config.to_dict(), head.native)
    return arguments


def read_weights(model: Any, checkpoint: Checkpoint, ignores_sizes: bool | None) -> dict[str, Any]:
    """Assigns a checkpoint's weights to a model; returns and logs the keys that do not match.

    ``ignores_sizes``: a head of another size starts anew; ``None``: there is no option.
    """
    native, spec = _native(model)
    renamed = dataclasses.replace(_with_head(checkpoint, spec), config=native.config)
    own, tensors = spec.head_shapes(native.config), renamed.tensors
    mismatched = [name for name in own if name in tensors and tensors[name].shape != own[name]]
    could_ignore = mismatched and ignores_sizes is False
    tensors, report = select(
        renamed,
        spec,
        new_head=bool(mismatched and ignores_sizes),
        head_option="ignore_mismatched_sizes=True" if could_ignore else "",
    )
    assign(native, tensors)
    # Notes are on the tokenizer, which scripts load by itself.
    for sentence in report._replace(notes=()).sentences(checkpoint.path):
        _LOGGER.warning(sentence)
    return {
        "missing_keys": [*report.new],
        "unexpected_keys": [*report.unused],
        "mismatched_keys": mismatched,
        "error_msgs": [],
    }


def _native(model: Any) -> tuple[BertModel, ModelSpec]:
    """The model whose variables a model has, as a whole or, in a class of one's own, in part."""
    natives = [getattr(part, "native", None) for part in (model, *model.layers)]
    native = next((native for native in natives if native is not None), None)
    if native is None:
        raise ValueError(
            f"{type(model).__name__} holds no TFBertMainLayer that weights could go into."
        )
    return native, spec_of(native)


def _with_head(checkpoint: Checkpoint, spec: ModelSpec) -> Checkpoint:
    """The checkpoint with its classifier by the name of the model's own."""
    head = next(iter(spec.head_shapes(checkpoint.config)), "").split("/")[0]
    tensors = dict(checkpoint.tensors)
    if head in _CLASSIFIERS:
        for name in checkpoint.tensors:
            part, _, leaf = name.partition("/")
            if part in _CLASSIFIERS and part != head:
                tensors[f"{head}/{leaf}"] = tensors.pop(name)
    return dataclasses.replace(checkpoint, tensors=tensors)


def write(model: Any, directory: str, version: int | None = None) -> None:
    """Writes ``config.json`` and ``model.safetensors``; what else is there stays.

    ``version``: that of a SavedModel beside them; ``None``: there is none.
    """
    if model.native is None:
        raise ValueError(
            f"{type(model).__name__} is no model of transformers' that has a format: use "
            "save_weights, or save the model that it holds."
        )
    os.makedirs(directory, exist_ok=True)
    for there, here in LAYERS.items():
        _take_over(model, getattr(model.native, there, None), getattr(model, here, None))
    config = model.config
    checkpoint = checkpoint_of(model.native)
    if model.head.has_classes:
        several = config.problem_type == SEVERAL_CLASSES
        checkpoint = dataclasses.replace(checkpoint, labels=config.labels, multi_label=several)
    hugging_face.write(checkpoint, directory)
    file = os.path.join(directory, CONFIG)
    written = read_json_object(file)
    # The source's numbers may have been rounded, which these are not: theirs would round them.
    config.dtype = written["dtype"]
    values = {**config.to_dict(), "architectures": written["architectures"]}
    values.pop("torch_dtype", None)  # the older name of it
    write_json(file, values)
    if version is not None:
        write_saved_model(model, os.path.join(directory, "saved_model", str(version)))


def _take_over(model: Any, native: Any, layer: Any) -> None:
    """Copies the weights of a layer that a script assigned into the native model's layer."""
    if native is None or layer is native:
        return
    if [weight.shape for weight in layer.weights] != [weight.shape for weight in native.weights]:
        raise ValueError(
            f"{model.name} has another {layer.name} than its class, of other sizes, for which "
            "config.json has no place: use save_weights."
        )
    native.set_weights(layer.get_weights())


def input_specs(model: Any, dtype: str = "int32") -> dict[str, tf.TensorSpec]:
    """Specs of ids, masks and types by their names: (B, S), of choices (B, K, S)."""
    shape = [None] * (3 if "MultipleChoice" in type(model).__name__ else 2)
    names = ["input_ids", "attention_mask"]
    if getattr(model.config, "type_vocab_size", 0):
        names.append("token_type_ids")
    return {name: tf.TensorSpec(shape, dtype, name=name) for name in names}


def serving(model: Any, dtype: str = "int32") -> Any:
    """A ``tf.function`` of ids, masks and types that gives the outputs by their names."""

    def answer(inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(model(inputs, output_attentions=False, output_hidden_states=False).items())

    return tf.function(answer, input_signature=[input_specs(model, dtype)], autograph=False)


def served(model: Any) -> tf.Module:
    """Objects of a SavedModel, with TensorFlow's variables: TF Lite does not read Keras'."""
    archive = tf.Module()
    archive.variables_of_model = [variable.value for variable in model.variables]
    archive.serving = serving(model)
    return archive


def write_saved_model(model: Any, directory: str) -> None:
    """A SavedModel with their two signatures, of ids that are int32 and of ids that are int64."""
    archive = served(model)
    signatures = {"serving_default": archive.serving, "int64_serving": serving(model, "int64")}
    tf.saved_model.save(archive, directory, signatures=signatures)


# === Files of any name, as Keras 2 had them: Keras 3 takes only those that end in .weights.h5 ===


def save_weights(keras_save: Callable[..., None], path: str, options: dict[str, Any]) -> None:
    """Writes the file of that name; ``options`` of Keras 2's formats mean nothing."""
    options = {key: value for key, value in options.items() if key == "overwrite"}
    if path.endswith(_SUFFIX):
        keras_save(path, **options)
        return
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = os.path.join(scratch, f"model{_SUFFIX}")
        keras_save(file)
        os.replace(file, path)


def load_weights(
    model: Any, keras_load: Callable[..., Any], path: str, options: dict[str, Any]
) -> None:
    """Reads the file of that name: what ``save`` wrote, or weights of their classes in Keras 2."""
    if not hugging_face.is_keras_3(path):
        checkpoint = open_checkpoint(path, settings=model.config.to_dict())
        read_weights(model, checkpoint, ignores_sizes=None)
    elif path.endswith(_SUFFIX):
        keras_load(path)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            file = os.path.join(scratch, f"model{_SUFFIX}")
            shutil.copyfile(path, file)
            keras_load(file)
