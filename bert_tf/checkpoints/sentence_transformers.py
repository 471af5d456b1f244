"""Directories of sentence-transformers: a Hugging Face directory, and what is done with its states.

``modules.json`` lists the modules that a text goes through. The first is the transformer, in the
directory itself or in a folder such as ``0_Transformer``; ``1_Pooling`` makes one vector of its
states, ``2_Dense`` may change it, ``3_Normalize`` scale it. Source: sentence-transformers 2 to 6,
``base/model.py`` and ``modules/``; in 6 the modes of pooling are one value, and the length is the
tokenizer's.
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
from bert_tf.io.paths import hint
from bert_tf.io.wording import listed, quote
from bert_tf.modeling import BertEncoder

from . import config_keys, hugging_face
from .checkpoint import Checkpoint, check_model, check_sentence_embedding
from .config_keys import IS_OBJECT, IS_POSITIVE, IS_SWITCH, POOLING_MODES, check_value
from .tensor_files import is_plain_name, write_safetensors
from .tokenizer_files import LENGTH
from .weights import Names, is_in_encoder

MODULES = "modules.json"
# The transformer's file, by the names that releases of sentence-transformers look for in turn.
_TRANSFORMER = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_SENTENCES = "config_sentence_transformers.json"
FILES = (MODULES, *_TRANSFORMER, _SENTENCES)
# By what a directory makes, the transformer's task and the output of it that is taken.
_SENTENCE_TRANSFORMER = "SentenceTransformer"
_OUTPUTS = {
    _SENTENCE_TRANSFORMER: ("feature-extraction", "last_hidden_state"),
    "CrossEncoder": ("sequence-classification", "logits"),
}
_TOKENIZERS = ("processor_kwargs", "tokenizer_args")
_MODULE_PACKAGE = "sentence_transformers.models"
_MODULE_TYPES = ("Transformer", "Pooling", "Dense", "Normalize")
_DENSE, _NORMALIZE = _MODULE_TYPES[2:]
# A prefix is the first prompt that is there of a role's names.
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
_POOLING_ALIASES = {"lasttoken": "last"}  # in the newer form


# === Reading ===


def read_checkpoint(path: str, allow_pickle: bool = False) -> Checkpoint:
    """Opens the transformer, and reads what becomes of its states, or of its logits.

    What the further modules compute and this library does not is named in ``unsupported_modules``:
    the transformer is a whole model without them.
    """
    modules, notes = _read_modules(os.path.join(path, MODULES))
    folder = modules[0][1]
    model_path = os.path.join(path, folder) if folder else path
    if not hugging_face.is_directory(model_path):
        raise ValueError(
            f"{path}: its {MODULES} names {quote(folder or '.')} as the place of a "
            f"{quote(modules[0][0])}, and no {CONFIG} with {hugging_face.WEIGHTS} is "
            f"there: expected a directory of a BERT, all of it{hint(path, modules[0][:1])}."
        )
    names = (os.path.join(model_path, name) for name in _TRANSFORMER)
    source, sentence_config_path = (
        next(filter(tf.io.gfile.exists, names), ""),
        os.path.join(path, _SENTENCES),
    )
    values, sentence_config = config_keys.read(source), config_keys.read(sentence_config_path)
    notes += (
        *config_keys.messages(_TRANSFORMER[0], values, source),
        *config_keys.messages(_SENTENCES, sentence_config, sentence_config_path),
    )
    # What goes before the keys of the transformer's own file.
    overrides = dict(_get_object(values, "config_kwargs", "config_args"))
    if len(modules) == 1 and (activation := sentence_config.get("activation_fn")) is not None:
        overrides["sentence_transformers"] = {"activation_fn": activation}
    checkpoint = hugging_face.read_checkpoint(model_path, allow_pickle, overrides)
    length = _read_length(values, source or model_path, checkpoint)
    whole = dataclasses.replace(
        checkpoint,
        path=path,
        format="sentence_transformers",
        max_seq_length=length,
        notes=(*notes, *checkpoint.notes),
    )
    try:
        _check_task(values, sentence_config, checkpoint, is_more=len(modules) > 1)
        if len(modules) == 1:
            return _with_prompt_notes(whole, sentence_config, sentence_config_path)
        pooling = _read_pooling(path, modules)
        encoder = _without_head(whole, model_path)
        if dense := [folder for kind, folder in modules if kind == _DENSE]:
            encoder = _with_dense(encoder, os.path.join(path, dense[0]), allow_pickle)
        normalize = modules[-1][0] == _NORMALIZE
        if normalize:
            _check_inputs_and_outputs(os.path.join(path, modules[-1][1], CONFIG))
    except _UnsupportedModuleError as reason:
        return dataclasses.replace(whole, unsupported_modules=f"{path} {reason}")
    prompts, prompt_notes = _read_prompts(sentence_config, sentence_config_path, normalize)
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


class _UnsupportedModuleError(Exception):
    """A module of the directory that this library does not compute."""


def _get_object(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The object under a key, or under an older name of it; an empty one where there is none."""
    found: Any = next((values[name] for name in names if values.get(name) is not None), {})
    model_path: Mapping[str, Any] = check_value(found, IS_OBJECT, names[0])
    return model_path


