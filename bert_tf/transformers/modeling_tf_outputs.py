"""The classes of outputs by the name of the module that transformers has them in."""

from typing import Any

from .outputs import OUTPUTS, ModelOutput

__all__ = ["ModelOutput", *OUTPUTS]


def __getattr__(name: str) -> Any:
    if name in OUTPUTS:
        return OUTPUTS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
