"""The table of a tagger's entities, by type."""

from collections.abc import Sequence

from bert_tf.tasks.entities import entity_scores
from bert_tf.tasks.examples import TaggedExample

from .prediction_files import write_records


def write_entity_scores(
    path: str, items: Sequence[TaggedExample], predicted: Sequence[Sequence[str]]
) -> None:
    """Writes precision, recall, F1 and counts: a line for all entities, and one for each type.

    Args:
        path: a .tsv, which appears whole or not at all.
        items: the sentences, tagged.
        predicted: a tag for each of their words.
    """
    found = entity_scores([item.tags or () for item in items], predicted)
    write_records(
        path,
        [
            {
                "type": kind,
                "precision": score.precision,
                "recall": score.recall,
                "f1": score.f1,
                "true": score.num_true,
                "predicted": score.num_predicted,
                "correct": score.num_correct,
            }
            for kind, score in [("all", found.overall), *found.by_type.items()]
        ],
    )
