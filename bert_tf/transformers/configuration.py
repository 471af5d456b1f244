"""Configs as in transformers, which are mutable and include the class names.

``native`` converts a config to a ``bert_tf.BertConfig``, which contains only validated sizes.
"""

import copy
import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bert_tf import config as sizes
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.hub import find_directory as resolve_hub_directory
from bert_tf.checkpoints.hugging_face_config import config_values, read_config
from bert_tf.io.checkpoint_formats import CONFIG
from bert_tf.io.files import read_json_object, write_json
from bert_tf.io.paths import HUB_SCHEME, resolve_model

# === Names of models ===

# Owners of the models on the hub that used to have names without an owner.
_OWNERS = {"bert": "google-bert", "distilbert": "distilbert"}
# Arguments of from_pretrained for downloads, which environment variables configure (HF_HOME,
# HF_TOKEN, HF_HUB_OFFLINE), and for the framework of the files, which is detected.
_IGNORED_OPTIONS = (
    *("cache_dir", "force_download", "from_flax", "from_pt", "from_tf", "local_files_only"),
    *("low_cpu_mem_usage", "mirror", "proxies", "resume_download", "token", "torch_dtype"),
    *("trust_remote_code", "use_auth_token", "use_safetensors", "variant", "framework"),
    *("use_fast", "legacy"),
)


