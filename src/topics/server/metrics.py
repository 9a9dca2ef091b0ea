"""Metrics: gauges of the whole process and of each topic, counters, histograms.

Rendered as Prometheus text or as JSON from one description, so the two cannot differ. In slices: a page never holds up
the loop, and what is told of each topic, router and cursor has a bound. Totals are running sums, kept where things are
counted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.json import encode

from topics import limits
from topics.api.readiness import Phase, Readiness
from topics.api.route_timings import BOUNDS_US, RouteTimings, Timings
from topics.clock import Clock
from topics.engine import outline
from topics.engine.engine import Engine
from topics.engine.queues import Queues
from topics.engine.topic import Topic
from topics.model.gap import GapReason
from topics.storage.group_commit import SYNC_BUCKETS_US

_LOSSES = (GapReason.CAP, GapReason.TTL, GapReason.CRASH, GapReason.SOURCE_TRIM)


class WalMetrics(NamedTuple):
    """What the journal counts. All zero while nothing is journalled."""

    frames_total: int = 0
    batches_total: int = 0
    fsyncs_total: int = 0
    bytes_written_total: int = 0
    rotations_total: int = 0
    queue_depth: int = 0
    queue_depth_peak: int = 0
    submit_full_total: int = 0
    read_only: int = 0
    unsealed_bytes: int = 0
    unsealed_bytes_max: int = 0
    fsync_latency_us_counts: tuple[int, ...] = (0,) * (len(SYNC_BUCKETS_US) + 1)
    fsync_latency_us_sum: int = 0


class LiveMetrics(NamedTuple):
    """What later parts of the process hold. All zero while there are none of them."""

    sse_connections: int = 0
    watch_sessions: int = 0
    pressure: float = 0.0
    connections: int = 0
    long_polls: int = 0
    received_bytes_total: int = 0
    sent_bytes_total: int = 0


class ProcessMetrics(NamedTuple):
    """The state of the process. A value is None, and left out, if the system does not tell it or it has not happened
    yet."""

    memory_bytes: int | None = None
    open_files: int | None = None
    open_files_max: int | None = None
    disk_free_bytes: int | None = None
    loop_lag_bounds_ms: Sequence[float] = ()
    loop_lag_counts: Sequence[int] = (0,)
    loop_lag_sum_ms: float = 0.0
    checkpoints_total: int = 0
    checkpoint_failures_total: int = 0
    checkpoint_ms_total: int = 0
    checkpoint_last_ms: int | None = None
    checkpoint_last_ts: int | None = None
    recovery_ms: int | None = None
    recovery_lost_seqs: int | None = None


Value = int | float
Kind = Literal["gauge", "counter", "histogram"]
Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric name with its samples: (suffix, labels, value)."""

    name: str
    kind: Kind
    help: str
    samples: list[tuple[str, Labels, Value]]


