"""What a person looks at after an evaluation: the worst errors, and the confusion matrix."""

import html
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_tf.files import replace_whole
from bert_tf.metrics.calibration import Calibration
from bert_tf.metrics.formulas import CLASS_METRICS, ClassScore
from bert_tf.modeling.base import TEMPERATURE
from bert_tf.reports.confusion import confusion_svg
from bert_tf.reports.page import page
from bert_tf.reports.reliability import reliability_svg
from bert_tf.tasks.evaluation import Evaluation, Mistake
from bert_tf.tasks.prediction_outputs import Record, write_records
from bert_tf.untrusted import one_line

from .explanation import Explanation, coloured_texts
from .summary import score

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
.scores { display: flex; flex-wrap: wrap; gap: 10px; margin: 0; }
.scores div { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
.scores div { padding: 8px 16px 10px; min-width: 110px; }
.scores dt { color: var(--faint); font-size: 13px; }
.scores dd { margin: 0; font-size: 22px; font-variant-numeric: tabular-nums; }
.warning { background: var(--alarm); border: 1px solid var(--alarm-line); border-radius: 8px;
  padding: 10px 16px; }
.panel { display: block; width: max-content; max-width: 100%; overflow: auto; padding: 4px; }
.panel svg { display: block; }
.picture { background: #fff; }
.fitted svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px; text-align: right; font-weight: normal; }
thead th { color: var(--faint); font-size: 13px; }
tbody th { text-align: left; overflow-wrap: anywhere; min-width: 10em; }
tbody tr { border-top: 1px solid var(--line); }
.share { background: linear-gradient(var(--right), var(--right)) no-repeat 0 50% /
  calc(var(--share) * 100%) 60%; }
.error header { display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: baseline; }
.rank { color: var(--faint); min-width: 22px; font-variant-numeric: tabular-nums; }
.label { border-radius: 5px; padding: 1px 9px; overflow-wrap: anywhere; }
.expected { background: var(--right); }
.predicted { background: var(--wrong); }
.what { color: var(--faint); font-size: 13px; margin-right: 6px; }
.share-of, .loss { color: var(--faint); font-size: 13px; font-variant-numeric: tabular-nums; }
.share-of { margin-left: 6px; }
.loss { margin-left: auto; }
summary { cursor: pointer; }
details[open] summary .more { display: none; }
"""


def write_report(
    folder: str,
    evaluation: Evaluation,
    labels: Sequence[str],
    title: str,
    intervals: Mapping[str, Sequence[float]] = MappingProxyType({}),
    collapsed: str | None = None,
    explanations: Sequence[Explanation] = (),
) -> list[str]:
    """Writes what shows where a model errs; ``collapsed`` says why its run counts as collapsed.

    ``explanations`` are of the first of the worst errors.

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
    _write(paths[0], _page(evaluation, labels, title, picture, intervals, collapsed, explanations))
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
    evaluation: Evaluation,
    labels: Sequence[str],
    title: str,
    picture: str,
    intervals: Mapping[str, Sequence[float]],
    collapsed: str | None,
    explanations: Sequence[Explanation],
) -> str:
    scores = evaluation.scores
    parts = [
        _warning(evaluation, collapsed),
        _figures({name: score(name, value, scores) for name, value in scores.items()}),
    ]
    parts += _notes(evaluation, labels)
    for name, ends in intervals.items():
        low, high = (score(name, end, scores) for end in ends)
        parts.append(
            f"<p class='note'>{html.escape(name.replace('_', ' '))}: 95% of resampled sets are "
            f"between {low} and {high}.</p>"
        )
    thresholds = {n: f"{v:.4g}" for n, v in evaluation.thresholds.items() if n != TEMPERATURE}
    if thresholds:
        parts.append(f"<h2>Thresholds</h2>{_figures(thresholds)}")
    if picture:
        fitted = " fitted" if len(evaluation.confusion) <= _MOST_FITTED else ""
        parts.append(f"<h2>Confusion matrix</h2><div class='panel picture{fitted}'>{picture}</div>")
    if evaluation.calibrate:
        parts.append(_calibration(evaluation.calibrate()))
    if evaluation.judged and evaluation.judged.classes:
        parts.append(f"<h2>Classes</h2>{_classes(evaluation.judged.classes)}")
    parts.append("<h2>Worst errors</h2>")
    parts.append(_note(len(evaluation.mistakes)))
    if explanations:
        parts.append(
            f"<p class='note'>In the first {len(explanations):,}, words on <span class='for' "
            "style='--share:.5'>blue</span> spoke for the prediction (of several classes the "
            "likeliest), words on <span class='against' style='--share:.5'>orange</span> against "
            "it.</p>"
        )
    both = itertools.zip_longest(evaluation.mistakes, explanations)
    parts += [_error(rank, m, why) for rank, (m, why) in enumerate(both, start=1)]
    return page(title, parts, _STYLE)


