"""Cost over size: how a figure changes from small to large, and where the line bends.

A curve has lines over one size (topics, records, watchers, payload, batch, connections). Each point comes from a
separate server or a separate round. `curve_picture` draws it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean

BEND_SLOPE = 0.3  # how much steeper or flatter it must get; on logarithmic axes 0 is flat and 1 is proportional
BEND_REST_MAX = 0.5  # two lines must leave at most this share of the error that one line leaves
BEND_POINTS_MIN = 4
FLAT_SLOPE = 0.1

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A cost over a size; sizes ascend, and costs are above zero."""

    name: str
    unit: str
    points: Points


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    size: str  # what the axis counts
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Bend:
    """Up to this size the cost grows as size to the power of `before`, from there on to the power of `after`."""

    size: float
    before: float
    after: float


def slope_of(points: Points) -> float:
    """The slope of the straight line that fits these points best on logarithmic axes."""
    return _fit(points)[0]


def bend_of(line: Line) -> Bend | None:
    """Where two straight lines fit the points best; None if one line fits nearly as well, or the two are much alike."""
    points = line.points
    if len(points) < BEND_POINTS_MIN:
        return None
    straight = _fit(points)[1]
    fits = [(at, _fit(points[: at + 1]), _fit(points[at:])) for at in range(1, len(points) - 1)]
    at, (before, left), (after, right) = min(fits, key=lambda fit: fit[1][1] + fit[2][1])
    if left + right > straight * BEND_REST_MAX or abs(after - before) < BEND_SLOPE:
        return None
    return Bend(points[at][0], before, after)


def _fit(points: Points) -> tuple[float, float]:
    """The slope of the best straight line on logarithmic axes, and the sum of its squared errors."""
    xs, ys = [log(x) for x, _ in points], [log(y) for _, y in points]
    x_mean, y_mean = fmean(xs), fmean(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0
    return slope, sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in zip(xs, ys, strict=True))


def told(line: Line) -> str:
    """The course of the line in words."""
    first, last = line.points[0], line.points[-1]
    text = f"{line.name}: {_number(first[1])} {line.unit} at {_number(first[0])}"
    if len(line.points) > 1:
        text += f", {_number(last[1])} at {_number(last[0])}"
    bend = bend_of(line)
    if bend is None:
        return f"{text}; {_course(slope_of(line.points))} throughout"
    size = _number(bend.size)
    return f"{text}; {_course(bend.before)} up to {size}, {_course(bend.after)} from there"


def render_curves(curves: Sequence[Curve]) -> str:
    """Every line of every curve in words."""
    parts: list[str] = []
    for curve in curves:
        parts += [f"{curve.name} – cost over {curve.size}", "", *(f"  {told(line)}" for line in curve.lines), ""]
    return "\n".join(parts)


def _course(slope: float) -> str:
    if abs(slope) < FLAT_SLOPE:
        return "flat"
    return f"grows as size^{slope:.1f}" if slope > 0 else f"falls as size^{slope:.1f}"


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"
