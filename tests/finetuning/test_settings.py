import pytest

from bert_tf.choices import FEATURE_BASED
from bert_tf.finetuning.settings import MAY_CHANGE, flag_defaults, resolve
from bert_tf.modeling.feature_based import VARIANTS
from bert_tf.tasks.registry import KINDS

from .small_runs import parse

DATA = {
    "mrpc": {"data_dir": "glue"},
    "ner": {"train_file": "a"},
    "swag": {"train_file": "a"},
    "squad": {"train_file": "a.json"},
    "tagging": {"train_file": "a"},
    "similarity": {"train_file": "a.csv", "text_columns": "a,b"},
}


def settings_of(task, flags):
    """Returns the settings for a task's default flags and some changes; ``None`` removes a flag."""
    own_table = {"train_file": "a.csv", "text_columns": "a", "label_column": "b"}
    flags = {"task": task, "init_checkpoint": "c", **DATA.get(task, own_table), **flags}
    return parse(*(f"--{name}={value}" for name, value in flags.items() if value is not None))


LAST = {"feature_based": "last"}
PAPERS_BILSTM = {"learning_rate": 1e-3, "num_train_epochs": 10, "lstm_units": 768}


@pytest.mark.parametrize(
    ("task", "flags", "expected"),
    [
        ("mrpc", {}, {"glue": "MRPC", "kind": KINDS["classification"], "max_seq_length": 128}),
        ("mrpc", {}, {"learning_rate": None, "train_batch_size": 32, "num_train_epochs": None}),
        ("mrpc", {}, {"warmup_proportion": 0.1, "model_dir": "runs/mrpc", "variants": ()}),
        ("mrpc", {"task": "STS-B"}, {"glue": "STS-B", "kind": KINDS["regression"]}),
        ("mrpc", {"task": "MNLI"}, {"task": "mnli", "kind": KINDS["classification"]}),
        ("mrpc", {"task": None, "data_dir": None, "tfds": "glue/sst2"}, {"task": "sst2"}),
        ("swag", {}, {"kind": KINDS["multiple_choice"], "text_columns": []}),
        ("ner", {}, {"kind": KINDS["tagging"], "text_columns": [], "lstm_units": None}),
        ("classification", {}, {"kind": KINDS["classification"], "text_columns": ["a"]}),
        ("squad", {}, {"max_seq_length": 384, "text_columns": [], "label_column": None}),
        ("squad", {"train_file": "a.jsonl.gz", "max_seq_length": 64},
         {"max_seq_length": 64, "text_columns": ["question", "context"],
          "label_column": "answers"}),
        ("tagging", {}, {"text_columns": ["words"], "label_column": "tags"}),
        # Names of the reference implementation.
        ("mrpc", {"task": None, "task_name": "MRPC", "output_dir": "out", "predict_batch_size": 7},
         {"task": "mrpc", "model_dir": "out", "eval_batch_size": 7}),
        ("squad", {"predict_file": "b.json", "num_train_epochs": 4.0},
         {"dev_file": "b.json", "num_train_epochs": 4}),
        # Frozen features: other defaults, and the variants in the order of the table.
        ("ner", LAST, {**PAPERS_BILSTM, "train_batch_size": 32, "variants": ("last",)}),
        ("ner", {**LAST, "learning_rate": 5e-4}, {**PAPERS_BILSTM, "learning_rate": 5e-4}),
        ("ner", {**LAST, "num_train_epochs": 3, "lstm_units": 8},
         {"num_train_epochs": 3, "lstm_units": 8}),
        ("ner", {"feature_based": "last,embeddings,last"}, {"feature_based": "embeddings,last"}),
        ("ner", {"feature_based": "all"}, {"variants": VARIANTS}),
        # Few-shot training: other defaults.
        ("classification", {"few_shot": True},
         {"learning_rate": 2e-5, "num_train_epochs": 1, "train_batch_size": 16}),
        ("classification", {"few_shot": True, "num_train_epochs": 4},
         {"learning_rate": 2e-5, "num_train_epochs": 4}),
        # An example that is not compared with other examples of its step.
        ("similarity", {"train_batch_size": 2}, {"train_batch_size": 2, "label_column": None}),
        ("similarity", {"train_batch_size": 1, "text_columns": "a,b,c"}, {"train_batch_size": 1}),
        ("similarity", {"train_batch_size": 1, "similarity_loss": "cosine"},
         {"train_batch_size": 1}),
    ],
)  # fmt: skip
def test_flags_define_settings(task, flags, expected):
    settings = settings_of(task, flags)
    assert {name: getattr(settings, name, settings.option(name)) for name in expected} == expected
    assert set(settings.to_dict()) > set().union(*MAY_CHANGE.values())


