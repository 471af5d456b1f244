"""Imports go one way, every folder of code is packaged, and nothing is loaded twice."""

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
# What each room may import from the rest of the library. A name stands for the module or the
# room and all in it; the commands at the top of bert_tf/, and the rooms of their stages, may import
# everything but each other.
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
# What the folder of a kind of task may import, besides its own: no other kind.
OF_A_KIND = ALLOWED["tasks"] + " tasks"
LIBRARY = [ROOT / name for name in ("bert_tf", "pipelines", "saved_models")]
FOLDERS = {
    ".".join(path.parent.relative_to(ROOT).parts).removeprefix("bert_tf."): path.parent
    for folder in LIBRARY
    for path in folder.glob("**/*.py")
}
KINDS = {name for name in FOLDERS if name.startswith("tasks.")}

needs_checkout = pytest.mark.skipif(
    not (ROOT / "pipelines").is_dir(), reason="the checkout is missing, whose files this reads"
)


@functools.cache
def imports_of(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


@functools.cache
def _imported(path):
    """The rooms and top modules of the library that a file imports, but for its own room's."""
    found = set()
    for node in imports_of(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.level == 1 and path.parent.name != "bert_tf":
            continue
        else:
            own = _room(path).split(".") if path.parent.name != "bert_tf" else []
            above = ["bert_tf", *own[: len(own) - node.level + 1]] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        inner = [name.removeprefix("bert_tf.") for name in names if name.startswith("bert_tf.")]
        found |= {*map(_room_of, inner)}
        found |= {"bert_tf"} & {*names}  # the package as a whole, which is above every room
        assert not any(name.split(".")[0] in ("pipelines", "saved_models") for name in names), path
    return found


def _room_of(name):
    """The room of a module or of what is in it, or the module at the top."""
    parts = name.split(".")
    rooms = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((room for room in rooms if room in FOLDERS), parts[0])


def _files():
    for folder in FOLDERS.values():
        yield from sorted(folder.glob("*.py"))


def _room(path):
    if path.parent.name == "bert_tf":
        return path.stem
    return ".".join(path.parent.relative_to(ROOT).parts).removeprefix("bert_tf.")


@needs_checkout
def test_no_import_by_name_goes_round_the_rules():
    """A literal name would hide an import from the tests here."""
    rooms = [path for path in _files() if path.parent.name != "bert_tf"]
    found = [
        path for path in rooms if re.search(r"import_module\(\s*f?.bert_tf\.", path.read_text())
    ]
    assert found == []


@needs_checkout
def test_imports_go_one_way():
    rooms = [(path, _room(path)) for path in _files()]
    allowed = {**ALLOWED, **dict.fromkeys(KINDS, OF_A_KIND)}
    wrong = {
        path: _imported(path) - {room, *allowed[room].split()}
        for path, room in rooms
        if room in allowed and path.name != "registry.py"
    }
    assert {path: names for path, names in wrong.items() if names} == {}


@needs_checkout
def test_the_registry_alone_lists_the_kinds():
    assert _imported(FOLDERS["tasks"] / "registry.py") >= KINDS


@needs_checkout
def test_the_rows_of_a_kind_are_of_tf_data_alone():
    rows = [path for path in _files() if path.name == "rows.py" and _room(path) in KINDS]
    assert rows
    for path in rows:
        assert _imported(path) <= {"choices", "features", "pipelines"}, path


@needs_checkout
def test_a_room_imports_its_own_files_relatively():
    rooms = [path for path in _files() if path.parent != FOLDERS["bert_tf"]]
    assert [path for path in rooms if _room(path) in _imported(path)] == []


@needs_checkout
def test_modeling_is_keras_alone():
    for path in FOLDERS["modeling"].glob("*.py"):
        assert not re.search(r"^\s*(import|from) tensorflow", path.read_text(), re.MULTILINE), path


@needs_checkout
def test_every_folder_is_packaged():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    packages = set(setup["options"]["packages"].split())
    assert packages == {"bert_tf", *(f"bert_tf.{name}" for name in FOLDERS if name != "bert_tf")}
    outside = {name for name in FOLDERS if FOLDERS[name].relative_to(ROOT).parts[0] != "bert_tf"}
    assert {f"bert_tf.{name}" for name in outside} == {
        *setup["options"]["package_dir"].split()[::3]
    }
    assert set(ALLOWED) - {path.stem for path in FOLDERS["bert_tf"].glob("*.py")} <= set(FOLDERS)


# What only some uses need, and ask for in a sentence.
OPTIONAL = {"apache_beam", "orjson", "pyarrow", "uvicorn"}
DISTRIBUTIONS = {"absl": "absl-py", "google": "protobuf"}


@needs_checkout
def test_what_is_installed_on_a_tpu_is_what_tensorflow_does_not_bring():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    required = re.findall(r"^([\w-]+)>=", setup["options"]["install_requires"], re.MULTILINE)
    (line,) = re.findall(
        r"^pip install 'keras==(?:.*\\\n)*.*$",
        (ROOT / "docs" / "install.md").read_text(),
        re.MULTILINE,
    )
    brought = {"tensorflow", "tensorflow-text", "h5py", "ml_dtypes", "numpy", "optree", "protobuf"}
    assert set(re.findall(r"[\w-]+", line.replace("==3.15.*", ""))) == {
        *("pip", "install"),
        *(name for name in required if name not in brought),
    }


@needs_checkout
def test_everything_that_is_imported_is_declared():
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


# That --help loads no TensorFlow is tests/cli's.
def test_no_module_is_loaded_twice():
    importlib.import_module("bert_tf.pretraining.run")
    assert not {"pipelines", "saved_models"} & set(sys.modules)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.name)
@needs_checkout
def test_the_benchmarks_import_what_there_is(path):
    for node in imports_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bert_tf"):
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                there = hasattr(module, name) or importlib.util.find_spec(f"{node.module}.{name}")
                assert there, f"{node.module}.{name}"


def test_every_folder_is_there_when_the_library_is_imported():
    folders = [path.parent for path in pathlib.Path(bert_tf.__file__).parent.glob("*/__init__.py")]
    rooms = {*(path.name for path in folders), "pipelines", "saved_models"}
    assert rooms <= {*dir(bert_tf)}
    for name in rooms:
        assert getattr(bert_tf, name).__name__ == f"bert_tf.{name}"
