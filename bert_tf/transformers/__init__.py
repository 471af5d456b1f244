"""transformers' TensorFlow classes for BERT, as names over this library's models.

transformers 5 has no TensorFlow. A script that says ``from transformers import
TFBertForSequenceClassification, BertTokenizerFast`` says ``from bert_tf.transformers import ...``,
and goes on. ``names.py`` has what is here, and what takes the place of what is not.
"""

import functools
import importlib
import logging as python_logging
import sys
import types
from typing import Any

from .names import NAMES, PATHS, replacement

__all__ = [*sorted(NAMES)]

_LOGGER = python_logging.getLogger("bert_tf")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: ``transformers.logging``; there are no bars to switch off.
logging = types.SimpleNamespace(
    get_logger=lambda name="bert_tf": python_logging.getLogger(name),
    get_verbosity=_LOGGER.getEffectiveLevel,
    set_verbosity=_LOGGER.setLevel,
    disable_progress_bar=lambda: None,
    enable_progress_bar=lambda: None,
    **{level: getattr(python_logging, level) for level in _LEVELS},
    **{
        f"set_verbosity_{level.lower()}": functools.partial(_LOGGER.setLevel, level)
        for level in _LEVELS
    },
)


def __getattr__(name: str) -> Any:
    if name in NAMES:
        if name not in globals():
            module = importlib.import_module(f".{NAMES[name]}", __name__)
            globals()[name] = getattr(module, name)
        return globals()[name]
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
