"""Tables of texts that are similar: pairs with a score, pairs that belong together, triples."""

from collections.abc import Sequence

from .examples import BadRows, ExampleSet, SimilarityExample, filled_text, number, row_id
from .tables import Row, TableFile, read_columns


def read_similarity(
    path: str | TableFile,
    *,
    anchor_column: str,
    other_columns: Sequence[str],
    label_column: str | None = None,
    id_column: str | None = None,
    skip_bad_rows: bool | BadRows = False,
) -> ExampleSet[SimilarityExample]:
    """Reads texts that are similar to others (see ``tables.read_columns`` for the table's forms).

    ``other_columns`` name one column, of the text that is compared with the anchor, or two: of a
    text that belongs to the anchor, and of one that does not. ``label_column`` has a pair's score,
    a finite number; without it the two belong together, or are to be predicted. Without an
    ``id_column`` the ids count the rows from 0.
    """
    if isinstance(other_columns, str) or len(other_columns) not in (1, 2):
        raise ValueError(
            f"other_columns is {other_columns!r}: expected a list of one or two names."
        )
    if label_column is not None and len(other_columns) > 1:
        raise ValueError(
            f"The column {label_column!r} has a score, and a score is of two texts: name two text "
            f"columns, not {anchor_column}, {', '.join(other_columns)}; or no column of scores."
        )
    bad = BadRows.of(str(path), skip_bad_rows)
    names = [anchor_column, *other_columns]

    def make_example(row: Row) -> SimilarityExample:
        example_id, label, *texts = row.values
        return SimilarityExample(
            row_id(example_id, row.number),
            tuple(filled_text(t, f"column {n!r}") for n, t in zip(names, texts, strict=True)),
            None if label_column is None else number(label, f"column {label_column!r}"),
        )

    rows = read_columns(path, [id_column, label_column, *names], bad)
    return ExampleSet(bad.collect(rows, make_example), (), bad.skipped)
