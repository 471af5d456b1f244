"""What lies beside a Model Garden checkpoint and says how the model is made.

The released models have ``bert_config.json``; the trainer writes ``params.yaml``. Source:
tensorflow/models ``official/nlp/configs/encoders.py``, ``official/core/train_utils.py``.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.files import read_json_object
from bert_tf.untrusted import quote, reason

from .description import check_labels
from .tensor_files import readable

_JSON = "bert_config.json"
_YAML = "params.yaml"
_MAX_YAML_BYTES = (
    1 << 20
)  # Model Garden's have some kilobytes, and PyYAML reads a megabyte a minute
_ENCODERS = ("bert", "bert_v2")
# params.yaml's names that differ from bert_config.json's.
_RENAMED = {
    "num_layers": "num_hidden_layers",
    "hidden_activation": "hidden_act",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
}
_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)
# Model Garden's "gelu" is the tanh approximation.
_ACTIVATIONS = {"gelu": "gelu_new", "identity": "linear"}


class Settings(NamedTuple):
    """What the files say.

    Attributes:
        source: the file, "" where there is none.
        fields: of ``BertConfig``, as far as the file has them.
        mlm_activation: of the masked-LM head; ``None`` where the file does not say.
        do_lower_case: whether text is lower-cased; ``None`` where the file does not say.
        labels: the classes' names, () where the file has none.
    """

    source: str
    fields: Mapping[str, Any]
    mlm_activation: str | None = None
    do_lower_case: bool | None = None
    labels: tuple[str, ...] = ()


def read_settings(folder: str) -> Settings:
    """Reads ``bert_config.json``, or else ``params.yaml``.

    Args:
        folder: the checkpoint's directory.

    Raises:
        ValueError: the file is damaged, or describes what ``BertEncoder`` cannot compute; or there
            is ``params.yaml`` alone, and PyYAML is not installed.
    """
    path = os.path.join(folder, _JSON)
    if tf.io.gfile.exists(path):
        return Settings(path, _fields(read_json_object(path), path))
    path = os.path.join(folder, _YAML)
    if tf.io.gfile.exists(path):
        return _from_task(_mapping(_read_yaml(path), "task", path), path)
    return Settings("", {})


def _from_task(task: Mapping[str, Any], path: str) -> Settings:
    model = _mapping(task, "model", path)
    encoder = _mapping(model, "encoder", path)
    kind = encoder.get("type")
    if kind not in _ENCODERS:
        raise ValueError(
            f"{path}: task.model.encoder.type is {quote(kind)}, expected one of "
            f"{', '.join(_ENCODERS)}: only BERT as published can be built from it."
        )
    for head in model.get("cls_heads") or ():
        _check_head(head, path)
    labels = task.get("class_names") or ()
    return Settings(
        path,
        _fields(_mapping(encoder, kind, path), path),
        mlm_activation=_activation(model.get("mlm_activation")),
        do_lower_case=_casing(task),
        labels=check_labels(labels, path) if isinstance(labels, list) else (),
    )


def _fields(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    values = {_RENAMED.get(name, name): value for name, value in values.items()}
    width = values.get("hidden_size")
    if values.get("norm_first") or values.get("embedding_size") not in (None, width):
        raise ValueError(
            f"{path}: norm_first is {quote(values.get('norm_first'))} and embedding_size is "
            f"{quote(values.get('embedding_size'))}, expected false and {quote(width)}: only BERT "
            "as published can be built from it."
        )
    fields = {name: values[name] for name in _FIELDS if values.get(name) is not None}
    if "hidden_act" in fields:
        fields["hidden_act"] = _activation(fields["hidden_act"])
    return fields


def _activation(name: Any) -> Any:
    return _ACTIVATIONS.get(name.lower(), name.lower()) if isinstance(name, str) else name


def _check_head(head: Any, path: str) -> None:
    """A head's own dense layer is taken for the pooler, so it has to compute what a pooler does."""
    if not isinstance(head, Mapping):
        raise ValueError(f"{path}: expected cls_heads to be a list of objects, got {quote(head)}.")
    activation, position = head.get("activation", "tanh"), head.get("cls_token_idx", 0)
    if head.get("inner_dim") and (activation != "tanh" or position != 0):
        raise ValueError(
            f"{path}: the head {quote(head.get('name'))} has activation {quote(activation)} at "
            f"token {quote(position)}, expected 'tanh' at token 0, as in BERT's pooler."
        )


def _casing(task: Mapping[str, Any]) -> bool | None:
    for part in ("train_data", "validation_data"):
        data = task.get(part)
        for key in ("do_lower_case", "lower_case"):
            if isinstance(data, Mapping) and isinstance(data.get(key), bool):
                return bool(data[key])
    return None


# === YAML ===


def _mapping(values: Any, key: str, path: str) -> Mapping[str, Any]:
    value = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{path}: expected an object under {key}, as Model Garden's trainer writes it, got "
            f"{quote(value)}."
        )
    return value


def _read_yaml(path: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ValueError(
            f"{path} says how the model is made, and PyYAML, which reads it, is not installed: pip "
            "install pyyaml, or put a bert_config.json beside it."
        ) from error
    with readable(path), tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(_MAX_YAML_BYTES + 1)
    if len(content) > _MAX_YAML_BYTES:
        raise ValueError(f"{path}: expected a YAML file of at most {_MAX_YAML_BYTES:,} bytes.")
    try:
        return yaml.safe_load(content)  # safe: makes no object of a class that the file names
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML that can be read: {reason(error)}.") from error
