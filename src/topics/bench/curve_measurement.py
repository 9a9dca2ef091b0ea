"""Measures the curves: the same work at sizes from small to large.

Most lines show the server's CPU time, which other work on the machine affects least.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from topics.bench.child_process import cpu_ns
from topics.bench.curves import Curve, Line
from topics.bench.diff_workload import diff_body
from topics.bench.errors import BenchError
from topics.bench.http1 import render_request
from topics.bench.live_workload import FanoutWorkload
from topics.bench.measurement import Progress
from topics.bench.own_process import OwnProcess, server_on
from topics.bench.plan import AnyPlan, CirclePlan, LoadSettings, ManyTopicsPlan, run_load
from topics.bench.records import fill, wait_until_durable, write_body
from topics.bench.samples import Sample
from topics.bench.scale_measurement import READY_S_MAX, STOP_S_MAX, make_topics
from topics.bench.targets import Target, target_of

TOPICS_MAX = 100_000
RECORDS_MAX = 10_000_000
WATCHERS = (1, 10, 100, 1000, 2000)
PAYLOAD_BYTES = (64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20)
BATCH_RECORDS = (1, 10, 100, 1000, 10_000)
CONNECTIONS = (1, 4, 16, 64, 256)
TOPIC = "bench-curve"
SCRIPT = 4


@dataclass(frozen=True, slots=True)
class CurveSettings:
    """How far each curve goes, and how long each point is measured."""

    durability: str
    seconds: float
    topics_max: int = TOPICS_MAX
    records_max: int = RECORDS_MAX
    watchers: Sequence[int] = WATCHERS


Measure = Callable[[CurveSettings, Progress], Curve]
At = Callable[[OwnProcess, int], None]


def decades(low: int, high: int) -> list[int]:
    """`low`, ten times that, and so on up to `high`, which is the last."""
    sizes = [low]
    while sizes[-1] * 10 < high:
        sizes.append(sizes[-1] * 10)
    return sizes if low >= high else [*sizes, high]


def over_topics(settings: CurveSettings, progress: Progress) -> Curve:
    sizes = decades(10, settings.topics_max)
    writes: list[float] = []

    def before(server: OwnProcess, topics: int) -> None:
        progress(f"curves: {topics} topics")
        names = make_topics(topics, server)
        plan = ManyTopicsPlan(target=target_of(server), settings=_load(settings), topics=names, records_per_request=1)
        writes.append(_cpu(_pressed(plan)))
        server.stop(STOP_S_MAX)

    starts = _restarts(sizes, before)
    lines = (
        Line("CPU of a single write, to all topics in turn", "µs", tuple(zip(sizes, writes, strict=True))),
        Line("CPU of a start after a clean stop", "ms", starts),
    )
    return Curve("topics", "topics", lines)


def over_records(settings: CurveSettings, progress: Progress) -> Curve:
    sizes = decades(10_000, settings.records_max)
    reads: list[float] = []

    def before(server: OwnProcess, records: int) -> None:
        progress(f"curves: {records} records in one topic")
        with server.control() as control:
            control.call("PUT", f"/v0/topics/{TOPIC}", _config(settings))
            fill(control, [TOPIC], 0, records)
            wait_until_durable(control, [TOPIC])
        server.kill()

    def after(server: OwnProcess, records: int) -> None:
        target = target_of(server)
        cursors = [records * part // SCRIPT for part in range(SCRIPT)]
        scripts = [
            [_post(target, "/diff", diff_body(cursor)) for cursor in cursors[at:] + cursors[:at]]
            for at in range(SCRIPT)
        ]
        reads.append(_cpu(_pressed(_circle(target, settings, scripts, 1))))

    starts = _restarts(sizes, before, after)
    lines = (
        Line("CPU of a read of 1000 records, anywhere", "µs", tuple(zip(sizes, reads, strict=True))),
        Line("CPU of a start after a kill", "ms", starts),
    )
    return Curve("records", "records in a topic", lines)


def over_watchers(settings: CurveSettings, progress: Progress) -> Curve:
    def sample(server: OwnProcess, watchers: int) -> Sample:
        progress(f"curves: {watchers} watchers")
        workload = FanoutWorkload(settings.durability, watchers)
        (sample,) = workload.run_round([target_of(server)], _load(settings))
        return _without_errors(sample)

    cpu, p50 = _lines(settings.watchers, sample, "CPU of one delivery", "p50 from a write to its delivery")
    return Curve("watchers", "watchers of a topic", (p50, cpu))


def over_payload(settings: CurveSettings, progress: Progress) -> Curve:
    def sample(server: OwnProcess, size: int) -> Sample:
        progress(f"curves: records of {size} bytes")
        return _written(server, settings, b'{"records":[{"data":"%b"}]}' % (b"x" * (size - 2)), 1)

    return Curve("payload", "bytes of a record", _lines(PAYLOAD_BYTES, sample, "CPU of a write", "p50 of a write"))


def over_batch(settings: CurveSettings, progress: Progress) -> Curve:
    def sample(server: OwnProcess, records: int) -> Sample:
        progress(f"curves: batches of {records}")
        return _written(server, settings, write_body(0, records), records)

    return Curve("batch", "records in a write", _lines(BATCH_RECORDS, sample, "CPU of a record", "p50 of a batch"))


def over_connections(settings: CurveSettings, progress: Progress) -> Curve:
    def sample(server: OwnProcess, connections: int) -> Sample:
        progress(f"curves: {connections} connections")
        return _written(server, settings, write_body(0, 1), 1, connections)

    lines = _lines(CONNECTIONS, sample, "CPU of a write", "p50 of a write")
    return Curve("connections", "connections that write single records", lines)


SCALE_CURVES: tuple[Measure, ...] = (over_topics, over_records, over_watchers, over_payload)
ALL_CURVES: tuple[Measure, ...] = (*SCALE_CURVES, over_batch, over_connections)


def _restarts(sizes: Sequence[int], before: At, after: At | None = None) -> tuple[tuple[int, float], ...]:
    """The CPU time of a start at each size: `before` loads a server and ends it, `after` loads it once started
    again."""
    starts: list[tuple[int, float]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="topics-bench-") as name:
            directory = Path(name)
            with server_on(directory) as server:
                before(server, size)
            with server_on(directory, ready_s_max=READY_S_MAX) as server:
                starts.append((size, _start_cpu_ms(server)))
                if after is not None:
                    after(server, size)
    return tuple(starts)


def _lines(sizes: Sequence[int], sample: Callable[[OwnProcess, int], Sample], cpu: str, p50: str) -> tuple[Line, Line]:
    """The CPU and p50 lines of samples at all sizes, on one server."""
    with tempfile.TemporaryDirectory(prefix="topics-bench-") as name, server_on(Path(name)) as server:
        samples = [(size, sample(server, size)) for size in sizes]
    return (
        Line(cpu, "µs", tuple((size, _cpu(each)) for size, each in samples)),
        Line(p50, "ms", tuple((size, each.p50_ms) for size, each in samples)),
    )


def _written(server: OwnProcess, settings: CurveSettings, body: bytes, records: int, connections: int = 16) -> Sample:
    """Repeats one write into a new topic, and deletes the topic afterwards."""
    target = target_of(server)
    with server.control() as control:
        control.call("PUT", f"/v0/topics/{TOPIC}", _config(settings))
        try:
            request = _post(target, "?return_seqs=false", body)
            return _pressed(_circle(target, settings, [[request]] * connections, records))
        finally:
            control.call("DELETE", f"/v0/topics/{TOPIC}")


def _circle(target: Target, settings: CurveSettings, scripts: Sequence[Sequence[bytes]], records: int) -> CirclePlan:
    load = _load(settings, len(scripts))
    return CirclePlan(target=target, settings=load, scripts=scripts, lines_per_reply=0, records_per_request=records)


def _post(target: Target, rest: str, body: bytes) -> bytes:
    return render_request("POST", f"/v0/topics/{TOPIC}{rest}", body, host=target.host)


def _load(settings: CurveSettings, connections: int = 16) -> LoadSettings:
    return LoadSettings(connections, settings.seconds)


def _config(settings: CurveSettings) -> bytes:
    return b'{"durability":"%b"}' % settings.durability.encode("ascii")


def _pressed(plan: AnyPlan) -> Sample:
    (sample,) = run_load([plan])
    return _without_errors(sample)


def _without_errors(sample: Sample) -> Sample:
    if sample.errors:
        raise BenchError(f"a point of a curve has errors: {sample.first_error}")
    return sample


def _cpu(sample: Sample) -> float:
    if sample.cpu_us_per_record is None:
        raise BenchError("the CPU time of a process cannot be read here")
    return sample.cpu_us_per_record


def _start_cpu_ms(server: OwnProcess) -> float:
    spent = cpu_ns(server.process.pid)
    if spent is None:
        raise BenchError("the CPU time of a process cannot be read here")
    return spent / 1e6
