"""Scores of experiments, and their .csv: a line for each metric and seed that is finished."""

import csv
import io
from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from bert_tf.files import read_bounded, replace_whole
from bert_tf.untrusted import one_line

_MOST_BYTES = 64 << 20
_GREATEST = 1e9


class Cell(NamedTuple):
    """What tells a figure from others, but metric and seed; no paths."""

    pretraining: str
    step: str
    corpus: str
    task: str
    data: str
    finetuning: str


class Score(NamedTuple):
    """A figure: NaN of a run that diverged; ``collapsed`` says of any why it is no good."""

    cell: Cell
    metric: str
    seed: str
    score: float
    collapsed: str
    seconds: int  # of the process, shared among its seeds
    machine: str


_COLUMNS = [*Cell._fields, *Score._fields[1:]]


def read_cells(path: str) -> list[Score]:
    """The figures of a file; none where there is no file."""
    if not tf.io.gfile.exists(path):
        return []
    text = read_bounded(path, ".csv", _MOST_BYTES).decode("utf-8-sig", "replace")
    found: list[Score] = []
    reader = csv.reader(io.StringIO(text))
    try:
        for number, row in enumerate(filter(None, reader), start=1):
            if (number == 1 and row != _COLUMNS) or len(row) != len(_COLUMNS):
                raise ValueError(f"expected the columns {','.join(_COLUMNS)}")
            if number > 1:
                if abs(score := float(row[8])) > _GREATEST:
                    raise ValueError(f"expected a score of at most {_GREATEST:g}, got {score}")
                rest = score, row[9], int(row[10]), row[11]
                found.append(Score(Cell(*row[:6]), row[6], row[7], *rest))
    except (ValueError, csv.Error) as error:
        where = f"{path}, line {max(reader.line_num, 1)}"
        raise ValueError(f"{where}: {one_line(str(error), 400)}.") from error
    return found


def write_cells(path: str, scores: Iterable[Score]) -> None:
    """Writes the file, whole or not at all, sorted."""
    buffer = io.StringIO()
    lines = ([*score.cell, *score[1:]] for score in sorted(scores))
    csv.writer(buffer, lineterminator="\n").writerows([_COLUMNS, *lines])
    with replace_whole(path) as file:
        file.write(buffer.getvalue().encode())
