"""BERT in TensorFlow and Keras, from raw text to served predictions.

The top-level folders ``pipelines/`` (tf.data pipelines from strings to model features) and
``saved_models/`` (exports for TensorFlow Serving) are installed as ``bert_tf.pipelines`` and
``bert_tf.saved_models``.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from .io import runtime

os.register_at_fork(after_in_child=runtime.record_fork)

if TYPE_CHECKING:
    from bert_tf.checkpoints.load import load as load
    from bert_tf.checkpoints.model_directory import save as save
    from bert_tf.config import BertConfig as BertConfig
    from bert_tf.io.messages import DifferenceWarning as DifferenceWarning
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
    from bert_tf.predicting.batches import BatchPredictor as BatchPredictor
    from bert_tf.predicting.predictor import Predictor as Predictor

__version__ = "0.1.0"

# Modules by public name. Names are resolved on first use, so that `--help` is fast and
# `bert_tf.modeling` can be imported with Keras' JAX backend without loading TensorFlow.
_PUBLIC = {
    "BertConfig": "bert_tf.config",
    "BertPreprocessor": "bert_tf.pipelines.preprocessor",
    "DifferenceWarning": "bert_tf.io.messages",
    "BatchPredictor": "bert_tf.predicting.batches",
    "Predictor": "bert_tf.predicting.predictor",
    "load": "bert_tf.checkpoints.load",
    "save": "bert_tf.checkpoints.model_directory",
    **dict.fromkeys(
        (
            *("BertClassifier", "BertEncoder", "BertFeatureTagger", "BertFeatures"),
            *("BertMultipleChoice", "BertPretrainer", "BertRegressor", "BertSpanPredictor"),
            "BertTokenClassifier",
        ),
        "bert_tf.modeling",
    ),
}
_SUBMODULES = (
    *("api", "checkpoints", "cli", "config", "evaluation", "extraction", "features", "finetuning"),
    *("io", "modeling", "pipelines", "predicting", "pretraining", "readers", "saved_models"),
    *("serving", "tasks", "training", "transformers"),
)

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"bert_tf.{name}")
    else:
        raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_SUBMODULES})


# === Hook with which `modeling` loads checkpoints ===


def _load(path: str, **arguments: Any) -> Any:
    # This import loads TensorFlow.
    from .checkpoints.load import load

    return load(path, **arguments)


runtime.load_hook = _load


# === Registration of the models with Keras ===

# ``keras.saving.load_model`` finds a class by its registered name. Importing Keras takes seconds,
# so the models are registered here only if Keras is already imported, and otherwise when
# ``bert_tf.modeling`` is imported. The optimizers and schedules of compiled models need TensorFlow.
_REGISTERED = {
    "keras": ("bert_tf.modeling",),
    "tensorflow": ("bert_tf.training.optimizers", "bert_tf.training.schedules"),
}

if "keras" in sys.modules:
    for _library, _modules in _REGISTERED.items():
        for _module in _modules if _library in sys.modules else ():
            importlib.import_module(_module)