class ServerMetrics:
    """`routes`: the timings of each route, by method and path."""

    def __init__(
        self,
        engine: Engine,
        queues: Queues,
        clock: Clock,
        readiness: Readiness,
        wal: Callable[[], WalMetrics],
        live: Callable[[], LiveMetrics],
        process: Callable[[], ProcessMetrics] = ProcessMetrics,
        routes: Callable[[], Mapping[tuple[str, str], RouteTimings]] = dict,
        *,
        started_ns: int,
    ) -> None:
        self._engine = engine
        self._queues = queues
        self._clock = clock
        self._started_ns = started_ns
        self._readiness = readiness
        self._wal = wal
        self._live = live
        self._process_metrics = process
        self._routes = routes

    async def text(self, prefixes: tuple[str, ...]) -> bytes:
        slices: list[bytes] = []
        async for family in self._families(prefixes):
            lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            for suffix, labels, value in family.samples:
                # Label values are names of topics, routes and cursors, classes and numbers: none needs escaping.
                shown = ",".join(f'{name}="{label}"' for name, label in labels)
                lines.append(f"{family.name}{suffix}{{{shown}}} {value}" if shown else f"{family.name}{suffix} {value}")
            slices.append(("\n".join(lines) + "\n").encode())
        return b"".join(slices)

    async def json(self, prefixes: tuple[str, ...]) -> bytes:
        """A labelled sample is under the values of its labels, with spaces between."""
        snapshot: dict[str, Value | dict[str, Value]] = {}
        async for family in self._families(prefixes):
            for suffix, labels, value in family.samples:
                name = family.name + suffix
                if not labels:
                    snapshot[name] = value
                    continue
                labelled = snapshot.setdefault(name, {})
                assert isinstance(labelled, dict), name
                labelled[" ".join(label for _, label in labels)] = value
            if not family.samples:
                snapshot[family.name] = {}
        return encode(snapshot)

    async def _families(self, prefixes: tuple[str, ...]) -> AsyncIterator[Family]:
        """Yields to others now and then."""
        for family in self._of_process(await self._leases_in_flight()):
            yield family
        for family in (*_process_families(self._process_metrics()), *_route_families(self._routes())):
            yield family
            await asyncio.sleep(0)
        for family in await self._per_topic(prefixes):
            yield family
            await asyncio.sleep(0)
        for family in (*self._per_router(prefixes), *_wal_families(self._wal())):
            yield family

    async def _leases_in_flight(self) -> int:
        in_flight = 0
        for number, topic in enumerate(tuple(self._engine.state.queue_topics), 1):
            in_flight += self._queues.counts(topic).in_flight
            if number % limits.METRICS_SLICE_TOPICS == 0:
                await asyncio.sleep(0)
        return in_flight

    def _of_process(self, leases_in_flight: int) -> Iterable[Family]:
        engine, live, state = self._engine, self._live(), self._engine.state
        ready = self._readiness.phase is Phase.READY
        recovered = 1.0 if self._readiness.phase is not Phase.RECOVERING else self._readiness.replay_progress
        yield _gauge("topics_topics", "Topics.", len(engine.topics))
        by_class: dict[str, Value] = {each.value: count for each, count in state.topics_by_class.items()}
        yield _labelled("topics_topics_by_class", "Topics by durability class.", "class", by_class)
        yield _gauge("topics_routers", "Routers.", len(engine.routers))
        yield _gauge("topics_records_live", "Live records in all topics.", state.records_live)
        yield _gauge("topics_bytes_live", "Live record bytes in all topics.", state.bytes_live)
        yield _gauge("topics_queue_topics", "Topics of type queue.", len(state.queue_topics))
        yield _gauge("topics_queue_leases_in_flight", "Active leases.", leases_in_flight)
        yield _gauge("topics_sse_connections", "Open SSE and WebSocket connections.", live.sse_connections)
        yield _gauge("topics_watch_sessions", "Watch sessions.", live.watch_sessions)
        yield _gauge("topics_pressure", "How overloaded the server is, 0 to 1.", round(live.pressure, 4))
        yield _gauge("topics_ready", "1 when the server is ready.", int(ready))
        yield _gauge("topics_recovery_progress", "Progress of WAL replay, 0 to 1.", recovered)
        uptime_ms = (self._clock.monotonic_ns() - self._started_ns) // 1_000_000
        yield _gauge("topics_uptime_ms", "Milliseconds since the start.", uptime_ms)
        yield _gauge("topics_connections", "Open TCP connections.", live.connections)
        yield _gauge("topics_long_polls", "Requests that wait for a record.", live.long_polls)
        yield _counter("topics_received_bytes_total", "Bytes received.", live.received_bytes_total)
        yield _counter("topics_sent_bytes_total", "Bytes sent.", live.sent_bytes_total)
        yield Family(
            "topics_lost_records_total",
            "counter",
            "Records lost since the start: evicted by a cap, expired by a TTL, or gone after a crash.",
            [("", (("reason", reason.value),), state.lost_total.get(reason, 0)) for reason in _LOSSES],
        )

    async def _per_topic(self, prefixes: tuple[str, ...]) -> Iterable[Family]:
        columns: dict[str, dict[str, Value]] = {name: {} for name in _TOPIC_GAUGES}
        cursors = _CursorLags()
        after, more, left = "", True, limits.METRICS_TOPICS_MAX
        while more and left:
            page = self._engine.page_of_topics(after, prefixes, min(left, limits.METRICS_SLICE_TOPICS))
            now_ms = self._clock.now_ms()
            for topic in page.topics:
                for name, value in self._topic_values(topic):
                    columns[name][topic.name] = value
                if topic.cursors:
                    cursors.add(topic, now_ms)
            after, more, left = page.last_name, page.more, left - len(page.topics)
            await asyncio.sleep(0)
        truncated = _gauge(
            "topics_topic_metrics_truncated",
            f"1 when there are more than {limits.METRICS_TOPICS_MAX} topics and the rest is left out.",
            int(more),
        )
        gauges = [_labelled(name, told, "topic", columns[name]) for name, told in _TOPIC_GAUGES.items()]
        return [*gauges, truncated, *cursors.families()]

    def _topic_values(self, topic: Topic) -> Iterator[tuple[str, Value]]:
        log = topic.log
        yield "topics_topic_head_seq", log.head_seq
        yield "topics_topic_earliest_seq", log.earliest_seq
        yield "topics_topic_records_live", log.count
        yield "topics_topic_bytes_live", log.bytes
        if topic.queue is not None:
            counts = self._queues.counts(topic)
            yield "topics_topic_queue_ready", counts.ready
            yield "topics_topic_queue_in_flight", counts.in_flight
            yield "topics_topic_queue_dead_lettered", counts.dead_lettered

    def _per_router(self, prefixes: tuple[str, ...]) -> Iterable[Family]:
        page = self._engine.page_of_routers("", prefixes, limits.METRICS_ROUTERS_MAX, endpoint_prefixes=prefixes)
        lag: dict[str, Value] = {router.name: router.lag for router in page.routers}
        yield _labelled("topics_router_lag", "Records a router is behind its source.", "router", lag)
        yield Family(
            "topics_router_forwarded_total",
            "counter",
            "Records a router has forwarded.",
            [("", (("router", router.name),), router.forwarded_total) for router in page.routers],
        )
        yield _gauge(
            "topics_router_metrics_truncated",
            f"1 when there are more than {limits.METRICS_ROUTERS_MAX} routers and the rest is left out.",
            int(page.more),
        )


