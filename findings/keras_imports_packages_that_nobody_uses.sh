#!/usr/bin/env bash
# "import tensorflow" (2.21.0, with Keras 3.15.1) imports scikit-learn, pandas, matplotlib.pyplot and IPython whenever
# they are installed, although no model, optimizer or data pipeline uses them: Keras' scikit-learn wrappers, image
# galleries, array slicing and file editor import them at the top of their modules. In an environment with these four
# packages, the same import takes 3.7 instead of 2.1 s of processor time and 130 MiB more memory. Without them, Keras works; the
# functions that need one raise an error when they are called.
#
# Guessed: Keras imports optional packages on first use, as it does for the other backends (its LazyModule).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet tensorflow==2.21.0 keras==3.15.1
cat >measure.py <<'PY'
import resource
import statistics
import subprocess
import sys

OPTIONAL = ("IPython", "matplotlib.pyplot", "pandas", "sklearn")
CODE = f"""
import resource, sys
import tensorflow
usage = resource.getrusage(resource.RUSAGE_SELF)
loaded = sum(name in sys.modules for name in {OPTIONAL})
print(loaded, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def run():
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    return map(float, done.stdout.split())


run()  # compiles the modules to bytecode
print(*map(statistics.median, zip(*(run() for _ in range(5)))))
PY
export TF_CPP_MIN_LOG_LEVEL=3
venv/bin/python measure.py >without.txt
venv/bin/pip install --quiet scikit-learn==1.9.1 pandas==3.1.1 matplotlib==3.11.2 ipython==9.18.1
venv/bin/python measure.py >with.txt
read -r loaded seconds mib <without.txt
read -r loaded_with seconds_with mib_with <with.txt
echo "imported of four: $loaded and $loaded_with; processor time: $seconds and $seconds_with s; memory: $mib and $mib_with MiB"
venv/bin/python -c "assert $loaded == 0 and $loaded_with == 4
assert $seconds_with > 1.3 * $seconds and $mib_with > 80 + $mib"
