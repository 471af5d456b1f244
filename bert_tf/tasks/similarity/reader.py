"""A user's own tables to compare: pairs with a score, or that belong together, and triples."""

from collections.abc import Sequence

from bert_tf.readers import examples as read
from bert_tf.readers.examples import BadRows, ExampleSet, SimilarityExample
from bert_tf.readers.tables import Row, TableFile, read_columns


def read_similarity(
    path: str | TableFile,
    *,
    text_columns: Sequence[str],
    label_column: str | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[SimilarityExample]:
    """Reads pairs of texts with a score, pairs that belong together, or triples.

    ``text_columns`` are those of two texts, or of an anchor, a text that belongs to it and one that
    does not. ``label_column`` has a pair's score, a finite number; without it the two belong
    together, or are to be predicted.
    """
    if label_column is not None and len(text_columns) > 2:
        raise ValueError(
            f"The column {label_column!r} has a score, and a score is of two texts: name two text "
            f"columns, not {', '.join(text_columns)}; or no column of scores."
        )
    bad = BadRows.of(str(path), skip_bad_rows)
    what = [f"column {name!r}" for name in text_columns]

    def make_example(row: Row) -> SimilarityExample:
        example_id, label, *texts = row.values
        return SimilarityExample(
            read.row_id(example_id, row.number),
            tuple(map(read.filled_text, texts, what)),
            None if label_column is None else read.number(label, f"column {label_column!r}"),
        )

    rows = read_columns(path, [id_column, label_column, *text_columns], bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)
