"""Programs in docs/guides/predicting.md give the same predictions as ``predict``."""

import json
import os
import pathlib
import shutil
import sys

import pytest

from tests.documents import ROOT, blocks
from tests.processes import run_bert_tf, run_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs docs/ of a checkout"),
]
PAGE = ROOT / "docs" / "guides" / "predicting.md"
# Row to invalid value.
BAD = {3: None, 40: "  ", 77: "\u200b"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Returns a folder with the input of the programs and the predictions of ``predict``."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("world")
    films = [f"Film {n} is {'fine' if n % 2 else 'dull'} {'so ' * (n % 7)}" for n in range(120)]
    lines = ["review,stars", *(f"{film},{n % 2}" for n, film in enumerate(films[:40]))]
    (folder / "reviews.csv").write_text("\n".join(lines) + "\n")
    table = ["--task=classification", "--train_file=reviews.csv", "--text_columns=review"]
    model = ["--label_column=stars", "--init_checkpoint=tiny", "--model_dir=runs/reviews"]
    _run(folder, "finetune", *table, *model, "--num_train_epochs=1")
    rows = pyarrow.table(
        {
            "id": list(range(len(films))),
            "review": [BAD.get(number, film) for number, film in enumerate(films)],
        }
    )
    (folder / "new").mkdir()
    for begin in range(0, len(films), 30):
        parquet.write_table(rows[begin : begin + 30], folder / "new" / f"{begin}.parquet")
    parquet.write_table(rows, folder / "new.parquet")
    files = ["--input=new.parquet", "--id_column=id", "--output=predicted.jsonl"]
    _run(folder, "predict", "--model=runs/reviews", "--skip_bad_rows", *files)
    return folder


def _run(folder, *command):
    process = run_bert_tf(*command, cwd=folder)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("engine", ["apache_beam", "ray", "pyspark"])
def test_predictions_equal_those_of_predict(engine, world, tmp_path):
    pytest.importorskip(engine)
    if engine == "pyspark" and shutil.which("java") is None:
        pytest.skip("needs Java")
    dataset = pytest.importorskip("pyarrow.dataset")
    (program,) = (block.text for block in blocks(PAGE) if f"import {engine}" in block.text
                  or f"from {engine}" in block.text)  # fmt: skip
    folder = shutil.copytree(world, tmp_path / "world")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "RAY_USAGE_STATS_ENABLED": "0"}
    process = run_python(program, cwd=folder, env=environment)
    assert process.returncode == 0, process.stderr
    # Spark also writes other files, which pyarrow.dataset ignores by name.
    rows = dataset.dataset(folder / "answered", format="parquet").to_table().to_pylist()
    answered = {row["id"]: row for row in rows}
    lines = pathlib.Path(world, "predicted.jsonl").read_text().splitlines()
    predicted = {int(record["id"]): record for record in map(json.loads, lines)}
    assert len(rows) == len(predicted) and answered.keys() == predicted.keys()
    assert {number for number, row in answered.items() if row["error"]} == BAD.keys()
    for number, record in predicted.items():
        row = answered[number]
        assert row["label"] == record["prediction"]
        if number in BAD:
            # The programs rename the column to the input of the export.
            assert record["error"].endswith(row["error"].replace("'text'", "'review'"))
        else:
            best = max(record["probabilities"].values())
            assert row["score"] == pytest.approx(best, abs=5e-6)
