import re
import subprocess
import sys

import pytest

from bert_tf.choices import FEATURE_BASED
from bert_tf.finetuning.resolution import resolve
from bert_tf.finetuning.settings import MAY_DIFFER, flag_defaults
from bert_tf.modeling.feature_based import VARIANTS
from bert_tf.tasks.registry import KINDS

from .small_runs import parse

# What several rows of the tables below begin with; a later name may be part of an earlier one.
SHORT = {
    "LAST": "NER --feature_based=last",
    "NER": "--task=ner --train_file=a C",
    "NOTHING": "--task=classification --train_file=a.csv C",
    "UNJUDGED": "TEXTS --dev_fraction=0",
    "TEXTS": "--task=classification OWN",
    "OWN": "--train_file=a.csv --text_columns=a --label_column=b C",
    "MRPC": "--task=mrpc --data_dir=glue C",
    "SQUAD": "--task=squad C --train_file",
    "PAIRS": "--task=similarity --train_file=a.csv --text_columns=a,b C",
    "C": "--init_checkpoint=c",
}


def given(text):
    """The flags of a row."""
    for name, flags in SHORT.items():
        text = re.sub(rf"(?<!\S){name}(?=[\s=]|$)", flags, text)
    return text.split()


PAPERS_BILSTM = {"learning_rate": 1e-3, "num_train_epochs": 10, "lstm_units": 768}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("MRPC", {"glue": "MRPC", "kind": KINDS["classification"], "max_seq_length": 128}),
        ("MRPC", {"learning_rate": None, "train_batch_size": 32, "num_train_epochs": None}),
        ("MRPC", {"warmup_proportion": 0.1, "model_dir": "runs/mrpc", "variants": ()}),
        ("--task=STS-B --data_dir=g C", {"glue": "STS-B", "kind": KINDS["regression"]}),
        ("--task=MNLI --data_dir=g C", {"task": "mnli", "kind": KINDS["classification"]}),
        ("--tfds=glue/sst2 C", {"task": "sst2", "glue": "SST-2"}),
        ("--task=swag --train_file=a C", {"kind": KINDS["multiple_choice"], "reads_table": False}),
        ("NER", {"kind": KINDS["tagging"], "reads_table": False, "lstm_units": None}),
        ("TEXTS", {"kind": KINDS["classification"], "reads_table": True}),
        ("--task=multilabel OWN", {"kind": KINDS["multilabel"], "reads_table": True}),
        ("--task=regression OWN", {"kind": KINDS["regression"], "reads_table": True}),
        ("SQUAD=train-v1.1.json", {"max_seq_length": 384, "reads_table": False}),
        ("SQUAD=a.jsonl.gz --max_seq_length=64", {"max_seq_length": 64, "reads_table": True}),
        ("SQUAD=a.jsonl.gz", {"text_columns": ["question", "context"], "label_column": "answers"}),
        ("SQUAD=a.json --predict_file=b.json", {"dev_file": "b.json"}),
        ("--task=tagging --train_file=a C", {"text_columns": ["words"], "label_column": "tags"}),
        # Frozen features: other defaults, and the variants in the table's order.
        ("LAST", {**PAPERS_BILSTM, "train_batch_size": 32, "variants": ("last",)}),
        ("LAST --learning_rate=5e-4", {**PAPERS_BILSTM, "learning_rate": 5e-4}),
        ("LAST --num_train_epochs=3 --lstm_units=8", {"num_train_epochs": 3, "lstm_units": 8}),
        ("NER --feature_based=last,embeddings,last", {"feature_based": "embeddings,last"}),
        ("NER --feature_based=all", {"variants": VARIANTS}),
        # What is compared with nothing else of its step.
        ("PAIRS --train_batch_size=2", {"train_batch_size": 2, "label_column": None}),
        ("PAIRS --train_batch_size=1 --text_columns=a,b,c", {"train_batch_size": 1}),
        ("PAIRS --train_batch_size=1 --similarity_loss=cosine", {"train_batch_size": 1}),
    ],
)
def test_what_flags_give(flags, expected):
    settings = parse(*given(flags))
    found = {name: getattr(settings, name, settings.option(name)) for name in expected}
    assert found == expected


def test_every_setting_is_kept():
    assert set(parse(*given("MRPC")).to_dict()) > MAY_DIFFER
    assert FEATURE_BASED == VARIANTS


