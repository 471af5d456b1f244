"""Makes the library's models known to Keras as soon as Keras is there.

``keras.saving.load_model`` finds a class by its registered name, so after ``import bert_tf`` every
model has to be registered; but importing Keras takes seconds, which ``--help`` should not. So the
models are imported when Keras is: now, if it is already, or right after.
"""

import importlib
import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODELS = "bert_tf.modeling"


def register_with_keras() -> None:
    """Imports the models, at once or after the first ``import keras``."""
    if "keras" in sys.modules:
        importlib.import_module(_MODELS)
    else:
        sys.meta_path.insert(0, _AfterKeras())


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
        importlib.import_module(_MODELS)
