"""Results as a table for people and as JSON for programs."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict

import msgspec

from topics.bench.comparison import Ratio, TargetResult, WorkloadResult
from topics.bench.measurement import Figure, MeasurementResult
from topics.bench.plan import LoadSettings
from topics.bench.samples import RATE, PairedRatio, Sample
from topics.version import VERSION

COLUMNS = ("target", "requests/s", "records/s", "p50 ms", "p99 ms", "p99.9 ms", "errors", "load cpu")
GAP = "  "
GENERATOR_BUSY_WARNING = 0.95


def render_text(results: Sequence[WorkloadResult], notes: Sequence[str]) -> str:
    """Every workload's table, its ratios, and what could not be measured."""
    rows = {result.name: [_cells(target) for target in result.targets] for result in results}
    everything = [list(COLUMNS), *(row for table in rows.values() for row in table)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(COLUMNS))]
    lines: list[str] = []
    for result in results:
        lines += [f"{result.name} – {result.summary}", ""]
        lines.append(_aligned(list(COLUMNS), widths))
        lines.append(GAP + GAP.join("─" * width for width in widths))
        lines += [_aligned(row, widths) for row in rows[result.name]]
        lines += _ratio_lines(result.ratios)
        lines += _figure_lines(result.figures)
        lines += _error_lines(result.targets)
        lines.append("")
    caveats = [caveat for result in results for caveat in result.caveats]
    lines += [f"note: {note}" for note in [*notes, *caveats, *_busy_notes(results)]]
    return "\n".join(lines).rstrip() + "\n"


def render_figures(results: Sequence[MeasurementResult]) -> str:
    """Every measurement's figures, each beside its bound."""
    lines: list[str] = []
    for result in results:
        rows = [[figure.name, _shown(figure), _bound(figure)] for figure in result.figures]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines += [f"{result.name} – {result.summary}", ""]
        lines += [_aligned(row[:2], widths[:2]) + (f"{GAP}{row[2]}" if row[2] else "") for row in rows]
        lines += ["", *(f"{GAP}{note}" for note in result.notes), ""]
    return "\n".join(lines)


def render_json(
    results: Sequence[WorkloadResult],
    notes: Sequence[str],
    settings: LoadSettings,
    durability: str,
    measured: Sequence[MeasurementResult] = (),
) -> bytes:
    """All results as JSON, with every round."""
    document = {
        "topics": VERSION,
        "machine": {
            "processors": os.cpu_count(),
            "system": platform.system(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
        },
        "settings": asdict(settings) | {"durability": durability},
        "workloads": [_workload_document(result) for result in results],
        "measurements": [asdict(result) for result in measured],
        "notes": list(notes),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _mark(least: float | None, most: float | None) -> str:
    return f"at least {least:g}" if least is not None else f"at most {most:g}"


def _shown(figure: Figure) -> str:
    value = _grouped(figure.value) if abs(figure.value) >= 1000 else f"{figure.value:.2f}".removesuffix(".00")
    return f"{value} {figure.unit}"


def _bound(figure: Figure) -> str:
    if figure.at_least is None and figure.at_most is None:
        return ""
    return f"({'missed' if figure.missed else 'met'}: {_mark(figure.at_least, figure.at_most)} {figure.unit})"


def _cells(target: TargetResult) -> list[str]:
    sample = target.typical
    return [
        target.name,
        _grouped(sample.requests_per_s),
        _grouped(sample.records_per_s),
        f"{sample.p50_ms:.3f}",
        f"{sample.p99_ms:.3f}",
        f"{sample.p999_ms:.3f}",
        _grouped(target.errors),
        f"{sample.generator_busy:.0%}",
    ]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(w) if at == 0 else cell.rjust(w) for at, (cell, w) in enumerate(zip(row, widths, strict=True))
    )
    return GAP + GAP.join([first, *others])


def _grouped(number: float) -> str:
    return f"{round(number):,}".replace(",", " ")


def _ratio_lines(ratios: Sequence[Ratio]) -> list[str]:
    lines = [""] if ratios else []
    for ratio in ratios:
        line = f"{GAP}{ratio.subject} / {ratio.peer}{'' if ratio.of == RATE else f', {ratio.of}'} = "
        line += f"{ratio.value:.2f}" if ratio.pairs is None else _with_spread(ratio.pairs)
        if ratio.of != RATE:
            line += f"{GAP}less is faster"
        if ratio.least is not None or ratio.most is not None:
            line += f"{GAP}({'missed' if ratio.missed else 'met'}: {_mark(ratio.least, ratio.most)})"
        lines.append(line)
    return lines


def _with_spread(pairs: PairedRatio) -> str:
    """The median, the range in which another run would likely find it, and the lowest and highest values."""
    spread = f"{GAP}({len(pairs.ascending)} turns: {pairs.ascending[0]:.3f} to {pairs.ascending[-1]:.3f})"
    if pairs.likely is None:
        return f"{pairs.median:.3f}{spread}"
    low, high = pairs.likely
    return f"{pairs.median:.3f}, likely {low:.3f} to {high:.3f}{spread}"


def _figure_lines(figures: Sequence[Figure]) -> list[str]:
    lines = [""] if figures else []
    return lines + [f"{GAP}{figure.name} = {_shown(figure)}{GAP}{_bound(figure)}" for figure in figures]


def _error_lines(targets: Sequence[TargetResult]) -> list[str]:
    return [f"{GAP}first error of {target.name}: {target.first_error}" for target in targets if target.first_error]


def _busy_notes(results: Sequence[WorkloadResult]) -> list[str]:
    busy = [
        f"{result.name} on {target.name}"
        for result in results
        for target in result.targets
        if target.typical.generator_busy > GENERATOR_BUSY_WARNING
    ]
    if not busy:
        return []
    where = ", ".join(busy)
    return [f"the load generator had no time left in {where}: the target may be faster than shown"]


def _workload_document(result: WorkloadResult) -> dict[str, object]:
    return {
        "name": result.name,
        "summary": result.summary,
        "targets": [
            {
                "name": target.name,
                "kind": target.kind.value,
                "median": _sample_document(target.typical),
                "rounds": [_sample_document(sample) for sample in target.rounds],
            }
            for target in result.targets
        ],
        "ratios": [_ratio_document(ratio) for ratio in result.ratios],
        "figures": [asdict(figure) for figure in result.figures],
        "caveats": list(result.caveats),
    }


def _ratio_document(ratio: Ratio) -> dict[str, object]:
    document: dict[str, object] = {
        "subject": ratio.subject,
        "peer": ratio.peer,
        "of": ratio.of,
        "value": round(ratio.value, 4),
        "at_least": ratio.least,
        "at_most": ratio.most,
    }
    if ratio.pairs is not None:
        document |= {"pairs": ratio.pairs.ascending, "likely": ratio.pairs.likely}
    return document


def _sample_document(sample: Sample) -> dict[str, object]:
    return asdict(sample) | {
        "requests_per_s": round(sample.requests_per_s, 1),
        "records_per_s": round(sample.records_per_s, 1),
    }
