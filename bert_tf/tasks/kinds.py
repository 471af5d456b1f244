"""The table of kinds of task: what flags, ``task.json`` and predictions ask about each.

A new kind is a row here and a module next to this one with its ``Task``. Nothing here loads
TensorFlow, so that ``--help`` is quick; ``task_class`` does.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_tf.choices import LONG_TEXTS
from bert_tf.evaluation.retrieval import RANKING_SCORES
from bert_tf.evaluation.scores import (
    AT_HALF,
    BINARY_SCORES,
    CHOICE_SCORES,
    CLASS_SCORES,
    CORRELATIONS,
    ENTITY_SCORES,
    LOSS,
    NUMBER_SCORES,
    SEVERAL_SCORES,
    TAG_SCORES,
)
from bert_tf.readers.glue import GLUE_TASKS
from bert_tf.readers.tables import is_table

# A value's description for errors, and its test.
Check = tuple[str, Callable[[Any], bool]]

_MOST = 2**31 - 1  # what TensorFlow's int32 holds


def size(most: int = _MOST) -> Check:
    """The check of a whole number of at least 1."""
    return (
        f"a whole number from 1 to {most:,}",
        lambda value: type(value) is int and 1 <= value <= most,
    )


def _names(least: int, most: int) -> Check:
    return (
        f"a list of {least} to {most:,} columns' names",
        lambda value: (
            isinstance(value, list)
            and least <= len(value) <= most
            and all(isinstance(name, str) for name in value)
        ),
    )


TEXT: Check = ("a text", lambda value: isinstance(value, str))
OBJECT: Check = ("an object", lambda value: isinstance(value, dict))
_FILLED: Check = ("a text", lambda value: isinstance(value, str) and value != "")
_TEXT_OR_NULL: Check = ("a text or null", lambda value: isinstance(value, str | None))
_LONG_TEXT: Check = (f"one of {', '.join(LONG_TEXTS)}", lambda value: value in LONG_TEXTS)
_FLAG: Check = ("true or false", lambda value: isinstance(value, bool))


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of task.

    Attributes:
        name: the kind's, in ``task.json`` and, for a user's own tables, in ``--task``.
        task: MODULE:CLASS of its ``Task`` in this room.
        texts: the arguments of its reader of tables that ``--text_columns`` names, in order, each
            with its check; one whose name ends in ``_columns`` takes all columns that are left.
        text_form: how ``--text_columns`` is written.
        num_texts: the least and the most names in ``--text_columns``.
        metrics: the scores that ``--metric`` may name; some data lack some of them.
        class_metrics: whether it may name the scores of a class or of a type of entity, too.
        label: the argument that ``--label_column`` names.
        label_is_optional: whether there may be no such column.
        others: further arguments of the reader: the flag that gives each, and its check.
        reading: the arguments among them that say how texts are read, of unlabelled files, too.
        options: arguments of its ``Task`` that ``task.json`` keeps.
        given: arguments of its ``Task`` that a training gives: the setting of each.
        needed_of_texts: flags that tables of texts need, and what their columns hold.
        reads_own_form: whether .json, and files that are no tables, are of the kind's published
            form.
        flags: what means something only to tasks of kinds that list it, besides the flags in
            ``others``.
        default_texts: the columns without ``--text_columns``.
        texts_in_python: what the columns of rows without names are called that are given in Python,
            by their number, and so those of rows that have these names.
        reads_words: whether a row's text is a list of words.
        default_label: the column without ``--label_column``.
        max_seq_length: tokens of a row without ``--max_seq_length``.
        embeds: whether its models give vectors of texts, a ``SentenceEmbedding``.
    """

    name: str
    task: str
    texts: Mapping[str, Check]
    text_form: str = "A or A,B"
    num_texts: tuple[int, int] = (1, 2)
    metrics: tuple[str, ...] = ()
    class_metrics: bool = False
    label: str = "label_column"
    label_is_optional: bool = False
    others: Mapping[str, tuple[str, Check]] = dataclasses.field(default_factory=dict)
    reading: Sequence[str] = ()
    options: Mapping[str, Check] = dataclasses.field(default_factory=dict)
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    needed_of_texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reads_own_form: bool = False
    flags: Sequence[str] = ()
    default_texts: tuple[str, ...] = ()
    texts_in_python: tuple[tuple[str, ...], ...] = (("text",), ("text_a", "text_b"))
    reads_words: bool = False
    default_label: str | None = None
    max_seq_length: int = 128
    embeds: bool = False

    @property
    def task_class(self) -> Any:
        """Its class, of ``task.Task``."""
        module, name = self.task.split(":")
        return getattr(importlib.import_module(f".{module}", __package__), name)

    def is_table(self, path: str) -> bool:
        """True if a path's name is that of a table of the kind.

        >>> [KINDS[name].is_table("train.json") for name in KINDS][-2:]
        [True, False]
        """
        is_json = path.lower().removesuffix(".gz").endswith(".json")
        return is_table(path) and not (self.reads_own_form and is_json)

    @property
    def columns(self) -> dict[str, Check]:
        """The reader's arguments that name columns, in ``task.json``'s order."""
        others = {name: check for name, (_, check) in self.others.items()}
        ids = {self.label: _TEXT_OR_NULL, "id_column": _TEXT_OR_NULL}
        return {**self.texts, **ids, **others}

    @property
    def all_flags(self) -> tuple[str, ...]:
        """Flags of this kind, which not all kinds have."""
        return (*self.flags, *(flag for flag, _ in self.others.values()))

    def named_texts(self, names: Sequence[str]) -> dict[str, Any]:
        """Arguments of the reader that ``--text_columns`` gives."""
        return {
            argument: list(names[place:]) if argument.endswith("_columns") else names[place]
            for place, argument in enumerate(self.texts)
        }


