"""``transformers.logging``: how much is said."""

import functools
import logging as python
from types import SimpleNamespace
from typing import Any

_LOGGER = python.getLogger("bert_tf")
_NAMES = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _nothing(*arguments: Any, **options: Any) -> None:
    """There is no bar."""


logging = SimpleNamespace(
    get_logger=lambda name="bert_tf": python.getLogger(name),
    get_verbosity=_LOGGER.getEffectiveLevel,
    set_verbosity=_LOGGER.setLevel,
    **{f"set_verbosity_{n.lower()}": functools.partial(_LOGGER.setLevel, n) for n in _NAMES},
    **{name: getattr(python, name) for name in _NAMES},
    **dict.fromkeys(("disable_progress_bar", "enable_progress_bar"), _nothing),
)