def resolve_path(
    name: str | os.PathLike[str], values: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Returns the path of a model for ``bert_tf.load``, and the remaining arguments.

    A name that is not a local path or a packaged model refers to the hub.
    >>> resolve_path("bert-base-uncased", {"revision": "v1", "from_pt": True, "num_labels": 3})
    ('hf://google-bert/bert-base-uncased@v1', {'num_labels': 3})
    """
    path, values = resolve_model(os.fspath(name)), dict(values)
    revision, folder = values.pop("revision", None), values.pop("subfolder", None)
    if values.get("variant"):
        raise ValueError(
            f"variant={values['variant']!r}: variants are not supported. Rename the weights file, "
            "or pass its path."
        )
    values = {key: value for key, value in values.items() if key not in _IGNORED_OPTIONS}
    if os.path.exists(path) or "://" in path or os.path.isabs(path) or path.startswith("."):
        return os.path.join(path, folder) if folder else path, values
    if folder:
        raise ValueError(
            f"subfolder={folder!r}: expected a local directory, got {path} on the hub. Download "
            "the folder and pass its path."
        )
    if "/" not in path:
        owner = _OWNERS.get(path.split("-")[0])
        if owner is None:
            raise ValueError(
                f"{path!r} is neither a directory nor a BERT or DistilBERT model on the hub. Pass "
                "a directory, OWNER/NAME, or a name such as bert-base-uncased."
            )
        path = f"{owner}/{path}"
    return f"{HUB_SCHEME}{path}{f'@{revision}' if revision else ''}", values


def resolve_directory(
    name: str | os.PathLike[str], values: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Calls ``resolve_path``, and downloads the files if the model is on the hub."""
    path, values = resolve_path(name, values)
    return resolve_hub_directory(path)[0] if path.startswith(HUB_SCHEME) else path, values


def location_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of from_pretrained that locate the files."""
    return {key: options[key] for key in ("revision", "subfolder") if key in options}


# === Settings ===

# Settings of all configs in transformers, except the sizes.
_COMMON_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("architectures", "classifier_dropout", "problem_type")),
    **{"name_or_path": "", "pad_token_id": 0, "position_embedding_type": "absolute"},
    **dict.fromkeys(("output_attentions", "output_hidden_states"), False),
    **dict.fromkeys(("return_dict", "tie_word_embeddings", "use_cache"), True),
}


class PretrainedConfig:
    """Settings of a model as attributes; positional arguments follow the order of ``defaults``.

    >>> config = BertConfig(num_labels=3, hidden_size=64, num_attention_heads=4)
    >>> config.num_labels, config.id2label[2], config.hidden_size, config.vocab_size
    (3, 'LABEL_2', 64, 30522)
    """

    model_type: ClassVar[str] = ""
    #: Aliases of settings.
    attribute_map: ClassVar[Mapping[str, str]] = {
        "_name_or_path": "name_or_path",
        "use_return_dict": "return_dict",
    }
    defaults: ClassVar[Mapping[str, Any]] = {}

    id2label: dict[int, str]
    label2id: dict[str, int]

    def __init__(self, *sizes: Any, **values: Any) -> None:
        values = {**_COMMON_DEFAULTS, **self.defaults, **values}
        values |= zip(self.defaults, sizes, strict=False)
        values.pop("model_type", None)
        count, names = values.pop("num_labels", None), values.pop("id2label", None)
        ids = values.pop("label2id", None)
        if names:
            self._name_classes(names)
        else:
            self.num_labels = 2 if count is None else count
        if ids:
            self.label2id = dict(ids)
        if names and count is not None:
            self.num_labels = count
        for name, value in values.items():
            setattr(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        names = object.__getattribute__(self, "attribute_map")
        return object.__getattribute__(self, names.get(name, name))

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, self.attribute_map.get(name, name), value)

    @property
    def num_labels(self) -> int:
        """Number of classes; setting a different number resets the class names."""
        return len(self.id2label)

    @num_labels.setter
    def num_labels(self, count: int) -> None:
        if len(getattr(self, "id2label", ())) != count:
            self._name_classes({index: f"LABEL_{index}" for index in range(count)})

    def _name_classes(self, names: Mapping[Any, Any]) -> None:
        self.id2label = {int(index): str(name) for index, name in names.items()}
        self.label2id = {name: index for index, name in self.id2label.items()}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes in the order of their ids."""
        return tuple(self.id2label[index] for index in sorted(self.id2label))

    def native(self, source: str = "the config") -> sizes.BertConfig:
        """Returns the sizes as a ``bert_tf.BertConfig``, which validates them."""
        return read_config(self.to_dict(), source)

    def update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Applies the values whose names match settings, and returns the rest."""
        rest = {}
        for name, value in values.items():
            if name == "id2label":
                self._name_classes(value)
            elif hasattr(self, name):
                setattr(self, name, value)
            else:
                rest[name] = value
        return rest

    # === Reading and writing ===

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings for serialization."""
        values = copy.deepcopy(vars(self))
        del values["name_or_path"]  # a local path
        values["id2label"] = {str(index): name for index, name in self.id2label.items()}
        return {"model_type": self.model_type, **values}

    def to_json_string(self, use_diff: bool = True) -> str:
        """Returns the contents of a ``config.json``."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_json_file(self, path: str | os.PathLike[str], use_diff: bool = True) -> None:
        """Writes a ``config.json``."""
        write_json(os.fspath(path), self.to_dict())

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.to_json_string()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PretrainedConfig) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """Creates the config from the result of ``to_dict``."""
        return cls(**{**values, **overrides})

    @classmethod
    def from_json_file(cls, path: str | os.PathLike[str]) -> Self:
        """Creates the config from a ``config.json``."""
        return cls(**read_json_object(os.fspath(path)))

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], **values: Any
    ) -> Any:
        """Loads a config from a directory, a file or the hub; ``values`` override its settings."""
        path, values = resolve_directory(pretrained_model_name_or_path, values)
        file = path if path.endswith(".json") else os.path.join(path, CONFIG)
        settings = read_json_object(file)
        config = _config_class(settings, file, cls)(**settings)
        for key, value in config.update(values).items():
            setattr(config, key, value)
        config.name_or_path = os.fspath(pretrained_model_name_or_path)
        return config

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Any:
        """Returns the config of a checkpoint of any format."""
        file = os.path.join(checkpoint.path, CONFIG)
        has_settings = checkpoint.format == "huggingface" and os.path.isfile(file)
        settings = read_json_object(file) if has_settings else config_values(checkpoint)
        return _config_class(settings, file, cls)(**settings)

    def save_pretrained(self, save_directory: str | os.PathLike[str], **options: Any) -> None:
        """Writes ``config.json`` into a directory, which is created if it does not exist."""
        os.makedirs(save_directory, exist_ok=True)
        self.to_json_file(os.path.join(save_directory, CONFIG))


def _config_class(values: Mapping[str, Any], source: str, cls: type[Any]) -> type[Any]:
    """Returns ``cls`` or, for ``AutoConfig``, the config class of the file's ``model_type``."""
    model_type = values.get("model_type", "bert")
    if model_type not in CONFIGS:
        raise ValueError(
            f"{source}: expected model_type {' or '.join(map(repr, CONFIGS))}, got {model_type!r}."
        )
    if cls.model_type and cls.model_type != model_type:
        raise ValueError(
            f"{source}: {cls.__name__} expects model_type {cls.model_type!r}, got {model_type!r}. "
            f"Use {CONFIGS[model_type].__name__} or AutoConfig."
        )
    return cls if cls.model_type else CONFIGS[model_type]


class BertConfig(PretrainedConfig):
    """Config of a BERT model, with the defaults of bert-base-uncased."""

    model_type = "bert"
    defaults: ClassVar[Mapping[str, Any]] = {
        **sizes.BertConfig().to_dict(),
        **{"pad_token_id": 0, "position_embedding_type": "absolute", "use_cache": True},
        **{"classifier_dropout": None, "is_decoder": False},
    }


class DistilBertConfig(PretrainedConfig):
    """Config of a DistilBERT model, with the defaults of distilbert-base-uncased."""

    model_type = "distilbert"
    attribute_map: ClassVar[Mapping[str, str]] = {
        **PretrainedConfig.attribute_map,
        **{"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        # in the order of the constructor's arguments in transformers
        **{"vocab_size": 30522, "max_position_embeddings": 512, "sinusoidal_pos_embds": False},
        **{"n_layers": 6, "n_heads": 12, "dim": 768, "hidden_dim": 3072, "dropout": 0.1},
        **{"attention_dropout": 0.1, "activation": "gelu", "initializer_range": 0.02},
        **{"qa_dropout": 0.1, "seq_classif_dropout": 0.2},
    }


CONFIGS: dict[str, type[PretrainedConfig]] = {
    config.model_type: config for config in (BertConfig, DistilBertConfig)
}


class AutoConfig(PretrainedConfig):
    """Factory of configs; ``from_pretrained`` selects the class by ``model_type``."""

    @classmethod
    def for_model(cls, model_type: str, **values: Any) -> PretrainedConfig:
        """Creates a config for a model type."""
        return CONFIGS[model_type](**values)
