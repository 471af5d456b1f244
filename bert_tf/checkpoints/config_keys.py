"""Keys in the settings files of other libraries, and how bert_tf handles them.

Each key is supported, has no effect on ids, vectors, logits and labels, or causes a warning or an
error if its value is not neutral. ``null`` is treated like a missing key. An unknown key causes a
warning. ``config_keys.toml`` lists the keys, except those in the tables of this module.

``tests/checkpoints/data/config_keys.json`` contains the keys that the libraries declare and read.
docs/reference/compatibility.md is generated from this module.
"""

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.config import ONLY_AS_PUBLISHED, BertConfig
from bert_tf.io.files import read_json_object
from bert_tf.io.messages import listed, quote

SUPPORTED, NO_EFFECT, WARNED, REJECTED = "supported", "no effect", "warned", "rejected"


class Answer(NamedTuple):
    """How bert_tf handles a key.

    Attributes:
        status: ``SUPPORTED``, ``NO_EFFECT``, ``WARNED`` or ``REJECTED``.
        reason: Limitation of a supported key, reason why a key has no effect, or consequence of a
            value that is not neutral.
        neutral_values: Values that cause neither a warning nor an error.
    """

    status: str
    reason: str
    neutral_values: tuple[Any, ...] = ()


# Fields of ``BertConfig`` by DistilBERT's keys.
DISTILBERT_FIELDS = {
    "dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    **{key: key for key in ("vocab_size", "max_position_embeddings", "initializer_range")},
}
# Boolean keys of older 1_Pooling/config.json files.
POOLING_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
# Fields of ``BertConfig`` by KerasHub's keys.
KERAS_HUB_SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}


def _read_tables() -> dict[str, dict[str, Answer]]:
    """Reads the answers in ``config_keys.toml`` by section and key."""
    file = importlib.resources.files(__package__) / "config_keys.toml"
    tables: dict[str, dict[str, Answer]] = {}
    for section, statuses in tomllib.loads(file.read_text("utf-8")).items():
        table = tables[section] = {}
        for status, reasons in statuses.items():
            for reason, value in reasons.items():
                keys, *neutral_values = [value] if isinstance(value, str) else value
                answer = Answer(status, reason, tuple(neutral_values))
                table |= dict.fromkeys(keys.split(), answer)
    return tables


def _supported(keys: Iterable[str]) -> dict[str, Answer]:
    return dict.fromkeys(keys, Answer(SUPPORTED, "has the same effect as in that library"))


# ``BertConfig.from_dict`` also rejects these keys.
_ARCHITECTURE = {
    key: Answer(REJECTED, "only the standard BERT architecture is supported", (published,))
    for key, published in ONLY_AS_PUBLISHED.items()
}
_TABLES = _read_tables()
_TRANSFORMERS, _TOKENIZERS = _TABLES.pop("transformers"), _TABLES.pop("tokenizers")
KERAS_KEYS = _TABLES.pop("KerasHub")
# Keys by section of config_keys.toml. They precede the keys in that section.
_MORE = {
    "config.json": {
        **_ARCHITECTURE,
        **_TRANSFORMERS,
        **_supported(field.name for field in dataclasses.fields(BertConfig)),
    },
    "config.json of a DistilBERT": {**_TRANSFORMERS, **_supported(DISTILBERT_FIELDS)},
    "N_*/config.json": _supported(POOLING_MODES),
    "tokenizer.json": _TOKENIZERS,
    "tokenizer.json of class BertTokenizer": _TOKENIZERS,
    "config.json of KerasHub": {**KERAS_KEYS, **_supported(KERAS_HUB_SIZES)},
    **{f"{name}.json of KerasHub": KERAS_KEYS for name in ("tokenizer", "preprocessor", "task")},
}
#: Answers by file and key.
FILES: Mapping[str, Mapping[str, Answer]] = {
    file: {**_MORE.get(file, {}), **table} for file, table in _TABLES.items()
}


# === Values ===

Check = tuple[Callable[[Any], bool], str]  # a predicate, and a description of valid values
IS_SWITCH: Check = (lambda value: isinstance(value, bool), "true or false")
IS_OBJECT: Check = (lambda value: isinstance(value, Mapping), "an object")
IS_LIST: Check = (lambda value: isinstance(value, list), "a list")
IS_POSITIVE: Check = (lambda value: type(value) is int and value > 0, "a positive integer")


def check_value(value: Any, check: Check, name: str) -> Any:
    """Validates and returns a value from an untrusted file; errors contain its ``name``."""
    is_valid, expected = check
    if not is_valid(value):
        raise ValueError(f"{name}: expected {expected}, got {quote(value)}.")
    return value


def read(path: str) -> dict[str, Any]:
    """Returns the settings in a JSON file, or ``{}`` if the file does not exist."""
    return read_json_object(path) if tf.io.gfile.exists(path) else {}


def messages(file: str, values: Mapping[str, Any], source: str) -> Iterator[str]:
    """Yields the warnings about the keys of a settings file.

    Args:
        file: A key of ``FILES``.
        values: The settings.
        source: The path of the file, for messages.

    Raises:
        ValueError: If a key is rejected.
    """
    answers = FILES[file]
    parents = {key[:at] for key in answers for at, letter in enumerate(key) if letter == "."}
    flat = [(key, value) for key, value in _flat(values, parents) if value is not None]
    if unknown := [quote(key) for key, _ in flat if key not in answers]:
        yield f"{source}: unknown keys are ignored: {listed(unknown)}."
    for key, value in flat:
        answer = answers.get(key)
        if answer is None or value in answer.neutral_values:
            continue
        elif answer.status == WARNED:
            yield f"{source}: {key}={quote(value)}: {answer.reason}."
        elif answer.status == REJECTED:
            neutral = " or ".join(map(repr, answer.neutral_values))
            expected = f"expected {neutral}; " if neutral else ""
            raise ValueError(f"{source}: {key}={quote(value)}: {expected}{answer.reason}.")


def _flat(
    values: Mapping[str, Any], parents: set[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yields an object's keys and values, and those of the nested objects in ``parents``."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in parents and isinstance(value, Mapping):
            yield from _flat(value, parents, f"{name}.")
        else:
            yield name, value
