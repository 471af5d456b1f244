"""Two models on one set: their scores, how sure the difference is, and the rows where they differ.

Each is read from the predictions that a fine-tuning left for the set, or from a file of that form:
neither model is run.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.files import read_json_object
from bert_tf.metrics import cells
from bert_tf.metrics.formulas import rank
from bert_tf.metrics.judging import Judged
from bert_tf.metrics.resampling import mcnemar, percentiles, resampled
from bert_tf.readers.conll import read_tags
from bert_tf.readers.examples import BadRows
from bert_tf.readers.tables import read_columns
from bert_tf.tasks.kinds import KINDS
from bert_tf.tasks.prediction_outputs import write_records
from bert_tf.untrusted import listed, one_line, quote

from .run_directory import FineTuningDirectory
from .summary import score

_SHOWN_ROWS = 10
_LONGEST_TEXT = 60
_CHANCE = 0.05
_CONLL = ".conll"
_TABLES = (".tsv", ".jsonl", ".csv")


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A file of predictions; a sentence's tags are one cell. ``kind`` is the task's, if known."""

    path: str
    kind: str | None
    headline: str | None
    ids: list[str]
    expected: list[Any]
    predicted: list[Any]
    texts: list[str]


def compare(
    first: str,
    second: str,
    *,
    set_name: str | None = None,
    kind: str | None = None,
    output: str | None = None,
) -> None:
    """Prints what two models, or files of predictions, score on one set, and where they differ.

    Args:
        first: a fine-tuning's directory, or a file of predictions with what was expected.
        second: likewise.
        set_name: the set of directories; by default the first that both have.
        kind: of files outside a model's directory, the kind of the task.
        output: where to write the rows that they answer differently.

    Raises:
        ValueError: the two are of different sets or kinds, or one holds no predictions.
    """
    paths = _paths(first, second, set_name)
    if output and os.path.realpath(output) in map(os.path.realpath, paths):
        raise ValueError(f"--output={output} is one of the files to compare: name another.")
    one, other = (_read(path, kind) for path in paths)
    found = _kind(one, other, kind)
    other = _in_order(one, other)
    judge = getattr(cells, KINDS[found].cells)
    judged = judge(one.expected, one.predicted, other.predicted)
    print(f"A: {one.path}\nB: {other.path}\n{len(one.ids):,} rows\n")
    for line in (*_score_lines(one, other, judged), "", *_right_lines(*judged)):
        print(line)
    rows = list(_differences(one, other, judged))
    print(f"They answer {len(rows):,} rows differently{':' if rows else '.'}")
    for row in rows[:_SHOWN_ROWS]:
        print(f"  {_shown(row)}")
    if len(rows) > _SHOWN_ROWS:
        print(f"  and {len(rows) - _SHOWN_ROWS:,} more" + ("" if output else "; --output=FILE.tsv"))
    if output:
        write_records(output, rows)
        print(f"Written: {output}")


# === Reading ===


def _paths(first: str, second: str, set_name: str | None) -> list[str]:
    """The files of two directories, of one and a file, or of two files."""
    folders = [path for path in (first, second) if os.path.isdir(path)]
    sets = [_sets(path) for path in folders]
    if set_name is not None and not sets:
        raise ValueError(f"--set={set_name} is of directories, and both are files: leave it out.")
    if set_name is None and sets:
        set_name = next((name for name in sets[0] if all(name in found for found in sets)), None)
        if set_name is None:
            raise ValueError(
                f"{first} and {second} were evaluated on sets of other names, "
                f"{listed(sets[0])} and {listed(sets[-1])}: name the files of predictions instead."
            )
    return [_predictions_in(path, str(set_name)) if path in folders else path
            for path in (first, second)]  # fmt: skip


def _sets(path: str) -> list[str]:
    """The sets that a fine-tuning was evaluated on."""
    results = FineTuningDirectory(path).results
    if not os.path.isfile(results):
        raise ValueError(
            f"{path} holds no fine-tuning that has finished: expected its results.json, or name a "
            "file of predictions."
        )
    scores = read_json_object(results).get("scores")
    return list(scores) if isinstance(scores, Mapping) else []


