"""SavedModel export for TensorFlow Serving: strings in, answers out, the tokenizer inside."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_tf.answering.options import ExportOptions

    from .exporting import export
    from .verification import verify

# Resolved on first use: verifying loads no TensorFlow in its own process.
_PUBLIC = {
    "ExportOptions": "bert_tf.answering.options",
    "export": "bert_tf.saved_models.exporting",
    "verify": "bert_tf.saved_models.verification",
}

__all__ = ["ExportOptions", "export", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
