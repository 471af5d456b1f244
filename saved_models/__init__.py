"""Export of models to SavedModels with a built-in tokenizer, for TensorFlow Serving."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_tf.answering.export_options import ExportOptions

    from .exporting import export
    from .verification import verify

# Imported on first use.
_PUBLIC = {
    "ExportOptions": "bert_tf.answering.export_options",
    "export": "bert_tf.saved_models.exporting",
    "verify": "bert_tf.saved_models.verification",
}

__all__ = ["ExportOptions", "export", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