_TOPIC_GAUGES = {
    "topics_topic_head_seq": "Highest assigned seq per topic.",
    "topics_topic_earliest_seq": "First live seq per topic.",
    "topics_topic_records_live": "Live records per topic.",
    "topics_topic_bytes_live": "Live record bytes per topic.",
    "topics_topic_queue_ready": "Claimable jobs per queue.",
    "topics_topic_queue_in_flight": "Leased jobs per queue.",
    "topics_topic_queue_dead_lettered": "Jobs ever moved to the dead-letter topic.",
}


class _CursorLags:
    """The lags of as many named cursors as there is room for."""

    def __init__(self) -> None:
        self._lag: list[tuple[str, Labels, Value]] = []
        self._lag_ms: list[tuple[str, Labels, Value]] = []
        self._truncated = False

    def add(self, topic: Topic, now_ms: int) -> None:
        for name, cursor in topic.cursors.items():
            if len(self._lag) == limits.METRICS_CURSORS_MAX:
                self._truncated = True
                return
            lag, lag_ms = outline.lag(topic.log, cursor.seq, now_ms)
            labels = (("topic", topic.name), ("cursor", name))
            self._lag.append(("", labels, lag))
            self._lag_ms.append(("", labels, lag_ms))

    def families(self) -> Iterable[Family]:
        yield Family("topics_cursor_lag", "gauge", "Records a named cursor is behind the head.", self._lag)
        waited = "How long the first record that a named cursor has not reached has been there, in milliseconds."
        yield Family("topics_cursor_lag_ms", "gauge", waited, self._lag_ms)
        yield _gauge(
            "topics_cursor_metrics_truncated",
            f"1 when there are more than {limits.METRICS_CURSORS_MAX} named cursors and the rest is left out.",
            int(self._truncated),
        )


def _process_families(process: ProcessMetrics) -> Iterable[Family]:
    yield from _optional("topics_memory_bytes", "Resident memory of the process.", process.memory_bytes)
    yield from _optional("topics_open_files", "Open file descriptors.", process.open_files)
    yield from _optional("topics_open_files_max", "Most file descriptors the process may open.", process.open_files_max)
    yield from _optional(
        "topics_disk_free_bytes", "Free bytes on the disk of the data directory.", process.disk_free_bytes
    )
    yield Family(
        "topics_loop_lag_ms",
        "histogram",
        "How late the event loop ran, in milliseconds; ten samples a second.",
        _histogram((), process.loop_lag_bounds_ms, process.loop_lag_counts, round(process.loop_lag_sum_ms, 3)),
    )
    yield _counter("topics_checkpoints_total", "Checkpoints finished.", process.checkpoints_total)
    yield _counter(
        "topics_checkpoint_failures_total", "Checkpoints the disk refused.", process.checkpoint_failures_total
    )
    yield _counter("topics_checkpoint_ms_total", "Milliseconds spent on checkpoints.", process.checkpoint_ms_total)
    yield from _optional(
        "topics_checkpoint_last_ms", "How long the last checkpoint took, in milliseconds.", process.checkpoint_last_ms
    )
    yield from _optional(
        "topics_checkpoint_last_ts", "When the last checkpoint was done, in ms since 1970.", process.checkpoint_last_ts
    )
    yield from _optional("topics_recovery_ms", "How long the recovery at the start took, in ms.", process.recovery_ms)
    yield from _optional("topics_recovery_lost_seqs", "Seqs that the recovery found lost.", process.recovery_lost_seqs)