def _check_task(
    values: Mapping[str, Any],
    sentence_config: Mapping[str, Any],
    checkpoint: Checkpoint,
    is_more: bool,
) -> None:
    """Checks that the transformer makes states, or of a cross-encoder logits.

    ``is_more``: whether further modules follow.
    """
    kind = sentence_config.get("model_type") or _SENTENCE_TRANSFORMER
    if (
        not isinstance(kind, str)
        or kind not in _OUTPUTS
        or (kind != _SENTENCE_TRANSFORMER and is_more)
    ):
        raise _UnsupportedModuleError(
            f"holds a {quote(kind)} of such modules, which is not computed"
        )
    form = _get_object(_get_object(values, "modality_config"), "text")
    found = values.get("transformer_task"), form.get("method_output_name")
    task, output = (
        default if each is None else each
        for each, default in zip(found, _OUTPUTS[kind], strict=True)
    )
    if (task, output) != _OUTPUTS[kind]:
        raise _UnsupportedModuleError(
            f"runs its transformer for {quote(task)} and takes {quote(output)}, which is not done "
            f"for a {kind}"
        )
    tokenization = checkpoint.tokenization
    if values.get("do_lower_case") and tokenization and not tokenization.do_lower_case:
        raise _UnsupportedModuleError("lowers the case of text before a tokenizer that is cased")
    for texts in (
        _get_object(_get_object(values, "processing_kwargs"), key) for key in ("common", "text")
    ):
        if texts.get("add_special_tokens") is False:
            raise _UnsupportedModuleError(
                "reads texts without [CLS] and [SEP] (add_special_tokens), which is not done"
            )


def _with_prompt_notes(
    checkpoint: Checkpoint, sentence_config: Mapping[str, Any], source: str
) -> Checkpoint:
    """A cross-encoder's checkpoint, with a note on prompts."""
    if not (
        sentence_config.get("default_prompt_name")
        or any(_get_object(sentence_config, "prompts").values())
    ):
        return checkpoint
    note = f"{source}: put its prompts before your texts yourself."
    return dataclasses.replace(checkpoint, notes=(*checkpoint.notes, note))


