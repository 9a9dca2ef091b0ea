"""Every mark of a run in one table: what was measured, what it should be, whether it was met, and what it was in an
earlier run kept with `--json`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from topics.bench.comparison import WorkloadResult
from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, MeasurementResult
from topics.bench.samples import RATE

HEADINGS = ("what", "now", "mark", "", "earlier")

Key = tuple[str, str]  # the workload or measurement, and the name of the number


@dataclass(frozen=True, slots=True)
class Line:
    """One number of a run."""

    key: Key
    value: float
    unit: str
    at_least: float | None
    at_most: float | None
    missed: bool

    @property
    def marked(self) -> bool:
        return self.at_least is not None or self.at_most is not None


def lines_of(results: Sequence[WorkloadResult], measured: Sequence[MeasurementResult]) -> list[Line]:
    """Every ratio and figure, in the order it was measured."""
    lines: list[Line] = []
    for result in results:
        for ratio in result.ratios:
            key = (result.name, _what(ratio.peer, ratio.of))
            lines.append(Line(key, ratio.value, "", ratio.least, ratio.most, ratio.missed))
        lines += [_figure_line(result.name, figure) for figure in result.figures]
    for each in measured:
        lines += [_figure_line(each.name, figure) for figure in each.figures]
    return lines


def render_marks(lines: Sequence[Line], earlier: Mapping[Key, float] | None = None) -> str:
    """The table. With an earlier run, it also shows numbers without a mark that both runs have."""
    shown = [line for line in lines if line.marked or (earlier is not None and line.key in earlier)]
    if not shown:
        return ""
    rows = [list(HEADINGS if earlier is not None else HEADINGS[:-1])]
    for line in shown:
        row = [f"{line.key[0]}: {line.key[1]}", _number(line.value, line.unit), _mark(line), _verdict(line)]
        if earlier is not None:
            row.append(_change(line, earlier.get(line.key)))
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    marked = [line for line in lines if line.marked]
    missed = sum(line.missed for line in marked)
    table = ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([f"marks – {len(marked) - missed} met, {missed} missed", "", *map(str.rstrip, table)]) + "\n"


def read_earlier(path: Path) -> dict[Key, float]:
    """The numbers of a run kept with `--json`."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except (OSError, msgspec.MsgspecError) as problem:
        raise BenchError(f"--against {path}: not a run kept with --json ({problem})") from problem
    found: dict[Key, float] = {}
    for workload in document.workloads:
        found |= {(workload.name, _what(ratio.peer, ratio.of)): ratio.value for ratio in workload.ratios}
        found |= {(workload.name, figure.name): figure.value for figure in workload.figures}
    for measurement in document.measurements:
        found |= {(measurement.name, figure.name): figure.value for figure in measurement.figures}
    return found


class _Ratio(msgspec.Struct):
    peer: str
    of: str
    value: float


class _Figure(msgspec.Struct):
    name: str
    value: float


class _Part(msgspec.Struct):
    name: str
    figures: list[_Figure]
    ratios: list[_Ratio] = []


class _Document(msgspec.Struct):
    workloads: list[_Part]
    measurements: list[_Part]


def _what(peer: str, of: str) -> str:
    return f"÷ {peer}" if of == RATE else f"{of} ÷ {peer}"


def _figure_line(name: str, figure: Figure) -> Line:
    return Line((name, figure.name), figure.value, figure.unit, figure.at_least, figure.at_most, figure.missed)


def _number(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}".rstrip() if abs(value) < 1000 else f"{value:,.0f} {unit}".replace(",", " ").rstrip()


def _mark(line: Line) -> str:
    if not line.marked:
        return ""
    return f"≥ {line.at_least:g}" if line.at_least is not None else f"≤ {line.at_most:g}"


def _verdict(line: Line) -> str:
    return ("missed" if line.missed else "met") if line.marked else ""


def _change(line: Line, was: float | None) -> str:
    if was is None:
        return "–"
    return f"{_number(was, line.unit)} ({line.value / was - 1:+.0%})" if was else _number(was, line.unit)