TEXTS = "classification"


@pytest.mark.parametrize(
    ("task", "flags", "message"),
    [
        (None, {}, "--task is missing: expected one of cola, sst2, mrpc, qqp, mnli, qnli, rte, "
         "wnli, stsb, ner, swag, classification, multilabel, regression, tagging, "
         "multiple_choice, similarity, squad"),
        ("mrcp", {}, r"--task=mrcp is unknown \(did you mean mrpc\?\): expected one of cola, "
         "sst2, mrpc, qqp, mnli, qnli, rte, wnli, stsb, ner, swag, classification, "
         "multilabel, regression, tagging, multiple_choice, similarity, squad"),
        ("ax", {}, "--task=ax has no training examples. Use --task=mnli, which also predicts ax if "
         "--data_dir contains its file"),
        ("mrpc", {"init_checkpoint": None}, "--init_checkpoint is missing: pass the weights to "
         "start from, a directory of bert_tf, Hugging Face, Google, Model Garden or "
         r"KerasHub, a \.keras file, hf://OWNER/NAME, or tiny"),
        ("mrpc", {"data_dir": None}, "requires either --data_dir=FOLDER or --tfds=glue/mrpc"),
        ("mrpc", {"data_dir": None, "tfds": "glue/rte"},
         "rte contradicts --task=mrpc: expected --tfds=glue/mrpc"),
        ("mrpc", {"train_file": "a"}, "not supported for --task=mrpc, only for ner, swag, "
         "classification, multilabel, regression, tagging, multiple_choice, similarity, squad"),
        (TEXTS, {"doc_stride": 3}, "for --task=classification, only for squad. Remove it"),
        (TEXTS, {"metric": "acuracy"}, r"of --task=classification \(did you mean accuracy\?\)"),
        (TEXTS, {"metric": "micro_f1"}, "not a metric of .*: expected one of accuracy, .*, "
         "recall_CLASS, f1_CLASS"),
        ("regression", {"metric": "f1_x"}, "not a metric of --task=regression"),
        ("ner", {"train_file": None}, "--task=ner requires --train_file"),
        (TEXTS, {"dev_file": "d.csv", "dev_fraction": 0.2},
         "--dev_file and --dev_fraction are mutually exclusive"),
        (TEXTS, {"text_columns": None}, "A or A,B, columns of a.csv; got none"),
        (TEXTS, {"text_columns": "a,b,c"}, "A or A,B, columns of a.csv; got a,b,c"),
        (TEXTS, {"text_columns": "a,a"}, "--label_column contain a twice: expected different "
         "columns"),
        (TEXTS, {"text_columns": "a,b"}, "contain b twice: expected different columns"),
        ("multiple_choice", {}, r"requires --text_columns=CONTEXT,CHOICE,..., columns of a\.csv"),
        (TEXTS, {"label_column": None}, "requires --label_column, a column of a.csv"),
        ("tagging", {"train_file": "a.csv", "character_spans": True},
         "--character_spans requires lists of entities, which a.csv cannot contain. Use a table "
         r"in \.jsonl, \.json or \.parquet"),
        ("squad", {"train_file": "a.csv.gz", "label_column": "b"},
         "answer_start_column, the column of a.csv.gz with the index of the first character of the "
         r"answer\. A \.jsonl file can contain SQuAD's lists of answers instead"),
        ("squad", {"label_column": "b"}, "--label_column requires a table, got "
         "--train_file=a.json"),
        ("mrpc", {"long_text": "windows"}, "--long_text=windows is only for single texts, but "
         r"there are two text columns: #1 String, #2 String"),
        # Training.
        (TEXTS, {"num_train_epochs": 2.5}, "epochs=2.5: expected an integer of at least 1"),
        (TEXTS, {"max_steps": 5, "num_train_epochs": 2}, "--max_steps and --num_train_epochs "
         "both set the schedule"),
        (TEXTS, {"max_steps": 5, "sweep": "paper"}, "--max_steps and --sweep both set the "
         "schedule"),
        (TEXTS, {"train_batch_size": 8, "gradient_accumulation_steps": 3},
         "=8 is not a multiple of --gradient_accumulation_steps=3"),
        ("similarity", {"train_batch_size": 1}, "^--train_batch_size=1: expected at least 2, "
         "because --task=similarity compares the pairs of a batch"),
        ("similarity", {"gradient_accumulation_steps": 2}, "steps=2 is not supported, because "
         "the loss compares the examples of a batch"),
        (TEXTS, {"jit_compile": "true", "long_text": "windows"},
         "--jit_compile=true does not support --long_text=windows or --feature_based"),
        ("ner", {"jit_compile": "true", **LAST}, "--jit_compile=true does not support "
         "--long_text=windows or --feature_based"),
        # Frozen features.
        ("ner", {"feature_based": "lst"}, r"=lst is unknown \(did you mean last\?\): expected "
         "one or more of embeddings, second_to_last, last, weighted_sum_last_four, "
         "concat_last_four, weighted_sum_all, or all"),
        ("ner", {"feature_based": ""}, "--feature_based is empty: expected one or more of "
         "embeddings, second_to_last, last, weighted_sum_last_four, concat_last_four, "
         "weighted_sum_all, or all"),
        ("ner", {"lstm_units": 8}, "--lstm_units requires --feature_based. Remove "
         "the flag"),
        # Few-shot training.
        (TEXTS, {"few_shot": True, "pooling": "cls"},
         "--few_shot requires mean or maximum pooling. Remove --pooling=cls"),
        (TEXTS, {"few_shot": True, "class_weights": "balanced"},
         "--class_weights is not supported with --few_shot, which fits its own head"),
        (TEXTS, {"few_shot": True, "long_text": "windows"},
         "--few_shot reads only the beginnings of texts. Remove --long_text=windows"),
        (TEXTS, {"few_shot": True, "text_columns": "a,c"},
         "--few_shot is only for single texts, but there are two text columns: a, c"),
        (TEXTS, {"few_shot_pairs": 3}, "--few_shot_pairs requires --few_shot. Pass --few_shot or "
         "remove --few_shot_pairs"),
        # Multiple runs.
        (TEXTS, {"dev_fraction": 0, "restarts": 2},
         "--restarts=2 requires a dev set. Pass --dev_file, or a --dev_fraction above 0"),
        (TEXTS, {"sweep": "paper", "learning_rate": 1e-4},
         "--sweep=paper sets --learning_rate. Remove --learning_rate"),
    ],
)  # fmt: skip
def test_invalid_flags_raise_error(task, flags, message):
    with pytest.raises(ValueError, match=message):
        settings_of(task, flags)


