"""A curve as an SVG picture: logarithmic axes, one colour a line, a ring where a line bends.

Each line is drawn relative to its smallest cost, so that lines with different units share one picture; the legend says
that cost in its unit.
"""

from math import floor, log10
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from topics.bench.curves import Curve, Line, bend_of

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 46, 110
COLOURS = ("#1f5fa8", "#b5451c", "#2d7d46", "#7a3e9d", "#8a6d00")
LEGEND_LINE = 18
BETWEEN_DECADES_MAX = 1.5


def keep_curve(directory: Path, curve: Curve) -> None:
    """Writes the curve's numbers and its picture, under its name."""
    numbers = msgspec.json.format(msgspec.json.encode(curve), indent=2)
    (directory / f"{curve.name}.json").write_bytes(numbers + b"\n")
    (directory / f"{curve.name}.svg").write_text(draw(curve), encoding="utf-8")


def draw(curve: Curve) -> str:
    """The picture, as text."""
    sizes = [size for line in curve.lines for size, _ in line.points]
    costs = [cost / _least(line) for line in curve.lines for _, cost in line.points]
    across = _Axis(min(sizes), max(sizes), LEFT, WIDTH - RIGHT)
    up = _Axis(1.0, max([*costs, 2.0]), HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(curve.name)}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">Cost over {escape(curve.size)}</text>',
    ]
    for mark in across.marks():
        x = across.at(mark)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_power(mark)}</text>')
    for mark in up.marks():
        y = up.at(mark)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">× {mark:g}</text>')
    for number, line in enumerate(curve.lines):
        parts += _drawn(line, COLOURS[number % len(COLOURS)], number, across, up)
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """A logarithmic axis from `low` to `high`, drawn from `start` to `end`."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high = log10(low), log10(high)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (log10(value) - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        return self._start + share * (self._end - self._start)

    def marks(self) -> list[float]:
        """Powers of ten; on an axis shorter than a decade and a half, also steps between them."""
        factors = (1, 2, 5) if self._high - self._low < BETWEEN_DECADES_MAX else (1,)
        powers = range(floor(self._low), floor(self._high) + 1)
        marks = [factor * 10.0**power for power in powers for factor in factors]
        return [mark for mark in marks if self._low - 1e-9 <= log10(mark) <= self._high + 1e-9]


def _drawn(line: Line, colour: str, number: int, across: _Axis, up: _Axis) -> list[str]:
    least = _least(line)
    places = {size: (across.at(size), up.at(cost / least)) for size, cost in line.points}
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places.values())
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places.values()]
    bend = bend_of(line)
    if bend is not None:
        x, y = places[bend.size]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{colour}" stroke-width="2"/>')
    y = HEIGHT - BOTTOM + 44 + number * LEGEND_LINE
    parts.append(f'<rect x="{LEFT}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
    parts.append(f'<text x="{LEFT + 20}" y="{y}">{escape(line.name)}: × 1 is {least:.3g} {escape(line.unit)}</text>')
    return parts


def _least(line: Line) -> float:
    return min(cost for _, cost in line.points)


def _power(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 1 else f"{value:g}"
