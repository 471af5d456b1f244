"""HTML report of an evaluation: scores, confusion matrix, calibration and worst errors."""

import html
import importlib.resources
import os
import string
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_tf.features import TEMPERATURE
from bert_tf.io.files import atomic_write
from bert_tf.io.messages import one_line

from .calibration import BINS, Bin, Calibration
from .evaluation import Evaluation, Mistake
from .metrics import CLASS_METRICS, ClassScore, Confusion, score_text
from .prediction_files import write_file

_TABLE_COLUMNS = ("loss", "expected", "predicted", "id", "text")
# Maximum number of classes in a confusion matrix, and in one whose cells contain percentages.
_MAX_IN_MATRIX, _FEW = 150, 10
_LONGEST_FLAT_NAME = 14
_MAX_CLASSES = 200
_MAX_CONFUSIONS = 50


def write_report(
    folder: str, evaluation: Evaluation, labels: Sequence[str], title: str, collapsed: str | None
) -> list[str]:
    """Writes a self-contained HTML report on a model's errors, and a table of the worst errors.

    ``collapsed`` is the reason why the run has collapsed, or ``None``.
    """
    page, table = (os.path.join(folder, f"worst_errors.{form}") for form in ("html", "tsv"))
    with atomic_write(page) as file:
        file.write(_page(evaluation, labels, title, collapsed).encode())
    write_file(
        table, ({name: getattr(m, name) for name in _TABLE_COLUMNS} for m in evaluation.mistakes)
    )
    return [page, table]


def _page(evaluation: Evaluation, labels: Sequence[str], title: str, collapsed: str | None) -> str:
    parts, scores = [], evaluation.scores
    if reason := collapsed or (evaluation.constant_description if evaluation.constant else None):
        parts.append(
            f"<p class='warning'><b>Collapsed:</b> {html.escape(reason)}. Try another seed, "
            "a lower learning rate, or more steps.</p>"
        )
    parts.append(_figures({name: score_text(name, scores[name], scores) for name in scores}))
    if notes := " ".join(_notes(evaluation, labels)):
        parts.append(f"<p class='note'>{html.escape(notes)}</p>")
    thresholds = {n: f"{v:.4g}" for n, v in evaluation.thresholds.items() if n != TEMPERATURE}
    if thresholds:
        parts.append(f"<h2>Thresholds</h2>{_figures(thresholds)}")
    if (confusion := evaluation.confusion) is not None:
        if len(labels) <= _MAX_IN_MATRIX:
            parts.append(_matrix(confusion.matrix(len(labels)), [*map(one_line, labels)]))
        else:
            parts.append(_confusions(confusion, labels))
    if evaluation.calibrate:
        parts.append(_calibration(evaluation.calibrate()))
    if evaluation.comparison.classes:
        parts.append(_classes(evaluation.comparison.classes))
    count = len(evaluation.mistakes)
    errors = "One error" if count == 1 else f"{count} errors"
    note = f"{errors}, the largest loss first." if count else "None: all predictions are correct."
    parts.append(f"<h2>Worst errors</h2><p class='note'>{note}</p>")
    parts += [_error(rank, mistake) for rank, mistake in enumerate(evaluation.mistakes, start=1)]
    file = importlib.resources.files(__package__) / "report.html"
    template = string.Template(file.read_text("utf-8"))
    return template.substitute(title=html.escape(one_line(title)), body="\n".join(parts))


def _notes(evaluation: Evaluation, labels: Sequence[str]) -> Iterator[str]:
    """Yields the notes above the tables: the number of examples and the majority baseline."""
    if evaluation.comparison.count:
        yield f"{evaluation.comparison.count:,} examples were evaluated."
    if evaluation.confusion is not None and evaluation.confusion.counts.sum():
        counts = np.bincount(evaluation.confusion.true, evaluation.confusion.counts).astype(int)
        most_common, total = int(counts.argmax()), counts.sum()
        # For tags, an example is a sentence, but the confusion matrix counts words.
        unit = "" if evaluation.comparison.count == total else " tags"
        yield (
            f"Baseline: always predicting “{one_line(labels[most_common])}”, the most frequent "
            f"class, is correct for {counts[most_common] / total:.1%} ({counts[most_common]:,} of "
            f"{total:,}{unit})."
        )


