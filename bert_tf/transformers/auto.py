"""The classes that find out from a directory which model it is of."""

import contextlib
import os
from typing import Any, ClassVar

from .configuration import AutoConfig, PretrainedConfig
from .models import MODELS as NATIVE
from .names import NAMES
from .tokenization import BertTokenizerFast, DistilBertTokenizerFast

_PREFIXES = {"bert": "TFBert", "distilbert": "TFDistilBert"}
_PLACE = ("revision", "subfolder")  # options that say where a config is


class _TFAutoModel:
    """The classes of one head, one for each kind of model."""

    head: ClassVar[str] = ""

    def __init__(self) -> None:
        raise OSError(
            f"{type(self).__name__} is made by from_pretrained(name) or from_config(config)."
        )

    @classmethod
    def _class_of(cls, config: PretrainedConfig) -> Any:
        is_pretrained = config.model_type == "distilbert" and cls.head == "ForPreTraining"
        name = f"{_PREFIXES[config.model_type]}{'ForMaskedLM' if is_pretrained else cls.head}"
        if name not in NATIVE:
            raise ValueError(f"{cls.__name__}: a {config.model_type} has no {name}.")
        return NATIVE[name]

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The model of a directory or of the hub; see ``TFPreTrainedModel.from_pretrained``."""
        path, found = pretrained_model_name_or_path, options.get("config")
        if not isinstance(found, PretrainedConfig):
            place = {key: options[key] for key in _PLACE if key in options}
            found = AutoConfig.from_pretrained(path if found is None else found, **place)
        return cls._class_of(found).from_pretrained(path, *inputs, **options)

    @classmethod
    def from_config(cls, config: PretrainedConfig, **options: Any) -> Any:
        """The model of a config, with new weights."""
        return cls._class_of(config)(config, **options)


def _auto(name: str) -> Any:
    head = _HEADS.get(name, name.removeprefix("TFAutoModel"))
    doc = f"``transformers.{name}``: a ``TFBert{head}`` or its like."
    return type(name, (_TFAutoModel,), {"head": head, "__doc__": doc, "__module__": __name__})


# Of the classes that are not named after their head.
_HEADS = {
    **dict.fromkeys(("TFAutoModel", "TFAutoModelForTextEncoding"), "Model"),
    **{"TFAutoModelWithLMHead": "ForMaskedLM", "TFAutoModelForCausalLM": "LMHeadModel"},
}
#: The classes by their names.
MODELS = {name: _auto(name) for name in NAMES if name.startswith("TFAuto")}
globals().update(MODELS)


class AutoTokenizer:
    """``from_pretrained`` gives the tokenizer of the model that a directory is of."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], *inputs: Any, **options: Any
    ) -> Any:
        """The tokenizer of a directory or of the hub."""
        path, kind = pretrained_model_name_or_path, "bert"
        place = {key: options[key] for key in _PLACE if key in options}
        with contextlib.suppress(ValueError):  # a directory of a tokenizer alone has no config
            kind = AutoConfig.from_pretrained(path, **place).model_type
        classes = {"bert": BertTokenizerFast, "distilbert": DistilBertTokenizerFast}
        return classes[kind].from_pretrained(path, *inputs, **options)
