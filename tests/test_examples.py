"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib.util
import pathlib
import pkgutil

import pytest

import bert_tf


def _has_examples(name):
    return ">>> " in pathlib.Path(importlib.util.find_spec(name).origin).read_text()


def _modules():
    names = [module.name for module in pkgutil.walk_packages(bert_tf.__path__, "bert_tf.")]
    # Folders that are installed under the package's name are not below its own path.
    for room in ("pipelines", "saved_models"):
        path = importlib.import_module(f"bert_tf.{room}").__path__
        names += [module.name for module in pkgutil.walk_packages(path, f"bert_tf.{room}.")]
    return sorted({name for name in names if not name.endswith(("__init__", "__main__"))})


# Only these are imported: two commands define flags of the same name, each for its own process.
@pytest.mark.parametrize("name", list(filter(_has_examples, _modules())))
def test_examples(name):
    # By its package name: collected from the file's path it would be loaded a second time.
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0
