"""A confusion matrix as a picture: SVG, readable from 2 classes to some dozens."""

import html
import unicodedata
from collections.abc import Sequence

import numpy as np

from bert_tf.untrusted import one_line

_FONT = 'font-family=\'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif\''
_INK, _FAINT = "#1c2733", "#66727f"
_LINES = "#d5dbe1"
# A cell goes from white to these with its share of its row; so pale that dark numbers stay legible.
_RIGHT, _WRONG = (112, 178, 228), (244, 150, 110)
_LONGEST_NAME = 28
# So few classes have cells as wide as their names, up to a width.
_FEW, _WIDEST_CELL = 4, 130
_MARGIN = 20
_TITLE_HEIGHT = 62
_AXIS = 30
# Right of the rows and below the columns: how many, and the share of them that is right.
_TOTALS = 64
_SHARES = 56
_LINE = 20
# A letter's width as a share of its font's size.
_LETTER = 0.62
_SLANT = 0.7  # of a name at 45 degrees: its width, and its height


def confusion_svg(confusion: np.ndarray, labels: Sequence[str], title: str) -> str:
    """Draws a confusion matrix, (C, C) counts, as an ``<svg>`` element.

    A row is what was expected, a column what was predicted. A cell shows its count and its share of
    the row; the last column has each class's recall, the last row its precision.
    """
    counts = np.asarray(confusion)
    # XML knows no control characters, and a tooltip for each cell has no room for long names.
    labels, title = [one_line(label) for label in labels], one_line(title)
    size = len(labels)
    if counts.shape != (size, size) or not size:
        raise ValueError(
            f"A confusion matrix of {size} labels is ({size}, {size}), got {counts.shape}."
        )
    layout = _Layout(labels)
    parts = [*_headings(layout, counts, title), *_names(layout, labels)]
    parts += [_cell(layout, counts, labels, *place) for place in np.ndindex(size, size)]
    parts += _totals(layout, counts)
    x, y, extent = layout.left, layout.top, layout.extent
    parts.append(
        f"<rect x='{x}' y='{y}' width='{extent}' height='{extent}' fill='none' stroke='{_FAINT}'/>"
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{layout.width}' height='{layout.height}' "
        f"viewBox='0 0 {layout.width} {layout.height}' {_FONT} fill='{_INK}' role='img'>"
        f"<rect width='{layout.width}' height='{layout.height}' fill='#ffffff'/>"
        + "\n".join(parts)
        + "</svg>\n"
    )


class _Layout:
    """Where everything goes, in pixels."""

    def __init__(self, labels: Sequence[str]) -> None:
        size = len(labels)
        self.cell = next(
            pixels
            for most, pixels in ((3, 96), (6, 76), (10, 60), (30, 46), (10**9, 28))
            if size <= most
        )
        self.font = 13 if self.cell >= 46 else 10
        longest = max(_width(shorten(label), self.font) for label in labels)
        if size <= _FEW and longest <= _WIDEST_CELL:
            self.cell = max(self.cell, round(longest) + 16)
        self.slanted = longest > self.cell - 8
        names_height = (longest * _SLANT if self.slanted else 0) + self.font + 10
        self.extent = size * self.cell
        self.left = round(_MARGIN + _AXIS + longest + 8)
        self.top = round(_TITLE_HEIGHT + _AXIS + names_height)
        overhang = longest * _SLANT - self.cell / 2 if self.slanted else 0
        self.right = self.left + self.extent
        self.bottom = self.top + self.extent
        self.width = round(max(self.right + max(_TOTALS + _SHARES, overhang) + _MARGIN, 380))
        self.height = self.bottom + 2 * _LINE + _MARGIN

    def center(self, number: int) -> float:
        """Of a row or column, from the matrix's corner."""
        return (number + 0.5) * self.cell


def shorten(name: str) -> str:
    """A name of at most 28 characters; a longer one's middle, where names differ least, goes.

    >>> shorten("balance_not_updated_after_cheque_deposit")
    'balance_not_upd…eque_deposit'
    """
    if len(name) <= _LONGEST_NAME:
        return name
    end = (_LONGEST_NAME - 1) * 4 // 9
    return name[: _LONGEST_NAME - 1 - end] + "…" + name[-end:]


