"""The overview and the map: extensions for looking at a whole server, or at the whole of a topic."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from topics.wire.responses import CursorState, LossOut, Performance


class QueueOverview(Struct):
    ready: int
    in_flight: int
    delayed: int
    dead_lettered: Annotated[int, Meta(description="Jobs ever moved to the dead-letter topic.")]


class CursorOverview(Struct):
    """`lag_ms` is how long the first waiting record has been there; an estimate if it is in a segment."""

    name: str
    seq: int
    lag: int
    lag_ms: int


class TopicOverview(Struct, kw_only=True):
    """One topic. `count` + `lost` + `deleted` is `head_seq`."""

    topic: str
    epoch: int
    type: str
    durability: str
    ttl_ms: Annotated[int, Meta(description="From the configuration, like the caps. 0: none.")] = 0
    cap_records: int = 0
    cap_bytes: int = 0
    head_seq: int
    earliest_seq: int
    evict_floor: int
    count: int
    bytes: int
    lost: Annotated[int, Meta(description="Seqs that caps, TTLs, crashes and trimmed sources took.")]
    lost_by_reason: dict[str, int]
    deleted: Annotated[int, Meta(description="Seqs that somebody deleted.")]
    first_ts: Annotated[int | None, Meta(description="Of the first live record; an estimate if it is in a segment.")]
    last_ts: Annotated[int | None, Meta(description="Of the last record written, live or not.")]
    last_write_ts: int | None
    last_read_ts: int | None
    effective_priority: int
    priority_band: Annotated[int, Meta(description="0 (served last) to 4 (served first) under pressure.")]
    watchers: Annotated[int, Meta(description="Streams, WebSocket subscriptions, long polls and waiting workers.")]
    cursors_total: int
    cursors: Annotated[list[CursorOverview], Meta(description="Those furthest behind, at most 8.")]
    routers_in: int
    routers_out: int
    queue: Annotated[QueueOverview | UnsetType, Meta(description="Only of queues.")] = UNSET


class Latency(Struct):
    """Since the start. Quantiles are upper bounds of their buckets; null if nothing was measured, or if it took longer
    than the last bucket."""

    count: int
    mean_us: int
    p50_us: int | None
    p99_us: int | None


class WalOverview(Struct):
    queue_depth: int
    bytes_written_total: int
    fsync: Latency


class ReadOnlyShard(Struct):
    shard: str
    reason: str


class LoopOverview(Struct):
    """How late the event loop runs, in milliseconds."""

    lag_ms: float
    lag_ms_max: Annotated[float, Meta(description="The worst of the last ten seconds.")]


class ConnectionsOverview(Struct):
    open: Annotated[int, Meta(description="All TCP connections.")]
    live: Annotated[int, Meta(description="Of them: event streams, WebSockets and exports.")]
    long_polls: Annotated[int, Meta(description="Requests that wait for a record.")]
    watch_sessions: int


class RecoveryOverview(Struct):
    """What the last start found."""

    topics: int
    records: int
    lost_ranges: Annotated[int, Meta(description="Ranges that the start found lost.")]
    lost: Annotated[int, Meta(description="Seqs in them.")]
    clean: Annotated[bool, Meta(description="Whether the previous process stopped cleanly.")]
    duration_ms: int


class CheckpointOverview(Struct):
    count: int
    failures: int
    last_ts: Annotated[int | None, Meta(description="When the last one was done.")]
    last_duration_ms: int | None


class ServerOverview(Struct, kw_only=True):
    """The process. A value that the system does not give is null."""

    version: str
    server_id: str
    ts: Annotated[int, Meta(description="The server's clock when this page was begun.")]
    uptime_ms: int
    topics: int
    routers: int
    records: int
    bytes: int
    pressure: float
    disk_free_bytes: int | None
    memory_bytes: int | None
    files_open: int | None
    files_max: int | None
    loop: LoopOverview
    wal: WalOverview
    read_only_shards: list[ReadOnlyShard]
    connections: ConnectionsOverview
    recovery: RecoveryOverview | None
    checkpoints: CheckpointOverview


class OverviewPage(Struct):
    server: ServerOverview
    topics: list[TopicOverview]
    performance: Performance
    next_cursor: Annotated[str | UnsetType, Meta(description="Absent on the last page.")] = UNSET


class MappedCursor(CursorState, kw_only=True):
    lag_ms: int


class MappedWatcher(Struct):
    """`seq` is the last seq sent; null for a watcher that waits for whatever comes next."""

    kind: Annotated[str, Meta(description="stream, long_poll or workers.")]
    seq: int | None
    lag: int | None
    lag_ms: int | None


class MappedRouter(Struct):
    router: str
    source: str
    dest: str
    lag: int


class MappedBlock(Struct):
    """A run of seqs that is stored together. `place` is memory, disk or cold."""

    first_seq: int
    last_seq: int
    count: int
    bytes: int
    first_ts: int
    last_ts: int
    place: str


class MappedRange(Struct):
    """Both ends are inclusive."""

    first_seq: int
    last_seq: int


class TopicMap(Struct):
    """A topic from seq 1 to its head. Each list is bounded; `truncated` names those that are not complete."""

    topic: str
    head_seq: int
    earliest_seq: int
    evict_floor: int
    count: int
    lost: int
    deleted: int
    blocks: list[MappedBlock]
    losses: list[LossOut]
    deleted_ranges: list[MappedRange]
    cursors: list[MappedCursor]
    watchers: list[MappedWatcher]
    routers: list[MappedRouter]
    truncated: list[str]
    performance: Performance
