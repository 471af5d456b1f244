"""Breaks the library on purpose, one break at a time, and checks that a fast test fails.

    python -m tests.breaks [--only=PATH] [--number=N] [--quick]

Each break in ``breaks.txt`` replaces code that occurs exactly once in its file. The checkout must
have no uncommitted changes and be the installed library. For each break, the script edits the file
and runs the docstring examples of the module and the fast tests that import it or are named after
it. If all pass, it also runs the tests of the modules that import the broken one, and those of
their packages. It then restores the file, and prints the number of failed test functions and the
name of one. The exit status is 1 if no test fails for a break. With --quick, the first failure ends
the tests of a break.
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
    """Returns (path, old code, new code) for each break."""
    found = []
    for block in BREAKS.read_text().strip("\n").split("\n\n")[1:]:  # after the heading
        path, *lines = block.split("\n")
        texts = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        found.append((path, *texts))
    return found


def related_tests(path: str) -> list[str]:
    """Returns the test file of a module, the test files that import it, and its examples."""
    package, module = _test_folder(path), pathlib.Path(path).stem
    found = {f"{package}/test_{module}.py", f"tests/test_{module}.py"}
    # Tests of all modules of a package.
    found |= {f"{package}/test_{kind}.py" for kind in ("contract", "errors")}
    found |= _importing(path, "tests")
    found = {name for name in found if (ROOT / name).is_file() and "/test_" in name}
    if ">>> " in (ROOT / path).read_text():
        found.add(f"tests/test_examples.py::test_examples[{_dotted(path)}]")
    # The test file of the module is first, because it is the most likely to fail.
    return sorted(found, key=lambda name: (not name.endswith(f"/test_{module}.py"), name))


def _importing(path: str, *folders: str) -> set[str]:
    """Returns the files in the folders that import a module."""
    module = pathlib.Path(path).stem
    dotted = re.escape(_dotted(path))
    package = dotted.rpartition(r"\.")[0]
    names = [rf"from {dotted} import", rf"from {package} import (\([^)]*|.*)\b{module}\b"]
    absolute = re.compile("|".join(rf"^\s*{name}" for name in names), re.MULTILINE)
    relative = re.compile(rf"^from \.{module} import|^from \. import .*\b{module}\b", re.MULTILINE)
    return {
        name
        for name, text in _files(*folders)
        if absolute.search(text)
        or (pathlib.Path(name).parent == pathlib.Path(path).parent and relative.search(text))
    }


def _test_folder(path: str) -> str:
    """Returns the folder of the tests of a module's package."""
    return f"tests/{pathlib.Path(path).parent}".replace("tests/bert_tf", "tests")


def _dotted(path: str) -> str:
    parts = pathlib.Path(path).with_suffix("").parts
    return ".".join(parts if parts[0] == "bert_tf" else ("bert_tf", *parts))


def _files(*folders: str) -> list[tuple[str, str]]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in paths]


def failed_tests(path: str, old: str, new: str, quick: bool) -> tuple[list[str], int]:
    """Returns the test functions that fail with a break, and the number of files that were run."""
    file = ROOT / path
    original = file.read_text()
    if original.count(old) != 1:
        raise SystemExit(f"{path} has {original.count(old)} matches, expected 1: {old}")
    # This includes tests that compare with other libraries, if these are installed.
    options = ["-q", "-n0", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", *["-x"][:quick]]
    users = _importing(path, "bert_tf", "pipelines", "saved_models")
    run: set[str] = set()
    failed: set[str] = set()
    file.write_text(original.replace(old, new))
    try:
        for modules in ([path], sorted(users)):
            found = {test: None for module in modules for test in related_tests(module)}
            if modules != [path]:
                packages = {_test_folder(name) for name in (path, *users)}
                found |= dict.fromkeys(
                    package for package in sorted(packages) if (ROOT / package).is_dir()
                )
            tests = [test for test in found if test not in run]
            if tests and not failed:
                output = _run([*options, *tests])
                failed = set(re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", output, re.MULTILINE))
                run.update(tests)
    finally:
        file.write_text(original)
    return sorted(failed), len(run)


def _run(arguments: list[str]) -> str:
    """Runs tests in a fork of this process, which has slow modules loaded; returns the output."""
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
    """Makes the selected breaks and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="Substring of the paths of the files to break.")
    parser.add_argument("--number", type=int, help="Index of the only break to make, from 1.")
    parser.add_argument(
        "--quick", action="store_true", help="Stop the tests of a break at the first failure."
    )
    arguments = parser.parse_args()
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode:
        raise SystemExit("The checkout has uncommitted changes. Commit them first.")
    sys.dont_write_bytecode = True
    for name in ("tensorflow", "keras"):  # not the library, which is about to be broken
        importlib.import_module(name)
    os.chdir(ROOT)
    num_undetected = 0
    for number, (path, old, new) in enumerate(read_breaks(), 1):
        if arguments.only not in path or arguments.number not in (None, number):
            continue
        failed, files = failed_tests(path, old, new, arguments.quick)
        num_undetected += not failed
        detected = f"  detected by {failed[0]}" if failed else ""
        print(
            f"{number:3} {len(failed):3} of {files:2} files  {path}: {new.strip()}{detected}",
            flush=True,
        )
    sys.exit(1 if num_undetected else 0)


if __name__ == "__main__":
    main()
