"""Examples in docstrings run and print the documented output."""

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
    # These packages are installed as subpackages but are outside the folder bert_tf/.
    for package in ("pipelines", "saved_models"):
        path = importlib.import_module(f"bert_tf.{package}").__path__
        names += [module.name for module in pkgutil.walk_packages(path, f"bert_tf.{package}.")]
    return sorted({name for name in names if not name.endswith(("__init__", "__main__"))})


# Other modules are not imported, because commands define flags of the same name.
@pytest.mark.parametrize("name", list(filter(_has_examples, _modules())))
def test_examples(name):
    # Importing by path, as pytest does, would load the module twice.
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0
