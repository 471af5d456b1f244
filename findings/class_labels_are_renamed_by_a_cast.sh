#!/usr/bin/env bash
# Casting a column of one ClassLabel to another ClassLabel whose names stand in another order changes which class
# each row has: datasets 5.2.0 keeps the numbers and puts the new names on them, without a word. A row of the
# class no is then one of the class yes. Texts cast to the same ClassLabel are matched by their names.
#
# Guessed: rows keep their names, and the numbers change; or the cast is refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3.11 -m venv venv
venv/bin/pip install --quiet datasets==5.2.0
venv/bin/python - <<'PY'
import datasets

no_yes, yes_no = datasets.ClassLabel(names=["no", "yes"]), datasets.ClassLabel(names=["yes", "no"])
rows = datasets.Dataset.from_dict(
    {"label": ["no", "yes", "yes"]}, features=datasets.Features({"label": datasets.Value("string")})
)


def names(data):
    feature = data.features["label"]
    return [feature.int2str(number) for number in data["label"][:]]


of_texts, again = rows.cast_column("label", yes_no), rows.cast_column("label", no_yes)
of_classes = again.cast_column("label", yes_no)
print(datasets.__version__, "texts:", names(of_texts), "classes:", names(of_classes))
assert names(of_texts) == ["no", "yes", "yes"]
assert names(of_classes) == ["yes", "no", "no"]
PY
