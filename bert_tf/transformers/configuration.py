"""``BertConfig`` as transformers has it: settings that can be changed, with names of classes.

``bert_tf.BertConfig`` has the sizes alone, frozen and checked; ``native`` gives it.
"""

import copy
import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from bert_tf import config as sizes
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.hub import find_directory as resolve_hub_directory
from bert_tf.checkpoints.hugging_face_config import config_values, read_config
from bert_tf.io.checkpoint_formats import CONFIG
from bert_tf.io.files import read_json_object, write_json
from bert_tf.io.paths import HUB_SCHEME, resolve_model

# === Names of models as scripts have them ===

# The owners of models that the hub once had without one.
_OWNERS = {"bert": "google-bert", "distilbert": "distilbert"}
# Arguments of from_pretrained that say how files are fetched, or of which library they are: the
# cache's own settings say the first (HF_HOME, HF_TOKEN, HF_HUB_OFFLINE), the files the second.
_IGNORED_OPTIONS = (
    *("cache_dir", "force_download", "from_flax", "from_pt", "from_tf", "local_files_only"),
    *("low_cpu_mem_usage", "mirror", "proxies", "resume_download", "token", "torch_dtype"),
    *("trust_remote_code", "use_auth_token", "use_safetensors", "variant", "framework"),
    *("use_fast", "legacy"),
)


def resolve_path(
    name: str | os.PathLike[str], values: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The path that ``bert_tf.load`` takes for a name, and the arguments that name no place.

    What is neither on this machine nor shipped is a model of the hub, without an owner its first.

    >>> resolve_path("bert-base-uncased", {"revision": "v1", "from_pt": True, "num_labels": 3})
    ('hf://google-bert/bert-base-uncased@v1', {'num_labels': 3})
    """
    path, values = resolve_model(os.fspath(name)), dict(values)
    revision, folder = values.pop("revision", None), values.pop("subfolder", None)
    if values.get("variant"):
        raise ValueError(
            f"variant is {values['variant']!r}, and files are read by their usual names: rename "
            "the weights, or name their file."
        )
    values = {key: value for key, value in values.items() if key not in _IGNORED_OPTIONS}
    if os.path.exists(path) or "://" in path or os.path.isabs(path) or path.startswith("."):
        return os.path.join(path, folder) if folder else path, values
    if folder:
        raise ValueError(
            f"subfolder is {folder!r}, and of {path} the hub's files at the top alone are read: "
            "download the folder, and name it."
        )
    if "/" not in path:
        owner = _OWNERS.get(path.split("-")[0])
        if owner is None:
            raise ValueError(
                f"There is no directory {path!r}, and no BERT or DistilBERT has that name on the "
                "hub: expected a directory, OWNER/NAME, or a name such as bert-base-uncased "
                "(RoBERTa and other families are other models)."
            )
        path = f"{owner}/{path}"
    return f"{HUB_SCHEME}{path}{f'@{revision}' if revision else ''}", values


def resolve_directory(
    name: str | os.PathLike[str], values: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """As ``resolve_path``, with the directory of the hub's files on this machine."""
    path, values = resolve_path(name, values)
    return resolve_hub_directory(path)[0] if path.startswith(HUB_SCHEME) else path, values


# === Settings ===

LOCATION_OPTIONS = ("revision", "subfolder")  # options that say where a config is
# Settings of every config in transformers, besides the sizes.
_COMMON_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("architectures", "classifier_dropout", "problem_type")),
    **{"name_or_path": "", "pad_token_id": 0, "position_embedding_type": "absolute"},
    **dict.fromkeys(("output_attentions", "output_hidden_states"), False),
    **dict.fromkeys(("return_dict", "tie_word_embeddings", "use_cache"), True),
}


