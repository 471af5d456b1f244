"""``python -m bert_tf.reproduce`` with real runs, in processes of their own."""

import csv
import pathlib

import pytest

from bert_tf.pretraining.settings import settings_from_words
from bert_tf.reproduction import page, plan
from bert_tf.reproduction.runner import Reproduction
from bert_tf.reproduction.settings import TABLES, Settings

WORDS = ["a", "very", "good", "film", "some", "long", "dull", "story", "of", "it"]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_two_rows_run_and_are_skipped_when_finished(tmp_path, monkeypatch, capsys):
    steps = TABLES["steps"]._replace(columns=[("SST-2", "accuracy")], rows=TABLES["steps"].rows[:2])
    for room in (plan, page):
        monkeypatch.setattr(room, "TABLES", {"glue": TABLES["glue"], "steps": steps})
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    rows = [" ".join(WORDS[(n + k) % 10] for k in range(5)) for n in range(64)]
    table = "".join(f"{row}\t{n % 2}\n" for n, row in enumerate(rows))
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(f"sentence\tlabel\n{table}")
    (folder / "test.tsv").write_text("index\tsentence\n0\tgood\n")
    documents = "\n\n".join("\n".join(rows[n : n + 8]) for n in range(0, 64, 8))
    (tmp_path / "text.txt").write_text(documents)
    settings = Settings(
        table=["steps"], size="bert-tiny", input=[f"{tmp_path}/text.txt"], steps=10, seeds=2,
        train_batch_size=8, max_seq_length=32, max_examples=64, vocab_size=200,
        data_dir=str(tmp_path), output_dir=str(tmp_path / "out"),
        pretrain_flags="--held_out_fraction=0.2 --input_format=google",
        finetune_flags="--max_seq_length=16",
    )  # fmt: skip
    Reproduction(settings).run()
    with open(settings.cells, newline="") as file:
        lines = [*csv.DictReader(file)]
    accuracies = [line for line in lines if line["metric"] == "accuracy"]
    assert [line["seed"] for line in accuracies] == ["12345", "12346"] * 2
    assert sorted({line["step"] for line in accuracies}) == ["10", "8"]
    assert all(0 <= float(line["score"]) <= 100 for line in accuracies)
    text = pathlib.Path(settings.page).read_text()
    assert text.count(" ± ") == 3 and "Missing" not in text  # two cells, and how they are read
    capsys.readouterr()
    Reproduction(settings).run()
    assert " of " not in capsys.readouterr().out
    assert pathlib.Path(settings.page).read_text() == text
    assert settings_from_words(["--input=a", "--nsp=false"]).nsp is False
