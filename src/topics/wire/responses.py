"""Response bodies, field for field as the API document has them.

OpenAPI is generated from these. The two hot ones, a write's and a diff's, are rendered by joining bytes in
`wire/render.py`; a test compares the two.

Clients decode the same structs. Where a client needs another form, that form stands beside it and is called a reply:
`RecordReply`, `DiffReply`, `ReadyReply`.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from topics.model.config import TopicConfig


class Performance(Struct, omit_defaults=True):
    """Where the time of this request went, in milliseconds. Best effort and additive."""

    server_total_ms: float
    wal_append_ms: float | UnsetType = UNSET
    fsync_ms: float | UnsetType = UNSET
    records_scanned: int | UnsetType = UNSET
    cold_segments_read: int | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET


class PutTopicResponse(Struct):
    topic: str
    created: bool
    config: TopicConfig
    performance: Performance


class QueueCounters(Struct):
    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(Struct):
    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    epoch: Annotated[int, Meta(description="Extension. Unique to this topic, even if its name is reused.")]
    performance: Performance
    queue: QueueCounters | UnsetType = UNSET


class TopicSummary(Struct):
    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    queue: Annotated[QueueCounters | UnsetType, Meta(description="Extension. Only of queues.")] = UNSET
    epoch: Annotated[
        int | UnsetType, Meta(description="Extension. Unique to this topic, even if its name is reused.")
    ] = UNSET
    schema: Annotated[str | UnsetType, Meta(description="Extension. As configured; absent when unset.")] = UNSET


class TopicPage(Struct):
    topics: list[TopicSummary]
    performance: Performance
    next_cursor: Annotated[str | UnsetType, Meta(description="Absent on the last page.")] = UNSET


class DeleteTopicResponse(Struct):
    topic: str
    deleted: bool
    routers_removed: list[str]
    performance: Performance


class PutRouterResponse(Struct, kw_only=True):
    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: tuple[str, str, str] | None
    allow_cycle: bool
    guarantee: str
    performance: Performance


class RouterResponse(Struct, kw_only=True):
    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: tuple[str, str, str] | None
    allow_cycle: bool
    guarantee: str
    forwarded_total: int
    lag: Annotated[int, Meta(description="Extension. Seqs of the source that it has not handled yet.")]
    performance: Performance
    stalled: Annotated[
        str | UnsetType,
        Meta(description="Extension. Why nothing is being copied: the source cannot be read. The router keeps trying."),
    ] = UNSET


class RouterSummary(Struct):
    router: str
    source: str
    dest: str
    guarantee: str
    forwarded_total: int


class RouterPage(Struct):
    routers: list[RouterSummary]
    performance: Performance
    next_cursor: Annotated[str | UnsetType, Meta(description="Absent on the last page.")] = UNSET


class DeleteRouterResponse(Struct):
    router: str
    deleted: bool
    performance: Performance


class WriteResponse(Struct):
    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: Annotated[int, Meta(description="Records in this write.")]
    created: bool
    deduped: bool
    performance: Performance
    seqs: Annotated[list[int] | UnsetType, Meta(description="Absent with return_seqs=false.")] = UNSET
    next_sequence: Annotated[
        int | UnsetType, Meta(description="Extension. For a producer: the number to go on with.")
    ] = UNSET


class RecordOut(Struct, omit_defaults=True):
    """A record as readers get it. `$node`, `$tag` and `meta` are absent rather than null."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: Any
    node: str | UnsetType = field(name="$node", default=UNSET)
    tag: str | UnsetType = field(name="$tag", default=UNSET)
    meta: dict[str, Any] | UnsetType = UNSET


NO_META = Raw(b"null")


class RecordReply(Struct, gc=False):
    """The same, as a client decodes it. Payload and meta stay text: parsing would lose `1.0`, `1e400` and the order of
    keys."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: Raw
    node: str | None = field(default=None, name="$node")
    tag: str | None = field(default=None, name="$tag")
    meta: Raw = NO_META


class Tombstone(Struct):
    """Records between gap_from and gap_to, both inclusive, were lost before they were read."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffResponse(Struct):
    topic: str
    records: list[RecordOut]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    performance: Performance


class DiffReply(Struct):
    """The same, as a client decodes it, with records as `RecordReply`."""

    records: list[RecordReply]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None = None
    caught_up: bool = False
    lag: int = 0


class DeleteRecordsResponse(Struct):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Performance


class DeletePreview(Struct):
    """What a delete would remove now. The seqs are null if it would remove nothing."""

    topic: str
    count: int
    bytes: int
    first_seq: int | None
    last_seq: int | None
    sample: Annotated[list[RecordOut], Meta(description="The first ones: at most 10, and 64 KiB of text.")]
    performance: Performance


class DeletePreviewReply(Struct):
    """The same, as a client decodes it, with records as `RecordReply`."""

    topic: str
    count: int
    bytes: int
    first_seq: int | None
    last_seq: int | None
    sample: list[RecordReply]


class CursorState(Struct):
    """A named cursor, and how far behind the head it is."""

    topic: str
    name: str
    seq: int
    head_seq: int
    lag: int
    updated_ts: int


class CursorResponse(CursorState, kw_only=True):
    performance: Performance


class CursorList(Struct):
    topic: str
    cursors: list[CursorState]
    performance: Performance


class DeleteCursorResponse(Struct):
    topic: str
    name: str
    deleted: bool
    performance: Performance


class ProducerResponse(Struct):
    """`next_sequence` is the first number that the producer has not written yet; 0 if the topic does not know the
    producer."""

    topic: str
    name: str
    next_sequence: int
    performance: Performance


class ExportedGap(Struct):
    """A loss within the range of an export; both ends are inclusive."""

    gap_from: int
    gap_to: int
    reason: str


class ExportEnd(Struct, omit_defaults=True):
    """The end of an export: where to continue, what was lost within the range, and why it ended early, if it did."""

    next_from_seq: int
    tombstones: list[ExportedGap]
    error: str | None = None


class ExportTrailer(Struct):
    end: ExportEnd = field(name="$end")


class LossOut(Struct):
    """Both ends are inclusive; `ts` is when the range last grew."""

    gap_from: int
    gap_to: int
    reason: str
    ts: int


class LossList(Struct):
    topic: str
    losses: list[LossOut]
    performance: Performance


class WatchedTopic(Struct):
    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchResponse(Struct):
    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchedTopic]
    performance: Performance


class KeyState(Struct):
    """What the key of a request may do; an extension."""

    required: Annotated[bool, Meta(description="Whether the server has keys; without them anybody may do anything.")]
    scopes: list[str]
    prefixes: Annotated[list[str], Meta(description="Of the names it may touch. None: every name.")]
    performance: Performance


class Health(Struct):
    status: str
    version: str
    uptime_ms: int


class ErrorBody(Struct):
    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class Ready(Struct):
    """`server_id` is an extension. It belongs to the data directory, whatever process or address serves it.
    `degraded` and `reason` are extensions, too: reads go on, writes are refused."""

    status: str
    wal_replay_complete: bool
    topics: int
    server_id: str
    degraded: bool = False
    reason: ErrorBody | UnsetType = UNSET


class ReadyReply(Struct):
    """The same, as a client decodes it: `server_id` is empty if the server is too old to have one."""

    status: str = ""
    topics: int = 0
    server_id: str = ""


class ErrorResponse(Struct):
    error: ErrorBody
    performance: Performance | UnsetType = UNSET