def _figures(figures: Mapping[str, str]) -> str:
    cells = (
        f"<div><dt>{html.escape(name.replace('_', ' '))}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in figures.items()
    )
    return f"<dl class='scores'>{''.join(cells)}</dl>"


def _table(title: str, note: str, kind: str, head: str, rows: Sequence[str], foot: str = "") -> str:
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody><tfoot>{foot}</tfoot>"
    return f"<h2>{title}</h2>{note}<div class='panel'><table class='{kind}'>{body}</table></div>"


def _heading_cell(text: str, scope: str = "row", kind: str = "") -> str:
    text = html.escape(text)
    return f"<th scope='{scope}' class='{kind}' title='{text}'>{text}</th>"


# === Tables ===


def _matrix(counts: np.ndarray, labels: Sequence[str]) -> str:
    """Returns a table with a row per expected class and a column per predicted class."""
    right, expected, predicted = np.diag(counts), counts.sum(1), counts.sum(0)
    turned = len(labels) > _FEW or max(map(len, labels)) > _LONGEST_FLAT_NAME
    head = ["<th>expected ↓<br>predicted →</th>"]
    head += [_heading_cell(label, "col", "turned" if turned else "") for label in labels]
    rows = []
    for row, label in enumerate(labels):
        cells = "".join(_cell(counts, labels, row, column) for column in range(len(labels)))
        ends = (f"{expected[row]:,}", _percent(right[row], expected[row]))
        row_totals = "".join(f"<td class='small'>{end}</td>" for end in ends)
        rows.append(f"<tr>{_heading_cell(label)}{cells}{row_totals}</tr>")
    foot = [f"<td>{count:,}</td>" for count in predicted]
    fractions = [f"<td>{_percent(*pair)}</td>" for pair in zip(right, predicted, strict=True)]
    return _table(
        "Confusion matrix",
        f"<p class='note'>{right.sum():,} of {counts.sum():,} correct "
        f"({_percent(right.sum(), counts.sum(), 1)}).</p>",
        "matrix few" if len(labels) <= _FEW else "matrix",
        "".join([*head, "<th>all</th><th>recall</th>"]),
        rows,
        f"<tr><th>all</th>{''.join(foot)}</tr><tr><th>precision</th>{''.join(fractions)}</tr>",
    )


def _cell(counts: np.ndarray, labels: Sequence[str], row: int, column: int) -> str:
    count, total, is_few = int(counts[row, column]), int(counts[row].sum()), len(labels) <= _FEW
    if not count:
        return "<td></td>"
    fraction = count / total
    what = html.escape(f"{labels[row]} → {labels[column]}: {count:,} of {total:,} ({fraction:.1%})")
    percent = f"<small>{fraction:.0%}</small>" if fraction >= 0.01 else "<small>&lt;1%</small>"
    # The exponent keeps small fractions of errors visible.
    return (
        f"<td class='{'is' if row == column else 'not'}' style='--share:{fraction**0.6:.2f}' "
        f"title='{what}'>{count:,}{percent if is_few else ''}</td>"
    )


def _confusions(confusion: Confusion, labels: Sequence[str]) -> str:
    """Returns a table of the most frequent confusions, for more classes than a matrix can show."""
    wrong = np.flatnonzero(confusion.true != confusion.predicted)
    worst = wrong[np.argsort(-confusion.counts[wrong], kind="stable")[:_MAX_CONFUSIONS]]
    rows = []
    for row in worst.tolist():
        names = (one_line(labels[ids[row]]) for ids in (confusion.true, confusion.predicted))
        cells = "".join(map(_heading_cell, names))
        rows.append(f"<tr>{cells}<td>{confusion.counts[row]:,}</td></tr>")
    note = f"<p class='note'>The most frequent of {len(wrong):,} pairs of confused classes.</p>"
    head = "<th>expected</th><th>predicted</th><th>count</th>"
    return _table("Confusions", note, "list", head, rows)


