"""From the settings to a task: which kind, on which data, with which options."""

import collections
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.tasks.examples import Examples, QuestionExample, TextExample

from .class_weights import class_weights
from .feature_tagging import FeatureTaggingTask
from .multiple_choice import ChoiceTask
from .question_answering import QuestionTask
from .reading import Sets, read_sets
from .settings import FineTuningSettings
from .tagging import TaggingTask
from .task import TargetScale, Task
from .text_tasks import TextTask

NEWEST_RULES = "2"


@dataclasses.dataclass(frozen=True)
class Source:
    """A task on its data, and what a run says and keeps of them.

    Attributes:
        task: the task.
        options: of the task, besides: the arguments of ``TaggingTask`` or ``QuestionTask``.
        notes: sentences on what was held out and what was left out.
        skipped: a sentence for each row that was left out.
        fingerprints: by set, what tells whether the data are those of the run's start.
    """

    task: Task
    options: Mapping[str, Any]
    notes: list[str]
    skipped: list[str]
    fingerprints: Mapping[str, str]


def read_source(settings: FineTuningSettings, rules: str = NEWEST_RULES) -> Source:
    """Reads and checks all data of a fine-tuning.

    Args:
        settings: of the run.
        rules: those that the run was started with. By "1" entities are scored in IOB1 and IOB2
            alone, and what is held out is drawn without regard to the classes; the rest is with
            ``Task.by_earlier_rules``.

    Raises:
        ValueError: a file is missing, a row is bad (and bad rows are not to be skipped), or nothing
            can be held out.
        OSError: a file cannot be read.
    """
    sets = read_sets(settings, by_class=rules != "1")
    skipped = list(
        dict.fromkeys(sentence for examples in sets.all().values() for sentence in examples.skipped)
    )
    notes = [*sets.notes, *sets.train.notes]
    if skipped:
        notes.append(f"Left out {len(skipped):,} bad rows; the first: {skipped[0]}")
    options = _options(settings, [sets.train, *sets.dev.values()])
    task = _make_task(settings, sets, options, rules)
    if rules == "1":
        task.by_earlier_rules, task.target_scale = True, TargetScale()
    return Source(
        task=task,
        options=options,
        notes=notes,
        skipped=skipped,
        fingerprints={name: _fingerprint(examples) for name, examples in sets.all().items()},
    )


def _fingerprint(examples: Examples[Any]) -> str:
    digest = hashlib.sha256(repr(examples.labels).encode())
    for item in examples.items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:32]


def _options(settings: FineTuningSettings, labelled: Sequence[Examples[Any]]) -> dict[str, Any]:
    if settings.kind == "tagging":
        return {"document_context": settings.document_context}
    if settings.kind == "squad":
        return {
            "doc_stride": settings.doc_stride,
            "max_query_length": settings.max_query_length,
            "n_best_size": settings.n_best_size,
            "max_answer_length": settings.max_answer_length,
            "with_null": _with_null(settings, [item for set in labelled for item in set.items]),
        }
    return {}


def _make_task(
    settings: FineTuningSettings, sets: Sets, options: Mapping[str, Any], rules: str
) -> Task:
    data = (settings.glue or settings.task, sets.train, sets.dev, sets.test)
    only_iob = rules == "1"
    match settings.kind:
        case "tagging" if settings.variants:
            return FeatureTaggingTask(
                *data,
                variant=settings.variants[0],
                lstm_units=int(settings.lstm_units or 0),
                folder=settings.model_dir,
                only_iob=only_iob,
                **options,
            )
        case "tagging":
            return TaggingTask(*data, only_iob=only_iob, **options)
        case "multiple_choice":
            return ChoiceTask(*data)
        case "squad":
            threshold = settings.null_score_diff_threshold
            return QuestionTask(*data, null_threshold=threshold, **options)
        case kind:
            return TextTask(
                *data,
                kind=kind,
                glue=settings.glue,
                class_weights=_class_weights(settings, sets.train),
            )


def _class_weights(
    settings: FineTuningSettings, train: Examples[TextExample]
) -> dict[str, float] | None:
    if settings.class_weights is None:
        return None
    counts = collections.Counter(str(item.label) for item in train.items)
    return class_weights(settings.class_weights, train.labels, counts)


def _with_null(settings: FineTuningSettings, items: Sequence[QuestionExample]) -> bool:
    impossible = sum(item.is_impossible for item in items)
    wanted = settings.version_2_with_negative
    if wanted is False and impossible:
        raise ValueError(
            f"--version_2_with_negative=false, and {impossible:,} of the labelled questions have "
            "no answer: leave the flag out."
        )
    with_null = bool(impossible) if wanted is None else wanted
    threshold = settings.null_score_diff_threshold
    if threshold is not None and not with_null:
        raise ValueError(
            f"--null_score_diff_threshold={threshold:g}, and every labelled question has an "
            "answer: leave the flag out, or say --version_2_with_negative."
        )
    return with_null