@pytest.mark.parametrize(
    ("task", "default", "others", "message"),
    [
        ("mrpc", {},
         {"dev_file": "a", "test_file": "a", "dev_fraction": 0.2, "text_columns": "a",
          "label_column": "a", "id_column": "a", "delimiter": ";", "encoding": "latin-1"},
         "--{} is not supported for --task=mrpc, only for .* Pass --data_dir for GLUE's files, or "
         "--task=classification for a table"),
        ("ner", {}, {"data_dir": "g"}, "--{} is not supported for --task=ner, only for cola, "
         "sst2, mrpc, qqp, mnli, qnli, rte, wnli, stsb"),
        ("ner", LAST,
         {"freeze": 2, "pooling": "max", "sweep": "paper", "hidden_dropout_prob": 0},
         "--{} is not supported with --feature_based, which freezes the encoder"),
        (TEXTS, {"dev_fraction": 0}, {"metric": "loss", "early_stopping_epochs": 1,
         "sweep": "paper"}, "--{} requires evaluation data. Pass --dev_file or a "
         "--dev_fraction above 0"),
        ("ner", {"dev_fraction": 0}, LAST, "--{} requires evaluation data. Pass --dev_file"),
    ],
)  # fmt: skip
def test_flags_without_effect_raise_error(task, default, others, message):
    for name, value in others.items():
        with pytest.raises(ValueError, match=f"^{message.format(name)}"):
            settings_of(task, {**default, name: value})


def test_options_of_other_task_types_raise_error():
    options = {name for kind in KINDS.values() for name in kind.option_fields()}
    for name in options & set(flag_defaults()):
        for kind in KINDS.values():
            if name not in kind.option_fields():
                message = f"--{name} is not supported for --task={kind.kind}"
                with pytest.raises(ValueError, match=message):
                    resolve({"task": kind.kind, name: "x"})


def test_feature_choices_match_model():
    assert FEATURE_BASED == VARIANTS
