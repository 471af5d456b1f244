"""A reliability diagram as a picture: how often what is so probable is so, raw and calibrated."""

from bert_tf.metrics.calibration import Calibration, Reliability

_FONT = 'font-family=\'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif\''
_INK, _FAINT, _LINES = "#1c2733", "#66727f", "#d5dbe1"
_RAW, _CALIBRATED = "#d9773f", "#2b7cbf"
_LEFT, _TOP, _SIDE = 64, 20, 300
_WIDTH, _HEIGHT = 560, 372
_SMALLEST, _LARGEST = 3.0, 9.0  # a dot's radius: its area is its bin's share of all


def reliability_svg(calibration: Calibration) -> str:
    """Draws both sides of a calibration as an ``<svg>`` element: a dot for each bin of either.

    Dots on the diagonal are of probabilities that mean what they say; below it the model is too
    sure, above it not sure enough.
    """
    parts = [f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='#ffffff'/>"]
    for tenth in range(0, 11, 2):
        share = tenth / 10
        x, y = _place(share, share)
        parts.append(
            f"<path d='M{x:g} {_TOP}V{_TOP + _SIDE}M{_LEFT} {y:g}H{_LEFT + _SIDE}' "
            f"stroke='{_LINES}'/><text x='{x:g}' y='{_TOP + _SIDE + 18}' text-anchor='middle'>"
            f"{share:g}</text><text x='{_LEFT - 8}' y='{y + 4:g}' text-anchor='end'>{share:g}"
            "</text>"
        )
    parts.append(
        f"<path d='M{_LEFT} {_TOP + _SIDE}L{_LEFT + _SIDE} {_TOP}' stroke='{_FAINT}' "
        "stroke-dasharray='5 4'/>"
        f"<text x='{_LEFT + _SIDE / 2}' y='{_HEIGHT - 12}' text-anchor='middle' fill='{_FAINT}'>"
        "probability</text>"
        f"<text transform='translate(16 {_TOP + _SIDE / 2}) rotate(-90)' text-anchor='middle' "
        f"fill='{_FAINT}'>share that is so</text>"
    )
    sides = (("raw", calibration.raw, _RAW), ("calibrated", calibration.calibrated, _CALIBRATED))
    for row, (name, found, colour) in enumerate(sides):
        parts += _side(found, calibration.count, colour, name)
        x, y = _LEFT + _SIDE + 28, _TOP + 24 + 56 * row
        parts.append(
            f"<circle cx='{x}' cy='{y - 4}' r='6' fill='{colour}'/>"
            f"<text x='{x + 14}' y='{y}'>{name}</text>"
            f"<text x='{x + 14}' y='{y + 18}' fill='{_FAINT}'>off by {found.error:.3f}</text>"
        )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}' "
        f"viewBox='0 0 {_WIDTH} {_HEIGHT}' {_FONT} font-size='13' fill='{_INK}' role='img'>"
        "<title>Probabilities against the share that is so</title>" + "\n".join(parts) + "</svg>\n"
    )


def _place(confidence: float, share: float) -> tuple[float, float]:
    return _LEFT + _SIDE * confidence, _TOP + _SIDE * (1 - share)


def _side(found: Reliability, count: int, colour: str, name: str) -> list[str]:
    """A line through a side's bins, and their dots."""
    places = [_place(one.confidence, one.share) for one in found.bins]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='1.5'/>"]
    for one, (x, y) in zip(found.bins, places, strict=True):
        radius = _SMALLEST + (_LARGEST - _SMALLEST) * (one.decisions / count) ** 0.5
        parts.append(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius:.1f}' fill='{colour}' "
            f"fill-opacity='0.75'><title>{name}: {one.decisions:,} at {one.confidence:.3f}, "
            f"{one.share:.3f} so</title></circle>"
        )
    return parts
