"""BERT in TensorFlow and Keras, from raw text to served answers.

The repository's top-level folders ``pipelines/`` (tf.data: strings to model features) and
``saved_models/`` (exports for TF Serving) are this package's ``bert_tf.pipelines`` and
``bert_tf.saved_models``.
"""

import importlib
import importlib.abc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import loader

# Before TensorFlow loads: its C++ side prints start-up notices (level 0: info) that tell a user
# nothing. Warnings and errors stay, and a level set by the user wins.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

if TYPE_CHECKING:
    from bert_tf.config import BertConfig as BertConfig
    from bert_tf.interchange.load import load as load
    from bert_tf.interchange.saving import save as save
    from bert_tf.modeling import BertClassifier as BertClassifier
    from bert_tf.modeling import BertEncoder as BertEncoder
    from bert_tf.modeling import BertFeatures as BertFeatures
    from bert_tf.modeling import BertFeatureTagger as BertFeatureTagger
    from bert_tf.modeling import BertMultipleChoice as BertMultipleChoice
    from bert_tf.modeling import BertPretrainer as BertPretrainer
    from bert_tf.modeling import BertRegressor as BertRegressor
    from bert_tf.modeling import BertSpanPredictor as BertSpanPredictor
    from bert_tf.modeling import BertTokenClassifier as BertTokenClassifier
    from bert_tf.pipelines.preprocessor import BertPreprocessor as BertPreprocessor
    from bert_tf.predicting.predictor import Predictor as Predictor

__version__ = "0.1.0"

# Where each public name is defined. Resolved on first use, so that `--help` is quick and
# `bert_tf.modeling` can be imported under Keras' JAX backend without loading TensorFlow.
_PUBLIC = {
    "BertConfig": "bert_tf.config",
    "BertPreprocessor": "bert_tf.pipelines.preprocessor",
    "Predictor": "bert_tf.predicting.predictor",
    "load": "bert_tf.interchange.load",
    "save": "bert_tf.interchange.saving",
    **dict.fromkeys(
        (
            *("BertClassifier", "BertEncoder", "BertFeatureTagger", "BertFeatures"),
            *("BertMultipleChoice", "BertPretrainer", "BertRegressor", "BertSpanPredictor"),
            "BertTokenClassifier",
        ),
        "bert_tf.modeling",
    ),
}
_ROOMS = (
    *(
        "api",
        "config",
        "extraction",
        "features",
        "finetuning",
        "interchange",
        "modeling",
        "pipelines",
    ),
    *("metrics", "pretraining", "readers", "saved_models", "training"),
)

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"bert_tf.{name}")
    else:
        raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_ROOMS})


# === The models can load checkpoints ===


def _load(path: str, **arguments: Any) -> Any:
    # Imported on first use: it loads TensorFlow.
    from .interchange.load import load

    return load(path, **arguments)


loader.load = _load


# === Keras knows the models as soon as it is there ===

# ``keras.saving.load_model`` finds a class by its registered name, so every model has to be
# registered; but importing Keras takes seconds, which ``--help`` should not. So the models are
# imported when Keras is: now, if it is already, or right after.
_MODELS = "bert_tf.modeling"
# What a compiled model names; they need TensorFlow, which Keras has loaded where it computes by it.
_COMPILED_WITH = ("bert_tf.training.optimizers", "bert_tf.training.schedules")


def _register_with_keras() -> None:
    """Imports the models, at once or after the first ``import keras``."""
    if "keras" in sys.modules:
        _import_registered()
    else:
        sys.meta_path.insert(0, _AfterKeras())


def _import_registered() -> None:
    for name in (_MODELS, *(_COMPILED_WITH if "tensorflow" in sys.modules else ())):
        importlib.import_module(name)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Lets Keras be found as ever, and imports the models when it has been executed.

    It stays until Keras has been: whoever only asks whether there is a Keras executes nothing.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "keras":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """Keras' own loader, and then the models."""

    def __init__(self, loader: importlib.abc.Loader, finder: _AfterKeras) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _import_registered()


_register_with_keras()
