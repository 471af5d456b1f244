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

from bert_tf.checkpoint_formats import CONFIG
from bert_tf.choices import DENSE_ACTIVATIONS, POOLINGS
from bert_tf.files import read_json, read_json_object, write_json
from bert_tf.modeling import BertEncoder
from bert_tf.paths import hint
from bert_tf.untrusted import listed, quote

from . import hugging_face
from .checkpoint import Checkpoint, check_model, check_sentence_embedding
from .tensor_files import is_plain_name, write_safetensors
from .tokenizer_files import TOKENIZER_CONFIG
from .weights import Names, is_in_encoder

MODULES = "modules.json"
_LENGTH = "sentence_bert_config.json"
_PROMPTS = "config_sentence_transformers.json"
FILES = (MODULES, _LENGTH, _PROMPTS)
_MODULE_OF = "sentence_transformers.models"
_KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
_DENSE, _NORMALIZE = _KINDS[2:]
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
# Keys of the modes in the older form of 1_Pooling/config.json, true or false each.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
_SPELLED = {"lasttoken": "last"}  # in the newer form


# === Reading ===


def open_checkpoint(path: str, allow_pickle: bool = False) -> Checkpoint:
    """Opens the transformer, and reads what becomes of its states.

    What the further modules compute and this library does not is named in ``not_computed``: the
    transformer is a whole model without them.
    """
    modules = _read_modules(os.path.join(path, MODULES))
    folder = modules[0][1]
    inner = os.path.join(path, folder) if folder else path
    if not hugging_face.is_directory(inner):
        raise ValueError(
            f"{path}: its {MODULES} names {quote(folder or '.')} as the place of a "
            f"{quote(modules[0][0])}, and no {CONFIG} with {hugging_face.WEIGHTS} is "
            f"there: expected a directory of a BERT, all of it{hint(path, modules[0][:1])}."
        )
    checkpoint = dataclasses.replace(
        hugging_face.open_checkpoint(inner, allow_pickle), path=path, format="sentence_transformers"
    )
    if len(modules) == 1:
        return checkpoint
    whole, checkpoint = checkpoint, _encoder_alone(checkpoint, inner)
    try:
        pooling = _read_pooling(path, modules)
        length = _read_length(inner, checkpoint)
        normalize = modules[-1][0] == _NORMALIZE
        prompts, notes = _read_prompts(path, normalize)
        if dense := [folder for kind, folder in modules if kind == _DENSE]:
            checkpoint = _with_dense(checkpoint, os.path.join(path, dense[0]), allow_pickle)
    except _NotComputedError as reason:
        return dataclasses.replace(whole, not_computed=f"{path} {reason}")
    embedding = check_sentence_embedding(
        {"pooling": pooling, "normalize": normalize, "max_seq_length": length, **prompts}, inner
    )
    notes = (*checkpoint.notes, *notes)
    return dataclasses.replace(checkpoint, sentence_embedding=embedding, notes=notes)


class _NotComputedError(Exception):
    """A module of the directory that this library does not compute."""


def _read_modules(source: str) -> list[tuple[str, str]]:
    """The class and the folder of each module, in their order."""
    values = read_json(source)
    if not isinstance(values, list) or not values:
        raise ValueError(f"{source}: expected a list of modules, got {quote(values)}.")
    modules = []
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
    return modules


def _read_pooling(path: str, modules: list[tuple[str, str]]) -> str:
    """The mode of pooling."""
    kinds = [kind for kind, _ in modules]
    if kinds != [kind for kind in _KINDS if kind in (*_KINDS[:2], *kinds)]:
        other = [kind for kind in kinds if kind not in _KINDS]
        what = f", and no {listed(other)} is computed" if other else ""
        raise _NotComputedError(
            f"has the modules {listed(kinds)}{what}: expected {', '.join(_KINDS[:2])}, and "
            f"{_DENSE}, {_NORMALIZE} or nothing after them"
        )
    source = os.path.join(path, modules[1][1], CONFIG)
    values = read_json_object(source)
    if values.get("include_prompt") is False:
        raise _NotComputedError("leaves prompts out of its pooling, which is not done")
    modes = values.get("pooling_mode")
    if modes is None:
        flags = {key: value for key, value in values.items() if key.startswith("pooling_mode_")}
        for key, value in flags.items():
            if not isinstance(value, bool):
                raise ValueError(f"{source}: {key} is {quote(value)}, expected true or false.")
        modes = [_MODES.get(key, key) for key, is_on in flags.items() if is_on]
        modes = modes if flags else ["mean"]  # its default
    modes = [_SPELLED.get(modes, modes)] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS[1:]:
        raise _NotComputedError(
            f"pools by {quote(modes)}, and only one of {', '.join(POOLINGS[1:])} is computed"
        )
    return str(modes[0])


def _with_dense(checkpoint: Checkpoint, folder: str, allow_pickle: bool) -> Checkpoint:
    """The encoder of a checkpoint, with the layer in a folder."""
    source = os.path.join(folder, CONFIG)
    values = read_json_object(source)
    activations = {name: key for key, name in _ACTIVATIONS.items()}
    activation, name = values.get("activation_function", _ACTIVATIONS["tanh"]), "sentence_embedding"
    if values.get("bias", True) is not True or activation not in [*activations]:
        raise _NotComputedError(
            f"has a {_DENSE} layer with the activation {quote(activation)}, or without a bias, "
            f"which is not computed: expected {' or '.join(activations)}, and a bias"
        )
    if values.get("use_residual"):
        raise _NotComputedError(f"has a {_DENSE} layer that adds its input, which is not computed")
    places = values.get("module_input_name", name), values.get("module_output_name") or name
    if places != (name, name):
        raise _NotComputedError(f"has a {_DENSE} layer of something else than the vectors")
    dense = {"dense_size": values.get("out_features"), "dense_activation": activations[activation]}
    stored = hugging_face.open_tensors(folder, allow_pickle)
    layer = _LINEAR.read(_LAYER, stored)
    if missing := [_LINEAR.spell(name) for name in _LAYER if name not in layer]:
        raise ValueError(f"{folder} has no {listed(missing)}: expected a layer's two weights.")
    encoder = _encoder_alone(checkpoint, source, **dense)
    return dataclasses.replace(encoder, tensors={**encoder.tensors, **layer})


