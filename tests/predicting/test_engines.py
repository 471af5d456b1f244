"""docs/guides/predicting.md as it stands: each engine answers what ``predict`` does."""

import json
import os
import pathlib
import shutil
import sys

import pytest

from tests.anew import run_anew, run_python
from tests.documents import ROOT, blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / "docs").is_dir(), reason="the checkout is missing, whose docs/ this reads"
    ),
]
PAGE = ROOT / "docs" / "guides" / "predicting.md"
# None of these is a text.
BAD = {3: None, 40: "  ", 77: "\u200b"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with what the page's programs read, and what ``predict`` says of the same rows."""
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
    process = run_anew(*command, cwd=folder)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("engine", ["apache_beam", "ray", "pyspark"])
def test_the_pages_program_answers_as_predict_does(engine, world, tmp_path):
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
    # Spark's folder has files that are no tables, by names that a dataset leaves out.
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
            # The page's programs call the column as the export does.
            assert record["error"].endswith(row["error"].replace("'text'", "'review'"))
        else:
            best = max(record["probabilities"].values())
            assert row["score"] == pytest.approx(best, abs=5e-6)
