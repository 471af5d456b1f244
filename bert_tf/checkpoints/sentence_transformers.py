"""sentence-transformers directories: a Hugging Face model with pooling, prompts and other modules.

``modules.json`` lists the modules: the transformer, in the directory itself or a subdirectory such
as ``0_Transformer``, then ``1_Pooling`` and optionally ``2_Dense`` and ``3_Normalize``. Source:
sentence-transformers 2 to 6, ``base/model.py`` and ``modules/``. In version 6 the pooling mode is a
string, and the maximum length is in the tokenizer's settings.
"""

import dataclasses
import itertools
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.choices import DENSE_ACTIVATIONS, POOLINGS
from bert_tf.io.checkpoint_formats import CONFIG
from bert_tf.io.files import read_json, read_json_object, write_json
from bert_tf.io.messages import listed, quote
from bert_tf.io.paths import hint
from bert_tf.modeling import BertEncoder

from . import config_keys, hugging_face
from .checkpoint import Checkpoint, check_model, check_sentence_embedding
from .config_keys import IS_OBJECT, IS_POSITIVE, IS_SWITCH, POOLING_MODES, check_value
from .tensor_files import is_plain_name, write_safetensors
from .tokenizer_files import LENGTH
from .weights import Names, is_in_encoder

MODULES = "modules.json"
# File names of the transformer's settings, in the order in which sentence-transformers tries them.
_TRANSFORMER = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_SENTENCES = "config_sentence_transformers.json"
FILES = (MODULES, *_TRANSFORMER, _SENTENCES)
# Task and output of the transformer by model type.
_SENTENCE_TRANSFORMER = "SentenceTransformer"
_OUTPUTS = {
    _SENTENCE_TRANSFORMER: ("feature-extraction", "last_hidden_state"),
    "CrossEncoder": ("sequence-classification", "logits"),
}
_TOKENIZERS = ("processor_kwargs", "tokenizer_args")
_MODULE_PACKAGE = "sentence_transformers.models"
_MODULE_TYPES = ("Transformer", "Pooling", "Dense", "Normalize")
_DENSE, _NORMALIZE = _MODULE_TYPES[2:]
# Prompt names of each role; the first existing prompt becomes the role's prefix.
_PREFIXES = ("query_prefix", "document_prefix")
_ROLES = (("query",), ("document", "passage", "corpus"))
_ACTIVATIONS = {
    "linear": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
}
_LINEAR = Names(
    {"sentence_dense": "linear"}, {"kernel": ".weight", "bias": ".bias"}, transposed=True
)
_LAYER = ("sentence_dense/kernel", "sentence_dense/bias")
_POOLING_ALIASES = {"lasttoken": "last"}  # in version 6


# === Reading ===


def read_checkpoint(path: str, allow_pickle: bool = False) -> Checkpoint:
    """Opens the transformer and reads the settings of the subsequent modules.

    If these modules are not supported, the checkpoint contains only the transformer, and
    ``unsupported_modules`` describes the problem.
    """
    modules, notes = _read_modules(os.path.join(path, MODULES))
    folder = modules[0][1]
    model_path = os.path.join(path, folder) if folder else path
    if not hugging_face.is_directory(model_path):
        raise ValueError(
            f"{path}: expected {CONFIG} and {hugging_face.WEIGHTS} of a {quote(modules[0][0])} in "
            f"{quote(folder or '.')} ({MODULES}){hint(path, modules[0][:1])}."
        )
    names = (os.path.join(model_path, name) for name in _TRANSFORMER)
    source = next(filter(tf.io.gfile.exists, names), "")
    settings_source = os.path.join(path, _SENTENCES)
    values, settings = config_keys.read(source), config_keys.read(settings_source)
    notes += (
        *config_keys.messages(_TRANSFORMER[0], values, source),
        *config_keys.messages(_SENTENCES, settings, settings_source),
    )
    # Settings that override the transformer's config.
    overrides = dict(_get_object(values, "config_kwargs", "config_args"))
    if len(modules) == 1 and (activation := settings.get("activation_fn")) is not None:
        overrides["sentence_transformers"] = {"activation_fn": activation}
    checkpoint = hugging_face.read_checkpoint(model_path, allow_pickle, overrides)
    length = _read_length(values, source or model_path, checkpoint)
    transformer = dataclasses.replace(
        checkpoint,
        path=path,
        format="sentence_transformers",
        max_seq_length=length,
        notes=(*notes, *checkpoint.notes),
    )
    try:
        _check_task(values, settings, checkpoint, is_more=len(modules) > 1)
        if len(modules) == 1:
            return _with_prompt_notes(transformer, settings, settings_source)
        pooling = _read_pooling(path, modules)
        encoder = _without_head(transformer, model_path)
        if dense := [folder for kind, folder in modules if kind == _DENSE]:
            encoder = _with_dense(encoder, os.path.join(path, dense[0]), allow_pickle)
        normalize = modules[-1][0] == _NORMALIZE
        if normalize:
            _check_inputs_and_outputs(os.path.join(path, modules[-1][1], CONFIG))
    except _UnsupportedError as reason:
        return dataclasses.replace(
            transformer, unsupported_modules=f"{path} is not supported: it {reason}"
        )
    prompts, prompt_notes = _read_prompts(settings, settings_source, normalize)
    embedding = check_sentence_embedding(
        {
            **{"pooling": pooling, "normalize": normalize, **prompts},
            "rescale": prompts["dims"] is None,
            "max_seq_length": length or checkpoint.config.max_position_embeddings,
        },
        model_path,
    )
    notes = (*encoder.notes, *prompt_notes)
    return dataclasses.replace(encoder, sentence_embedding=embedding, notes=notes)


