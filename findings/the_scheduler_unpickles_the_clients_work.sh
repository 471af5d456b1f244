#!/usr/bin/env bash
# distributed 2026.8.0: Dask's scheduler unpickles the graph that a client submits, and so fails where a function of
# the work is of a module that the client and the workers have, and the scheduler lacks. The client says of it that
# a graph could not be deserialized.
#
# Guessed: the scheduler hands the pickled work on, as its host needs Dask alone and the workers all else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet distributed==2026.8.0
mkdir module
echo 'def double(number): return 2 * number' >module/work_of_mine.py
ask() ( # where the scheduler finds modules, and its port
  PYTHONPATH=$1 venv/bin/dask scheduler --host=127.0.0.1 --port="$2" --no-dashboard &>scheduler.log &
  scheduler=$!
  PYTHONPATH=module venv/bin/dask worker "127.0.0.1:$2" --nthreads=1 --no-nanny --no-dashboard &>worker.log &
  trap "kill -KILL $scheduler $!" EXIT
  PYTHONPATH=module venv/bin/python - "$2" <<'PY'
import sys

import distributed
import work_of_mine

client = distributed.Client(f"tcp://127.0.0.1:{sys.argv[1]}", timeout=60)
try:
    print(distributed.__version__, client.submit(work_of_mine.double, 21).result(60))
except Exception as error:
    causes = [error]
    while causes[-1].__cause__:
        causes.append(causes[-1].__cause__)
    print(distributed.__version__, *(repr(cause) for cause in causes))
PY
)
ask module 18791 | tee with
ask "" 18792 | tee without
grep -q ' 42$' with
grep -q "No module named 'work_of_mine'" without
