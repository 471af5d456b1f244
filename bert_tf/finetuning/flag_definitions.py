"""The flags of ``python -m bert_tf.finetune``; ``settings`` resolves them."""

import functools

from absl import flags

from bert_tf.tasks.glue_tasks import GLUE_TASKS

from .feature_based_flags import define_feature_based_flags

# GLUE's tasks as the command line spells them, with their published spellings.
GLUE_NAMES = {task.tfds_config: name for name, task in GLUE_TASKS.items()}
OWN_DATA = ("classification", "multilabel", "regression", "tagging", "multiple_choice", "squad")
TASKS = (*GLUE_NAMES, "swag", "codah", "ner", *OWN_DATA)

ALIASES = {
    "task_name": "task",
    "output_dir": "model_dir",
    "predict_file": "dev_file",
    "predict_batch_size": "eval_batch_size",
    "random_seed": "seed",
}

# Flags of Google's scripts that are accepted, and what stands in for them here.
WITHOUT_MEANING = {
    "do_train": "a run trains, evaluates and predicts",
    "do_eval": "a run trains, evaluates and predicts",
    "do_predict": "a run trains, evaluates and predicts",
    "use_tpu": "fine-tuning runs on one GPU or the CPU",
    "bert_config_file": "--init_checkpoint has its config beside it",
    "vocab_file": "--init_checkpoint has its vocabulary beside it",
    "do_lower_case": "--init_checkpoint says its casing",
    "save_checkpoints_steps": "every epoch is saved, and --save_checkpoints_minutes between",
    "iterations_per_loop": "every step is a call",
}


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags; not on import, as other commands define some of the same.

    Args:
        values: what they are added to.
    """
    _define_data_flags(values)
    _define_column_flags(values)
    _define_question_flags(values)
    _define_training_flags(values)
    define_feature_based_flags(values)
    _define_run_flags(values)
    for alias, name in ALIASES.items():
        flags.DEFINE_alias(alias, name, flag_values=values)
    for name, reason in WITHOUT_MEANING.items():
        is_switch = name.startswith(("use_", "do_"))
        define = flags.DEFINE_bool if is_switch else flags.DEFINE_string
        define(name, None, f"Accepted and ignored: {reason}.", flag_values=values)


def _define_data_flags(values: flags.FlagValues) -> None:
    string = functools.partial(flags.DEFINE_string, flag_values=values)
    string(
        "task",
        None,
        "What to train for. Published data: cola, sst2, mrpc, stsb, qqp, mnli (which predicts ax "
        "too), qnli, rte, wnli (GLUE: with --data_dir or --tfds); squad, swag, codah, ner (CoNLL's "
        "column files). Your own tables: classification, multilabel, regression, tagging, "
        "multiple_choice, squad.",
    )
    string(
        "data_dir", None, "GLUE's files: the task's folder, or the one with a folder for each task."
    )
    string("tfds", None, "Instead of --data_dir: glue/mrpc, by TensorFlow Datasets.")
    string(
        "train_file",
        None,
        "What to train on: a .csv, .tsv or .jsonl table (.gz too), SQuAD's .json, SWAG's .csv, "
        "CODAH's .tsv, CoNLL's columns; ARCHIVE.zip/MEMBER for ner.",
    )
    string(
        "dev_file",
        None,
        "What to evaluate on, of the same form; without it a part of --train_file is held out.",
    )
    string("test_file", None, "What to predict when the training has ended.")
    flags.DEFINE_bool(
        "test_has_labels",
        None,
        "Whether --test_file has labels, so that its scores are told too; true by default for ner "
        "and codah.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "dev_fraction",
        0.1,
        "The share held out without a --dev_file; of squad whole articles. 0: none, and the last "
        "epoch counts as the best.",
        lower_bound=0.0,
        upper_bound=0.9,
        flag_values=values,
    )
    flags.DEFINE_bool(
        "skip_bad_rows",
        False,
        "Leave out bad rows, count and list them, instead of an error at the first.",
        flag_values=values,
    )


def _define_column_flags(values: flags.FlagValues) -> None:
    string = functools.partial(flags.DEFINE_string, flag_values=values)
    flags.DEFINE_list(
        "text_columns",
        None,
        "The columns of a table of your own: one text or two; tagging: the words; multiple_choice: "
        "the context and the choices (in .jsonl: one list of them); squad: question,context.",
        flag_values=values,
    )
    string(
        "label_column",
        None,
        "The column of the class, classes, number, tags, right choice (counted from 0), or answers "
        "(a list as SQuAD has it, or with --answer_start_column one text).",
    )
    string("id_column", None, "The column of ids; rows are counted without it.")
    string("label_separator", ",", "What parts the classes of multilabel.")
    string(
        "answer_start_column",
        None,
        "squad: the column with the number of the context's character where the answer begins.",
    )
    string(
        "title_column",
        None,
        "squad: the column of the article's title, by which questions are held out.",
    )
    string("encoding", "utf-8", "ner: the files' encoding; CoNLL-2002's own are latin-1.")
    flags.DEFINE_bool(
        "document_context",
        False,
        "ner: fill a row with the sentences round the one that is tagged, as the paper did.",
        flag_values=values,
    )


def _define_question_flags(values: flags.FlagValues) -> None:
    for name, default, most, text in (
        ("doc_stride", 128, None, "squad: tokens between the starts of two windows of a context."),
        ("max_query_length", 64, None, "squad: the most tokens of a question."),
        ("n_best_size", 20, 1000, "squad: how many answers are kept of a question."),
        ("max_answer_length", 30, None, "squad: the most tokens of an answer."),
    ):
        flags.DEFINE_integer(
            name, default, text, lower_bound=1, upper_bound=most, flag_values=values
        )
    flags.DEFINE_bool(
        "version_2_with_negative",
        None,
        "squad: whether a question may have no answer; by default as in --train_file.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        'squad: answer "" where its score is this much over the best answer\'s; by default what '
        "is best on the evaluated set.",
        flag_values=values,
    )


def _define_training_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "The weights to start from, their config and vocabulary beside them: a directory of this "
        "library, of Hugging Face, Google, Model Garden or KerasHub, or a .keras file.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "allow_pickle",
        False,
        "Read an --init_checkpoint that is a pytorch_model.bin; a pickle can run any code.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "max_seq_length",
        None,
        "Tokens of a row, [CLS] and [SEP] included; 128 by default, 384 for squad. Shorter rows "
        "are not padded to it.",
        lower_bound=5,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "train_batch_size", 32, "Examples of a step.", lower_bound=1, flag_values=values
    )
    flags.DEFINE_float(
        "learning_rate", 5e-5, "The highest rate. The paper's: 5e-5 to 2e-5.", flag_values=values
    )
    flags.DEFINE_float(
        "num_train_epochs", 3, "How often each example is seen; whole.", flag_values=values
    )
    flags.DEFINE_float(
        "warmup_proportion",
        0.1,
        "The share of the steps until the full rate; from there it falls to 0.",
        lower_bound=0.0,
        upper_bound=1.0,
        flag_values=values,
    )
    flags.DEFINE_enum(
        "optimizer",
        "adamw",
        ["adamw", "adam"],
        "adam: Google's, which leaves the moments' bias uncorrected, so that early steps are "
        "larger and small data sets sometimes fail; adamw: the same, corrected.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "freeze",
        0,
        "Leave the embeddings and so many of the lowest blocks as they are.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_string(
        "class_weights",
        None,
        "What a class counts in the loss: balanced (each class as much as any other), or "
        "NAME:WEIGHT,NAME:WEIGHT, 1 for those not named.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "eval_steps",
        0,
        "Evaluate every so many steps besides the end of each epoch.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "early_stopping_epochs",
        0,
        "Stop at the first evaluation that comes this many epochs after the best one, or later, "
        "without being better; 0: never.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "seed",
        12345,
        "What the new head, dropout, the order and what is held out are drawn from.",
        lower_bound=0,
        upper_bound=2**32 - 1,
        flag_values=values,
    )
    flags.DEFINE_enum(
        "sweep",
        None,
        ["paper"],
        "paper: every batch size of 16 and 32, rate of 5e-5, 3e-5 and 2e-5, and 2 to 4 epochs.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "restarts",
        1,
        "Train with so many seeds, from --seed on; the best on the dev set is kept.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        ["float32", "bfloat16"],
        "bfloat16: matrix products in bfloat16, weights and sums in float32.",
        flag_values=values,
    )


def _define_run_flags(values: flags.FlagValues) -> None:
    # Free to differ when a run is started again.
    flags.DEFINE_string(
        "model_dir", None, "Where everything is kept; runs/TASK by default.", flag_values=values
    )
    flags.DEFINE_integer(
        "eval_batch_size",
        64,
        "Examples of an evaluation's batch.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_float(
        "save_checkpoints_minutes",
        10.0,
        "Minutes between two saves within an epoch.",
        lower_bound=0.0,
        flag_values=values,
    )
    flags.DEFINE_bool(
        "export",
        True,
        "Write a SavedModel of the kept weights to MODEL_DIR/export/1, for TensorFlow Serving.",
        flag_values=values,
    )
