"""GLUE from its published files.

Source: GLUE (Wang et al., 2018); BERT (2018), section 4.1. The files are tab-separated, quotes are
text, and a first line names the columns. Exceptions: CoLA's train and dev files have no such line;
STS-B is known in GLUE's form and in that of the original benchmark; QQP's train and dev files hold
a few rows cut in two by a line break in a question, which are left out and listed.
"""

from collections.abc import Iterator

import tensorflow as tf

from .examples import BadRowError, BadRows, Examples, TextExample
from .fields import known_name, number, shown
from .glue_tasks import GlueTask, check_split, glue_task, is_labelled
from .tables import Row, read_columns, read_fields

_MOST_SIMILAR = 5.0  # STS-B's scale begins at 0


def read_glue(
    task: str, data_dir: str, split: str, *, skip_bad_rows: bool = False
) -> Examples[TextExample]:
    """Reads one of GLUE's published files, as they are or with gzip (``.tsv.gz``).

    Args:
        task: a name of ``glue_tasks.GLUE_TASKS``.
        data_dir: the folder with the task's files, or the one with a folder for each task.
        split: "train", "dev" or "test"; for MNLI's others "dev_matched", "dev_mismatched",
            "test_matched" or "test_mismatched"; AX has "test" alone.
        skip_bad_rows: leave out bad rows and list them, instead of an error at the first.

    Returns:
        The examples. Ids are those of the file, or else count the rows from 0. Test files have no
        labels (but the original STS-B's has).

    Raises:
        ValueError: there is no such task, split or file; the file is empty or has other columns; or
            a row has a wrong number of columns, or a label that is not the task's.
    """
    found = glue_task(task)
    check_split(found, split)
    path, original = _find(found, str(data_dir), split)
    bad = BadRows(path, skip_bad_rows)

    def make_example(row: Row) -> TextExample:
        example_id, text_a, text_b, label = row.values
        return TextExample(
            str(row.number) if example_id is None else example_id,
            text_a,
            text_b,
            None if label is None else _label(found, label),
        )

    items = bad.collect(_rows(found, path, split, original, bad), make_example)
    return Examples(items, found.labels, bad.skipped)


def has_glue_file(task: str, data_dir: str, split: str) -> bool:
    """Whether a folder has the file of a split; arguments and errors as for ``read_glue``."""
    found = glue_task(task)
    check_split(found, split)
    return _look_for(found, str(data_dir), split) is not None


def _find(task: GlueTask, data_dir: str, split: str) -> tuple[str, bool]:
    """Finds a split's file, and says whether it is in the original STS-B's form."""
    path = _look_for(task, data_dir, split)
    if path is None:
        raise ValueError(
            f"There is no file for {task.name}'s split {split!r} in {data_dir}: expected "
            f"{' or '.join(_file_names(task, split))}, plain or with .gz."
        )
    return path, path.removesuffix(".gz").endswith(".csv")


def _look_for(task: GlueTask, data_dir: str, split: str) -> str | None:
    for name in _file_names(task, split):
        for suffix in ("", ".gz"):
            path: str = tf.io.gfile.join(data_dir, name + suffix)
            if tf.io.gfile.exists(path):
                return path
    return None


def _file_names(task: GlueTask, split: str) -> list[str]:
    if task.name == "AX":  # GLUE's download script calls it the diagnostic set
        inside = ["AX/AX.tsv", "AX/test.tsv", "diagnostic/diagnostic.tsv"]
        names = [*inside, "AX.tsv", "diagnostic.tsv"]
        # The folder may be MNLI's own, which AX lies beside.
        return names + [f"../{name}" for name in names]
    names = [f"{split}.tsv"]
    if task.name == "STS-B":
        names.append(f"sts-{split}.csv")
    return [f"{task.name}/{name}" for name in names] + names


def _rows(
    task: GlueTask, path: str, split: str, original: bool, bad: BadRows
) -> Iterator[tuple[int, Row]]:
    """Gives rows of id, first text, second text and label, with None for what a file has not."""
    labelled = is_labelled(split)
    if original:
        # Genre, file, year, number, score, two sentences, and for some two notes on the licence.
        return read_fields(path, [None, 5, 6, 4], {7, 9}, bad)
    if task.name == "CoLA" and labelled:
        # Source, label, the linguists' own mark, sentence.
        return read_fields(path, [None, 3, None, 1], {4}, bad)
    columns = [
        task.id_column if task.ids_in_train or not labelled else None,
        task.text_columns[0],
        task.text_columns[1] if len(task.text_columns) > 1 else None,
        task.label_column if labelled else None,
    ]
    skip_short_rows = task.name == "QQP" and labelled
    return read_columns(path, columns, bad, suffix=".tsv", skip_short_rows=skip_short_rows)


def _label(task: GlueTask, value: str) -> str | float:
    if task.labels:
        return known_name(value, f"the column of {task.name}'s label", task.labels)
    score = number(value, "the column of the score")
    if not 0 <= score <= _MOST_SIMILAR:
        raise BadRowError(f"expected a score from 0 to 5, got {shown(value)}")
    return score
