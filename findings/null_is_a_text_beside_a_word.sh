#!/usr/bin/env bash
# Whether the text null of a .csv is a text or nothing depends on the other rows: pyarrow 26.0.1 reads a column of
# null and NA as two nulls, and the same two rows with a word below them as three texts. pandas reads nulls both
# times.
#
# Guessed: a column of texts keeps them, or loses them, whatever the other rows are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet pyarrow==26.0.1
venv/bin/python - <<'PY'
import io

import pyarrow
from pyarrow import csv


def column(rows):
    return csv.read_csv(io.BytesIO("\n".join(["text", *rows, ""]).encode()))["text"].to_pylist()


alone, beside = column(["null", "NA"]), column(["null", "NA", "hello"])
print(pyarrow.__version__, "alone:", alone, "beside a word:", beside)
assert alone == [None, None]
assert beside == ["null", "NA", "hello"]
PY