def _percent(part: int, total: int, digits: int = 0) -> str:
    """Formats a percentage; a dash if the total is 0."""
    return f"{part / total:.{digits}%}" if total else "–"


def _calibration(calibration: Calibration) -> str:
    sides = {"raw": calibration.raw, "calibrated": calibration.calibrated}
    figures = {"temperature": f"{calibration.temperature:.3g}"}
    for name, side in sides.items():
        figures[f"calibration error, {name}"] = f"{side.error:.3f}"
        figures[f"loss, {name}"] = f"{side.loss:.4g}"
    bins_by_index = [
        {min(int(BINS * b.confidence), BINS - 1): b for b in side.bins} for side in sides.values()
    ]
    rows = [
        f"<tr><th>{round(index / BINS, 2)} to {round((index + 1) / BINS, 2)}</th>"
        f"{''.join(_bin_cells(bins.get(index)) for bins in bins_by_index)}</tr>"
        for index in range(BINS)
        if any(index in bins for bins in bins_by_index)
    ]
    note = (
        f"{_figures(figures)}<p class='note'>{calibration.count:,} decisions, grouped by "
        "probability. Each bar shows the fraction of decisions whose class is correct, and the "
        "line shows the mean probability. The model is overconfident if the lines are to the right "
        "of the bars.</p>"
    )
    head = "<td></td><th>raw: decisions</th><th>fraction true</th>"
    head += "<th>calibrated: decisions</th><th>fraction true</th>"
    return _table("Probabilities", note, "list", head, rows)


def _bin_cells(values: Bin | None) -> str:
    if values is None:
        return "<td></td><td></td>"
    style = f"--share:{values.fraction:.3f};--mean:{values.confidence:.3f}"
    title = f"mean probability {values.confidence:.3f}, fraction true {values.fraction:.3f}"
    return (
        f"<td>{values.decisions:,}</td>"
        f"<td class='bin' style='{style}' title='{title}'>{values.fraction:.3f}</td>"
    )


def _classes(classes: Mapping[str, ClassScore]) -> str:
    """Returns a table of the classes, the lowest F1 first."""
    rows = []
    for name in sorted(classes, key=lambda name: classes[name].f1)[:_MAX_CLASSES]:
        values = classes[name].to_dict()
        cells = [
            f"<td class='share' style='--share:{values[column]:.3f}'>{values[column]:.3f}</td>"
            for column in CLASS_METRICS
        ]
        cells += [f"<td>{values[column]:,}</td>" for column in ("true", "predicted")]
        rows.append(f"<tr>{_heading_cell(one_line(name))}{''.join(cells)}</tr>")
    rest = len(classes) - len(rows)
    note = (
        f"<p class='note'>The worst classes. {rest:,} more are in results.json.</p>" if rest else ""
    )
    head = "".join(f"<th>{name}</th>" for name in (*CLASS_METRICS, "true", "predicted"))
    return _table("Classes", note, "list", f"<td></td>{head}", rows)


# === Errors ===


def _error(rank: int, mistake: Mistake) -> str:
    fractions = mistake.probabilities or (None, None)
    expected, predicted = (
        f"<span><span class='small'>{what}</span>"
        f"<span class='label {what}'>{html.escape(one_line(value))}</span>"
        f"<span class='small'>{'' if fraction is None else _probability(fraction)}</span></span>"
        for what, value, fraction in zip(
            ("expected", "predicted"), (mistake.expected, mistake.predicted), fractions, strict=True
        )
    )
    loss = f"loss {mistake.loss:.3g} · id {html.escape(one_line(mistake.id))}"
    texts = "".join(
        f"<p class='text'><span class='small'>{html.escape(name)}</span>{html.escape(text)}</p>"
        for name, text in mistake.texts.items()
    )
    return (
        f"<article><header><span class='small'>{rank}</span>{expected}{predicted}"
        f"<span class='small loss'>{loss}</span></header>{texts}</article>"
    )


def _probability(fraction: float) -> str:
    """Formats a percentage as HTML, marking values that would be rounded to 0% or 100%."""
    if fraction < 0.001:
        return "&lt;0.1%"
    return "&gt;99.9%" if fraction > 0.999 else f"{fraction:.1%}"
