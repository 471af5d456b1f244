"""Imports follow the layers of the library; packages and dependencies are in setup.cfg."""

import ast
import configparser
import functools
import importlib.util
import pathlib
import re
import sys

import pytest

import bert_tf

ROOT = pathlib.Path(bert_tf.__file__).parent.parent
# Modules and packages of the library that each package may import. The commands in bert_tf/ and the
# packages of their stages may import everything except each other.
ALLOWED = {
    "io": "",
    "choices": "",
    "config": "choices io",
    "features": "",
    "graph_gradients": "",
    "modeling": "choices config features graph_gradients io",
    "training": "choices config features graph_gradients io modeling",
    "pipelines.corpora": "choices io",
    "pipelines": "choices config features graph_gradients io pipelines.corpora",
    "pipelines.pretraining": "choices features io pipelines pipelines.corpora",
    "answering": "choices cli config features modeling pipelines",
    "saved_models": "answering checkpoints io modeling pipelines tasks training",
    "checkpoints": "choices config features io modeling pipelines training",
    "readers": "config features io pipelines.corpora",
    "evaluation": "answering choices features io modeling pipelines readers",
    "tasks": "answering checkpoints choices cli evaluation features io modeling pipelines readers "
    "training",
    "cli": "choices io",
}
# Packages that the package of a task type may import; other task types are not among them.
ALLOWED_IN_TASKS = ALLOWED["tasks"] + " tasks"
LIBRARY = [ROOT / name for name in ("bert_tf", "pipelines", "saved_models")]
FOLDERS = {
    ".".join(path.parent.relative_to(ROOT).parts).removeprefix("bert_tf."): path.parent
    for folder in LIBRARY
    for path in folder.glob("**/*.py")
}
TASK_TYPES = {name for name in FOLDERS if name.startswith("tasks.")}

needs_checkout = pytest.mark.skipif(
    not (ROOT / "pipelines").is_dir(), reason="needs the files of a checkout"
)


