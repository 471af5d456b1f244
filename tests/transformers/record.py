"""Makes ``recorded/NN_name.json`` again: what each script computes under transformers 4.

To be run by hand from the repository's root, in an environment of its own (Python 3.11), because
transformers 5 has no TensorFlow any more:

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

#: A script's first argument, below the folder that ``models.make`` fills.
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
    """What a script wrote."""
    return json.loads(path.read_text())


def differences(found: Any, expected: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number's place and difference, relative to the larger of 1 and what is expected.

    Raises:
        AssertionError: where the two differ in anything but numbers, which the sentence names.
    """
    if isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys(), (
            f"{place}: expected the keys {list(expected)}, found {found!r:.200}"
        )
        for key, value in expected.items():
            yield from differences(found[key], value, f"{place}/{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), (
            f"{place}: expected {len(expected)} items, found {found!r:.200}"
        )
        for index, value in enumerate(expected):
            yield from differences(found[index], value, f"{place}/{index}")
    elif isinstance(expected, float) and isinstance(found, float):
        yield place, abs(found - expected) / max(1.0, abs(expected))
    else:
        assert type(found) is type(expected) and found == expected, (
            f"{place}: expected {expected!r}, found {found!r}"
        )


def run(name: str, folders: pathlib.Path) -> Any:
    """What the script writes, run in a process and a folder of its own."""
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
    """With every number at eight significant digits, which float32 needs."""
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
