"""The files of predicted tags: CoNLL's columns, and a table of entities by type."""

import re
from collections.abc import Sequence

from bert_tf.files import replace_whole
from bert_tf.tasks.entities import entity_scores
from bert_tf.tasks.examples import TaggedExample

from .prediction_files import write_records

# What parts the columns and the lines of a CoNLL file.
_SEPARATOR = re.compile(r"[ \t\r\n]")


def write_columns(
    path: str, items: Sequence[TaggedExample], predicted: Sequence[Sequence[str]]
) -> None:
    """Writes a word a line, its tag where that is known, and the predicted tag, parted by a blank.

    An empty line ends a sentence, as conlleval reads it. A blank, a tab or a line's end inside a
    word is written as an underscore.

    Args:
        path: the file, which appears whole or not at all.
        items: the sentences.
        predicted: a tag for each of their words.
    """
    lines = []
    for item, tags in zip(items, predicted, strict=True):
        columns = [item.words, *([item.tags] if item.tags else []), tags]
        for row in zip(*columns, strict=True):
            lines.append(" ".join(_SEPARATOR.sub("_", field) for field in row))
        lines.append("")
    with replace_whole(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


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
