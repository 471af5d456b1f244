"""Means of several models with their standard errors, as a picture: SVG, a panel for each score."""

import html
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bert_tf.metrics.resampling import Mean

_LEFT, _WIDTH, _ROW, _TOP, _ROOM = 250, 190, 26, 50, 160
_INK, _POINT = "#1c2733", "#2b7bba"


def means_svg(
    rows: Mapping[int, str],
    panels: Mapping[tuple[str, str], Mapping[int, Mean]],
    points: Mapping[tuple[str, str], Mapping[int, Sequence[float]]] = MappingProxyType({}),
) -> str:
    """Draws each row's means, with two standard errors to either side, as an ``<svg>`` element.

    ``rows`` are the names by the numbers that ``panels`` has. ``points`` are what the means are of,
    each a small circle.
    """
    middles = {number: _TOP + _ROW * (place + 0.65) for place, number in enumerate(rows)}
    parts = [_text(_LEFT - 12, middles[number], row, "end") for number, row in rows.items()]
    for left, (heading, means) in zip(
        range(_LEFT, _LEFT + _WIDTH * len(panels), _WIDTH), panels.items(), strict=True
    ):
        own = points.get(heading, {})
        single = [point for values in own.values() for point in values]
        low = min([*single, *(each.mean - 2 * each.error for each in means.values())])
        high = max([*single, *(each.mean + 2 * each.error for each in means.values())])
        scale = _ROOM * 0.8 / ((high - low) or 1)
        parts += [_text(left + _ROOM / 2, 18 + 16 * n, text) for n, text in enumerate(heading)]
        box = f"width='{_ROOM}' height='{_ROW * len(rows) + 10}' fill='none' stroke='#d5dbe1'"
        parts.append(f"<rect x='{left}' y='{_TOP - 6}' {box}/>")
        for number, each in means.items():
            for point in own.get(number, ()):
                at = left + _ROOM * 0.1 + (point - low) * scale
                ring = f"r='2' fill='none' stroke='{_INK}'"
                parts.append(f"<circle cx='{at:.1f}' cy='{middles[number]:.1f}' {ring}/>")
            x, reach = left + _ROOM * 0.1 + (each.mean - low) * scale, 2 * each.error * scale
            line = f"d='M{x - reach:.1f} {middles[number]:.1f}H{x + reach:.1f}'"
            parts.append(
                f"<path {line} stroke='{_POINT}'/>"
                f"<circle cx='{x:.1f}' cy='{middles[number]:.1f}' r='3.5' fill='{_POINT}'/>"
            )
            parts.append(_text(x, middles[number] - 6, f"{each.mean:.1f}"))
    width, height = _LEFT + _WIDTH * len(panels), _TOP + _ROW * len(rows) + 16
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' font-family='system-ui, sans-serif' font-size='12' "
        f"fill='{_INK}' role='img'><rect width='{width}' height='{height}' fill='#ffffff'/>"
        + "\n".join(parts)
        + "</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    where = f"x='{x:.0f}' y='{y:.0f}' text-anchor='{anchor}'"
    return f"<text {where}>{html.escape(text)}</text>"
