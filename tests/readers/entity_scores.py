"""The scores of entities, of all and by type, of tags in any scheme."""

import types

from bert_tf.evaluation.formulas import total
from bert_tf.evaluation.judging import judge_entities


def entity_scores(true, predicted):
    """Both have the tags of each sequence."""
    classes = judge_entities(true, predicted).classes
    return types.SimpleNamespace(overall=total(classes.values()), by_type=dict(classes))
