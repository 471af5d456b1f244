import subprocess
import sys

import pytest

from bert_tf.finetuning.settings import MAY_DIFFER, is_table

from .small_runs import parse

OWN = ("--train_file=a.csv", "--text_columns=a", "--label_column=b", "--init_checkpoint=c")
SQUAD = ("--task=squad", "--init_checkpoint=c")


def test_defaults():
    settings, ignored = parse("--task=mrpc", "--data_dir=glue", "--init_checkpoint=c")
    assert ignored == []
    assert (settings.glue, settings.kind.name, settings.max_seq_length) == (
        "MRPC",
        "classification",
        128,
    )
    assert (settings.learning_rate, settings.train_batch_size, settings.num_train_epochs) == (
        5e-5,
        32,
        3,
    )
    assert (settings.warmup_proportion, settings.model_dir) == (0.1, "runs/mrpc")
    assert set(settings.to_dict()) > MAY_DIFFER


def test_squad_has_rows_of_its_own_length():
    settings, _ = parse(*SQUAD, "--train_file=train-v1.1.json")
    found = (settings.max_seq_length, settings.kind.name, settings.reads_table)
    assert found == (384, "squad", False)
    settings, _ = parse(*SQUAD, "--train_file=mine.jsonl.gz", "--max_seq_length=64")
    assert (settings.max_seq_length, settings.reads_table) == (64, True)
    assert (settings.text_columns, settings.label_column) == (["question", "context"], "answers")


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("stsb", "regression"),
        ("STS-B", "regression"),
        ("MNLI", "classification"),
    ],
)
def test_kinds_of_glue(task, kind):
    assert parse(f"--task={task}", "--data_dir=g", "--init_checkpoint=c")[0].kind.name == kind


@pytest.mark.parametrize(
    ("task", "kind"),
    [("swag", "multiple_choice"), ("codah", "multiple_choice"), ("ner", "tagging")],
)
def test_kinds_of_published_files(task, kind):
    settings, _ = parse(f"--task={task}", "--train_file=a", "--init_checkpoint=c")
    assert (settings.kind.name, settings.reads_table, settings.glue) == (kind, False, None)


@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_own_texts_keep_their_kind(task):
    settings, _ = parse(f"--task={task}", *OWN)
    assert (settings.kind.name, settings.reads_table) == (task, True)


def test_tagging_has_default_columns():
    settings, _ = parse("--task=tagging", "--train_file=a.jsonl", "--init_checkpoint=c")
    assert (settings.text_columns, settings.label_column) == (["words"], "tags")


def test_googles_names():
    settings, ignored = parse(
        "--task_name=MRPC",
        "--data_dir=glue",
        "--output_dir=out",
        "--init_checkpoint=c",
        "--num_train_epochs=4.0",
        "--do_train=true",
        "--vocab_file=vocab.txt",
        "--predict_batch_size=7",
    )
    assert (settings.model_dir, settings.num_train_epochs, settings.eval_batch_size) == (
        "out",
        4,
        7,
    )
    assert ignored == [
        "--do_train is ignored: a run trains, evaluates and predicts.",
        "--vocab_file is ignored: --init_checkpoint has its vocabulary beside it.",
    ]
    assert parse(*SQUAD, "--train_file=a.json", "--predict_file=b.json")[0].dev_file == "b.json"


def test_the_task_may_be_told_by_tfds():
    settings, _ = parse("--tfds=glue/sst2", "--init_checkpoint=c")
    assert (settings.task, settings.glue) == ("sst2", "SST-2")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "--task is missing: expected one of cola, sst2"),
        (("--task=mrcp",), r"--task=mrcp is unknown \(did you mean mrpc\?\): expected one of"),
        (("--task=ax",), "--task=ax has no examples to train on: train --task=mnli"),
        (("--task=mrpc", "--data_dir=g"), "--init_checkpoint is missing: name the weights"),
        (("--task=mrpc", "--init_checkpoint=c"), "--data_dir=FOLDER or by --tfds=glue/mrpc: give"),
        (
            ("--task=mrpc", "--tfds=glue/rte", "--init_checkpoint=c"),
            "--tfds=glue/rte contradicts --task=mrpc: expected --tfds=glue/mrpc",
        ),
        (
            ("--task=mrpc", "--data_dir=g", "--train_file=a", "--init_checkpoint=c"),
            r"--train_file means nothing to --task=mrpc: leave it out \(it is for swag, codah",
        ),
        (
            ("--task=classification", *OWN, "--doc_stride=3"),
            r"--doc_stride means nothing to --task=classification: leave it out \(it is for squad",
        ),
        (
            ("--task=regression", *OWN, "--class_weights=balanced"),
            "--class_weights means nothing to --task=regression",
        ),
        (("--task=ner", "--init_checkpoint=c"), "--task=ner needs a --train_file to train on"),
        (
            ("--task=classification", *OWN, "--dev_file=d.csv", "--dev_fraction=0.2"),
            "--dev_file is what is evaluated on: leave --dev_fraction out",
        ),
        (
            ("--task=classification", "--train_file=a.csv", "--init_checkpoint=c"),
            "needs --text_columns=A or A,B, the columns of a.csv to read; got none",
        ),
        (
            ("--task=classification", *OWN, "--text_columns=a,b,c"),
            "needs --text_columns=A or A,B, the columns of a.csv to read; got a,b,c",
        ),
        (
            ("--task=multiple_choice", *OWN),
            "needs --text_columns=CONTEXT,CHOICE,...",
        ),
        (
            ("--task=classification", "--train_file=a.csv", "--text_columns=a", OWN[-1]),
            "needs --label_column, the column of a.csv to learn",
        ),
        (
            (*SQUAD, "--train_file=a.csv.gz", "--label_column=b"),
            "--task=squad needs --answer_start_column, the column of a.csv.gz with the character",
        ),
        (
            (*SQUAD, "--train_file=a.json", "--label_column=b"),
            "--label_column names a column, and a.json is no table",
        ),
        (
            ("--task=classification", *OWN, "--num_train_epochs=2.5"),
            "--num_train_epochs=2.5: expected a whole number of 1 or more",
        ),
        (("--task=classification", *OWN, "--learning_rate=0"), "--learning_rate=0: expected more"),
        (
            ("--task=classification", *OWN, "--dev_fraction=0", "--early_stopping_epochs=1"),
            "--early_stopping_epochs needs something to evaluate on: give --dev_file",
        ),
        (
            ("--task=classification", *OWN, "--dev_fraction=0", "--restarts=2"),
            "--restarts keeps the best on a dev set: give --dev_file",
        ),
        (
            ("--task=classification", *OWN, "--sweep=paper", "--learning_rate=1e-4"),
            "--sweep=paper chooses --learning_rate itself: leave it out",
        ),
    ],
)
def test_wrong_flags(flags, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(*flags)


def test_what_a_table_is():
    assert is_table("a.TSV") and not is_table("train.json")


def test_no_tensorflow_before_the_flags_are_known():
    code = (
        "import sys, bert_tf.finetune\n"
        "assert 'tensorflow' not in sys.modules and 'keras' not in sys.modules\n"
        "print('as it should be')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "as it should be\n", done.stderr
