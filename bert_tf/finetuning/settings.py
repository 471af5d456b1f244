"""The settings of a fine-tuning: the flags of ``python -m bert_tf.finetune`` and what they mean.

``FineTuningSettings`` is the table of flags: each field's default and help; ``resolution`` makes
settings of the flags that are given.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from bert_tf.choices import (
    HEAD_POOLINGS,
    LONG_TEXTS,
    PRECISIONS,
    SIMILARITY_LOSSES,
    STRATEGIES,
)
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_rules import divided_by, needs, one_of, required, within, without
from bert_tf.tasks.kinds import ANSWERS, CONLL_TASKS, FEATURE_BASED, GLUE_NAMES, KINDS, TASKS, Kind

from . import rules

# Names of google-research/bert's scripts.
_ALIASES = {
    "task_name": "task",
    "output_dir": "model_dir",
    "predict_file": "dev_file",
    "predict_batch_size": "eval_batch_size",
    "random_seed": "seed",
}
# Settings that do not change data, model or schedule.
MAY_DIFFER = frozenset(
    {
        *("model_dir", "strategy", "eval_batch_size", "save_checkpoints_minutes"),
        *("export", "remat"),
    }
)
# Settings that name files whose contents a run keeps the fingerprints of.
PATHS = frozenset({"data_dir", "train_file", "dev_file", "test_file", "init_checkpoint"})

# Up to so many units (hidden_size) of the weights to start from: the rate and the epochs that such
# weights learn best with. Google's 24 miniatures were released with rates from 3e-4 to 3e-5.
BY_SIZE = ((128, 1e-3, 10), (256, 3e-4, 3), (512, 1e-4, 3))
USUAL = (5e-5, 3)  # of all larger ones, and of the paper
# The paper does not say how the BiLSTM was trained.
FEATURES_DEFAULTS = {"learning_rate": 1e-3, "num_train_epochs": 10, "lstm_units": 768}
# SetFit's.
FEW_SHOT_DEFAULTS = {"learning_rate": 2e-5, "num_train_epochs": 1, "train_batch_size": 16}


@dataclasses.dataclass(frozen=True)
class FineTuningSettings:
    """Every flag, its value resolved."""

    task: str = flag_fields.string(
        None,
        "What to train for. Published data: cola, sst2, mrpc, stsb, qqp, mnli (which predicts ax "
        "too), qnli, rte, wnli (GLUE: with --data_dir or --tfds); squad, swag, ner (CoNLL's "
        "column files). Your own tables: classification, multilabel, regression, tagging, "
        "multiple_choice, similarity (embeddings), squad.",
        heading="What every run needs",
    )
    train_file: str | None = flag_fields.string(
        None,
        "The training data: a .csv, .tsv, .jsonl, .json or .parquet table (.gz too), SQuAD's "
        ".json, SWAG's .csv, or CoNLL's columns.",
        rules=[rules.for_tasks(*rules.FILES), rules.TO_TRAIN_ON],
    )
    text_columns: Sequence[str] = flag_fields.words(
        None,
        "The columns to read. One text or two; tagging: the words; multiple_choice: the context "
        "and the choices (in .jsonl: one list of them); similarity: two texts, or "
        "anchor,positive,negative; squad: question,context.",
        rules=[rules.for_tasks(*KINDS)],
    )
    label_column: str | None = flag_fields.string(
        None,
        "The column to learn: the class, the classes, the number, the tags, the right choice "
        "(counted from 0), or the answers (a list as in SQuAD, or one text with "
        "--answer_start_column); similarity: the score, or no column where the two texts of a row "
        "belong together.",
        rules=[rules.for_tasks(*KINDS)],
    )
    init_checkpoint: str = flag_fields.string(
        None,
        "The weights to start from, with their config and vocabulary: a directory of this library, "
        "Hugging Face, Google, Model Garden or KerasHub, a .keras file, hf://OWNER/NAME of the "
        "Hugging Face hub, or tiny, a small model that bert_tf ships.",
        rules=[
            required(
                "name the weights to start from, a directory of Hugging Face, Google, Model "
                "Garden, KerasHub or this library, hf://OWNER/NAME of the Hugging Face hub, or "
                "tiny, which bert_tf ships"
            ),
        ],
    )
    model_dir: str = flag_fields.string(
        None, "Where the run keeps everything; runs/TASK by default."
    )
    dev_file: str | None = flag_fields.string(
        None,
        "What to evaluate on, in the same form; without it a part of --train_file is held out.",
        rules=[
            rules.for_tasks(*rules.FILES),
            without("dev_fraction", says="--{flag} is what is evaluated on: leave --{other} out."),
        ],
        heading="More data",
    )
    dev_fraction: float = flag_fields.number(
        0.1,
        "The share to hold out without a --dev_file; for squad, whole articles. 0: nothing is held "
        "out, and the last epoch counts as the best.",
        least=0.0,
        most=0.9,
        rules=[rules.for_tasks(*rules.FILES)],
    )
    test_file: str | None = flag_fields.string(
        None,
        "What to predict after the training, and to score where it has labels.",
        rules=[rules.for_tasks(*rules.FILES)],
    )
    skip_bad_rows: bool = flag_fields.switch(
        False, "Leave bad rows out, count them and list them; without it the first one is an error."
    )
    data_dir: str | None = flag_fields.string(
        None,
        "GLUE's files: the task's folder, or the folder that holds one for each task.",
        rules=[rules.for_tasks(*GLUE_NAMES), rules.ONE_SOURCE],
    )
    tfds: str | None = flag_fields.string(
        None,
        "Instead of --data_dir: load glue/mrpc, for example, with TensorFlow Datasets.",
    )
    id_column: str | None = flag_fields.string(
        None,
        "The column with the rows' ids; without it rows are counted.",
        rules=[rules.for_tasks(*KINDS)],
        heading="Tables of your own",
    )
    label_separator: str = flag_fields.string(
        ",", "multilabel: what separates the classes of a row.", rules=[rules.for_kinds]
    )
    answer_start_column: str | None = flag_fields.string(
        None,
        "squad: the column with the place in the context where the answer begins, in characters "
        "from 0.",
        rules=[rules.for_kinds],
    )
    title_column: str | None = flag_fields.string(
        None,
        "squad: the column with the article's title; whole articles are held out.",
        rules=[rules.for_kinds],
    )
    delimiter: str | None = flag_fields.delimiter("your own", rules=[rules.for_tasks(*KINDS)])
    encoding: str = flag_fields.encoding(
        "your own .csv, .tsv or .jsonl, and of ner's files (CoNLL-2002's own are latin-1)",
        rules=[rules.for_tasks(*KINDS, *CONLL_TASKS)],
    )
    character_spans: bool = flag_fields.switch(
        False,
        "tagging: --text_columns names a text, and --label_column the list of its entities, each "
        'as {"start": 0, "end": 3, "label": "PER"}: its first character, and the one after its '
        "last (.jsonl, .json, .parquet).",
        rules=[rules.for_kinds],
    )
    document_context: bool = flag_fields.switch(
        False,
        "ner: fill each row with the sentences around the one that is tagged, as in the paper.",
        heading="Tags and questions",
        rules=[rules.for_tasks(*CONLL_TASKS)],
    )
    doc_stride: int = flag_fields.integer(
        ANSWERS["doc_stride"],
        "squad: how many tokens lie between the starts of two windows of a context.",
        least=1,
        rules=[rules.for_kinds],
    )
    max_query_length: int = flag_fields.integer(
        ANSWERS["max_query_length"],
        "squad: the most tokens of a question.",
        least=1,
        rules=[rules.for_kinds],
    )
    n_best_size: int = flag_fields.integer(
        ANSWERS["n_best_size"],
        "squad: how many answers to keep for each question.",
        least=1,
        most=1000,
        rules=[rules.for_kinds],
    )
    max_answer_length: int = flag_fields.integer(
        ANSWERS["max_answer_length"],
        "squad: the most tokens of an answer.",
        least=1,
        rules=[rules.for_kinds],
    )
    null_score_diff_threshold: float | None = flag_fields.number(
        None,
        'squad: answer "" where its score is this much higher than the best answer\'s; by default '
        "the value that scores best on the evaluated set.",
        rules=[rules.for_kinds],
    )
    max_seq_length: int = flag_fields.integer(
        None,
        "The most tokens in a row, with [CLS] and [SEP]; 128 by default, 384 for squad. Shorter "
        "rows are not padded to it.",
        least=5,
    )
    long_text: str = flag_fields.choice(
        LONG_TEXTS[0],
        LONG_TEXTS,
        "What is read of a single text with more tokens than --max_seq_length. head: the "
        "beginning. head_tail: the beginning, a quarter of the row, and the end. windows: "
        "everything, in at most 16 overlapping windows, whose outputs are averaged.",
        rules=[rules.for_kinds, rules.of_single_texts],
    )
    train_batch_size: int = flag_fields.integer(
        32,
        "Examples in a step, over all devices.",
        least=1,
        heading="Training",
        rules=[divided_by("gradient_accumulation_steps"), rules.HAS_OTHERS],
    )
    gradient_accumulation_steps: int = flag_fields.integer(
        1,
        "How many parts to split a step's examples into, computed one after the other: less "
        "memory, the same update.",
        least=1,
        rules=[rules.COMPARES_NO_ROWS],
    )
    remat: bool = flag_fields.switch(False, flag_fields.REMAT)
    learning_rate: float = flag_fields.number(
        None,
        "The highest rate. The paper's: 5e-5 to 2e-5. By default it follows the size: "
        + "".join(f"{rate:g} up to {units} units (hidden_size), " for units, rate, _ in BY_SIZE)
        + f"{USUAL[0]:g} above.",
        rules=[within(lambda rate: rate > 0, "above 0")],
    )
    num_train_epochs: int = flag_fields.number(
        None,
        f"How often each example is seen; a whole number. By default {USUAL[1]}, and "
        f"{BY_SIZE[0][2]} up to {BY_SIZE[0][0]} units.",
        rules=[rules.WHOLE],
    )
    max_steps: int | None = flag_fields.integer(
        None,
        "Train for this many steps instead of --num_train_epochs.",
        least=1,
        rules=[
            one_of("set the schedule", "num_train_epochs", "sweep"),
        ],
    )
    warmup_proportion: float = flag_fields.number(
        0.1,
        "The share of the steps over which the rate rises; after that it falls to 0.",
        least=0.0,
        most=1.0,
    )
    optimizer: str = flag_fields.choice(
        "adamw",
        ["adamw", "adam"],
        "adamw: Adam with bias correction. adam: Google's, without it: early steps are larger, and "
        "training on small data sets sometimes fails.",
    )
    weight_decay: float = flag_fields.number(
        0.01,
        "How much matrices and embeddings decay in each step, as a share of the rate.",
        least=0.0,
    )
    hidden_dropout_prob: float | None = flag_fields.number(
        None,
        "The share of hidden values, of attention weights and of the head's inputs that dropout "
        "sets to 0; by default the checkpoint's.",
        rules=[rules.NOT_FROZEN, rules.SHARE],
    )
    label_smoothing: float = flag_fields.number(
        0.0,
        "Train towards 1 - SHARE + SHARE / CLASSES for the right class, and SHARE / CLASSES for "
        "each other one.",
        rules=[rules.for_kinds, rules.SHARE],
    )
    class_weights: str | None = flag_fields.string(
        None,
        "What each class counts in the loss: balanced (every class counts the same in total), or "
        'NAME:WEIGHT,NAME:WEIGHT or {"NAME": WEIGHT} (1 for classes not named). multilabel: the '
        "weight of examples that have the class, where those without it count 1. tagging: the "
        "weights are of tags.",
        rules=[rules.for_kinds],
    )
    few_shot: bool = flag_fields.switch(
        False,
        "classification of single texts with few examples, 8 a class for instance: learn from "
        "pairs of texts whether both have one class, then fit the head to the texts' vectors. "
        "Works best from a model of sentence embeddings. By default "
        + ", ".join(f"--{name}={value:g}" for name, value in FEW_SHOT_DEFAULTS.items())
        + " then.",
        rules=[
            *(rules.for_kinds, rules.OF_MEANS, rules.OF_HEADS, rules.of_single_texts),
            rules.WITHOUT_OTHER_HEADS,
        ],
        heading="Few examples",
    )
    few_shot_pairs: int = flag_fields.integer(
        20,
        "--few_shot: how many pairs each text forms with texts of its own class, and as many with "
        "others.",
        least=1,
        rules=[rules.for_kinds, needs("few_shot")],
    )
    freeze: int = flag_fields.integer(
        0,
        "Do not train the embeddings and this many of the lowest blocks.",
        least=0,
        heading="What is trained",
        rules=[rules.NOT_FROZEN],
    )
    pooling: str | None = flag_fields.choice(
        None,
        HEAD_POOLINGS,
        "What the head reads of a text. cls: [CLS], through the pooler, as in the paper. mean, "
        "max: all tokens, without a pooler. By default what --init_checkpoint was trained for: "
        "mean for most models of sentence-transformers, cls for others. similarity: what a text's "
        "vector is, by default mean.",
        rules=[rules.NOT_FROZEN],
    )
    normalize: bool | None = flag_fields.switch(
        None,
        "similarity: scale vectors to length 1; by default as --init_checkpoint does, else true.",
        rules=[rules.for_kinds],
    )
    similarity_loss: str | None = flag_fields.choice(
        None,
        SIMILARITY_LOSSES,
        "similarity: what is learned. With scores cosent (the order of the cosines; the default) "
        "or cosine (the scores themselves, scaled from 0 to 1). Without, one_way "
        "(the anchor's own text among all of the batch; the default) or both_ways (the text's own "
        "anchor, too).",
        rules=[rules.for_kinds],
    )
    feature_based: str | None = flag_fields.words(
        None,
        "ner, tagging: train a two-layer BiLSTM on the frozen encoder's features, a run for each "
        f"choice of layers, and compare: {', '.join(FEATURE_BASED)}, several of them, or "
        f"{rules.ALL_FEATURES}. --learning_rate is {FEATURES_DEFAULTS['learning_rate']:g} then by "
        f"default, and --num_train_epochs {FEATURES_DEFAULTS['num_train_epochs']}.",
        rules=[rules.for_kinds, rules.are_variants, rules.ON_DEV],
    )
    lstm_units: int | None = flag_fields.integer(
        None,
        "--feature_based: the width of each direction of the BiLSTM; by default the paper's "
        f"{FEATURES_DEFAULTS['lstm_units']}.",
        least=1,
        rules=[
            rules.for_kinds,
            needs(
                "feature_based",
                "--{flag} is the width of --feature_based's BiLSTM, which is not asked for: leave "
                "it out.",
            ),
        ],
    )
    metric: str | None = flag_fields.string(
        None,
        "The dev score that decides which weights are kept, and which of several runs is best; by "
        "default the task's own. loss, accuracy, macro_f1, f1_CLASS, recall_CLASS, ...: "
        "docs/evaluation.md lists those of each task.",
        heading="Evaluation",
        rules=[rules.ON_DEV, rules.is_score],
    )
    early_stopping_epochs: int = flag_fields.integer(
        0,
        "Stop at the first evaluation that comes at least this many epochs after the best one and "
        "is no better. 0: never.",
        least=0,
        rules=[rules.ON_DEV],
    )
    seed: int = flag_fields.integer(
        12345,
        "The seed of the new head, of dropout, of the order, and of what is held out.",
        least=0,
        most=2**32 - 1,
        heading="Several runs",
    )
    sweep: str | None = flag_fields.choice(
        None,
        ["paper"],
        "paper: every combination of batch sizes 16 and 32, rates 5e-5, 3e-5 and 2e-5, and 2, 3 "
        "and 4 epochs.",
        rules=[
            rules.NOT_FROZEN,
            rules.ON_DEV,
            without(
                *("train_batch_size", "learning_rate", "num_train_epochs"),
                says="--{flag}={value} chooses --{other} itself: leave it out.",
            ),
        ],
    )
    restarts: int = flag_fields.integer(
        1,
        "How many seeds to train with, from --seed on; the best on the dev set is kept.",
        least=1,
        rules=[rules.KEEPS_BEST],
    )
    precision: str = flag_fields.choice(
        "float32",
        PRECISIONS,
        "bfloat16: matrix products in bfloat16, weights and sums in float32.",
        heading="Machine",
    )
    strategy: str = flag_fields.choice("auto", STRATEGIES, flag_fields.STRATEGY)
    eval_batch_size: int = flag_fields.integer(
        64, "Examples in an evaluation batch, over all devices.", least=1
    )
    save_checkpoints_minutes: float = flag_fields.number(
        10.0, "Minutes between two saves within an epoch.", least=0.0, heading="What is kept"
    )
    export: bool = flag_fields.switch(
        True,
        "Write a SavedModel of the kept weights to MODEL_DIR/export/1, for TensorFlow Serving.",
    )

    @property
    def glue(self) -> str | None:
        """GLUE's own name of the task, ``None`` where it is none of GLUE's."""
        return GLUE_NAMES.get(self.task)

    @property
    def kind(self) -> Kind:
        """Kind of the task, for published and own data."""
        return KINDS[TASKS[self.task]]

    @property
    def reads_table(self) -> bool:
        """True if the files are tables whose columns the flags name."""
        return is_in_tables(self.task, self.train_file)

    @property
    def variants(self) -> tuple[str, ...]:
        """The choices of layers to train on frozen features of; () to fine-tune the encoder."""
        return tuple(self.feature_based.split(",")) if self.feature_based else ()

    @property
    def variant(self) -> str | None:
        """The first of ``variants``: that of one run."""
        return self.variants[0] if self.variants else None

    @property
    def is_search(self) -> bool:
        """True if several runs are asked for."""
        return bool(self.sweep or self.restarts > 1 or self.variants)

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


def is_in_tables(task: str, train_file: str | None) -> bool:
    """True if a task's files are tables whose columns the flags name."""
    return task in KINDS and (
        not KINDS[task].reads_own_form or KINDS[task].is_table(train_file or "")
    )


# === Flags ===


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(FineTuningSettings, values, _ALIASES)


def flag_defaults() -> dict[str, Any]:
    """The flags' defaults by name."""
    return flag_fields.defaults(FineTuningSettings)
