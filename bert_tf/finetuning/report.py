"""What a person looks at after an evaluation: the worst errors, and the confusion matrix."""

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_tf.files import replace_whole
from bert_tf.tasks.judging import CLASS_METRICS
from bert_tf.tasks.metrics import ClassScore
from bert_tf.untrusted import one_line

from .confusion_picture import confusion_svg
from .prediction_outputs import Record, write_records
from .results import score
from .task import Evaluation, Mistake

ERRORS_PAGE = "worst_errors.html"
ERRORS_TABLE = "worst_errors.tsv"
CONFUSION = "confusion_matrix.svg"
CONFUSIONS = "confusions.tsv"
_TABLE_COLUMNS = ("loss", "expected", "predicted", "id", "text")
# A picture has a cell for every pair of classes.
_MOST_DRAWN = 150
_MOST_CONFUSIONS = 1000
_MOST_CLASSES = 200
# The picture of so many classes is still legible when it is as wide as the page; a larger one is
# scrolled.
_MOST_FITTED = 30
# Of a longer text only the beginning is open.
_LONG_TEXT = 700
_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f6f8; color: #1c2733; line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 16px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 12px; }
.scores { display: flex; flex-wrap: wrap; gap: 10px; margin: 0; }
.scores div, .panel, .error { background: #fff; border: 1px solid #dfe4e9; border-radius: 8px; }
.scores div { padding: 8px 16px 10px; min-width: 110px; }
.scores dt { color: #66727f; font-size: 13px; }
.scores dd { margin: 0; font-size: 22px; font-variant-numeric: tabular-nums; }
.warning { background: #fdecea; border: 1px solid #f0b6ae; border-radius: 8px; padding: 10px 16px; }
.panel { display: block; width: max-content; max-width: 100%; overflow: auto; padding: 4px; }
.panel svg { display: block; }
.fitted svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px; text-align: right; font-weight: normal; }
thead th { color: #66727f; font-size: 13px; }
tbody th { text-align: left; overflow-wrap: anywhere; }
tbody tr { border-top: 1px solid #dfe4e9; }
.share { background: linear-gradient(#ddeefa, #ddeefa) no-repeat 0 50% /
  calc(var(--share) * 100%) 60%; }
.note { color: #66727f; margin: 0 0 12px; }
.error { margin: 0 0 10px; padding: 12px 16px; }
.error header { display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: baseline; }
.rank { color: #66727f; min-width: 22px; font-variant-numeric: tabular-nums; }
.label { border-radius: 5px; padding: 1px 9px; overflow-wrap: anywhere; }
.expected { background: #ddeefa; }
.predicted { background: #fde3d7; }
.what { color: #66727f; font-size: 13px; margin-right: 6px; }
.loss { margin-left: auto; color: #66727f; font-size: 13px; font-variant-numeric: tabular-nums; }
.text { margin: 8px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { cursor: pointer; }
details[open] summary .more { display: none; }
"""


def write_report(
    folder: str,
    evaluation: Evaluation,
    labels: Sequence[str],
    title: str,
    intervals: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> list[str]:
    """Writes what shows where a model errs.

    | file                 | what                                                               |
    |----------------------|--------------------------------------------------------------------|
    | worst_errors.html    | scores, confusion matrix and mistakes: one page without other files |
    | worst_errors.tsv     | the mistakes as a table                                            |
    | confusion_matrix.svg | where there are classes, 150 at most                               |
    | confusions.tsv       | of more classes: which are taken for which, the most frequent first |
    """
    paths = [os.path.join(folder, name) for name in (ERRORS_PAGE, ERRORS_TABLE)]
    picture = ""
    if evaluation.confusion is not None and len(labels) > _MOST_DRAWN:
        paths.append(os.path.join(folder, CONFUSIONS))
        write_records(paths[-1], _confusions(evaluation.confusion, labels))
    elif evaluation.confusion is not None:
        picture = confusion_svg(evaluation.confusion, labels, title)
        paths.append(os.path.join(folder, CONFUSION))
        _write(paths[-1], picture)
    _write(paths[0], _page(evaluation, title, picture, intervals))
    write_records(
        paths[1],
        (
            {name: getattr(mistake, name) for name in _TABLE_COLUMNS}
            for mistake in evaluation.mistakes
        ),
    )
    return paths


def _confusions(confusion: Any, labels: Sequence[str]) -> Iterator[Record]:
    counts = np.array(confusion)
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    for row, column in zip(*np.unravel_index(order, counts.shape), strict=True):
        if counts[row, column]:
            count = int(counts[row, column])
            yield {"expected": labels[row], "predicted": labels[column], "count": count}


def _write(path: str, text: str) -> None:
    with replace_whole(path) as file:
        file.write(text.encode())


def _page(
    evaluation: Evaluation, title: str, picture: str, intervals: Mapping[str, Sequence[float]]
) -> str:
    shown, scores = html.escape(title), evaluation.scores
    parts = [
        "<!DOCTYPE html>",
        f"<html lang='en'><head><meta charset='utf-8'><title>{shown}</title>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<style>{_STYLE}</style></head><body><main>",
        f"<h1>{shown}</h1>",
        _figures({name: score(name, value, scores) for name, value in scores.items()}),
    ]
    for name, ends in intervals.items():
        low, high = (score(name, end, scores) for end in ends)
        parts.append(
            f"<p class='note'>{html.escape(name.replace('_', ' '))}: 95% of resampled sets are "
            f"between {low} and {high}.</p>"
        )
    if evaluation.thresholds:
        parts.append("<h2>Thresholds</h2>")
        parts.append(_figures({n: f"{value:.4g}" for n, value in evaluation.thresholds.items()}))
    if evaluation.constant:
        parts.append(
            f"<p class='warning'><b>Collapsed:</b> {evaluation.constant_means}. Try another seed, "
            "a lower learning rate, or more steps.</p>"
        )
    if picture:
        fitted = " fitted" if len(evaluation.confusion) <= _MOST_FITTED else ""
        parts.append(f"<h2>Confusion matrix</h2><div class='panel{fitted}'>{picture}</div>")
    if evaluation.judged and evaluation.judged.classes:
        parts.append(f"<h2>Classes</h2>{_classes(evaluation.judged.classes)}")
    parts.append("<h2>Worst errors</h2>")
    parts.append(_note(len(evaluation.mistakes)))
    parts += [_error(rank, m) for rank, m in enumerate(evaluation.mistakes, start=1)]
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def _figures(figures: dict[str, str]) -> str:
    cells = (
        f"<div><dt>{html.escape(name.replace('_', ' '))}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in figures.items()
    )
    return f"<dl class='scores'>{''.join(cells)}</dl>"


def _classes(classes: Mapping[str, ClassScore]) -> str:
    """A table, the worst F1 first."""
    rows = []
    for name in sorted(classes, key=lambda name: classes[name].f1)[:_MOST_CLASSES]:
        found = classes[name].to_dict()
        bars = "".join(
            f"<td class='share' style='--share:{found[column]:.3f}'>{found[column]:.3f}</td>"
            for column in CLASS_METRICS
        )
        counts = "".join(f"<td>{found[column]:,}</td>" for column in ("true", "predicted"))
        rows.append(f"<tr><th scope='row'>{html.escape(one_line(name))}</th>{bars}{counts}</tr>")
    head = "".join(f"<th scope='col'>{what}</th>" for what in (*CLASS_METRICS, "true", "predicted"))
    rest = len(classes) - len(rows)
    more = f"<p class='note'>And {rest:,} more, in results.json.</p>" if rest else ""
    return (
        f"<div class='panel'><table><thead><tr><td></td>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}"
    )


def _note(count: int) -> str:
    if not count:
        return "<p class='note'>None: everything is right.</p>"
    what = "The one error" if count == 1 else f"{count} errors"
    return f"<p class='note'>{what}, the greatest loss first.</p>"


def _error(rank: int, mistake: Mistake) -> str:
    expected, predicted = (
        f"<span><span class='what'>{what}</span>"
        f"<span class='label {what}'>{html.escape(one_line(value))}</span></span>"
        for what, value in (("expected", mistake.expected), ("predicted", mistake.predicted))
    )
    shown = f"loss {mistake.loss:.3g} · id {html.escape(one_line(mistake.id))}"
    return (
        f"<article class='error'><header><span class='rank'>{rank}</span>{expected}{predicted}"
        f"<span class='loss'>{shown}</span></header>"
        f"{_text(mistake.text)}</article>"
    )


def _text(text: str) -> str:
    if len(text) <= _LONG_TEXT:
        return f"<p class='text'>{html.escape(text)}</p>"
    begin, rest = html.escape(text[:_LONG_TEXT]), html.escape(text[_LONG_TEXT:])
    return (
        f"<details class='text'><summary>{begin}<span class='more'> … more</span></summary>{rest}"
        "</details>"
    )
