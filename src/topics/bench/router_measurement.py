"""What a write costs when routers copy it to one, ten, a hundred or a thousand topics, and how long until the last copy
arrives."""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.bench.journal_watch import FRAMES_COUNTER, counter_in
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.own_process import server_on
from topics.bench.records import DATA_BYTES, write_body
from topics.bench.samples import percentile
from topics.clock import Clock, SystemClock

FANOUTS = (0, 1, 10, 100, 1000)
WRITES = 100
WRITES_PER_S = 100
COPIES_PER_S = 20_000
FRAMES_PER_WRITE_MAX = 1.1  # a `disk` topic reserves seqs now and then
COPIED_S_MAX = 30.0


class _Router(msgspec.Struct):
    forwarded_total: int


class _Round(NamedTuple):
    acks_ns: list[int]
    copies_ns: list[int]
    frames_per_write: float


class RouterMeasurement(Measurement):
    """Single writes at a fixed rate. A copy has arrived when its router has counted it. Nobody reads the copies,
    because a read would trigger the copying."""

    name = "routers"

    def __init__(self, durability: str) -> None:
        self._durability = durability
        self._clock: Clock = SystemClock()

    def measure(self, progress: Progress) -> MeasurementResult:
        figures: list[Figure] = []
        with tempfile.TemporaryDirectory(prefix="topics-bench-") as name, server_on(Path(name)) as server:
            for fanout in FANOUTS:
                progress(f"routers: 1 to {fanout}")
                with server.control() as control:
                    self._prepare(control, fanout)
                    figures += _figures(fanout, self._round(control, fanout))
        return MeasurementResult(
            self.name,
            f"single writes of {DATA_BYTES} bytes, {self._durability} class, copied to many topics",
            tuple(figures),
            ("writer and server share this machine; 1 to 0 is the same writes without a router",),
        )

    def _prepare(self, control: HttpControl, fanout: int) -> None:
        source = f"bench-source-{fanout}"
        control.call("PUT", f"/v0/topics/{source}", msgspec.json.encode({"durability": self._durability}))
        for number in range(fanout):
            body = {"source": source, "dest": f"bench-dest-{fanout}-{number:04d}"}
            control.call("PUT", _router_path(fanout, number), msgspec.json.encode(body))

    def _round(self, control: HttpControl, fanout: int) -> _Round:
        path, body = f"/v0/topics/bench-source-{fanout}?return_seqs=false", write_body(0, 1)
        pause_s = max(1 / WRITES_PER_S, fanout / COPIES_PER_S)
        acks_ns: list[int] = []
        copies_ns: list[int] = []
        frames = _frames(control)
        for number in range(WRITES):
            time.sleep(pause_s)
            began_ns = self._clock.monotonic_ns()
            control.call("POST", path, body)
            acks_ns.append(self._clock.monotonic_ns() - began_ns)
            if fanout:
                self._wait_for_last(control, fanout, number + 1)
                copies_ns.append(self._clock.monotonic_ns() - began_ns)
        return _Round(sorted(acks_ns), sorted(copies_ns), (_frames(control) - frames) / WRITES)

    def _wait_for_last(self, control: HttpControl, fanout: int, count: int) -> None:
        """Waits until the last router has copied `count` records. Routers of a source copy in the order of creation."""
        path = _router_path(fanout, fanout - 1)
        deadline_ns = self._clock.monotonic_ns() + COPIED_S_MAX * 1e9
        while msgspec.json.decode(control.call("GET", path), type=_Router).forwarded_total < count:
            if self._clock.monotonic_ns() > deadline_ns:
                raise BenchError(f"copy {count} of {path} did not come in {COPIED_S_MAX:.0f} s")


def _figures(fanout: int, measured: _Round) -> list[Figure]:
    figures = [
        Figure(f"1 to {fanout}: ack, p50", percentile(measured.acks_ns, 500) / 1e6, "ms"),
        Figure(f"1 to {fanout}: ack, p99", percentile(measured.acks_ns, 990) / 1e6, "ms"),
    ]
    if fanout:
        figures += [
            Figure(f"1 to {fanout}: last copy, p50", percentile(measured.copies_ns, 500) / 1e6, "ms"),
            Figure(f"1 to {fanout}: last copy, p99", percentile(measured.copies_ns, 990) / 1e6, "ms"),
        ]
    frames = measured.frames_per_write
    return [*figures, Figure(f"1 to {fanout}: WAL frames a write", frames, "frames", FRAMES_PER_WRITE_MAX)]


def _frames(control: HttpControl) -> float:
    """The server's count of WAL frames. The last frames are written a moment after the last answer."""
    time.sleep(0.2)
    found = counter_in(control.call("GET", "/v0/metrics").decode(), FRAMES_COUNTER)
    if found is None:
        raise BenchError(f"the server does not count {FRAMES_COUNTER}")
    return found


def _router_path(fanout: int, number: int) -> str:
    return f"/v0/routers/bench-router-{fanout}-{number:04d}"