def _predictions_in(path: str, set_name: str) -> str:
    folder, sets = FineTuningDirectory(path).set_folder(set_name), _sets(path)
    if set_name not in sets:
        raise ValueError(
            f"{path} has no scores of the set {one_line(set_name)}: its sets are {listed(sets)}."
        )
    for suffix in (_CONLL, *_TABLES):
        file = os.path.join(folder, f"{set_name}{suffix}")
        if os.path.isfile(file):
            return file
    raise ValueError(
        f"{folder} has no predictions to compare: expected {set_name}{_CONLL}, .tsv or .jsonl."
    )


def _read(path: str, kind: str | None) -> Predictions:
    """A file's predictions, and what the model's directory around it says, if there is one."""
    around = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    directory, headline = FineTuningDirectory(around), None
    if kind is None and os.path.isfile(directory.task):
        kind = _told(directory.task, "kind")
        if kind not in KINDS:
            raise ValueError(f"{directory.task}: kind is {quote(kind)}, expected {listed(KINDS)}.")
    if os.path.isfile(directory.results):
        headline = _told(directory.results, "headline")
    if path.endswith(_CONLL):
        return Predictions(path, kind, headline, *_conll_columns(path))
    if not path.endswith(_TABLES):
        raise ValueError(
            f"{path}: expected a fine-tuning's directory, or a file of predictions that ends in "
            f"{', '.join((_CONLL, *_TABLES))}."
        )
    answer = "tags" if kind and "words_column" in KINDS[kind].texts else "prediction"
    columns = ["id", "expected", answer, "words" if answer == "tags" else None]
    rows = [row.values for _, row in read_columns(path, columns, BadRows(path, skip=None))]
    texts = [" ".join(map(str, words)) if isinstance(words, list) else "" for *_, words in rows]
    with contextlib.suppress(ValueError):  # a table of one's own need not have it
        texts = [str(row.values[0]) for _, row in read_columns(path, ["text"], BadRows(path, None))]
    if not rows:
        raise ValueError(f"{path} has no rows: expected at least one prediction.")
    ids, expected, predicted, _ = (list(column) for column in zip(*rows, strict=True))
    return Predictions(path, kind, headline, list(map(str, ids)), expected, predicted, texts)


def _told(path: str, key: str) -> str | None:
    value = read_json_object(path).get(key)
    return value if isinstance(value, str) else None


def _conll_columns(path: str) -> tuple[list[str], list[Any], list[Any], list[str]]:
    ids, expected, predicted, texts = [], [], [], []
    for number, (line, words) in enumerate(read_tags(path)):
        for place, columns in enumerate(words):
            if len(columns) != 3:
                raise ValueError(
                    f"{path}, line {line + place}: expected a word, its expected and its "
                    f"predicted tag, got {len(columns)} columns."
                )
        ids.append(str(number))
        expected.append([columns[1] for columns in words])
        predicted.append([columns[2] for columns in words])
        texts.append(" ".join(columns[0] for columns in words))
    if not ids:
        raise ValueError(f"{path} has no sentences: expected at least one.")
    return ids, expected, predicted, texts


def _kind(one: Predictions, other: Predictions, given: str | None) -> str:
    kinds = {found.kind for found in (one, other) if found.kind} | ({given} if given else set())
    if not kinds:
        raise ValueError(
            f"{one.path} and {other.path} are in no fine-tuning's directory: give what they "
            f"predict by --task, one of {', '.join(KINDS)}."
        )
    if len(kinds) > 1:
        raise ValueError(
            f"{one.path} and {other.path} are of different tasks, {' and '.join(sorted(kinds))}: "
            "only predictions of one task compare."
        )
    return kinds.pop()