def _route_families(routes: Mapping[tuple[str, str], RouteTimings]) -> Iterable[Family]:
    seen: list[tuple[Labels, Timings]] = [
        ((("method", method), ("route", path), ("status", str(timings.status))), timings)
        for (method, path), route in routes.items()
        for timings in route
    ]
    yield Family(
        "topics_requests_total",
        "counter",
        "Requests answered, by route and status.",
        [("", labels, timings.requests) for labels, timings in seen],
    )
    yield Family(
        "topics_request_duration_us",
        "histogram",
        "From the last byte of a request to its answer, in microseconds, including what a long poll waits.",
        [
            sample
            for labels, timings in seen
            for sample in _histogram(labels, BOUNDS_US, timings.counts, timings.sum_us)
        ],
    )


def _wal_families(wal: WalMetrics) -> Iterable[Family]:
    yield _counter("topics_wal_frames_total", "Frames written.", wal.frames_total)
    yield _counter("topics_wal_batches_total", "Group commits written.", wal.batches_total)
    yield _counter("topics_wal_fsyncs_total", "Syncs of WAL files.", wal.fsyncs_total)
    yield _counter("topics_wal_bytes_written_total", "Bytes written to WAL files.", wal.bytes_written_total)
    yield _counter("topics_wal_rotations_total", "WAL files begun after the first.", wal.rotations_total)
    yield _gauge("topics_wal_queue_depth", "Frames waiting to be written.", wal.queue_depth)
    yield _gauge("topics_wal_queue_depth_peak", "Most frames that ever waited to be written.", wal.queue_depth_peak)
    yield _counter("topics_wal_submit_full_total", "Writes that found the queue full.", wal.submit_full_total)
    yield _gauge("topics_wal_read_only", "1 when a failed disk stopped a WAL shard.", wal.read_only)
    yield _gauge("topics_unsealed_bytes", "Memory of records that wait to become segments.", wal.unsealed_bytes)
    yield _gauge(
        "topics_unsealed_bytes_max",
        "Budget for records that wait to become segments; beyond it, writes are refused or wait.",
        wal.unsealed_bytes_max,
    )
    yield Family(
        "topics_wal_fsync_latency_us",
        "histogram",
        "How long a sync of a WAL file took, in microseconds.",
        _histogram((), SYNC_BUCKETS_US, wal.fsync_latency_us_counts, wal.fsync_latency_us_sum),
    )


def _histogram(
    labels: Labels, bounds: Sequence[Value], counts: Sequence[int], total: Value
) -> list[tuple[str, Labels, Value]]:
    """`counts` has one more than there are bounds, for what is beyond the last."""
    samples: list[tuple[str, Labels, Value]] = []
    count = 0
    for bound, entries in zip((*bounds, "+Inf"), counts, strict=True):
        count += entries
        samples.append(("_bucket", (*labels, ("le", str(bound))), count))
    return [*samples, ("_sum", labels, total), ("_count", labels, count)]


def _gauge(name: str, description: str, value: Value) -> Family:
    return Family(name, "gauge", description, [("", (), value)])


def _optional(name: str, description: str, value: Value | None) -> Iterable[Family]:
    if value is not None:
        yield _gauge(name, description, value)


def _counter(name: str, description: str, value: Value) -> Family:
    return Family(name, "counter", description, [("", (), value)])


def _labelled(name: str, description: str, label: str, values: Mapping[str, Value]) -> Family:
    return Family(name, "gauge", description, [("", ((label, key),), value) for key, value in values.items()])
