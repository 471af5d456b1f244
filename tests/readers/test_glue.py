"""GLUE's published file layouts, scores and submission files."""

import gzip
import re

import numpy as np
import pytest

from bert_tf.readers.examples import TextExample
from bert_tf.readers.glue import (
    GLUE_TASKS,
    read_glue,
    read_glue_tfds,
    write_glue_submission,
)
from tests.tfds_data import write_dataset

# Task, split, lines of the file ("|" is replaced by a tab), expected examples.
MNLI_TRAIN = "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse|"
MNLI_TRAIN += "sentence1_parse|sentence2_parse|sentence1|sentence2|label1|gold_label"
MNLI_DEV = MNLI_TRAIN.replace("|gold_label", "|label2|label3|label4|label5|gold_label")
MNLI_TEST = MNLI_TRAIN.removesuffix("|label1|gold_label")
STS_B = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score"

FILES = [
    # CoLA's train and dev files have no header; quotes are text.
    ("CoLA", "train", ["gj04|0|*|\"Ben laughed.", "x|1||Ann ran."],
     [("0", '"Ben laughed.', None, "0"), ("1", "Ann ran.", None, "1")]),
    ("CoLA", "dev", ["gj04|1||Ann ran."], [("0", "Ann ran.", None, "1")]),
    ("CoLA", "test", ["index|sentence", "0|Ann ran."], [("0", "Ann ran.", None, None)]),
    ("SST-2", "train", ["sentence|label", "a \"b |1", "c|0"],
     [("0", 'a "b ', None, "1"), ("1", "c", None, "0")]),
    ("SST-2", "test", ["index|sentence", "0|a"], [("0", "a", None, None)]),
    ("MRPC", "dev", ["\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String", "1|7|8|A \"b\".|\"A b."],
     [("0", 'A "b".', '"A b.', "1")]),
    ("MRPC", "test", ["\ufeffindex|#1 ID|#2 ID|#1 String|#2 String", "0|7|8|A.|B."],
     [("0", "A.", "B.", None)]),
    ("STS-B", "train", [STS_B, "5|news|f|2012|12|none|none|A.|B.|3.800"],
     [("5", "A.", "B.", 3.8)]),
    ("STS-B", "test", [STS_B.removesuffix("|score"), "0|news|f|2012|12|none|none|A.|B."],
     [("0", "A.", "B.", None)]),
    ("QQP", "dev", ["id|qid1|qid2|question1|question2|is_duplicate", "133|2|3|A?|B?|0"],
     [("133", "A?", "B?", "0")]),
    ("QQP", "test", ["id|question1|question2", "0|A?|B?"], [("0", "A?", "B?", None)]),
    ("MNLI", "train", [MNLI_TRAIN, "3|1|1n|t|(A)|(B)|(R A)|(R B)|A.|B.|x|neutral"],
     [("3", "A.", "B.", "neutral")]),
    ("MNLI", "dev_matched", [MNLI_DEV, "0|1|1n|t|(A)|(B)|(R A)|(R B)|A.|B.|v|w|x|y|z|entailment"],
     [("0", "A.", "B.", "entailment")]),
    ("MNLI", "dev_mismatched", [MNLI_DEV, "0|1|1|t|a|b|c|d|A.|B.|v|w|x|y|z|contradiction"],
     [("0", "A.", "B.", "contradiction")]),
    ("MNLI", "test_matched", [MNLI_TEST, "9|31|31|t|a|b|c|d|A.|B."], [("9", "A.", "B.", None)]),
    ("MNLI", "test_mismatched", [MNLI_TEST, "9|3|3|t|a|b|c|d|A.|B."], [("9", "A.", "B.", None)]),
    ("QNLI", "dev", ["index|question|sentence|label", "0|A?|B.|not_entailment"],
     [("0", "A?", "B.", "not_entailment")]),
    ("QNLI", "test", ["index|question|sentence", "0|A?|B."], [("0", "A?", "B.", None)]),
    ("RTE", "train", ["index|sentence1|sentence2|label", "4|A.|B.|entailment"],
     [("4", "A.", "B.", "entailment")]),
    ("WNLI", "train", ["index|sentence1|sentence2|label", "0|A.|B.|1"], [("0", "A.", "B.", "1")]),
]  # fmt: skip


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line.replace("|", "\t") + "\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("task", "split", "lines", "expected"), FILES, ids=[f"{file[0]}-{file[1]}" for file in FILES]
)
def test_published_layouts_are_read(tmp_path, task, split, lines, expected):
    write(tmp_path / task / f"{split}.tsv", lines)
    examples = read_glue(task, str(tmp_path), split)
    assert examples.items == [TextExample(*fields) for fields in expected]
    assert examples.labels == GLUE_TASKS[task].labels
    assert examples.skipped == []
    # Compressed, in the task's own directory, with another spelling of the task's name.
    plain = tmp_path / task / f"{split}.tsv"
    plain.with_suffix(".tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    again = read_glue(task.lower().replace("-", ""), str(tmp_path / task), split)
    assert again == examples


@pytest.mark.parametrize("name", ["AX/AX.tsv", "diagnostic/diagnostic.tsv", "AX.tsv"])
def test_diagnostic_set_is_read(tmp_path, name):
    write(tmp_path / name, ["index|sentence1|sentence2", "0|A.|B."])
    examples = read_glue("AX", str(tmp_path), "test")
    assert examples.items == [TextExample("0", "A.", "B.", None)]
    assert examples.labels == ("contradiction", "entailment", "neutral")


def test_original_similarity_benchmark_is_read(tmp_path):
    lines = ['news|f|2012|0001|2.5|A "b.|B.|note|note', "captions|f|2012|0002|0|C.|D."]
    write(tmp_path / "STS-B" / "sts-test.csv", lines)
    examples = read_glue("STS-B", str(tmp_path), "test")
    found = [TextExample("0", 'A "b.', "B.", 2.5), TextExample("1", "C.", "D.", 0.0)]
    assert examples.items == found
    for row, message in (
        ("news|f|2012|0001|5.1|A.|B.", "line 1: expected a score from 0 to 5, got '5.1'"),
        ("news|f|2012|0001|2|A.|B.|note", "line 1: expected 7 or 9 columns, got 8"),
    ):
        write(tmp_path / "sts-dev.csv", [row])
        with pytest.raises(ValueError, match=message):
            read_glue("STS-B", str(tmp_path), "dev")


def test_truncated_qqp_rows_are_skipped(tmp_path):
    names = "id|qid1|qid2|question1|question2|is_duplicate"
    rows = ["1|1|2|A?|B?|1", "2|3|4|What", "is|C?|0", "3|5|6|D?|E?|0"]
    write(tmp_path / "train.tsv", [names, *rows])
    examples = read_glue("QQP", str(tmp_path), "train")
    assert [item.id for item in examples.items] == ["1", "3"]
    assert examples.skipped == [
        f"{tmp_path}/train.tsv, line 3: expected 6 columns, got 4.",
        f"{tmp_path}/train.tsv, line 4: expected 6 columns, got 3.",
    ]
    # Only in training files: a submission needs every row of the test set.
    write(tmp_path / "test.tsv", ["id|question1|question2", "0|A?|B?", "1|C?"])
    with pytest.raises(ValueError, match="line 3: expected 3 columns, got 2"):
        read_glue("QQP", str(tmp_path), "test")


@pytest.mark.parametrize(
    ("task", "split", "lines", "message"),
    [
        ("SNLI", "dev", None, "Unknown GLUE task 'SNLI': expected one of CoLA, SST-2, MRPC, STS-B, "
         "QQP, MNLI, QNLI, RTE, WNLI, AX."),
        ("MNLI", "dev", None, "MNLI has no split 'dev': expected one of train, dev_matched, "
         "dev_mismatched, test_matched, test_mismatched."),
        ("RTE", "dev", None, "FOLDER has no file for the split 'dev' of RTE: expected RTE/dev.tsv "
                             "or dev.tsv, optionally with .gz."),
        ("SST-2", "dev", ["index|sentence", "0|a"], "FOLDER/dev.tsv, line 1: "
         "expected one column 'label', got none. The columns are index, sentence."),
        ("SST-2", "dev", [],
         "FOLDER/dev.tsv is empty: expected a header with sentence, label."),
        ("CoLA", "dev", [], "FOLDER/dev.tsv has no rows. Use a file with at least one example"),
    ],
)  # fmt: skip
def test_missing_task_split_or_data_raises_error(tmp_path, task, split, lines, message):
    if lines is not None:
        write(tmp_path / "dev.tsv", lines)
    with pytest.raises(ValueError, match="^" + re.escape(message.replace("FOLDER", str(tmp_path)))):
        read_glue(task, str(tmp_path), split)


REAL = [
    ("SST-2", "dev", 872, ("1", "unflinchingly bleak and desperate ", None, "0")),
    ("MRPC", "dev", 408, None),
    ("CoLA", "dev", 1043, ("2", "The mechanical doll wriggled itself loose.", None, "1")),
    ("CoLA", "test", 1063, ("1", "The car honked its way down the road.", None, None)),
    ("STS-B", "train", 5749,
     ("1", "A man is playing a large flute.", "A man is playing a flute.", 3.8)),
]  # fmt: skip


@pytest.mark.parametrize(("task", "split", "count", "example"), REAL)
def test_published_files_are_read(data_dir, task, split, count, example):
    examples = read_glue(task, str(data_dir / "glue"), split)
    assert len(examples.items) == count
    assert examples.skipped == []
    assert len({item.id for item in examples.items}) == count
    if example:
        assert TextExample(*example) in examples.items[:3]
    if task == "MRPC" and split == "dev":
        assert examples.items[0].text_b.startswith('"The foodservice pie business does not fit')
        # The majority class of the published dev set: 279 of 408.
        assert sum(item.label == "1" for item in examples.items) == 279


# === Classes and scores ===

BINARY, ENTAILMENT = ("0", "1"), ("entailment", "not_entailment")
INFERENCE = ("contradiction", "entailment", "neutral")
# Classes in the order of Google's script; scores, the default metric last.
DEFINED = {
    "CoLA": (BINARY, ("matthews_correlation",)),
    "SST-2": (BINARY, ("accuracy",)),
    "MRPC": (BINARY, ("accuracy", "f1")),
    "STS-B": ((), ("pearson", "spearman")),
    "QQP": (BINARY, ("accuracy", "f1")),
    "MNLI": (INFERENCE, ("accuracy",)),
    "QNLI": (ENTAILMENT, ("accuracy",)),
    "RTE": (ENTAILMENT, ("accuracy",)),
    "WNLI": (BINARY, ("accuracy",)),
    "AX": (INFERENCE, ("matthews_correlation",)),
}


def test_classes_and_scores_of_each_task():
    assert {name: (task.labels, task.metrics) for name, task in GLUE_TASKS.items()} == DEFINED
    assert all(task.headline == task.metrics[-1] for task in GLUE_TASKS.values())


# === Submissions ===


@pytest.mark.parametrize(
    ("task", "split", "name", "predictions", "written"),
    [
        ("CoLA", "test", "CoLA.tsv", ["1", "0"], None),
        ("MNLI", "test_matched", "MNLI-m.tsv", ["neutral", "entailment"], None),
        ("mnli", "test_mismatched", "MNLI-mm.tsv", ["contradiction", "neutral"], None),
        ("AX", "test", "AX.tsv", ["neutral", "neutral"], None),
        ("RTE", "test", "RTE.tsv", ["not_entailment", "entailment"], None),
        ("STS-B", "test", "STS-B.tsv", [-0.25, 5.125], ["0.000", "5.000"]),
        ("STS-B", "test", "STS-B.tsv", [3.14159, 2], ["3.142", "2.000"]),
    ],
)
def test_submission_files(tmp_path, task, split, name, predictions, written):
    answers = dict(zip("01", predictions, strict=True))
    path = write_glue_submission(str(tmp_path / "new"), task, split, answers)
    assert path == str(tmp_path / "new" / name)
    first, second = written or predictions
    with open(path, "rb") as file:
        assert file.read() == f"index\tprediction\n0\t{first}\n1\t{second}\n".encode()


# === TensorFlow Datasets, prepared by the test without downloads ===


@pytest.fixture
def tfds():
    return pytest.importorskip("tensorflow_datasets")


@pytest.fixture
def prepare(tmp_path):
    def write(config, features, splits):
        features = {**features, "idx": np.int32}
        return write_dataset(tmp_path, "glue", "2.0.0", features, splits, config=config)

    return write


def test_tfds_single_texts_are_sorted_by_id(tfds, prepare):
    features = {
        "sentence": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["unacceptable", "acceptable"]),
    }
    rows = [{"sentence": f"Ü {i}.", "label": i % 2, "idx": i} for i in (3, 0, 4, 1, 2)]
    unlabeled = [{**row, "label": -1} for row in rows]
    data_dir = prepare("cola", features, {"validation": rows, "test": unlabeled})
    examples = read_glue_tfds("CoLA", "dev", data_dir=data_dir)
    assert examples.items == [TextExample(str(i), f"Ü {i}.", None, str(i % 2)) for i in range(5)]
    assert examples.labels == ("0", "1")
    test = read_glue_tfds("cola", "test", data_dir=data_dir)
    assert test.items == [TextExample(str(i), f"Ü {i}.", None, None) for i in range(5)]
    with pytest.raises(ValueError, match="cannot read split 'train' of 'glue/cola'"):
        read_glue_tfds("cola", "train", data_dir=data_dir)


def test_tfds_class_order_is_converted(tfds, prepare):
    features = {
        "premise": tfds.features.Text(),
        "hypothesis": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["entailment", "neutral", "contradiction"]),
    }
    rows = [{"premise": "A.", "hypothesis": f"B{i}.", "label": i, "idx": i} for i in range(3)]
    data_dir = prepare("mnli", features, {"validation_matched": rows})
    examples = read_glue_tfds("MNLI", "dev_matched", data_dir=data_dir)
    assert [item.label for item in examples.items] == ["entailment", "neutral", "contradiction"]
    assert examples.items[2] == TextExample("2", "A.", "B2.", "contradiction")
    assert examples.labels == ("contradiction", "entailment", "neutral")


def test_tfds_scores_equal_those_of_files(tfds, prepare):
    features = {
        "sentence1": tfds.features.Text(),
        "sentence2": tfds.features.Text(),
        "label": np.float32,
    }
    row = {"sentence1": "A.", "sentence2": "B.", "label": 3.8, "idx": 0}
    examples = read_glue_tfds(
        "STS-B", "train", data_dir=prepare("stsb", features, {"train": [row]})
    )
    assert examples.items == [TextExample("0", "A.", "B.", 3.8)]
