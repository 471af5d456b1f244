"""Makes ``recorded/NN_name.json`` again: what each script computes under transformers 4.

To be run by hand from the repository's root, in an environment of its own (Python 3.11), because
transformers 5 has no TensorFlow any more:

    pip install transformers==4.46.3 'tensorflow==2.18.*' tf-keras==2.18.0 'numpy<2.1' \
        'tensorflow-text==2.18.*' 'datasets<5' 'huggingface_hub<1' safetensors h5py
    python -m tests.transformers.record [NAME ...]
    python -m tests.transformers.record --check    # runs all again; prints the largest differences

The scripts run with ``TF_USE_LEGACY_KERAS=1``, as transformers 4 needs it: ``tf.keras`` is Keras 2.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from tests.transformers import models, running


def run(name: str, folders: pathlib.Path) -> Any:
    """What the script writes, run in a process and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "output.json")
        script = running.SCRIPTS / f"{name}.py"
        subprocess.run(
            [sys.executable, script, folders / running.FOLDERS[name], output],
            check=True,
            cwd=folder,
            env=os.environ | {"TF_USE_LEGACY_KERAS": "1", "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
        )
        return running.read(output)


def rounded(value: Any) -> Any:
    """With every number at eight significant digits, which float32 needs."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(running.FOLDERS))
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folders = pathlib.Path(folder, "models")
        models.make(folders)
        for name in arguments.names:
            found = rounded(run(name, folders))
            path = running.RECORDED / f"{name}.json"
            if arguments.check:
                largest = max(running.differences(found, running.read(path)), key=lambda d: d[1])
                print(f"{name}: {largest[1]:.1e} at {largest[0]}")
            else:
                lines = [f"{json.dumps(key)}: {json.dumps(found[key])}" for key in found]
                path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
                print(f"{name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