def _in_order(one: Predictions, other: Predictions) -> Predictions:
    """The other's rows in the order of the one's; an error if they are of another set."""
    places = {name: place for place, name in enumerate(other.ids)}
    what = f"{one.path} and {other.path} are of different sets"
    if len(one.ids) != len(other.ids):
        raise ValueError(
            f"{what}, of {len(one.ids):,} and of {len(other.ids):,} rows: compare models that were "
            "evaluated on the same --dev_file."
        )
    if len(places) < len(other.ids):  # ids that repeat say nothing: rows in one order
        places = {name: place for place, name in enumerate(one.ids)}
        order = list(range(len(one.ids))) if one.ids == other.ids else []
    else:
        order = [places[name] for name in one.ids if name in places]
    if len(order) < len(one.ids):
        raise ValueError(f"{what}: their ids differ.")
    for place, at in enumerate(order):
        if one.expected[place] != other.expected[at]:
            raise ValueError(
                f"{what}: of the id {quote(one.ids[place])} the first expects "
                f"{quote(one.expected[place])}, the second {quote(other.expected[at])}."
            )
    return dataclasses.replace(
        other,
        ids=one.ids,
        expected=one.expected,
        predicted=[other.predicted[at] for at in order],
        texts=[other.texts[at] for at in order],
    )


# === What is printed ===


def _score_lines(one: Predictions, other: Predictions, judged: cells.Both) -> Iterator[str]:
    first, second = judged
    headlines = [p.headline for p in (one, other) if p.headline]
    names = [n for n in dict.fromkeys([*headlines, *first.metrics]) if n in second.metrics
             or (first.metric(n) and second.metric(n))]  # fmt: skip
    metrics = [found.metric(name) for name in names for found in judged]
    drawn = resampled([m for m in metrics if m], len(one.ids))
    width = max(map(len, names))
    yield f"{'':<{width}}  {'A':>8}  {'B':>8}  {'B - A':>8}  95% of resampled sets"
    for at, name in enumerate(names):
        a, b = (found.scores([name])[name] for found in judged)
        low, high = percentiles(drawn[:, 2 * at + 1] - drawn[:, 2 * at])
        shown = [score(name, value, names) for value in (a, b)]
        signed = [_signed(name, value, names) for value in (b - a, low, high)]
        better = "" if low <= 0 <= high else f"  {'B' if rank(name, b - a) > 0 else 'A'} is better"
        yield (
            f"{one_line(name):<{width}}  {shown[0]:>8}  {shown[1]:>8}  {signed[0]:>8}  "
            f"{signed[1]} to {signed[2]}{better}"
        )


def _signed(name: str, value: float, names: Sequence[str]) -> str:
    text = score(name, abs(value), names)
    return text if not value else f"{'-' if value < 0 else '+'}{text}"


def _right_lines(first: Judged, second: Judged) -> Iterator[str]:
    if first.right is None or second.right is None:
        return
    both, a, b = (
        int(rows.sum())
        for rows in (
            first.right & second.right,
            first.right & ~second.right,
            ~first.right & second.right,
        )
    )
    yield (
        f"Right: both in {both:,} rows, A alone in {a:,}, B alone in {b:,}, "
        f"neither in {first.count - both - a - b:,}."
    )
    chance = mcnemar(a, b)
    means = (
        "so uneven a split would be rare by chance"
        if chance < _CHANCE
        else "chance gives such a split often enough, so neither is shown to be right more often"
    )
    yield f"McNemar's exact test of who is right: p = {chance:.3g}, {means}."
    yield ""


def _differences(
    one: Predictions, other: Predictions, judged: cells.Both
) -> Iterator[dict[str, Any]]:
    rights = [(name, found.right) for name, found in zip("AB", judged, strict=True)]
    for place, name in enumerate(one.ids):
        if one.predicted[place] != other.predicted[place]:
            who = " ".join(name for name, right in rights if right is not None and right[place])
            yield {
                "id": name,
                "right": who,
                "expected": _cell(one.expected[place]),
                "A": _cell(one.predicted[place]),
                "B": _cell(other.predicted[place]),
                "text": one.texts[place] if place < len(one.texts) else "",
            }


def _cell(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shown(row: Mapping[str, Any]) -> str:
    shown = [f"{name} {quote(row[name], _LONGEST_TEXT)}" for name in ("expected", "A", "B")]
    return f"id {one_line(row['id'])}: {', '.join(shown)}: {quote(row['text'], _LONGEST_TEXT)}"