# How questions' windows are cut and their answers chosen, by default.
ANSWERS = {"doc_stride": 128, "max_query_length": 64, "n_best_size": 20, "max_answer_length": 30}
# The memory grows with the square of a question's answers.
_MOST_OF_ANSWERS = {**dict.fromkeys(ANSWERS, _MOST), "n_best_size": 1000}
_NULL = {"null_threshold": "null_score_diff_threshold"}
_TEXTS = {"text_columns": _names(1, 2)}
_LONG = {"long_text": _LONG_TEXT}
_TEXTS_GIVEN = {"glue": "glue", "long_text": "long_text"}
KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "classification",
            "text_task:ClassificationTask",
            _TEXTS,
            metrics=(*CLASS_SCORES, *BINARY_SCORES, LOSS),
            class_metrics=True,
            options=_LONG,
            given=_TEXTS_GIVEN,
            flags=(*("class_weights", "label_smoothing", *_LONG), *("few_shot", "few_shot_pairs")),
        ),
        Kind(
            "multilabel",
            "text_task:MultiLabelTask",
            _TEXTS,
            metrics=(*SEVERAL_SCORES, *(name + AT_HALF for name in SEVERAL_SCORES), LOSS),
            class_metrics=True,
            others={"separator": ("label_separator", _FILLED)},
            options=_LONG,
            given=_TEXTS_GIVEN,
            flags=("class_weights", "label_smoothing", *_LONG),
        ),
        Kind(
            "regression",
            "text_task:RegressionTask",
            _TEXTS,
            metrics=(*NUMBER_SCORES, LOSS),
            options=_LONG,
            given=_TEXTS_GIVEN,
            flags=tuple(_LONG),
        ),
        Kind(
            "tagging",
            "tagging_task:TaggingTask",
            {"words_column": TEXT},
            text_form="WORDS",
            num_texts=(1, 1),
            metrics=(*ENTITY_SCORES, *TAG_SCORES, LOSS),
            class_metrics=True,
            label="tags_column",
            others={"character_spans": ("character_spans", _FLAG)},
            reading=("character_spans",),
            options={"document_context": _FLAG},
            given={"document_context": "document_context", "folder": "model_dir"},
            flags=(*("feature_based", "lstm_units"), *("class_weights", "label_smoothing")),
            default_texts=("words",),
            texts_in_python=(("words",),),
            reads_words=True,
            default_label="tags",
        ),
        Kind(
            "multiple_choice",
            "choice_task:ChoiceTask",
            {"context_column": TEXT, "choice_columns": _names(1, 1000)},
            text_form="CONTEXT,CHOICE,...",
            texts_in_python=(("context", "choices"),),
            num_texts=(2, 100),
            flags=("label_smoothing",),
            metrics=(*CHOICE_SCORES, LOSS),
        ),
        Kind(
            "similarity",
            "similarity_task:SimilarityTask",
            {"anchor_column": TEXT, "other_columns": _names(1, 2)},
            text_form="A,B or ANCHOR,POSITIVE,NEGATIVE",
            num_texts=(2, 3),
            metrics=(*CORRELATIONS, *RANKING_SCORES),
            label_is_optional=True,
            flags=("similarity_loss", "normalize"),
            texts_in_python=(("text_a", "text_b"),),
            embeds=True,
        ),
        Kind(
            "squad",
            "question_task:QuestionTask",
            {"question_column": TEXT, "context_column": TEXT},
            text_form="QUESTION,CONTEXT",
            num_texts=(2, 2),
            metrics=("exact_match", "exact", "f1", "best_exact", "best_f1", LOSS),
            label="answers_column",
            others={
                "answer_start_column": ("answer_start_column", _TEXT_OR_NULL),
                "title_column": ("title_column", _TEXT_OR_NULL),
            },
            needed_of_texts={
                "answer_start_column": "with the character of the context where the answer begins "
                "(a .jsonl may have SQuAD's lists of answers instead)"
            },
            reads_own_form=True,
            options={
                **{name: size(most) for name, most in _MOST_OF_ANSWERS.items()},
                "with_null": _FLAG,
            },
            given={**{name: name for name in ANSWERS}, **_NULL},
            flags=(*ANSWERS, *_NULL.values()),
            default_texts=("question", "context"),
            texts_in_python=(("question", "context"),),
            default_label="answers",
            max_seq_length=384,
        ),
    )
}


