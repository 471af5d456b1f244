"""``save_weights`` and ``load_weights`` with files of any name, as Keras 2 had them.

Keras 3 takes only names that end in ``.weights.h5``. Its file goes by the script's own name here.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from bert_tf.interchange import keras2_files
from bert_tf.interchange.recognition import open_for

from .directories import read_weights

_SUFFIX = ".weights.h5"


def save(keras_save: Callable[..., None], path: str, options: dict[str, Any]) -> None:
    """Writes the file of that name; ``options`` of Keras 2's formats mean nothing."""
    options = {key: value for key, value in options.items() if key == "overwrite"}
    if path.endswith(_SUFFIX):
        keras_save(path, **options)
        return
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = os.path.join(scratch, f"model{_SUFFIX}")
        keras_save(made)
        os.replace(made, path)


def load(model: Any, keras_load: Callable[..., Any], path: str, options: dict[str, Any]) -> None:
    """Reads the file of that name: what ``save`` wrote, or weights of their classes in Keras 2."""
    if not keras2_files.is_keras_3(path):
        read_weights(model, open_for(path, model.config.to_dict()), ignores_sizes=None)
    elif path.endswith(_SUFFIX):
        keras_load(path)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            link = os.path.join(scratch, f"model{_SUFFIX}")
            shutil.copyfile(path, link)
            keras_load(link)
