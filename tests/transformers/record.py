"""Writes ``recorded/NN_name.json``, the results of each script with transformers 4.

Run it from the repository's root in a separate environment (Python 3.11), because transformers 5
does not support TensorFlow:

    pip install transformers==4.46.3 'tensorflow==2.18.*' tf-keras==2.18.0 'numpy<2.1' \
        'tensorflow-text==2.18.*' 'datasets<5' 'huggingface_hub<1' safetensors h5py
    python -m tests.transformers.record [NAME ...]

The scripts run with ``TF_USE_LEGACY_KERAS=1``, as transformers 4 needs it: ``tf.keras`` is Keras 2.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from tests.transformers import models

HERE = pathlib.Path(__file__).parent
SCRIPTS = HERE / "scripts"
RECORDED = HERE / "recorded"

#: First argument of a script, relative to the folder of ``models.make``.
FOLDERS = {
    "01_sentence_classification": "bert-reviews",
    "05_regression": "bert-similarity",
    "07_question_answering": "bert-questions",
    "08_masked_words": "bert-uncased",
    "12_gradient_tape": "bert-tags",
    "15_pipelines": ".",
    "18_prepare_tf_dataset": "bert-news",
    "19_tokenizer_in_the_graph": "bert-reviews",
}


def read(path: pathlib.Path) -> Any:
    """Reads the results of a script."""
    return json.loads(path.read_text())


def differences(found: Any, expected: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Returns the path and difference of each number, relative to max(1, expected).

    Raises:
        AssertionError: If anything except numbers differs.
    """
    if isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys(), (
            f"{path}: expected the keys {list(expected)}, found {found!r:.200}"
        )
        for key, value in expected.items():
            yield from differences(found[key], value, f"{path}/{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), (
            f"{path}: expected {len(expected)} items, found {found!r:.200}"
        )
        for index, value in enumerate(expected):
            yield from differences(found[index], value, f"{path}/{index}")
    elif isinstance(expected, float) and isinstance(found, float):
        yield path, abs(found - expected) / max(1.0, abs(expected))
    else:
        assert type(found) is type(expected) and found == expected, (
            f"{path}: expected {expected!r}, found {found!r}"
        )


def run(name: str, folders: pathlib.Path) -> Any:
    """Runs a script in a separate process and folder, and returns its results."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "output.json")
        script = SCRIPTS / f"{name}.py"
        subprocess.run(
            [sys.executable, script, folders / FOLDERS[name], output],
            check=True,
            cwd=folder,
            env=os.environ | {"TF_USE_LEGACY_KERAS": "1", "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
        )
        return read(output)


def rounded(value: Any) -> Any:
    """Rounds all numbers to eight significant digits, which suffices for float32."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(FOLDERS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folders = pathlib.Path(folder, "models")
        models.make(folders)
        for name in arguments.names:
            found = rounded(run(name, folders))
            lines = [f"{json.dumps(key)}: {json.dumps(found[key])}" for key in found]
            (RECORDED / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
