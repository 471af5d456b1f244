"""Submissions are the files that the GLUE site takes."""

import pytest

from bert_tf.tasks.glue_submission import write_glue_submission
from bert_tf.tasks.glue_tasks import GLUE_TASKS


@pytest.mark.parametrize(
    ("task", "split", "name", "predictions", "lines"),
    [
        ("CoLA", "test", "CoLA.tsv", ["1", "0"], ["0\t1", "1\t0"]),
        (
            "MNLI",
            "test_matched",
            "MNLI-m.tsv",
            ["neutral", "entailment"],
            ["0\tneutral", "1\tentailment"],
        ),
        (
            "mnli",
            "test_mismatched",
            "MNLI-mm.tsv",
            ["contradiction", "neutral"],
            ["0\tcontradiction", "1\tneutral"],
        ),
        ("AX", "test", "AX.tsv", ["neutral", "neutral"], ["0\tneutral", "1\tneutral"]),
        (
            "RTE",
            "test",
            "RTE.tsv",
            ["not_entailment", "entailment"],
            ["0\tnot_entailment", "1\tentailment"],
        ),
        ("STS-B", "test", "STS-B.tsv", [-0.25, 5.125], ["0\t0.000", "1\t5.000"]),
        ("STS-B", "test", "STS-B.tsv", [3.14159, 2], ["0\t3.142", "1\t2.000"]),
    ],
)
def test_files(tmp_path, task, split, name, predictions, lines):
    path = write_glue_submission(str(tmp_path / "new"), task, split, ["0", "1"], predictions)
    assert path == str(tmp_path / "new" / name)
    with open(path, "rb") as file:
        assert (
            file.read() == "".join(f"{line}\n" for line in ["index\tprediction", *lines]).encode()
        )


def test_names_are_the_sites():
    names = {name for task in GLUE_TASKS.values() for name in task.submissions.values()}
    assert names == {
        "AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv", "QQP.tsv",
        "RTE.tsv", "SST-2.tsv", "STS-B.tsv", "WNLI.tsv",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("task", "split", "ids", "predictions", "message"),
    [
        ("MNLI", "test", ["0"], ["neutral"], "MNLI has no test set 'test': expected test_matched"),
        ("SST-2", "dev", ["0"], ["1"], "SST-2 has no test set 'dev': expected test"),
        ("SST-2", "test", [], [], "SST-2.tsv has a prediction for each example: got 0 ids and 0"),
        ("SST-2", "test", ["0"], ["1", "0"], "got 1 ids and 2 predictions"),
        ("SST-2", "test", ["0", "0"], ["1", "0"], "has one line for each id: got an id twice"),
        ("SST-2", "test", ["7"], [1], "SST-2, prediction for id 7: expected one of 0, 1, got 1"),
        ("STS-B", "test", ["7"], ["1"], "id 7: expected a finite number, got '1'"),
        ("STS-B", "test", ["7"], [float("nan")], "expected a finite number, got nan"),
    ],
)
def test_refusals(tmp_path, task, split, ids, predictions, message):
    with pytest.raises(ValueError, match=message):
        write_glue_submission(str(tmp_path), task, split, ids, predictions)
    assert not list(tmp_path.iterdir())