def test_googles_names():
    named = "--task_name=MRPC --data_dir=glue --output_dir=out C --predict_batch_size=7"
    settings = parse(*given(f"{named} --num_train_epochs=4.0"))
    found = (settings.model_dir, settings.num_train_epochs, settings.eval_batch_size)
    assert found == ("out", 4, 7)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("", "--task is missing: expected one of cola, sst2"),
        ("--task=mrcp", r"--task=mrcp is unknown \(did you mean mrpc\?\): expected one of"),
        ("--task=ax", "--task=ax has no examples to train on: train --task=mnli"),
        ("--task=mrpc --data_dir=g", "--init_checkpoint is missing: name the weights"),
        ("--task=mrpc C", "--data_dir=FOLDER or by --tfds=glue/mrpc: give"),
        ("--task=mrpc --tfds=glue/rte C", "rte contradicts --task=mrpc: expected --tfds=glue/mrpc"),
        ("MRPC --train_file=a", r"nothing to --task=mrpc: leave it out \(it is for ner, swag"),
        ("TEXTS --doc_stride=3", r"to --task=classification: leave it out \(it is for squad\)"),
        ("TEXTS --metric=acuracy", r"of --task=classification \(did you mean accuracy\?\)"),
        ("TEXTS --metric=micro_f1", "no score of .*: expected one of accuracy, .*, recall_CLASS"),
        ("--task=regression OWN --label_column=b --text_columns=a --metric=f1_x", "of --task=regr"),
        ("--task=ner C", "--task=ner needs a --train_file to train on"),
        ("TEXTS --dev_file=d.csv --dev_fraction=0.2", "is evaluated on: leave --dev_fraction out"),
        ("NOTHING", "--text_columns=A or A,B, the columns of a.csv to read; got none"),
        ("TEXTS --text_columns=a,b,c", "A or A,B, the columns of a.csv to read; got a,b,c"),
        ("TEXTS --text_columns=a,a", "--label_column name a twice: expected a column for each"),
        ("TEXTS --text_columns=a,b --label_column=b", "name b twice: .* and another for the label"),
        ("--task=multiple_choice OWN", "needs --text_columns=CONTEXT,CHOICE,..."),
        ("NOTHING --text_columns=a", "needs --label_column, the column of a.csv to learn"),
        ("--task=tagging OWN --text_columns=a --label_column=b --character_spans",
         "--character_spans reads lists of entities, and a.csv holds texts: expected a table"),
        ("SQUAD=a.csv.gz --label_column=b", "answer_start_column, the column of a.csv.gz with the"),
        ("SQUAD=a.json --label_column=b", "--label_column names a column, and a.json is no table"),
        ("MRPC --long_text=windows", "--long_text=windows is for single texts, and here are two"),
        # Training.
        ("TEXTS --num_train_epochs=2.5", "epochs=2.5: expected a whole number of 1 or more"),
        ("TEXTS --max_steps=5 --num_train_epochs=2", "--max_steps and --num_train_epochs both set"),
        ("TEXTS --max_steps=5 --sweep=paper", "--max_steps and --sweep both set the schedule"),
        ("TEXTS --train_batch_size=8 --gradient_accumulation_steps=3", "=8 is not a multiple of -"),
        ("PAIRS --train_batch_size=1", "^--train_batch_size=1: a pair of --task=similarity is com"),
        ("PAIRS --gradient_accumulation_steps=2", "steps=2: the loss compares the rows of a batch"),
        # Frozen features.
        ("NER --feature_based=lst", r"=lst is unknown \(did you mean last\?\): expected embedding"),
        ("NER --feature_based=", "--feature_based is empty: expected embeddings, second_to_last, "),
        ("NER --lstm_units=8", "--lstm_units is the width of --feature_based's BiLSTM, which is n"),
        # Several runs.
        ("UNJUDGED --restarts=2", "--restarts keeps the best on a dev set: give --dev_file"),
        ("TEXTS --sweep=paper --learning_rate=1e-4", "chooses --learning_rate itself: leave it ou"),
    ],
)  # fmt: skip
def test_wrong_flags(flags, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(*given(flags))


@pytest.mark.parametrize(
    ("begins", "others", "sentence"),
    [
        ("MRPC", "dev_file=a test_file=a dev_fraction=0.2 text_columns=a "
         "label_column=a id_column=a delimiter=; encoding=latin-1 feature_based=last",
         "--{} means nothing to --task=mrpc: leave it"),
        ("NER", "data_dir=g long_text=windows",
         "--{} means nothing to --task=ner: leave it"),
        ("--task=regression OWN", "class_weights=balanced label_smoothing=0.1",
         "--{} means nothing to --task=regression"),
        ("TEXTS", "document_context", "--{} means nothing to --task=classification"),
        ("LAST", "freeze=2 pooling=max sweep=paper hidden_dropout_prob=0",
         "--{} is for fine-tuning, and with --feature_based the whole encoder"),
        ("UNJUDGED", "metric=loss early_stopping_epochs=1 sweep=paper",
         "--{} needs something to evaluate on: give --dev_file"),
        ("NER --dev_fraction=0", "feature_based=last", "--{} needs something to evaluate on"),
    ],
)  # fmt: skip
def test_flags_that_mean_nothing(begins, others, sentence):
    for other in others.split():
        with pytest.raises(ValueError, match=f"^{sentence.format(other.split('=')[0])}"):
            parse(*given(f"{begins} --{other}"))


def test_no_tensorflow_before_the_flags_are_known():
    code = (
        "import sys, bert_tf.finetune\n"
        "assert 'tensorflow' not in sys.modules and 'keras' not in sys.modules\n"
        "print('as it should be')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "as it should be\n", done.stderr


def test_every_option_of_a_kind_is_refused_to_the_other_kinds():
    options = {name for kind in KINDS.values() for name in kind.option_fields()}
    for name in options & set(flag_defaults()):
        for kind in KINDS.values():
            if name not in kind.option_fields():
                wrong = f"--{name} means nothing to --task={kind.kind}"
                with pytest.raises(ValueError, match=wrong):
                    resolve({"task": kind.kind, name: "x"})
