"""Response bodies, field for field as the API document has them.

These are the truth for OpenAPI. The two hot ones, a write's and a diff's, are rendered by joining
bytes in `wire/render.py`; a test holds the two together.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

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
    epoch: Annotated[int, Meta(description="Extension. Another one for every topic, also of the same name.")]
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


class TopicPage(Struct):
    topics: list[TopicSummary]
    performance: Performance
    next_cursor: Annotated[str | UnsetType, Meta(description="Absent on the last page.")] = UNSET


class DeleteTopicResponse(Struct):
    topic: str
    deleted: bool
    routers_removed: list[str]
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


class RecordOut(Struct, omit_defaults=True):
    """A record as readers get it. `$node`, `$tag` and `meta` are absent rather than null."""

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: Any
    node: str | UnsetType = field(name="$node", default=UNSET)
    tag: str | UnsetType = field(name="$tag", default=UNSET)
    meta: dict[str, str] | UnsetType = UNSET


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


class DeleteRecordsResponse(Struct):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Performance


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


class LossOut(Struct):
    """Both ends are inclusive; `ts` is when the loss was last seen to go on."""

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


class Health(Struct):
    status: str
    version: str
    uptime_ms: int


class Ready(Struct):
    status: str
    wal_replay_complete: bool
    topics: int


class ErrorBody(Struct):
    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class ErrorResponse(Struct):
    error: ErrorBody
    performance: Performance | UnsetType = UNSET