def _read_modules(source: str) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The class and the folder of each module, in their order; and what is to be told."""
    values = read_json(source)
    if not isinstance(values, list) or not values:
        raise ValueError(f"{source}: expected a list of modules, got {quote(values)}.")
    modules: list[tuple[str, str]] = []
    notes: tuple[str, ...] = ()
    for value in values:
        kind = value.get("type") if isinstance(value, Mapping) else None
        folder = value.get("path", "") if isinstance(value, Mapping) else None
        if not isinstance(kind, str) or not isinstance(folder, str):
            raise ValueError(
                f"{source}: expected modules with a type and a path, got {quote(value)}."
            )
        if folder and not is_plain_name(folder):
            raise ValueError(
                f"{source} has a module in {quote(folder)}: expected a plain folder's name, "
                "within the directory."
            )
        modules.append((kind.rsplit(".", 1)[-1], folder))
        notes += (*config_keys.messages(MODULES, value, source),)
    return modules, notes


def _read_pooling(path: str, modules: list[tuple[str, str]]) -> str:
    """The mode of pooling."""
    kinds = [kind for kind, _ in modules]
    if kinds != [kind for kind in _MODULE_TYPES if kind in (*_MODULE_TYPES[:2], *kinds)]:
        other = [kind for kind in kinds if kind not in _MODULE_TYPES]
        what = f", and no {listed(other)} is computed" if other else ""
        raise _UnsupportedModuleError(
            f"has the modules {listed(kinds)}{what}: expected {', '.join(_MODULE_TYPES[:2])}, and "
            f"{_DENSE}, {_NORMALIZE} or nothing after them"
        )
    source = os.path.join(path, modules[1][1], CONFIG)
    values = _read_module(source)
    if values.get("include_prompt") is False:
        raise _UnsupportedModuleError("leaves prompts out of its pooling, which is not done")
    modes = values.get("pooling_mode")
    if modes is None:
        flags = {key: value for key, value in values.items() if key.startswith("pooling_mode_")}
        for key, value in flags.items():
            check_value(value, IS_SWITCH, f"{source}: {key}")
        modes = [POOLING_MODES.get(key, key) for key, is_on in flags.items() if is_on]
        modes = modes if flags else ["mean"]  # its default
    modes = [_POOLING_ALIASES.get(modes, modes)] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS[1:]:
        raise _UnsupportedModuleError(
            f"pools by {quote(modes)}, and only one of {', '.join(POOLINGS[1:])} is computed"
        )
    return str(modes[0])


def _read_module(source: str) -> dict[str, Any]:
    """The settings of a module behind the transformer; one with a key that is not known is none."""
    values = read_json_object(source)
    if key_notes := [*config_keys.messages("N_*/config.json", values, source)]:
        raise _UnsupportedModuleError(
            f"has a module that is not computed: {' '.join(key_notes)[:-1]}"
        )
    return values


def _check_inputs_and_outputs(source: str) -> None:
    """Checks that a module reads the vectors and writes them; one without a file does."""
    values, name = _read_module(source) if tf.io.gfile.exists(source) else {}, "sentence_embedding"
    names = values.get("module_input_name") or name, values.get("module_output_name") or name
    if names != (name, name):
        raise _UnsupportedModuleError(f"has a module that reads or writes {listed(names)}")


def _with_dense(checkpoint: Checkpoint, folder: str, allow_pickle: bool) -> Checkpoint:
    """The encoder of a checkpoint, with the layer in a folder."""
    source = os.path.join(folder, CONFIG)
    values = _read_module(source)
    activations = {name: key for key, name in _ACTIVATIONS.items()}
    activation = values.get("activation_function", _ACTIVATIONS["tanh"])
    if values.get("bias", True) is not True or activation not in [*activations]:
        raise _UnsupportedModuleError(
            f"has a {_DENSE} layer with the activation {quote(activation)}, or without a bias, "
            f"which is not computed: expected {' or '.join(activations)}, and a bias"
        )
    if values.get("use_residual"):
        raise _UnsupportedModuleError(
            f"has a {_DENSE} layer that adds its input, which is not computed"
        )
    _check_inputs_and_outputs(source)
    dense = {"dense_size": values.get("out_features"), "dense_activation": activations[activation]}
    stored = hugging_face.open_tensors(folder, allow_pickle)
    layer = _LINEAR.read(_LAYER, stored)
    if missing := [_LINEAR.source_name(name) for name in _LAYER if name not in layer]:
        raise ValueError(f"{folder} has no {listed(missing)}: expected a layer's two weights.")
    encoder = _without_head(checkpoint, source, **dense)
    return dataclasses.replace(encoder, tensors={**encoder.tensors, **layer})


def _without_head(checkpoint: Checkpoint, source: str, **dense: Any) -> Checkpoint:
    """A checkpoint without its head, as the masked-LM one of weights that no pooling reads."""
    arguments = {"pooler": checkpoint.model.has_pooler, **dense}
    return dataclasses.replace(
        checkpoint,
        model=check_model(BertEncoder.__name__, arguments, source),
        tensors={key: one for key, one in checkpoint.tensors.items() if is_in_encoder(key)},
        labels=(),
        multi_label=False,
    )


def _read_length(values: Mapping[str, Any], source: str, checkpoint: Checkpoint) -> int | None:
    """The most tokens of a text: the transformer's own file says it, else its tokenizer's."""
    called, made = _get_object(values, "processing_kwargs"), _get_object(values, *_TOKENIZERS)
    stated = (
        _get_object(called, "text").get("max_length"),
        _get_object(called, "common").get("max_length"),
        made.get(LENGTH),
        values.get("max_seq_length"),
    )
    length = next((each for each in stated if each is not None), checkpoint.max_seq_length)
    if length is None:
        return None
    limit: int = check_value(length, IS_POSITIVE, f"{source}: max_seq_length")
    return min(limit, checkpoint.config.max_position_embeddings)


def _read_prompts(
    values: Mapping[str, Any], source: str, normalize: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The embedding's prefixes and dimensions, and sentences on what else its file says."""
    prompts = {
        key: text for key, text in _get_object(values, "prompts").items() if text is not None
    }
    default_name = values.get("default_prompt_name")
    names = [next((name for name in role if name in prompts), "") for role in _ROLES]
    default = prompts.get(default_name, "") if isinstance(default_name, str) else ""
    prefixes = [prompts.get(name, default) for name in names]
    notes = []
    if names[1] not in ("document", ""):
        notes.append(
            f"{source}: prompts.{names[1]} is put before documents, and encode_document of "
            "sentence-transformers 6 puts nothing there."
        )
    if default:
        notes.append(
            f"{source}: default_prompt_name is {quote(default_name)}, whose prompt encode puts "
            f"before every text: here documents begin with {quote(prefixes[1])} and queries with "
            f"{quote(prefixes[0])}."
        )
    known = [*itertools.chain(*_ROLES), default_name]
    others = [
        f"{name}: {quote(text)}" for name, text in prompts.items() if text and name not in known
    ]
    how = values.get("similarity_fn_name")
    if how not in (None, "cosine") and not normalize:  # of length 1 they are in the same order
        notes.append(f"{source} compares vectors by {quote(how)}: here they are by their cosines.")
    if others:
        notes.append(
            f"{source} has further prompts; put them before your texts yourself: {listed(others)}."
        )
    fields = dict(zip(_PREFIXES, prefixes, strict=True)) | {"dims": values.get("truncate_dim")}
    return fields, tuple(notes)


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> tuple[str, ...]:
    """Writes a Hugging Face directory; one of sentence-transformers where there is an embedding."""
    embedding = checkpoint.sentence_embedding
    encoder = {name: t for name, t in checkpoint.tensors.items() if name not in _LAYER}
    notes = hugging_face.write(dataclasses.replace(checkpoint, tensors=encoder), path)
    if embedding is None:
        return notes
    width, arguments = checkpoint.config.hidden_size, checkpoint.model.arguments
    exists = {
        _DENSE: arguments.get("dense_size") is not None,
        _NORMALIZE: embedding.normalize,
    }
    kinds = [kind for kind in _MODULE_TYPES if exists.get(kind, True)]
    folders = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    files: dict[str, Any] = {
        MODULES: [
            {
                "idx": number,
                "name": str(number),
                "path": folder,
                "type": f"{_MODULE_PACKAGE}.{kind}",
            }
            for number, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
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
            f"sentence-transformers cuts vectors to {embedding.dims} numbers after it has scaled "
            "them: pass normalize_embeddings=True to encode.",
        )
    return notes
