"""The library broken on purpose, a break at a time: does a fast test notice?

    python -m tests.breaks [--only=ROOM_OR_FILE] [--number=N] [--quick]

Each break of ``breaks.txt`` replaces a text of a file, which occurs there once, by another. The
script makes it in this checkout, which must have no changes of its own and be what is installed,
runs the module's examples and the fast tests of the files that import it or are named after it, and
where all pass those of the modules that import it and of their rooms. It puts the file back, and
prints how many test functions failed, and one of them; it ends with status 1 where a break was
noticed by none. With --quick the first that fails ends the tests of a break.
"""

import argparse
import importlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent
BREAKS = pathlib.Path(__file__).with_suffix(".txt")


def read_breaks() -> list[tuple[str, str, str]]:
    """The breaks: a file's path, what is there, and what it becomes."""
    found = []
    for block in BREAKS.read_text().strip("\n").split("\n\n")[1:]:  # behind the heading
        path, *lines = block.split("\n")
        texts = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        found.append((path, *texts))
    return found


def related(path: str) -> list[str]:
    """A module's tests: its own file's, those of files that import it, and its examples."""
    room, module = _tests_of(path), pathlib.Path(path).stem
    found = {f"{room}/test_{module}.py", f"tests/test_{module}.py"}
    # What all modules of a room promise together.
    found |= {f"{room}/test_{kind}.py" for kind in ("contract", "refused")}
    found |= _importing(path, "tests")
    found = {name for name in found if (ROOT / name).is_file() and "/test_" in name}
    if ">>> " in (ROOT / path).read_text():
        found.add(f"tests/test_examples.py::test_examples[{_dotted(path)}]")
    # Its own file first, which is the likeliest to notice.
    return sorted(found, key=lambda name: (not name.endswith(f"/test_{module}.py"), name))


def _importing(path: str, *folders: str) -> set[str]:
    """The files of some folders that import a module."""
    module = pathlib.Path(path).stem
    dotted = re.escape(_dotted(path))
    package = dotted.rpartition(r"\.")[0]
    names = [rf"from {dotted} import", rf"from {package} import (\([^)]*|.*)\b{module}\b"]
    absolute = re.compile("|".join(rf"^\s*{name}" for name in names), re.MULTILINE)
    beside = re.compile(rf"^from \.{module} import|^from \. import .*\b{module}\b", re.MULTILINE)
    return {
        name
        for name, text in _files(*folders)
        if absolute.search(text)
        or (pathlib.Path(name).parent == pathlib.Path(path).parent and beside.search(text))
    }


def _tests_of(path: str) -> str:
    """The folder of the tests of a module's room."""
    return f"tests/{pathlib.Path(path).parent}".replace("tests/bert_tf", "tests")


def _dotted(path: str) -> str:
    parts = pathlib.Path(path).with_suffix("").parts
    return ".".join(parts if parts[0] == "bert_tf" else ("bert_tf", *parts))


def _files(*folders: str) -> list[tuple[str, str]]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in paths]


def noticed(path: str, old: str, new: str, quick: bool) -> tuple[list[str], int]:
    """The test functions that fail with a break, and how many files were run."""
    file = ROOT / path
    before = file.read_text()
    if before.count(old) != 1:
        raise SystemExit(f"{path} has {before.count(old)} times what is to be broken: {old}")
    # Also those that compare with peers, where these are installed.
    given = ["-q", "-n0", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", *["-x"][:quick]]
    users = _importing(path, "bert_tf", "pipelines", "saved_models")
    asked: set[str] = set()
    failed: set[str] = set()
    file.write_text(before.replace(old, new))
    try:
        for modules in ([path], sorted(users)):
            found = {test: None for module in modules for test in related(module)}
            if modules != [path]:
                rooms = {_tests_of(name) for name in (path, *users)}
                found |= dict.fromkeys(room for room in sorted(rooms) if (ROOT / room).is_dir())
            tests = [test for test in found if test not in asked]
            if tests and not failed:
                printed = _run([*given, *tests])
                failed = set(re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", printed, re.MULTILINE))
                asked.update(tests)
    finally:
        file.write_text(before)
    return sorted(failed), len(asked)


def _run(arguments: list[str]) -> str:
    """Runs tests in a fork of this process, which has imported what takes long; what they print."""
    with tempfile.TemporaryFile("w+") as file:
        child = os.fork()
        if not child:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            pytest.main(arguments)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        return file.read()


def main() -> None:
    """Makes the breaks that are asked for, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of the files' paths")
    parser.add_argument("--number", type=int, help="one break, counted from 1")
    parser.add_argument("--quick", action="store_true", help="the first failure is enough")
    asked = parser.parse_args()
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode:
        raise SystemExit("The checkout has changes: commit them first.")
    sys.dont_write_bytecode = True
    for name in ("tensorflow", "keras"):  # no room of the library, which is broken
        importlib.import_module(name)
    os.chdir(ROOT)
    missed = 0
    for number, (path, old, new) in enumerate(read_breaks(), 1):
        if asked.only not in path or asked.number not in (None, number):
            continue
        failed, files = noticed(path, old, new, asked.quick)
        missed += not failed
        by = f"  noticed by {failed[0]}" if failed else ""
        print(
            f"{number:3} {len(failed):3} of {files:2} files  {path}: {new.strip()}{by}", flush=True
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