@functools.cache
def imports_of(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


@functools.cache
def _imported(path):
    """Returns the packages and top-level modules that a file imports, except its own package."""
    found = set()
    for node in imports_of(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.level == 1 and path.parent.name != "bert_tf":
            continue
        else:
            own = _package_of(path).split(".") if path.parent.name != "bert_tf" else []
            above = ["bert_tf", *own[: len(own) - node.level + 1]] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        inner = [name.removeprefix("bert_tf.") for name in names if name.startswith("bert_tf.")]
        found |= {*map(_package_of_name, inner)}
        found |= {"bert_tf"} & {*names}  # the package itself, which is above all layers
        assert not any(name.split(".")[0] in ("pipelines", "saved_models") for name in names), path
    return found


def _package_of_name(name):
    """Returns the package of a module or of a name in it, or the name of a top-level module."""
    parts = name.split(".")
    packages = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((package for package in packages if package in FOLDERS), parts[0])


def _files():
    for folder in FOLDERS.values():
        yield from sorted(folder.glob("*.py"))


def _package_of(path):
    if path.parent.name == "bert_tf":
        return path.stem
    return ".".join(path.parent.relative_to(ROOT).parts).removeprefix("bert_tf.")


@needs_checkout
def test_import_module_is_not_called_with_a_constant_name():
    """The other tests of this file do not see such imports."""
    paths = [path for path in _files() if path.parent.name != "bert_tf"]
    found = [
        path for path in paths if re.search(r"import_module\(\s*f?.bert_tf\.", path.read_text())
    ]
    assert found == []


@needs_checkout
def test_imports_follow_the_layers():
    files = [(path, _package_of(path)) for path in _files()]
    allowed = {**ALLOWED, **dict.fromkeys(TASK_TYPES, ALLOWED_IN_TASKS)}
    wrong = {
        path: _imported(path) - {package, *allowed[package].split()}
        for path, package in files
        if package in allowed and path.name != "registry.py"
    }
    assert {path: names for path, names in wrong.items() if names} == {}


@needs_checkout
def test_registry_imports_all_task_types():
    assert _imported(FOLDERS["tasks"] / "registry.py") >= TASK_TYPES


@needs_checkout
def test_rows_modules_import_only_pipelines():
    rows = [path for path in _files() if path.name == "rows.py" and _package_of(path) in TASK_TYPES]
    assert rows
    for path in rows:
        assert _imported(path) <= {"choices", "features", "pipelines"}, path


@needs_checkout
def test_imports_within_a_package_are_relative():
    paths = [path for path in _files() if path.parent != FOLDERS["bert_tf"]]
    assert [path for path in paths if _package_of(path) in _imported(path)] == []


@needs_checkout
def test_modeling_does_not_import_tensorflow():
    for path in FOLDERS["modeling"].glob("*.py"):
        assert not re.search(r"^\s*(import|from) tensorflow", path.read_text(), re.MULTILINE), path


@needs_checkout
def test_all_folders_are_packaged():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    packages = set(setup["options"]["packages"].split())
    assert packages == {"bert_tf", *(f"bert_tf.{name}" for name in FOLDERS if name != "bert_tf")}
    outside = {name for name in FOLDERS if FOLDERS[name].relative_to(ROOT).parts[0] != "bert_tf"}
    assert {f"bert_tf.{name}" for name in outside} == {
        *setup["options"]["package_dir"].split()[::3]
    }
    assert set(ALLOWED) - {path.stem for path in FOLDERS["bert_tf"].glob("*.py")} <= set(FOLDERS)


# Optional dependencies; code that needs them raises an error with the command to install them.
OPTIONAL = {"apache_beam", "orjson", "pyarrow", "uvicorn"}
DISTRIBUTIONS = {"absl": "absl-py", "google": "protobuf"}


@needs_checkout
def test_tpu_install_command_lists_packages_missing_from_tensorflow():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    required = re.findall(r"^([\w-]+)>=", setup["options"]["install_requires"], re.MULTILINE)
    (line,) = re.findall(
        r"^pip install 'keras==(?:.*\\\n)*.*$",
        (ROOT / "docs" / "install.md").read_text(),
        re.MULTILINE,
    )
    included = {"tensorflow", "tensorflow-text", "h5py", "ml_dtypes", "numpy", "optree", "protobuf"}
    assert set(re.findall(r"[\w-]+", line.replace("==3.15.*", ""))) == {
        *("pip", "install"),
        *(name for name in required if name not in included),
    }


@needs_checkout
def test_imported_packages_are_declared():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    declared = {
        re.split("[<>=]", line)[0].replace("-", "_")
        for line in setup["options"]["install_requires"].splitlines()
        if line and not line.startswith("#")
    }
    imported = set()
    for path in _files():
        for node in imports_of(path):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif not node.level:
                imported.add(node.module.split(".")[0])
    imported -= {*sys.stdlib_module_names, "bert_tf", *OPTIONAL}
    assert {DISTRIBUTIONS.get(name, name).replace("-", "_") for name in imported} <= declared


def test_modules_are_not_loaded_under_two_names():
    importlib.import_module("bert_tf.pretraining.run")
    assert not {"pipelines", "saved_models"} & set(sys.modules)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.name)
@needs_checkout
def test_benchmarks_import_existing_names(path):
    for node in imports_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bert_tf"):
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                exists = hasattr(module, name) or importlib.util.find_spec(f"{node.module}.{name}")
                assert exists, f"{node.module}.{name}"


def test_packages_are_attributes_of_the_library():
    folders = [path.parent for path in pathlib.Path(bert_tf.__file__).parent.glob("*/__init__.py")]
    packages = {*(path.name for path in folders), "pipelines", "saved_models"}
    assert packages <= {*dir(bert_tf)}
    for name in packages:
        assert getattr(bert_tf, name).__name__ == f"bert_tf.{name}"