class _UnsupportedError(Exception):
    """Error for a module that is not supported."""


def _get_object(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Returns the object of the first existing key, or ``{}``."""
    found: Any = next((values[name] for name in names if values.get(name) is not None), {})
    value: Mapping[str, Any] = check_value(found, IS_OBJECT, names[0])
    return value


def _check_task(
    values: Mapping[str, Any], settings: Mapping[str, Any], checkpoint: Checkpoint, is_more: bool
) -> None:
    """Checks the model type, the transformer's output and the text settings.

    ``is_more`` specifies whether other modules follow the transformer.
    """
    kind = settings.get("model_type") or _SENTENCE_TRANSFORMER
    if not isinstance(kind, str) or kind not in ([_SENTENCE_TRANSFORMER] if is_more else _OUTPUTS):
        raise _UnsupportedError(f"is a {quote(kind)} with modules that are not supported")
    form = _get_object(_get_object(values, "modality_config"), "text")
    default_task, default_output = _OUTPUTS[kind]
    task = values.get("transformer_task", default_task)
    output = form.get("method_output_name", default_output)
    if task not in (None, default_task) or output not in (None, default_output):
        raise _UnsupportedError(f"is a {kind} with the output {quote(output)} of {quote(task)}")
    tokenization = checkpoint.tokenization
    if values.get("do_lower_case") and tokenization and not tokenization.do_lower_case:
        raise _UnsupportedError("lowercases text for a cased tokenizer (do_lower_case)")
    processing = _get_object(values, "processing_kwargs")
    for key in ("common", "text"):
        if _get_object(processing, key).get("add_special_tokens") is False:
            raise _UnsupportedError("omits [CLS] and [SEP] (add_special_tokens)")


def _with_prompt_notes(
    checkpoint: Checkpoint, settings: Mapping[str, Any], source: str
) -> Checkpoint:
    """Adds a warning if a cross-encoder has prompts."""
    if not (settings.get("default_prompt_name") or any(_get_object(settings, "prompts").values())):
        return checkpoint
    note = f"{source}: prompts are not applied. Prepend them to your texts."
    return dataclasses.replace(checkpoint, notes=(*checkpoint.notes, note))


def _read_modules(source: str) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Reads the class and directory of each module in order, and returns warnings."""
    is_list = (lambda value: isinstance(value, list) and bool(value), "a list of modules")
    values = check_value(read_json(source), is_list, source)
    modules: list[tuple[str, str]] = []
    notes: tuple[str, ...] = ()
    for value in values:
        fields = value if isinstance(value, Mapping) else {}
        kind, folder = fields.get("type"), fields.get("path", "")
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise ValueError(f"{source}: expected modules with type and path, got {quote(value)}.")
        if folder and not is_plain_name(folder):
            raise ValueError(
                f"{source}: path={quote(folder)}: expected the name of a subdirectory."
            )
        modules.append((kind.rsplit(".", 1)[-1], folder))
        notes += (*config_keys.messages(MODULES, value, source),)
    return modules, notes


def _read_pooling(path: str, modules: list[tuple[str, str]]) -> str:
    """Reads the pooling mode."""
    kinds = [kind for kind, _ in modules]
    if kinds != [kind for kind in _MODULE_TYPES if kind in (*_MODULE_TYPES[:2], *kinds)]:
        other = [kind for kind in kinds if kind not in _MODULE_TYPES]
        unsupported = f" ({listed(other)} not supported)" if other else ""
        raise _UnsupportedError(
            f"has the modules {listed(kinds)}{unsupported}; expected "
            f"{', '.join(_MODULE_TYPES[:2])}, and optionally {_DENSE} and {_NORMALIZE}"
        )
    source = os.path.join(path, modules[1][1], CONFIG)
    values = _read_module(source)
    if values.get("include_prompt") is False:
        raise _UnsupportedError("excludes prompts from pooling (include_prompt)")
    modes = values.get("pooling_mode")
    if modes is None:
        flags = {key: value for key, value in values.items() if key.startswith("pooling_mode_")}
        for key, value in flags.items():
            check_value(value, IS_SWITCH, f"{source}: {key}")
        modes = [POOLING_MODES.get(key, key) for key, is_on in flags.items() if is_on]
        modes = modes if flags else ["mean"]  # The default of sentence-transformers.
    modes = [_POOLING_ALIASES.get(modes, modes)] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS[1:]:
        raise _UnsupportedError(
            f"has the pooling {quote(modes)}; expected one of {', '.join(POOLINGS[1:])}"
        )
    return str(modes[0])


def _read_module(source: str) -> dict[str, Any]:
    """Reads the settings of a module after the transformer; unknown keys are not supported."""
    values = read_json_object(source)
    if key_notes := [*config_keys.messages("N_*/config.json", values, source)]:
        raise _UnsupportedError(
            f"has a module with unsupported settings ({' '.join(key_notes)[:-1]})"
        )
    return values


def _check_inputs_and_outputs(source: str) -> None:
    """Checks that a module's input and output are the sentence embeddings."""
    values, name = _read_module(source) if tf.io.gfile.exists(source) else {}, "sentence_embedding"
    names = values.get("module_input_name") or name, values.get("module_output_name") or name
    if names != (name, name):
        raise _UnsupportedError(
            f"has a module with the input and output {listed(names)}; expected {name}"
        )


def _with_dense(checkpoint: Checkpoint, folder: str, allow_pickle: bool) -> Checkpoint:
    """Returns a checkpoint's encoder with the dense layer that a directory contains."""
    source = os.path.join(folder, CONFIG)
    values = _read_module(source)
    activations = {name: key for key, name in _ACTIVATIONS.items()}
    activation = values.get("activation_function", _ACTIVATIONS["tanh"])
    if values.get("bias", True) is not True or activation not in [*activations]:
        raise _UnsupportedError(
            f"has a {_DENSE} layer with the activation {quote(activation)}, or without a bias; "
            f"expected {' or '.join(activations)}, and a bias"
        )
    if values.get("use_residual"):
        raise _UnsupportedError(f"has a {_DENSE} layer with use_residual")
    _check_inputs_and_outputs(source)
    dense = {"dense_size": values.get("out_features"), "dense_activation": activations[activation]}
    stored = hugging_face.open_tensors(folder, allow_pickle)
    layer = _LINEAR.read(_LAYER, stored)
    if missing := [_LINEAR.source_name(name) for name in _LAYER if name not in layer]:
        raise ValueError(f"{folder}: missing weights of the layer: {listed(missing)}.")
    encoder = _without_head(checkpoint, source, **dense)
    return dataclasses.replace(encoder, tensors={**encoder.tensors, **layer})


def _without_head(checkpoint: Checkpoint, source: str, **dense: Any) -> Checkpoint:
    """Returns a checkpoint's encoder without a head, such as a masked-LM head."""
    arguments = {"pooler": checkpoint.model.has_pooler, **dense}
    return dataclasses.replace(
        checkpoint,
        model=check_model(BertEncoder.__name__, arguments, source),
        tensors={key: one for key, one in checkpoint.tensors.items() if is_in_encoder(key)},
        labels=(),
        multi_label=False,
    )


def _read_length(values: Mapping[str, Any], source: str, checkpoint: Checkpoint) -> int | None:
    """Returns the maximum number of tokens in the transformer's, else the tokenizer's settings."""
    processing, tokenizer = (
        _get_object(values, "processing_kwargs"),
        _get_object(values, *_TOKENIZERS),
    )
    candidates = (
        _get_object(processing, "text").get("max_length"),
        _get_object(processing, "common").get("max_length"),
        tokenizer.get(LENGTH),
        values.get("max_seq_length"),
    )
    length = next((n for n in candidates if n is not None), checkpoint.max_seq_length)
    if length is None:
        return None
    limit: int = check_value(length, IS_POSITIVE, f"{source}: max_seq_length")
    return min(limit, checkpoint.config.max_position_embeddings)


def _read_prompts(
    values: Mapping[str, Any], source: str, normalize: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the embedding's prefixes and number of dimensions, and warnings."""
    prompts = {k: text for k, text in _get_object(values, "prompts").items() if text is not None}
    default_name = values.get("default_prompt_name")
    names = [next((name for name in role if name in prompts), "") for role in _ROLES]
    default = prompts.get(default_name, "") if isinstance(default_name, str) else ""
    prefixes = [prompts.get(name, default) for name in names]
    notes = []
    if names[1] not in ("document", ""):
        notes.append(
            f"{source}: prompts.{names[1]} is used as the document prefix, but encode_document of "
            "sentence-transformers 6 does not use it."
        )
    if default:
        notes.append(
            f"{source}: default_prompt_name={quote(default_name)}: encode prepends this prompt to "
            f"every text; bert_tf uses {quote(prefixes[1])} for documents and "
            f"{quote(prefixes[0])} for queries."
        )
    known = [*itertools.chain(*_ROLES), default_name]
    others = [f"{key}: {quote(text)}" for key, text in prompts.items() if text and key not in known]
    similarity = values.get("similarity_fn_name")
    # For normalized vectors, the ranking is the same.
    if similarity not in (None, "cosine") and not normalize:
        notes.append(f"{source}: similarity_fn_name={quote(similarity)}: bert_tf uses cosine.")
    if others:
        notes.append(
            f"{source}: other prompts are not applied: {listed(others)}. Prepend them to your "
            "texts."
        )
    fields = dict(zip(_PREFIXES, prefixes, strict=True)) | {"dims": values.get("truncate_dim")}
    return fields, tuple(notes)


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> tuple[str, ...]:
    """Writes a Hugging Face directory, and sentence-transformers modules for an embedding."""
    embedding = checkpoint.sentence_embedding
    encoder = {name: t for name, t in checkpoint.tensors.items() if name not in _LAYER}
    notes = hugging_face.write(dataclasses.replace(checkpoint, tensors=encoder), path)
    if embedding is None:
        return notes
    width, arguments = checkpoint.config.hidden_size, checkpoint.model.arguments
    has_dense = arguments.get("dense_size") is not None
    exists = {_DENSE: has_dense, _NORMALIZE: embedding.normalize}
    kinds = [kind for kind in _MODULE_TYPES if exists.get(kind, True)]
    folders = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    files: dict[str, Any] = {
        MODULES: [
            {"idx": i, "name": str(i), "path": folder, "type": f"{_MODULE_PACKAGE}.{kind}"}
            for i, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
        ],
        _TRANSFORMER[0]: {"max_seq_length": embedding.max_seq_length, "do_lower_case": False},
        _SENTENCES: {
            "prompts": {"query": embedding.query_prefix, "document": embedding.document_prefix},
            "default_prompt_name": None,
            "truncate_dim": embedding.dims,
        },
        f"{folders[1]}/{CONFIG}": {
            "word_embedding_dimension": width,
            **{key: mode == embedding.pooling for key, mode in POOLING_MODES.items()},
        },
    }
    if exists[_DENSE]:
        activation = arguments.get("dense_activation", DENSE_ACTIVATIONS[0])
        files[f"{folders[2]}/{CONFIG}"] = {
            "in_features": width,
            "out_features": arguments["dense_size"],
            "bias": True,
            "activation_function": _ACTIVATIONS[activation],
        }
        weights = os.path.join(path, folders[2], hugging_face.WEIGHTS)
        tf.io.gfile.makedirs(os.path.dirname(weights))
        layer = (_LINEAR.to_source(name, checkpoint.tensors[name]) for name in _LAYER)
        write_safetensors(weights, layer)
    for name, values in files.items():
        write_json(os.path.join(path, name), values)
    if embedding.dims and embedding.normalize and embedding.rescale:
        notes += (
            f"sentence-transformers truncates vectors to {embedding.dims} dimensions after "
            "normalization. Pass normalize_embeddings=True to encode to normalize them again.",
        )
    return notes
