"""The scores of entities, of all and by type, of tags in any scheme."""

import types

from bert_tf.evaluation.scores import compare_entities, total
from bert_tf.tasks.tagging.entities import find_all


def entity_scores(true, predicted):
    """Both have the tags of each sequence."""
    entities = zip(find_all(true), find_all(predicted), strict=True)
    classes = compare_entities(true, predicted, [*entities]).classes
    return types.SimpleNamespace(overall=total(classes.values()), by_type=classes)