class PretrainedConfig:
    """Settings of a model, as attributes; ``sizes`` are the first of ``defaults``.

    >>> config = BertConfig(num_labels=3, hidden_size=64, num_attention_heads=4)
    >>> config.num_labels, config.id2label[2], config.hidden_size, config.vocab_size
    (3, 'LABEL_2', 64, 30522)
    """

    model_type: ClassVar[str] = ""
    #: Names of settings here and the names that they go by elsewhere.
    attribute_map: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"_name_or_path": "name_or_path", "use_return_dict": "return_dict"}
    )
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

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
        """Number of classes; setting another number makes up new names."""
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
        """The names of the classes in the order of their ids."""
        return tuple(self.id2label[index] for index in sorted(self.id2label))

    def native(self, source: str = "the config") -> sizes.BertConfig:
        """The sizes as this library has them; errors are those of ``bert_tf.BertConfig``."""
        return read_config(self.to_dict(), source)

    def update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Sets those of the values that are settings; returns the others."""
        others = {}
        for name, value in values.items():
            if name == "id2label":
                self._name_classes(value)
            elif hasattr(self, name):
                setattr(self, name, value)
            else:
                others[name] = value
        return others

    # === In and out ===

    def to_dict(self) -> dict[str, Any]:
        """The settings by name, ready for JSON."""
        values = copy.deepcopy(vars(self))
        del values["name_or_path"]  # a place on this machine
        values["id2label"] = {str(index): name for index, name in self.id2label.items()}
        return {"model_type": self.model_type, **values}

    def to_json_string(self, use_diff: bool = True) -> str:
        """The text of a ``config.json``."""
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
    def from_dict(cls, values: Mapping[str, Any], **others: Any) -> Self:
        """The config that ``to_dict`` gave."""
        return cls(**{**values, **others})

    @classmethod
    def from_json_file(cls, path: str | os.PathLike[str]) -> Self:
        """The config in a ``config.json``."""
        return cls(**read_json_object(os.fspath(path)))

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], **values: Any
    ) -> Any:
        """The config of a directory, a ``config.json`` or a model of the hub; ``values`` win."""
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
        """The config of a checkpoint of any format."""
        file = os.path.join(checkpoint.path, CONFIG)
        has_settings = checkpoint.format == "huggingface" and os.path.isfile(file)
        settings = read_json_object(file) if has_settings else config_values(checkpoint)
        return _config_class(settings, file, cls)(**settings)

    def save_pretrained(self, save_directory: str | os.PathLike[str], **options: Any) -> None:
        """Writes ``config.json`` into a directory, which is made where it is not there."""
        os.makedirs(save_directory, exist_ok=True)
        write_json(os.path.join(save_directory, CONFIG), self.to_dict())


def _config_class(values: Mapping[str, Any], source: str, chosen: type[Any]) -> type[Any]:
    """The class of a file's settings: ``chosen``, or for ``AutoConfig`` by ``model_type``."""
    kind = values.get("model_type", "bert")
    if kind not in CONFIGS:
        raise ValueError(
            f"{source}: model_type is {kind!r}, expected {' or '.join(map(repr, CONFIGS))}: "
            "bert_tf.transformers has no others."
        )
    if chosen.model_type and chosen.model_type != kind:
        raise ValueError(
            f"{source}: model_type is {kind!r}, and {chosen.__name__} is of {chosen.model_type!r}: "
            f"take {CONFIGS[kind].__name__}, or AutoConfig."
        )
    return chosen if chosen.model_type else CONFIGS[kind]


class BertConfig(PretrainedConfig):
    """The settings of a BERT; the defaults are those of bert-base-uncased."""

    model_type = "bert"
    defaults = MappingProxyType(
        {
            **sizes.BertConfig().to_dict(),
            **{
                name: _COMMON_DEFAULTS[name] for name in ("pad_token_id", "position_embedding_type")
            },
            **{"use_cache": True, "classifier_dropout": None, "is_decoder": False},
        }
    )


class DistilBertConfig(PretrainedConfig):
    """The settings of a DistilBERT; the defaults are those of distilbert-base-uncased."""

    model_type = "distilbert"
    attribute_map = MappingProxyType(
        {
            **PretrainedConfig.attribute_map,
            **{"hidden_size": "dim", "num_attention_heads": "n_heads"},
            "num_hidden_layers": "n_layers",
        }
    )
    defaults = MappingProxyType(
        {  # in the order of their constructor's arguments
            **{"vocab_size": 30522, "max_position_embeddings": 512, "sinusoidal_pos_embds": False},
            **{"n_layers": 6, "n_heads": 12, "dim": 768, "hidden_dim": 3072, "dropout": 0.1},
            **{"attention_dropout": 0.1, "activation": "gelu", "initializer_range": 0.02},
            **{"qa_dropout": 0.1, "seq_classif_dropout": 0.2},
        }
    )


CONFIGS: dict[str, type[PretrainedConfig]] = {
    config.model_type: config for config in (BertConfig, DistilBertConfig)
}


class AutoConfig(PretrainedConfig):
    """``from_pretrained`` gives the config of the model that a directory is of."""

    @classmethod
    def for_model(cls, model_type: str, **values: Any) -> PretrainedConfig:
        """A new config of a kind of model."""
        return CONFIGS[model_type](**values)
