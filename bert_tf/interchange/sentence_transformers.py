"""Directories of sentence-transformers: a Hugging Face directory, and what is done with its states.

``modules.json`` lists the modules that a text goes through. The first is the transformer, in the
directory itself or in a folder such as ``0_Transformer``; ``1_Pooling`` makes one vector of its
states, ``2_Normalize`` scales it. Source: sentence-transformers 2 to 6, ``base/model.py`` and
``modules/``; in 6 the modes of pooling are one value, and the length is the tokenizer's.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.choices import POOLINGS
from bert_tf.files import read_json, read_json_object, write_json
from bert_tf.untrusted import listed, quote

from . import hugging_face
from .checkpoint import Checkpoint, check_sentence_embedding
from .tensor_files import is_plain_name
from .tokenizer_files import TOKENIZER_CONFIG

MODULES = "modules.json"
_LENGTH = "sentence_bert_config.json"
_PROMPTS = "config_sentence_transformers.json"
FILES = (MODULES, _LENGTH, _PROMPTS)
_MODULE_OF = "sentence_transformers.models"
_KINDS = ("Transformer", "Pooling", "Normalize")
# What the older form of 1_Pooling/config.json says of each mode, true or false.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
_SPELLED = {"lasttoken": "last"}  # in the newer form


def is_checkpoint(path: str) -> bool:
    """Whether a path is a directory of sentence-transformers."""
    return tf.io.gfile.exists(os.path.join(path, MODULES))


# === Reading ===


def open_checkpoint(path: str, allow_pickle: bool = False) -> Checkpoint:
    """Opens the transformer, and reads what becomes of its states.

    What the further modules compute and this library does not is named in ``not_computed``: the
    transformer is a whole model without them.
    """
    modules = _read_modules(os.path.join(path, MODULES))
    folder = modules[0][1]
    inner = os.path.join(path, folder) if folder else path
    if not hugging_face.is_checkpoint(inner):
        raise ValueError(
            f"{path}: its {MODULES} names {quote(folder or '.')} as the place of a "
            f"{quote(modules[0][0])}, and no {hugging_face.CONFIG} with {hugging_face.WEIGHTS} is "
            "there: expected a directory of a BERT, all of it."
        )
    checkpoint = dataclasses.replace(
        hugging_face.open_checkpoint(inner, allow_pickle), path=path, format="sentence_transformers"
    )
    if len(modules) == 1:
        return checkpoint
    try:
        pooling, normalize = _read_embedding(path, modules)
        length = _read_length(inner, checkpoint)
        notes = _read_prompts(path)
    except _NotComputedError as reason:
        return dataclasses.replace(checkpoint, not_computed=f"{path} {reason}")
    embedding = check_sentence_embedding(
        {"pooling": pooling, "normalize": normalize, "max_seq_length": length}, inner
    )
    notes = (*checkpoint.notes, *notes)
    return dataclasses.replace(checkpoint, sentence_embedding=embedding, notes=notes)


class _NotComputedError(Exception):
    """What the directory's vectors need and this library does not compute."""


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


def _read_embedding(path: str, modules: list[tuple[str, str]]) -> tuple[str, bool]:
    """The mode of pooling, and whether the vectors are scaled."""
    kinds = [kind for kind, _ in modules]
    if kinds not in (list(_KINDS[:2]), list(_KINDS)):
        other = [kind for kind in kinds if kind not in _KINDS]
        what = f", and no {listed(other)} is computed" if other else ""
        raise _NotComputedError(
            f"has the modules {listed(kinds)}{what}: expected {', '.join(_KINDS[:2])}, and "
            f"{_KINDS[2]} or nothing after them"
        )
    source = os.path.join(path, modules[1][1], hugging_face.CONFIG)
    values = read_json_object(source)
    modes = values.get("pooling_mode")
    if modes is None:
        asked = {key: value for key, value in values.items() if key.startswith("pooling_mode_")}
        for key, value in asked.items():
            if not isinstance(value, bool):
                raise ValueError(f"{source}: {key} is {quote(value)}, expected true or false.")
        modes = [_MODES.get(key, key) for key, is_on in asked.items() if is_on]
        modes = modes if asked else ["mean"]  # its default
    modes = [_SPELLED.get(modes, modes)] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS[1:]:
        raise _NotComputedError(
            f"pools by {quote(modes)}, and only one of {', '.join(POOLINGS[1:])} is computed"
        )
    return modes[0], kinds[-1] == _KINDS[2]


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


def _read_prompts(path: str) -> tuple[str, ...]:
    """Sentences on the texts that are to stand before others."""
    source = os.path.join(path, _PROMPTS)
    values = read_json_object(source) if tf.io.gfile.exists(source) else {}
    prompts = values.get("prompts")
    prompts = prompts if isinstance(prompts, Mapping) else {}
    default = values.get("default_prompt_name")
    if isinstance(default, str) and prompts.get(default):
        raise _NotComputedError(
            f"puts {quote(prompts[default])} before each text, which is not done"
        )
    named = [f"{name}: {quote(text)}" for name, text in prompts.items() if text]
    if not named:
        return ()
    return (f"{source} has prompts, which you put before your texts yourself: {listed(named)}.",)


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> dict[str, str]:
    """Writes a Hugging Face directory; one of sentence-transformers where there is an embedding.

    Gives where each weight went, as ``hugging_face.write`` does.
    """
    embedding = checkpoint.sentence_embedding
    if embedding is not None:
        kinds = _KINDS if embedding.normalize else _KINDS[:2]
        folders = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
        modules = [
            {"idx": number, "name": str(number), "path": folder, "type": f"{_MODULE_OF}.{kind}"}
            for number, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
        ]
        pooling = {key: mode == embedding.pooling for key, mode in _MODES.items()}
        width = checkpoint.config.hidden_size
        for name, values in {
            MODULES: modules,
            _LENGTH: {"max_seq_length": embedding.max_seq_length, "do_lower_case": False},
            f"{folders[1]}/{hugging_face.CONFIG}": {"word_embedding_dimension": width, **pooling},
        }.items():
            write_json(os.path.join(path, name), values)
    return hugging_face.write(checkpoint, path)