def _width(text: str, font: float) -> float:
    """About how wide a text is."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return (wide + (len(text) - wide) * _LETTER) * font


def _text(x: float, y: float, content: str, size: float, more: str = "") -> str:
    shown = html.escape(content)
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size:g}' {more}>{shown}</text>"


def _headings(layout: _Layout, counts: np.ndarray, title: str) -> list[str]:
    total, right = int(counts.sum()), int(np.trace(counts))
    share = f" ({right / total:.1%})" if total else ""
    middle = "text-anchor='middle'"
    axis = f"fill='{_FAINT}' {middle} letter-spacing='1'"
    x, y = _MARGIN + 10, layout.top + layout.extent / 2
    return [
        _text(_MARGIN, _MARGIN + 12, title, 16, "font-weight='600'"),
        _text(
            _MARGIN, _MARGIN + 32, f"{right:,} of {total:,} right{share}", 13, f"fill='{_FAINT}'"
        ),
        _text(layout.left + layout.extent / 2, _TITLE_HEIGHT + 18, "predicted", 13, axis),
        _text(x, y, "expected", 13, f"{axis} transform='rotate(-90 {x} {y:.1f})'"),
    ]


def _names(layout: _Layout, labels: Sequence[str]) -> list[str]:
    parts = []
    for number, label in enumerate(labels):
        tooltip = f"<title>{html.escape(label)}</title>"
        center = layout.center(number)
        line = layout.top + center + layout.font * 0.35
        row = _text(layout.left - 8, line, shorten(label), layout.font, "text-anchor='end'")
        x, y = layout.left + center, layout.top - 10
        turned = "text-anchor='middle'"
        if layout.slanted:
            x += layout.font * 0.3
            turned = f"transform='rotate(-45 {x:.1f} {y:.1f})'"
        column = _text(x, y, shorten(label), layout.font, turned)
        parts += [f"<g>{tooltip}{row}</g>", f"<g>{tooltip}{column}</g>"]
    return parts


def _cell(layout: _Layout, counts: np.ndarray, labels: Sequence[str], row: int, column: int) -> str:
    count, total = int(counts[row, column]), int(counts[row].sum())
    share = count / total if total else 0.0
    x, y = layout.left + column * layout.cell, layout.top + row * layout.cell
    tooltip = f"{labels[row]} → {labels[column]}: {count:,} of {total:,} ({share:.1%})"
    parts = [
        f"<g><title>{html.escape(tooltip)}</title><rect x='{x}' y='{y}' width='{layout.cell}' "
        f"height='{layout.cell}' fill='{_color(share, row == column)}' stroke='{_LINES}'/>"
    ]
    if count:
        middle = "text-anchor='middle'"
        center = x + layout.cell / 2
        has_room = layout.cell >= 46
        font = min(layout.cell / 4 + 1, 20) if has_room else 9
        shown = _fitting(count, font, layout.cell)
        below = layout.cell * (0.48 if has_room else 0.5) + (0 if has_room else 3)
        parts.append(_text(center, y + below, shown, font, middle))
        if has_room:
            size = max(9.5, font * 0.72)
            percent = f"{share:.0%}" if share >= 0.01 else "<1%"
            line = y + layout.cell * 0.48 + size * 1.45
            parts.append(_text(center, line, percent, size, f"{middle} fill='#3d4a57'"))
    elif layout.cell >= 60:
        below, faint = layout.cell / 2, f"text-anchor='middle' fill='{_FAINT}'"
        parts.append(_text(x + below, y + below + 5, "0", 13, faint))
    return "".join(parts) + "</g>"


def _fitting(count: int, font: float, room: float) -> str:
    """A count with all its digits, or, where these have no room, in thousands or millions.

    >>> _fitting(123456, 12, 60), _fitting(123456, 12, 40), _fitting(7_700_000, 12, 40)
    ('123,456', '123k', '7.7M')
    """
    full = f"{count:,}"
    if _width(full, font) <= room - 6:
        return full
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            scaled = count / size
            return f"{scaled:.0f}{unit}" if scaled >= 10 else f"{scaled:.1f}{unit}"
    return str(count)


def _color(share: float, is_right: bool) -> str:
    target = _RIGHT if is_right else _WRONG
    # A small share of errors is to be seen, too.
    strength = share**0.6
    red, green, blue = (round(255 + (value - 255) * strength) for value in target)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _totals(layout: _Layout, counts: np.ndarray) -> list[str]:
    """Counts and recalls right of the rows, counts and precisions below the columns."""
    size, faint = 12 if layout.cell >= 46 else 9, f"fill='{_FAINT}'"
    middle, end = f"text-anchor='middle' {faint}", f"text-anchor='end' {faint}"
    row_ends = [layout.right + _TOTALS - 6, layout.right + _TOTALS + _SHARES - 4]
    lines = [layout.bottom + _LINE - 2, layout.bottom + 2 * _LINE - 2]
    parts = [
        _text(x, layout.top - 10, name, 11, end)
        for x, name in zip(row_ends, ("all", "recall"), strict=True)
    ]
    parts += [
        _text(layout.left - 8, y, name, 11, end)
        for y, name in zip(lines, ("all", "precision"), strict=True)
    ]
    right, expected, predicted = np.diag(counts), counts.sum(1), counts.sum(0)
    for number in range(len(counts)):
        center = layout.center(number)
        for x, shown in zip(
            row_ends,
            (f"{expected[number]:,}", _share(right[number], expected[number])),
            strict=True,
        ):
            parts.append(_text(x, layout.top + center + 4, shown, size, end))
        total = _fitting(int(predicted[number]), size, layout.cell + 6)
        for y, shown in zip(lines, (total, _share(right[number], predicted[number])), strict=True):
            parts.append(_text(layout.left + center, y, shown, size, middle))
    return parts


def _share(part: int, whole: int) -> str:
    """A percentage; a dash where there is nothing to take a share of.

    >>> _share(1, 3), _share(0, 0)
    ('33%', '–')
    """
    return f"{part / whole:.0%}" if whole else "–"
