#!/usr/bin/env bash
# dask.dataframe.from_pandas 2026.8.0 turns every object column into strings, whatever its values are: a list of two
# numbers becomes the text "[1, 2]", a vector "[1. 2.]", labels 1 and "1" the same label, True the text "True". There
# is no warning. The length of a list is then the number of its characters, and a long vector loses most of its
# values to "...". Columns made by map_partitions with the meta "object" stay as they are. The option
# dataframe.convert-string=False turns the conversion off.
#
# Guessed: only columns of strings are converted; lists, vectors and booleans are kept.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet 'dask[dataframe]==2026.8.0' pandas==3.1.1 numpy==2.4.6 pyarrow==25.0.1
venv/bin/python - <<'PY'
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

frame = pd.DataFrame(
    {
        "tokens": [[1, 2], [3]],
        "vector": [np.arange(2000.0), np.arange(2000.0)],
        "label": pd.Series([1, "1"], dtype=object),
        "seen": pd.Series([True, None], dtype=object),
    }
)
read = dd.from_pandas(frame, npartitions=1)
found = read.compute()
print(dask.__version__, pd.__version__, found.to_dict("records")[0])
lengths = read["tokens"].map(len, meta=("tokens", "int64")).compute().tolist()
print("lengths of [1, 2] and [3]:", lengths, "characters of the vector:", len(found["vector"][0]))
assert found["tokens"].tolist() == ["[1, 2]", "[3]"] and lengths == [6, 3]
assert "..." in found["vector"][0] and len(found["vector"][0]) < 100
assert found["label"].tolist() == ["1", "1"]
assert found["seen"][0] == "True"

made = read.map_partitions(
    lambda rows: pd.DataFrame({"vector": [np.arange(3.0)] * len(rows)}, index=rows.index),
    meta={"vector": "object"},
).compute()
assert isinstance(made["vector"][0], np.ndarray)
with dask.config.set({"dataframe.convert-string": False}):
    kept = dd.from_pandas(frame, npartitions=1).compute()
assert kept["tokens"].tolist() == [[1, 2], [3]] and kept["label"].tolist() == [1, "1"]
PY