def _warning(evaluation: Evaluation, collapsed: str | None) -> str:
    reason = collapsed or (evaluation.constant_means if evaluation.constant else None)
    if not reason:
        return ""
    return (
        f"<p class='warning'><b>Collapsed:</b> {html.escape(reason)}. Try another seed, "
        "a lower learning rate, or more steps.</p>"
    )


def _notes(evaluation: Evaluation, labels: Sequence[str]) -> Iterator[str]:
    """How much was judged, and what is right without a model."""
    sentences = []
    if evaluation.judged:
        sentences.append(f"{evaluation.judged.count:,} rows were judged.")
    if evaluation.confusion is not None and evaluation.confusion.sum():
        counts = evaluation.confusion.sum(1)
        most, total = counts.argmax(), counts.sum()
        # Tags have a row for a sentence, and are counted by words.
        of = "" if evaluation.judged and evaluation.judged.count == total else " tags"
        sentences.append(
            f"To beat: always saying “{one_line(labels[most])}”, the most frequent, is right in "
            f"{counts[most] / total:.1%} ({counts[most]:,} of {total:,}{of})."
        )
    if sentences:
        yield f"<p class='note'>{html.escape(' '.join(sentences))}</p>"


def _figures(figures: dict[str, str]) -> str:
    cells = (
        f"<div><dt>{html.escape(name.replace('_', ' '))}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in figures.items()
    )
    return f"<dl class='scores'>{''.join(cells)}</dl>"


def _calibration(found: Calibration) -> str:
    figures = {"temperature": f"{found.temperature:.3g}"}
    for name, side in (("raw", found.raw), ("calibrated", found.calibrated)):
        figures[f"calibration error, {name}"] = f"{side.error:.3f}"
        figures[f"loss, {name}"] = f"{side.loss:.4g}"
    return (
        f"<h2>Probabilities</h2>{_figures(figures)}<p class='note'>{found.count:,} decisions, "
        "grouped by probability: a dot for each group. On the dashed line a group is right as "
        "often as its probabilities say.</p>"
        f"<div class='panel picture fitted'>{reliability_svg(found)}</div>"
    )


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


def _error(rank: int, mistake: Mistake, why: Explanation | None) -> str:
    shares = mistake.probabilities or (None, None)
    expected, predicted = (
        f"<span><span class='what'>{what}</span>"
        f"<span class='label {what}'>{html.escape(one_line(value))}</span>"
        + (
            ""
            if share is None
            else f"<span class='share-of'>{html.escape(_probability(share))}</span>"
        )
        + "</span>"
        for what, value, share in zip(
            ("expected", "predicted"), (mistake.expected, mistake.predicted), shares, strict=True
        )
    )
    shown = f"loss {mistake.loss:.3g} · id {html.escape(one_line(mistake.id))}"
    if why is None:
        texts = "".join(_text(name, text) for name, text in mistake.texts.items())
    else:
        coloured = zip(map(_name, mistake.texts), coloured_texts(why), strict=True)
        texts = "".join(f"<p class='text'>{name}{text}</p>" for name, text in coloured)
    return (
        f"<article class='error'><header><span class='rank'>{rank}</span>{expected}{predicted}"
        f"<span class='loss'>{shown}</span></header>{texts}</article>"
    )


def _probability(share: float) -> str:
    """A percentage; what is rounded to none or to all says so.

    >>> _probability(0.123), _probability(0.0001), _probability(0.9999)
    ('12.3%', '<0.1%', '>99.9%')
    """
    if share < 0.001:
        return "<0.1%"
    return ">99.9%" if share > 0.999 else f"{share:.1%}"


def _name(name: str) -> str:
    return f"<span class='what'>{html.escape(name)}</span>" if name else ""


def _text(name: str, text: str) -> str:
    named = _name(name)
    if len(text) <= _LONG_TEXT:
        return f"<p class='text'>{named}{html.escape(text)}</p>"
    begin, rest = html.escape(text[:_LONG_TEXT]), html.escape(text[_LONG_TEXT:])
    return (
        f"<details class='text'><summary>{named}{begin}<span class='more'> … more</span></summary>"
        f"{rest}</details>"
    )
