"""transformers' TensorFlow classes for BERT, as names over this library's models.

transformers 5 has no TensorFlow. A script that says ``from transformers import
TFBertForSequenceClassification, BertTokenizerFast`` says ``from bert_tf.transformers import ...``,
and goes on. ``names.py`` has what is here, and what takes the place of what is not.
"""

import importlib
import sys
import types
from typing import Any

from .names import NAMES, PATHS, replacement
from .verbosity import logging

__all__ = [*sorted(NAMES)]


def __getattr__(name: str) -> Any:
    if name in NAMES:
        value = getattr(importlib.import_module(f".{NAMES[name]}", __name__), name)
        globals()[name] = value
        return value
    use = "" if name.startswith("_") else replacement(name)
    if use:
        raise ImportError(f"bert_tf.transformers has no {name}: use {use}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})


for _path in PATHS:
    _module: Any = types.ModuleType(f"{__name__}.{_path}", "Every name that is here.")
    _module.__getattr__ = __getattr__
    sys.modules[_module.__name__] = _module
sys.modules[f"{__name__}.utils.logging"] = logging  # type: ignore[assignment]
