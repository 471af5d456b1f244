#!/usr/bin/env bash
# Dataset.from_list of datasets 5.2.0 takes the columns from the first row alone: a key that only a later row has
# is dropped without a word, where pandas and polars make a column of it with nulls in the rows before.
#
# Guessed: the columns are those of all rows, as in pandas.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet datasets==5.2.0 pandas==3.0.1
venv/bin/python - <<'PY'
import datasets
import pandas

rows = [{"text": "a"}, {"text": "b", "label": 1}, {"text": "c", "label": 0}]
columns = datasets.Dataset.from_list(rows).column_names
print(datasets.__version__, "datasets:", columns, "pandas:", [*pandas.DataFrame(rows).columns])
assert columns == ["text"]
assert [*pandas.DataFrame(rows).columns] == ["text", "label"]
PY
