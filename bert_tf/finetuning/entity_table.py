"""The table of a tagger's entities, by type."""

from collections.abc import Sequence

from bert_tf.tasks.entities import entity_scores

from .prediction_files import write_records


def write_entity_scores(
    path: str, true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> None:
    """Writes precision, recall, F1 and counts: a line for all entities, and one for each type.

    Args:
        path: a .tsv, which appears whole or not at all.
        true: the tags of each sentence.
        predicted: likewise.
    """
    found = entity_scores(true, predicted)
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
