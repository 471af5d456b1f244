"""The settings of a fine-tuning: the flags of ``python -m bert_tf.finetune`` and what they mean.

``FineTuningSettings`` is the table of flags: each field's default and help; ``resolution`` makes
settings of the flags that are given.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from bert_tf.choices import HEAD_POOLINGS, LONG_TEXTS, PRECISIONS, STRATEGIES
from bert_tf.cli import flag_fields
from bert_tf.cli.flag_rules import divided_by, needs, one_of, required, within, without
from bert_tf.tasks.kinds import ANSWERS, CONLL_TASKS, GLUE_NAMES, KINDS, PAPERS_F1, TASKS, Kind

from . import rules
from .grid import NAMES, combinations

# Settings that do not change data, model or schedule.
MAY_DIFFER = frozenset(
    {
        *("model_dir", "strategy", "eval_batch_size", "save_checkpoints_minutes"),
        *("allow_pickle", "export", "max_search_hours", "language", "license", "explain_errors"),
        *("remat", "on_bad_step", "spike_factor", "max_bad_steps"),
    }
)
# Settings that name files whose contents a run keeps the fingerprints of.
PATHS = frozenset(
    {
        *("data_dir", "train_file", "dev_file", "test_file", "unlabelled_file"),
        *("init_checkpoint", "teacher"),
    }
)

_ALIASES = {
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
    "use_tpu": "fine-tuning runs on GPUs or the CPU",
    "bert_config_file": "--init_checkpoint has its config beside it",
    "vocab_file": "--init_checkpoint has its vocabulary beside it",
    "do_lower_case": "--init_checkpoint says its casing",
    "save_checkpoints_steps": "every epoch is saved, and --save_checkpoints_minutes between",
    "iterations_per_loop": "every step is a call",
}


# The paper does not say how the BiLSTM was trained.
FEATURES_DEFAULTS = {"learning_rate": 1e-3, "num_train_epochs": 10, "lstm_units": 768}


@dataclasses.dataclass(frozen=True)
class FineTuningSettings:
    """Every flag, its value resolved."""

    task: str = flag_fields.string(
        None,
        "What to train for. Published data: cola, sst2, mrpc, stsb, qqp, mnli (which predicts ax "
        "too), qnli, rte, wnli (GLUE: with --data_dir or --tfds); squad, swag, codah, ner (CoNLL's "
        "column files). Your own tables: classification, multilabel, regression, tagging, "
        "multiple_choice, squad.",
        heading="Task and data",
    )
    data_dir: str | None = flag_fields.string(
        None,
        "GLUE's files: the task's folder, or the one with a folder for each task.",
        rules=[rules.for_tasks(*GLUE_NAMES), rules.ONE_SOURCE],
    )
    tfds: str | None = flag_fields.string(
        None,
        "Instead of --data_dir: glue/mrpc, by TensorFlow Datasets.",
    )
    train_file: str | None = flag_fields.string(
        None,
        "What to train on: a .csv, .tsv, .jsonl, .json or .parquet table (.gz too), SQuAD's .json, "
        "SWAG's .csv, CODAH's .tsv, CoNLL's columns; ARCHIVE.zip/MEMBER for ner.",
        rules=[rules.for_tasks(*rules.FILES), rules.TO_TRAIN_ON],
    )
    dev_file: str | None = flag_fields.string(
        None,
        "What to evaluate on, of the same form; without it a part of --train_file is held out.",
        rules=[
            rules.for_tasks(*rules.FILES),
            without("dev_fraction", says="--{flag} is what is evaluated on: leave --{other} out."),
        ],
    )
    test_file: str | None = flag_fields.string(
        None, "What to predict when the training has ended.", rules=[rules.for_tasks(*rules.FILES)]
    )
    test_has_labels: bool = flag_fields.switch(
        None,
        "Whether --test_file has labels, so that its scores are told too; true by default for ner "
        "and codah.",
        rules=[rules.for_tasks(*rules.FILES)],
    )
    dev_fraction: float = flag_fields.number(
        0.1,
        "The share held out without a --dev_file; of squad whole articles. 0: none, and the last "
        "epoch counts as the best.",
        least=0.0,
        most=0.9,
        rules=[rules.for_tasks(*rules.FILES)],
    )
    skip_bad_rows: bool = flag_fields.switch(
        False, "Leave out bad rows, count and list them, instead of an error at the first."
    )
    text_columns: Sequence[str] = flag_fields.words(
        None,
        "The columns of a table of your own: one text or two; tagging: the words; multiple_choice: "
        "the context and the choices (in .jsonl: one list of them); squad: question,context.",
        heading="Tables of your own",
        rules=[rules.for_tasks(*KINDS)],
    )
    label_column: str | None = flag_fields.string(
        None,
        "The column of the class, classes, number, tags, right choice (counted from 0), or answers "
        "(a list as SQuAD has it, or with --answer_start_column one text).",
        rules=[rules.for_tasks(*KINDS)],
    )
    id_column: str | None = flag_fields.string(
        None,
        "The column of ids; rows are counted without it.",
        rules=[rules.for_tasks(*KINDS)],
    )
    label_separator: str = flag_fields.string(
        ",", "What parts the classes of multilabel.", rules=[rules.for_kinds]
    )
    answer_start_column: str | None = flag_fields.string(
        None,
        "squad: the column with the number of the context's character where the answer begins.",
        rules=[rules.for_kinds],
    )
    title_column: str | None = flag_fields.string(
        None,
        "squad: the column of the article's title, by which questions are held out.",
        rules=[rules.for_kinds],
    )
    delimiter: str | None = flag_fields.string(
        None,
        "What separates the columns of your own .csv or .tsv: one character, such as ';', or tab.",
        rules=[rules.for_tasks(*KINDS)],
    )
    encoding: str = flag_fields.string(
        "utf-8",
        "The encoding of your own .csv, .tsv or .jsonl, and of ner's files, of which "
        "CoNLL-2002's own are latin-1.",
        rules=[rules.for_tasks(*KINDS, *CONLL_TASKS)],
    )
    character_spans: bool = flag_fields.switch(
        False,
        "tagging: --text_columns names a text, and --label_column its entities, a list of "
        '{"start": 0, "end": 3, "label": "PER"}, the first character and the one behind the last '
        "(.jsonl, .json, .parquet).",
        rules=[rules.for_kinds],
    )
    document_context: bool = flag_fields.switch(
        False,
        "ner: fill a row with the sentences round the one that is tagged, as the paper did.",
        heading="Tags and questions",
        rules=[rules.for_tasks(*CONLL_TASKS)],
    )
    doc_stride: int = flag_fields.integer(
        ANSWERS["doc_stride"],
        "squad: tokens between the starts of two windows of a context.",
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
        "squad: how many answers are kept of a question.",
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
    version_2_with_negative: bool | None = flag_fields.switch(
        None,
        "squad: whether a question may have no answer; by default as in --train_file.",
        rules=[rules.for_kinds],
    )
    null_score_diff_threshold: float | None = flag_fields.number(
        None,
        'squad: answer "" where its score is this much over the best answer\'s; by default what '
        "is best on the evaluated set.",
        rules=[rules.for_kinds],
    )
    init_checkpoint: str = flag_fields.string(
        None,
        "The weights to start from, their config and vocabulary beside them: a directory of this "
        "library, of Hugging Face, Google, Model Garden or KerasHub, a .keras file, or "
        "hf://OWNER/NAME of the Hugging Face hub.",
        heading="Model and rows",
        rules=[
            required(
                "name the weights to start from, a directory of Hugging Face, Google, Model "
                "Garden, KerasHub or this library, or hf://OWNER/NAME of the Hugging Face hub"
            ),
        ],
    )
    allow_pickle: bool = flag_fields.switch(
        False, "Read an --init_checkpoint that is a pytorch_model.bin; a pickle can run any code."
    )
    max_seq_length: int = flag_fields.integer(
        None,
        "Tokens of a row, [CLS] and [SEP] included; 128 by default, 384 for squad. Shorter rows "
        "are not padded to it.",
        least=5,
    )
    long_text: str = flag_fields.choice(
        LONG_TEXTS[0],
        LONG_TEXTS,
        "Single texts of more tokens than --max_seq_length. head: their beginning is read; "
        "head_tail: a quarter of the row is their beginning, and the rest their end; windows: all, "
        "in overlapping windows of a row each, at most 16, whose outputs' mean is the text's.",
        rules=[rules.for_kinds, rules.of_single_texts],
    )
    train_batch_size: int = flag_fields.integer(
        32,
        "Examples of a step, over all devices.",
        least=1,
        heading="Training",
        rules=[divided_by("gradient_accumulation_steps")],
    )
    gradient_accumulation_steps: int = flag_fields.integer(
        1,
        "Compute a step's examples in so many parts, one after the other: less memory, and the "
        "same update.",
        least=1,
    )
    remat: bool = flag_fields.switch(False, flag_fields.REMAT)
    learning_rate: float = flag_fields.number(
        5e-5,
        "The highest rate. The paper's: 5e-5 to 2e-5.",
        rules=[within(lambda rate: rate > 0, "above 0")],
    )
    num_train_epochs: int = flag_fields.number(
        3, "How often each example is seen; whole.", rules=[rules.WHOLE]
    )
    max_steps: int | None = flag_fields.integer(
        None,
        "Train so many steps, whatever epochs these are, instead of --num_train_epochs.",
        least=1,
        rules=[
            one_of("set the schedule", "num_train_epochs", "sweep"),
        ],
    )
    warmup_proportion: float = flag_fields.number(
        0.1,
        "The share of the steps until the full rate; from there it falls to 0.",
        least=0.0,
        most=1.0,
    )
    optimizer: str = flag_fields.choice(
        "adamw",
        ["adamw", "adam"],
        "adam: Google's, which leaves the moments' bias uncorrected, so that early steps are "
        "larger and small data sets sometimes fail; adamw: the same, corrected.",
    )
    weight_decay: float = flag_fields.number(
        0.01,
        "The decay of matrices and embeddings in each step, as a share of the rate.",
        least=0.0,
    )
    layer_decay: float = flag_fields.number(
        1.0,
        "Each block's rate, as a share of that of the block above; the head has the full rate, "
        "the embeddings the lowest. 0.9 often helps where there are few examples; 1: all alike.",
        rules=[
            rules.NOT_FROZEN,
            rules.at_with_lora(1.0),
            within(lambda value: 0 < value <= 1, "above 0 and at most 1"),
        ],
    )
    hidden_dropout_prob: float | None = flag_fields.number(
        None,
        "The share of hidden values that dropout sets to 0; by default the checkpoint's.",
        rules=[rules.NOT_FROZEN, rules.SHARE],
    )
    attention_probs_dropout_prob: float | None = flag_fields.number(
        None,
        "The share of attention weights that dropout sets to 0; by default the checkpoint's.",
        rules=[rules.NOT_FROZEN, rules.SHARE],
    )
    classifier_dropout: float | None = flag_fields.number(
        None,
        "The share of what the head reads that dropout sets to 0; by default as "
        "--hidden_dropout_prob.",
        rules=[rules.NOT_FROZEN, rules.SHARE],
    )
    label_smoothing: float = flag_fields.number(
        0.0,
        "Train towards 1 - SHARE + SHARE / CLASSES of the right class, and SHARE / CLASSES of each "
        "other.",
        rules=[rules.for_kinds, rules.SHARE],
    )
    class_weights: str | None = flag_fields.string(
        None,
        "What a class counts in the loss: balanced (each class as much as any other), or "
        "NAME:WEIGHT,NAME:WEIGHT, 1 for those not named. multilabel: what an example counts that "
        "has the class, to one that has not; tagging: of tags.",
        rules=[rules.for_kinds],
    )
    init_layers: Sequence[int] | None = flag_fields.words(
        None,
        "The blocks of --init_checkpoint to take, counted from 0, as 0,5: a student of so many "
        "blocks. By default all.",
        heading="A smaller model",
        rules=[rules.are_blocks],
    )
    teacher: str | None = flag_fields.string(
        None,
        "A fine-tuned model's directory, of the same task and classes, from which the model that "
        "is trained learns besides the labels (distillation).",
        rules=[rules.for_kinds],
    )
    unlabelled_file: str | None = flag_fields.string(
        None,
        "--teacher: texts without labels to train on besides, a table with the text columns of the "
        "training set; what they teach is the teacher's answers alone.",
        rules=[rules.for_kinds, needs("teacher"), rules.TEACHES],
    )
    distillation_weight: float = flag_fields.number(
        0.5,
        "--teacher: what its answers count in the loss; the labels count the rest of 1.",
        least=0.0,
        most=1.0,
        rules=[rules.for_kinds, needs("teacher")],
    )
    distillation_temperature: float = flag_fields.number(
        2.0,
        "--teacher: what both models' outputs are divided by before they are compared; over 1 the "
        "less probable classes count more.",
        rules=[
            rules.for_kinds,
            needs("teacher"),
            within(lambda value: 0 < value < float("inf"), "above 0"),
        ],
    )
    freeze: int = flag_fields.integer(
        0,
        "Leave the embeddings and so many of the lowest blocks as they are.",
        least=0,
        heading="What is trained",
        rules=[rules.NOT_FROZEN, rules.at_with_lora(0)],
    )
    lora_rank: int = flag_fields.integer(
        0,
        "LoRA: train factors of this rank next to each attention's matrices, the pooler and the "
        "head, and leave the rest; 8 is usual, with ten times the --learning_rate. What is kept is "
        "merged, plain weights. 0: train all.",
        least=0,
        rules=[rules.NOT_FROZEN],
    )
    pooling: str | None = flag_fields.choice(
        None,
        HEAD_POOLINGS,
        "What the head reads of a text. cls: the pooler on [CLS], as in the paper. mean, max: over "
        "all tokens, without a pooler. By default what --init_checkpoint was trained for: the mean "
        "of most models of sentence-transformers, elsewhere cls.",
        rules=[
            rules.NOT_FROZEN,
            without(
                "bilstm", says="--{flag} and --{other} both say what the head reads: leave one out."
            ),
        ],
    )
    bilstm: bool = flag_fields.switch(
        False,
        "Put a new bidirectional LSTM, each direction as wide as the encoder, between the encoder "
        'and the head: the paper\'s section 5.1, "+ BiLSTM".',
        rules=[rules.NOT_FROZEN],
    )
    feature_based: str | None = flag_fields.words(
        None,
        "ner, tagging: train a two-layer BiLSTM on the frozen encoder's features, a run for each "
        f"choice of layers, and compare: {', '.join(PAPERS_F1)}, several of them, or "
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
        "The score on the dev set by which the kept weights, and of several runs the best, are "
        "chosen; by default the task's own. loss, accuracy, macro_f1, f1_CLASS, recall_CLASS, ...: "
        "docs/evaluation.md lists those of each task.",
        heading="Evaluation",
        rules=[rules.ON_DEV, rules.is_score],
    )
    eval_steps: int = flag_fields.integer(
        0,
        "Evaluate every so many steps besides the end of each epoch.",
        least=0,
        rules=[rules.ON_DEV],
    )
    early_stopping_epochs: int = flag_fields.integer(
        0,
        "Stop at the first evaluation that comes this many epochs after the best one, or later, "
        "without being better; 0: never.",
        least=0,
        rules=[rules.ON_DEV],
    )
    seed: int = flag_fields.integer(
        12345,
        "What the new head, dropout, the order and what is held out are drawn from.",
        least=0,
        most=2**32 - 1,
        heading="Several runs",
    )
    sweep: str | None = flag_fields.choice(
        None,
        ["paper"],
        "paper: every batch size of 16 and 32, rate of 5e-5, 3e-5 and 2e-5, and 2 to 4 epochs.",
        rules=[
            rules.NOT_FROZEN,
            rules.ON_DEV,
            without(
                *("train_batch_size", "learning_rate", "num_train_epochs"),
                says="--{flag}={value} chooses --{other} itself: leave it out.",
            ),
        ],
    )
    grid: str | None = flag_fields.string(
        None,
        "Train with every combination of some values and keep the best: "
        "'learning_rate=1e-5,3e-5;train_batch_size=16,32'. It varies " + ", ".join(NAMES) + ".",
        rules=[
            rules.ON_DEV,
            one_of("choose settings", "sweep"),
        ],
    )
    trials: int | None = flag_fields.integer(
        None,
        "Train with so many combinations of --grid, drawn by --seed; learning_rate=1e-5..1e-4 is "
        "then drawn from all between.",
        least=1,
        rules=[needs("grid", "--{flag} are drawn from --grid, which is not given.")],
    )
    max_search_hours: float | None = flag_fields.number(
        None,
        "Of several runs, begin none after so many hours; the best so far is kept.",
        rules=[rules.OF_SEARCHES, within(lambda value: value > 0, "above 0")],
    )
    restarts: int = flag_fields.integer(
        1,
        "Train with so many seeds, from --seed on; the best on the dev set is kept.",
        least=1,
        rules=[rules.KEEPS_BEST],
    )
    folds: int | None = flag_fields.integer(
        None,
        "Cross-validate: split --train_file in so many folds, each with its share of every class, "
        "and evaluate on each what was trained on the others; the mean and the deviation of the "
        "scores are told, and a --grid's best is that of the best mean.",
        least=2,
        most=1000,
        rules=[
            without(
                *("dev_file", "dev_fraction", "teacher", "feature_based"),
                says="--{flag} evaluates on each part of --train_file, and --{other} is not for "
                "that: leave one of the two out.",
            ),
        ],
    )
    precision: str = flag_fields.choice(
        "float32",
        PRECISIONS,
        "bfloat16: matrix products in bfloat16, weights and sums in float32.",
        heading="Machine",
    )
    on_bad_step: str = flag_fields.choice(
        "stop",
        ("stop", "skip"),
        "What follows a step whose loss or gradient is not finite, or spikes. stop: an error. "
        "skip: no update is made, as if its batch had not been there.",
    )
    spike_factor: float = flag_fields.number(
        0.0, flag_fields.SPIKE_FACTOR, rules=[flag_fields.SPIKE_BOUNDS]
    )
    max_bad_steps: int = flag_fields.integer(
        10, "Bad steps that are skipped in a row before the run stops.", least=1
    )
    strategy: str = flag_fields.choice("auto", STRATEGIES, flag_fields.STRATEGY)
    eval_batch_size: int = flag_fields.integer(
        64, "Examples of an evaluation's batch, over all devices.", least=1
    )
    model_dir: str = flag_fields.string(
        None, "Where everything is kept; runs/TASK by default.", heading="What is kept"
    )
    explain_errors: int = flag_fields.integer(
        0,
        "Classes and numbers of texts: colour the words of so many of the worst errors of each set "
        "by how much they spoke for what was predicted; each costs about a hundred predictions.",
        least=0,
        most=50,
        rules=[rules.for_kinds, rules.OF_BEGINNINGS],
    )
    save_checkpoints_minutes: float = flag_fields.number(
        10.0, "Minutes between two saves within an epoch.", least=0.0
    )
    export: bool = flag_fields.switch(
        True,
        "Write a SavedModel of the kept weights to MODEL_DIR/export/1, for TensorFlow Serving.",
        rules=[rules.HAS_SIGNATURES],
    )
    language: Sequence[str] | None = flag_fields.words(
        None,
        "The texts' language, or several, as ISO codes such as en, for the model card "
        "(MODEL_DIR/README.md); it names none without.",
    )
    license: str | None = flag_fields.string(
        None,
        "What the weights may be used under, as hubs spell it (apache-2.0), for the model card; it "
        "names none without.",
    )

    @property
    def glue(self) -> str | None:
        """GLUE's own name of the task, ``None`` where it is none of GLUE's."""
        return GLUE_NAMES.get(self.task)

    @property
    def kind(self) -> Kind:
        """What the task is, whosever data it has."""
        return KINDS[TASKS[self.task]]

    @property
    def reads_table(self) -> bool:
        """Whether the files are tables whose columns the flags name."""
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
        """Whether several runs are asked for."""
        several = self.restarts > 1 or self.folds
        return bool(self.sweep or self.grid or several or self.variants)

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The combinations of ``--grid`` to train with; [] without it."""
        if self.grid is None:
            return []
        return combinations(self.grid, self.trials, self.seed, parse_setting)

    def to_dict(self) -> dict[str, Any]:
        """The settings by flag name, ready for JSON."""
        return dataclasses.asdict(self)


def is_in_tables(task: str, train_file: str | None) -> bool:
    """Whether a task's files are tables whose columns the flags name."""
    return task in KINDS and (
        not KINDS[task].reads_own_form or KINDS[task].is_table(train_file or "")
    )


# === Flags ===


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags; not on import, as other commands define some of the same."""
    flag_fields.define_flags(FineTuningSettings, values, _ALIASES, WITHOUT_MEANING)


def flag_defaults() -> dict[str, Any]:
    """The flags' defaults by name."""
    return flag_fields.defaults(FineTuningSettings)


def parse_setting(name: str, text: str) -> Any:
    """A flag's value, as the command line would read its text."""
    values = flags.FlagValues()
    define_flags(values)
    return values[name].parser.parse(text)
