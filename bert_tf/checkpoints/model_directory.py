"""This library's own directories: what a run leaves, and what a conversion writes.

| path             | what                                                             |
|------------------|------------------------------------------------------------------|
| model.json       | the model's class, its arguments, its labels, the casing         |
| bert_config.json | the sizes                                                        |
| vocab.txt        | the vocabulary, one piece a line; not where a source had none    |
| checkpoints/     | ``step-.../``, each verified by its manifest; the newest counts  |
"""

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import tensorflow as tf

from bert_tf import marks
from bert_tf.config import BertConfig
from bert_tf.files import encode_json, read_json_object, replace_whole
from bert_tf.modeling.base import SentenceEmbedding
from bert_tf.pipelines.vocabulary import encode_vocabulary
from bert_tf.training import saved_states
from bert_tf.untrusted import listed

from .bundles import Bundle
from .checkpoint import (
    DESCRIPTION_KEYS,
    Checkpoint,
    Description,
    ModelSpec,
    StoredTensor,
    Tokenization,
    describe,
    names_left,
    parse_description,
)
from .tokenizer_files import VOCABULARY, read_tokenization
from .weights import group_by_variable, is_in_encoder, read_variable, take_weights, to_tensor

DESCRIPTION, CONFIG = marks.DESCRIPTION, marks.SIZES
CHECKPOINTS = "checkpoints"
TASK = "task.json"  # a fine-tuning's
_MODEL = "model/"
_ENCODER = "bert_encoder"


def is_checkpoint(path: str) -> bool:
    """True if a path is a directory of this library."""
    return tf.io.gfile.exists(os.path.join(path, DESCRIPTION)) and tf.io.gfile.exists(
        os.path.join(path, CONFIG)
    )


def write_description(
    path: str,
    config: BertConfig,
    model: ModelSpec,
    *,
    tokenization: Tokenization | None = None,
    labels: tuple[str, ...] = (),
    multi_label: bool = False,
    thresholds: Mapping[str, float] | None = None,
    sentence_embedding: SentenceEmbedding | None = None,
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Writes everything but the weights; ``beside`` has further files' contents, by name."""
    contents = {CONFIG: config.to_json().encode(), **beside}
    if tokenization is not None:
        source = os.path.join(path, VOCABULARY)
        contents[VOCABULARY] = encode_vocabulary(tokenization.vocabulary, source)
    values = describe(model, labels, multi_label, tokenization, thresholds, sentence_embedding)
    for name, content in {DESCRIPTION: encode_json(values), **contents}.items():
        with replace_whole(os.path.join(path, name)) as file:
            file.write(content)


# === Reading ===


def read_description(path: str) -> tuple[BertConfig, Description]:
    """Reads the sizes, and what the model is."""
    described_in = os.path.join(path, DESCRIPTION)
    values = read_json_object(described_in)
    values.pop("sha256", None)  # which was kept there once
    if not values.keys() <= DESCRIPTION_KEYS:
        raise ValueError(
            f"{described_in}: expected the keys {', '.join(sorted(DESCRIPTION_KEYS))}, got "
            f"{listed(sorted(values.keys() - DESCRIPTION_KEYS))} besides."
        )
    described = parse_description(values, described_in)
    config_path = os.path.join(path, CONFIG)
    return BertConfig.from_dict(read_json_object(config_path), config_path), described


def open_checkpoint(path: str) -> Checkpoint:
    """Opens the newest intact checkpoint of a directory."""
    config, described = read_description(path)
    found = saved_states.find_latest(os.path.join(path, CHECKPOINTS))
    if found is None:
        raise ValueError(
            f"{path} has no checkpoint yet, as its run was stopped before the first: give the "
            "run's command again, which continues it."
        )
    bundle = Bundle(os.path.join(found.path, saved_states.BUNDLE))
    stored = {_below_model(name): name for name in bundle.shapes if name.startswith(_MODEL)}

    def find_variable(below_model: str) -> StoredTensor | None:
        return bundle.tensor(stored[below_model]) if below_model in stored else None

    tensors = take_weights(config, described.model, find_variable, bundle.prefix)
    # The variables of an optimizer are expected in a run: no note on them.
    unused = names_left(stored.values(), tensors)
    read = Checkpoint(path, "bert_tf", config, described.model, tensors, unused)
    return with_description(read, path, described, found.warnings)


def with_description(
    checkpoint: Checkpoint, folder: str, described: Description, notes: Sequence[str] = ()
) -> Checkpoint:
    """A checkpoint with all that a folder says besides sizes and weights."""
    tokenization, more = read_tokenization(folder, described.do_lower_case)
    task = os.path.join(folder, TASK)
    return dataclasses.replace(
        checkpoint,
        tokenization=tokenization,
        task=read_json_object(task) if tf.io.gfile.exists(task) else None,
        notes=(*notes, *more),
        **described.of_checkpoint(),
    )


def _below_model(name: str) -> str:
    return name.removeprefix(_MODEL).split("/", 1)[-1]


# === Writing ===


def write(checkpoint: Checkpoint, path: str) -> None:
    """Writes a directory of this library."""
    values = {}
    for whole, names in group_by_variable(checkpoint.tensors).items():
        owner = _ENCODER if is_in_encoder(whole) else _default_name(checkpoint.model)
        value = read_variable([checkpoint.tensors[name] for name in names])
        values[f"{_MODEL}{owner}/{whole}"] = to_tensor(value)
    directory = os.path.join(path, CHECKPOINTS, saved_states.directory_name(0))
    saved_states.write(directory, 0, values, {})
    write_all_but_weights(checkpoint, path)


def write_all_but_weights(checkpoint: Checkpoint, path: str) -> None:
    """Writes everything but the weights, as ``write_description``."""
    write_description(
        path,
        checkpoint.config,
        checkpoint.model,
        tokenization=checkpoint.tokenization,
        labels=checkpoint.labels,
        multi_label=checkpoint.multi_label,
        thresholds=checkpoint.thresholds,
        sentence_embedding=checkpoint.sentence_embedding,
        beside={} if checkpoint.task is None else {TASK: encode_json(checkpoint.task)},
    )


def _default_name(model: ModelSpec) -> str:
    """Name that Keras gives to a model without a name."""
    return str(inspect.signature(model.model_class.__init__).parameters["name"].default)