def _encoder_alone(checkpoint: Checkpoint, source: str, **dense: Any) -> Checkpoint:
    """A checkpoint without its head, as the masked-LM one of weights that no pooling reads."""
    arguments = {"pooler": checkpoint.model.has_pooler, **dense}
    return dataclasses.replace(
        checkpoint,
        model=check_model(BertEncoder.__name__, arguments, source),
        tensors={key: one for key, one in checkpoint.tensors.items() if is_in_encoder(key)},
        labels=(),
        multi_label=False,
    )


def _read_length(inner: str, checkpoint: Checkpoint) -> Any:
    """The most tokens of a text: the transformer's own file says it, else its tokenizer's."""
    source = os.path.join(inner, _LENGTH)
    values = read_json_object(source) if tf.io.gfile.exists(source) else {}
    task = values.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise _NotComputedError(
            f"runs its transformer for {quote(task)}, which makes no embeddings"
        )
    tokenization = checkpoint.tokenization
    if values.get("do_lower_case") and tokenization and not tokenization.do_lower_case:
        raise _NotComputedError("lowers the case of text before a tokenizer that is cased")
    length = values.get("max_seq_length")
    source = os.path.join(inner, TOKENIZER_CONFIG)
    if length is None and tf.io.gfile.exists(source):
        length = read_json_object(source).get("model_max_length")
    positions = checkpoint.config.max_position_embeddings
    if length is None:
        return positions
    # Where nobody set a length, transformers writes 10^30.
    return min(length, positions) if type(length) in (int, float) else length


def _read_prompts(path: str, normalize: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The embedding's prefixes and dimensions, and sentences on what else its file says."""
    source = os.path.join(path, _PROMPTS)
    values = read_json_object(source) if tf.io.gfile.exists(source) else {}
    prompts = values.get("prompts")
    prompts = prompts.items() if isinstance(prompts, Mapping) else ()
    prompts = {key: text for key, text in prompts if text}
    default = values.get("default_prompt_name")
    usual = prompts.get(default, "") if isinstance(default, str) else ""
    prefixes = [next(filter(None, map(prompts.get, names)), usual) for names in _ROLES]
    fields = dict(zip(_PREFIXES, prefixes, strict=True)) | {"dims": values.get("truncate_dim")}
    known = [*itertools.chain(*_ROLES), default]
    others = [f"{name}: {quote(text)}" for name, text in prompts.items() if name not in known]
    how, notes = values.get("similarity_fn_name"), []
    if how not in (None, "cosine") and not normalize:  # of length 1 they are in the same order
        notes = [f"{source} compares vectors by {quote(how)}: here they are by their cosines."]
    if others:
        notes.append(
            f"{source} has further prompts; put them before your texts yourself: {listed(others)}."
        )
    return fields, tuple(notes)


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> tuple[str, ...]:
    """Writes a Hugging Face directory; one of sentence-transformers where there is an embedding."""
    embedding = checkpoint.sentence_embedding
    encoder = {name: t for name, t in checkpoint.tensors.items() if name not in _LAYER}
    notes = hugging_face.write(dataclasses.replace(checkpoint, tensors=encoder), path)
    if embedding is None:
        return notes
    width, size = checkpoint.config.hidden_size, checkpoint.model.arguments.get("dense_size")
    is_there = {_DENSE: size is not None, _NORMALIZE: embedding.normalize}
    kinds = [kind for kind in _KINDS if is_there.get(kind, True)]
    folders = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    modules = [
        {"idx": number, "name": str(number), "path": folder, "type": f"{_MODULE_OF}.{kind}"}
        for number, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
    ]
    prefixes = [getattr(embedding, name) for name in _PREFIXES]
    prompts = {names[0]: prefix for names, prefix in zip(_ROLES, prefixes, strict=True)}
    pooling = {key: mode == embedding.pooling for key, mode in _MODES.items()}
    files = {
        MODULES: modules,
        _LENGTH: {"max_seq_length": embedding.max_seq_length, "do_lower_case": False},
        _PROMPTS: {"prompts": prompts, "default_prompt_name": None, "truncate_dim": embedding.dims},
        f"{folders[1]}/{CONFIG}": {"word_embedding_dimension": width, **pooling},
    }
    if size is not None:
        activation = checkpoint.model.arguments.get("dense_activation", DENSE_ACTIVATIONS[0])
        files[f"{folders[2]}/{CONFIG}"] = {
            "in_features": width,
            "out_features": size,
            "bias": True,
            "activation_function": _ACTIVATIONS[activation],
        }
        laid_out = (_LINEAR.lay_out(name, checkpoint.tensors[name]) for name in _LAYER)
        names = map(_LINEAR.spell, _LAYER)
        layer = (dataclasses.replace(t, name=at) for t, at in zip(laid_out, names, strict=True))
        weights = os.path.join(path, folders[2], hugging_face.WEIGHTS)
        tf.io.gfile.makedirs(os.path.dirname(weights))
        write_safetensors(weights, layer)
    for name, values in files.items():
        write_json(os.path.join(path, name), values)
    return notes
