"""How long an empty server takes from the start of its process until it is ready, compared with an older checkout."""

import tempfile
from pathlib import Path
from statistics import median

from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.own_process import OWN_SOURCES, server_on, sources_in

STARTS_A_ROUND = 3
TIMES_MAX = 0.5


class StartMeasurement(Measurement):
    name = "start"
    compares = True

    def __init__(self, rounds: int, checkout: Path | None) -> None:
        self._starts = rounds * STARTS_A_ROUND
        self._checkout = checkout

    def measure(self, progress: Progress) -> MeasurementResult:
        ours: list[float] = []
        theirs: list[float] = []
        sources = None if self._checkout is None else sources_in(self._checkout)
        for each in filter(None, (OWN_SOURCES, sources)):
            _start_s(each)  # not counted: it may have to compile
        for number in range(self._starts):
            progress(f"start: {number + 1} of {self._starts}")
            ours.append(_start_s(OWN_SOURCES))
            if sources is not None:
                theirs.append(_start_s(sources))
        figures = [Figure("topics: empty start to ready", median(ours), "s")]
        if self._checkout is not None:
            name = f"checkout {self._checkout.resolve().name}"
            ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
            figures += [
                Figure(f"{name}: empty start to ready", median(theirs), "s"),
                Figure(f"topics ÷ {name}: empty start", ratio, "times", TIMES_MAX),
            ]
        return MeasurementResult(self.name, f"{self._starts} starts on an empty directory", tuple(figures))


def _start_s(sources: Path) -> float:
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as name, server_on(Path(name), sources=sources) as server:
        return server.started_s
