"""How long a server takes from the start of its process until it is ready: after a kill right after the last write,
after a kill some seconds later, and after a clean stop. If there is an older checkout, its server takes turns with this
one, and the ratios are reported.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.own_process import OWN_SOURCES, server_on, sources_in
from topics.bench.records import DATA_BYTES, fill, wait_until_durable

TOPICS = 10
RECORDS_DEFAULT = 1_000_000
LEFT_ALONE_S = 8.0
AT_ONCE = "a kill at once"
LATER = f"a kill {LEFT_ALONE_S:.0f} s later"
STOPPED = "a clean stop"
TIMES_MAX = {AT_ONCE: 0.55, LATER: 0.6, STOPPED: 1.0}  # of the older server's time


class _State(msgspec.Struct):
    count: int


class RecoveryMeasurement(Measurement):
    """Writes records, ends the server with SIGKILL or a clean stop, and starts it again."""

    name = "recovery"
    compares = True

    def __init__(self, records: int | None, durability: str, rounds: int = 3, checkout: Path | None = None) -> None:
        self._records = records or RECORDS_DEFAULT
        self._rounds = rounds if checkout is not None else 1
        self._durability = durability
        self._checkout = checkout
        self._config = msgspec.json.encode({"durability": durability})
        self._topics = [f"bench-recovery-{number}" for number in range(TOPICS)]

    def measure(self, progress: Progress) -> MeasurementResult:
        servers = {"topics": OWN_SOURCES}
        if self._checkout is not None:
            servers[f"checkout {self._checkout.resolve().name}"] = sources_in(self._checkout)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
        for number in range(self._rounds):
            order = list(servers.items())
            for name, sources in order if number % 2 == 0 else reversed(order):
                progress(f"recovery: round {number + 1} of {self._rounds}, {name}")
                rounds[name].append(self._round(sources))
        return MeasurementResult(
            self.name,
            f"{self._records} records of {DATA_BYTES} bytes in {TOPICS} topics, {self._durability} class",
            figures_of(rounds),
            ("times include the start of Python; the files are in the page cache, as after any kill",),
        )

    def _round(self, sources: Path) -> dict[str, float]:
        """The seconds of each start."""
        return {
            AT_ONCE: self.start_after_kill(sources, 0),
            LATER: self.start_after_kill(sources, LEFT_ALONE_S),
            STOPPED: self.start_after_stop(sources),
        }

    def start_after_kill(self, sources: Path, left_alone_s: float) -> float:
        with tempfile.TemporaryDirectory(prefix="topics-bench-") as name:
            directory = Path(name)
            with server_on(directory, sources=sources) as server:
                self._fill(server.control())
                time.sleep(left_alone_s)
                server.kill()
            with server_on(directory, sources=sources) as server:
                found = self._count(server.control())
                if found != self._records:
                    raise BenchError(f"only {found} of {self._records} records were there after SIGKILL")
                return server.started_s

    def start_after_stop(self, sources: Path) -> float:
        with tempfile.TemporaryDirectory(prefix="topics-bench-") as name:
            directory = Path(name)
            with server_on(directory, sources=sources) as server:
                self._fill(server.control())
                server.stop()
            with server_on(directory, sources=sources) as server:
                if self._count(server.control()) != self._records:
                    raise BenchError("a clean stop lost records")
                return server.started_s

    def _fill(self, control: HttpControl) -> None:
        with control:
            for topic in self._topics:
                control.call("PUT", f"/v0/topics/{topic}", self._config)
            fill(control, self._topics, 0, self._records)
            wait_until_durable(control, self._topics)

    def _count(self, control: HttpControl) -> int:
        with control:
            states = [control.call("GET", f"/v0/topics/{topic}?touch=false") for topic in self._topics]
        return sum(msgspec.json.decode(state, type=_State).count for state in states)


def figures_of(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> tuple[Figure, ...]:
    """The seconds of each server, and the ratios of rounds that ran next to each other."""
    subject, *others = rounds
    figures = [
        Figure(f"{name}: start to ready after {after}", median(each[after] for each in starts), "s")
        for name, starts in rounds.items()
        for after in TIMES_MAX
    ]
    for other in others:
        for after, most in TIMES_MAX.items():
            pairs = zip(rounds[subject], rounds[other], strict=True)
            value = median(ours[after] / theirs[after] for ours, theirs in pairs)
            figures.append(Figure(f"{subject} ÷ {other}: start after {after}", value, "times", most))
    return tuple(figures)
