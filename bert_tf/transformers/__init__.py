"""transformers' TensorFlow classes for BERT, as names over this library's models.

transformers 5 has no TensorFlow. A script that says ``from transformers import
TFBertForSequenceClassification, BertTokenizerFast`` says ``from bert_tf.transformers import ...``,
and goes on. ``names.py`` has what is here, and what takes the place of what is not.
"""

import importlib
from typing import Any

from .names import NAMES, replacement

__all__ = [*sorted(NAMES)]


def __getattr__(name: str) -> Any:
    if name in NAMES:
        module = importlib.import_module(f".{NAMES[name]}", __name__)
        models = getattr(module, "MODELS", {})
        value = models[name] if name in models else getattr(module, name)
        globals()[name] = value
        return value
    use = "" if name.startswith("_") else replacement(name)
    if use:
        raise ImportError(f"bert_tf.transformers has no {name}: use {use}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