def kind_of(task_class: type) -> Kind:
    """The kind that a ``Task`` is of."""
    name = f"{task_class.__module__.rpartition('.')[2]}:{task_class.__name__}"
    return next(kind for kind in KINDS.values() if kind.task == name)


# The variants of ``modeling.feature_based``, which would load Keras.
FEATURE_BASED = (
    *("embeddings", "second_to_last", "last"),
    *("weighted_sum_last_four", "concat_last_four", "weighted_sum_all"),
)
# GLUE's tasks as the command line spells them, with their published spellings.
GLUE_NAMES = {task.tfds_config: name for name, task in GLUE_TASKS.items()}
# Every --task, with its kind; those that have a kind's name are for tables of a user's own.
TASKS = {
    **{
        config: "classification" if GLUE_TASKS[name].labels else "regression"
        for config, name in GLUE_NAMES.items()
    },
    "swag": "multiple_choice",
    "ner": "tagging",
    **{name: name for name in KINDS},
}
# The tasks that are read from CoNLL's files.
CONLL_TASKS = ("ner",)


def having_flag(flag: str) -> list[Kind]:
    """The kinds that a flag of some kinds means something to."""
    return [kind for kind in KINDS.values() if flag in kind.all_flags]


def tasks_of(kind: str) -> tuple[str, ...]:
    """Every ``--task`` of a kind."""
    return tuple(name for name, its in TASKS.items() if its == kind)
