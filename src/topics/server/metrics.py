"""Metrics: gauges of the whole process and of each topic, WAL counters, the fsync histogram.

Rendered as Prometheus text or as JSON from one description, so the two cannot differ.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec.json import encode

from topics import limits
from topics.api.readiness import Phase, Readiness
from topics.clock import Clock
from topics.engine.engine import Engine
from topics.engine.queues import Queues
from topics.model.config import Durability
from topics.storage.group_commit import SYNC_BUCKETS_US


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
    fsync_latency_us_counts: tuple[int, ...] = (0,) * (len(SYNC_BUCKETS_US) + 1)
    fsync_latency_us_sum: int = 0


class LiveMetrics(NamedTuple):
    """What later parts of the process hold. All zero while there are none of them."""

    sse_connections: int = 0
    watch_sessions: int = 0
    pressure: float = 0.0


Value = int | float
Kind = Literal["gauge", "counter", "histogram"]


class Family(NamedTuple):
    """One metric name with its samples: (suffix, label name, label value, value)."""

    name: str
    kind: Kind
    help: str
    samples: list[tuple[str, str, str, Value]]


class ServerMetrics:
    def __init__(
        self,
        engine: Engine,
        queues: Queues,
        clock: Clock,
        readiness: Readiness,
        wal: Callable[[], WalMetrics],
        live: Callable[[], LiveMetrics],
    ) -> None:
        self._engine = engine
        self._queues = queues
        self._clock = clock
        self._started_ns = clock.monotonic_ns()
        self._readiness = readiness
        self._wal = wal
        self._live = live

    def text(self, prefixes: tuple[str, ...]) -> bytes:
        lines: list[str] = []
        for family in self._families(prefixes):
            lines.append(f"# HELP {family.name} {family.help}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            for suffix, label, label_value, value in family.samples:
                # Label values are topic names, classes and numbers: none needs escaping.
                labels = f'{{{label}="{label_value}"}}' if label else ""
                lines.append(f"{family.name}{suffix}{labels} {value}")
        return ("\n".join(lines) + "\n").encode()

    def json(self, prefixes: tuple[str, ...]) -> bytes:
        snapshot: dict[str, Value | dict[str, Value]] = {}
        for family in self._families(prefixes):
            for suffix, label, label_value, value in family.samples:
                name = family.name + suffix
                if not label:
                    snapshot[name] = value
                    continue
                labelled = snapshot.setdefault(name, {})
                assert isinstance(labelled, dict), name
                labelled[label_value] = value
            if not family.samples:
                snapshot[family.name] = {}
        return encode(snapshot)

    def _families(self, prefixes: tuple[str, ...]) -> Iterable[Family]:
        yield from self._process()
        yield from self._per_topic(prefixes)
        yield from self._per_router(prefixes)
        yield from _wal_families(self._wal())

    def _process(self) -> Iterable[Family]:
        engine, live = self._engine, self._live()
        by_class: dict[str, Value] = dict.fromkeys(Durability, 0)
        queues = in_flight = 0
        for topic in engine.topics:
            by_class[topic.config.durability] += 1
            if topic.queue is not None:
                queues += 1
                in_flight += self._queues.counts(topic).in_flight
        ready = self._readiness.phase is Phase.READY
        recovered = 1.0 if self._readiness.phase is not Phase.RECOVERING else self._readiness.replay_progress
        yield _gauge("topics_topics", "Topics.", len(engine.topics))
        yield _labelled("topics_topics_by_class", "Topics by durability class.", "class", by_class)
        yield _gauge("topics_routers", "Routers.", len(engine.routers))
        yield _gauge("topics_records_live", "Live records in all topics.", engine.state.records_live)
        yield _gauge("topics_bytes_live", "Live record bytes in all topics.", engine.state.bytes_live)
        yield _gauge("topics_queue_topics", "Topics of type queue.", queues)
        yield _gauge("topics_queue_leases_in_flight", "Active leases.", in_flight)
        yield _gauge("topics_sse_connections", "Open SSE and WebSocket connections.", live.sse_connections)
        yield _gauge("topics_watch_sessions", "Watch sessions.", live.watch_sessions)
        yield _gauge("topics_pressure", "How hard the server is pressed, 0 to 1.", round(live.pressure, 4))
        yield _gauge("topics_ready", "1 when the server serves.", int(ready))
        yield _gauge("topics_recovery_progress", "Progress of WAL replay, 0 to 1.", recovered)
        uptime_ms = (self._clock.monotonic_ns() - self._started_ns) // 1_000_000
        yield _gauge("topics_uptime_ms", "Milliseconds since the start.", uptime_ms)

    def _per_topic(self, prefixes: tuple[str, ...]) -> Iterable[Family]:
        head: dict[str, Value] = {}
        earliest: dict[str, Value] = {}
        records: dict[str, Value] = {}
        live_bytes: dict[str, Value] = {}
        queue_ready: dict[str, Value] = {}
        queue_in_flight: dict[str, Value] = {}
        dead_lettered: dict[str, Value] = {}
        page = self._engine.page_of_topics("", prefixes, limits.METRICS_TOPICS_MAX)
        for topic in page.topics:
            log = topic.log
            head[topic.name] = log.head_seq
            earliest[topic.name] = log.earliest_seq
            records[topic.name] = log.count
            live_bytes[topic.name] = log.bytes
            if topic.queue is not None:
                counts = self._queues.counts(topic)
                queue_ready[topic.name] = counts.ready
                queue_in_flight[topic.name] = counts.in_flight
                dead_lettered[topic.name] = counts.dead_lettered
        yield _labelled("topics_topic_head_seq", "Highest assigned seq per topic.", "topic", head)
        yield _labelled("topics_topic_earliest_seq", "First live seq per topic.", "topic", earliest)
        yield _labelled("topics_topic_records_live", "Live records per topic.", "topic", records)
        yield _labelled("topics_topic_bytes_live", "Live record bytes per topic.", "topic", live_bytes)
        yield _labelled("topics_topic_queue_ready", "Claimable jobs per queue.", "topic", queue_ready)
        yield _labelled("topics_topic_queue_in_flight", "Leased jobs per queue.", "topic", queue_in_flight)
        yield _labelled("topics_topic_queue_dead_lettered", "Jobs moved away, ever.", "topic", dead_lettered)
        yield _gauge(
            "topics_topic_metrics_truncated",
            f"1 when there are more than {limits.METRICS_TOPICS_MAX} topics and the rest is left out.",
            int(page.more),
        )

    def _per_router(self, prefixes: tuple[str, ...]) -> Iterable[Family]:
        page = self._engine.page_of_routers("", prefixes, limits.METRICS_ROUTERS_MAX)
        lag: dict[str, Value] = {router.name: router.lag for router in page.routers}
        forwarded: dict[str, Value] = {router.name: router.forwarded_total for router in page.routers}
        yield _labelled("topics_router_lag", "Records a router is behind its source.", "router", lag)
        yield Family(
            "topics_router_forwarded_total",
            "counter",
            "Records a router has forwarded.",
            [("", "router", name, count) for name, count in forwarded.items()],
        )
        yield _gauge(
            "topics_router_metrics_truncated",
            f"1 when there are more than {limits.METRICS_ROUTERS_MAX} routers and the rest is left out.",
            int(page.more),
        )


def _wal_families(wal: WalMetrics) -> Iterable[Family]:
    yield _counter("topics_wal_frames_total", "Frames written.", wal.frames_total)
    yield _counter("topics_wal_batches_total", "Group commits written.", wal.batches_total)
    yield _counter("topics_wal_fsyncs_total", "Syncs of WAL files.", wal.fsyncs_total)
    yield _counter("topics_wal_bytes_written_total", "Bytes written to WAL files.", wal.bytes_written_total)
    yield _counter("topics_wal_rotations_total", "WAL files begun after the first.", wal.rotations_total)
    yield _gauge("topics_wal_queue_depth", "Frames waiting to be written.", wal.queue_depth)
    yield _gauge("topics_wal_queue_depth_peak", "Most frames that ever waited.", wal.queue_depth_peak)
    yield _counter("topics_wal_submit_full_total", "Writes that met a full queue.", wal.submit_full_total)
    yield _gauge("topics_wal_read_only", "1 when a failed disk stopped a WAL shard.", wal.read_only)
    name = "topics_wal_fsync_latency_us"
    samples: list[tuple[str, str, str, Value]] = []
    count = 0
    for bound, entries in zip((*SYNC_BUCKETS_US, "+Inf"), wal.fsync_latency_us_counts, strict=True):
        count += entries
        samples.append(("_bucket", "le", str(bound), count))
    samples.append(("_sum", "", "", wal.fsync_latency_us_sum))
    samples.append(("_count", "", "", count))
    yield Family(name, "histogram", "How long a sync of a WAL file took, in microseconds.", samples)


def _gauge(name: str, description: str, value: Value) -> Family:
    return Family(name, "gauge", description, [("", "", "", value)])


def _counter(name: str, description: str, value: Value) -> Family:
    return Family(name, "counter", description, [("", "", "", value)])


def _labelled(name: str, description: str, label: str, values: Mapping[str, Value]) -> Family:
    return Family(name, "gauge", description, [("", label, key, value) for key, value in values.items()])
