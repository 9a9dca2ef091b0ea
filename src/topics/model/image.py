"""A topic as a snapshot keeps it: everything but the records, which are in its segments."""

from msgspec import Struct

from topics.model.config import TopicConfig
from topics.model.gap import GapReason, LostRange
from topics.model.router import RouterSettings


class SegmentImage(Struct, frozen=True, array_like=True):
    """A run of seqs on disk. `data_bytes` are known to be good; `cleared`: all deleted, and no file is left."""

    first_seq: int
    count: int
    data_bytes: int
    live_count: int
    live_bytes: int
    first_ts: int
    last_ts: int
    sealed: bool
    cold: bool = False
    cleared: bool = False


class KeyImage(Struct, frozen=True, array_like=True):
    key: str
    first_seq: int
    record_count: int
    at_ms: int


class CursorImage(Struct, frozen=True, array_like=True):
    name: str
    seq: int
    updated_ts: int


class LossImage(Struct, frozen=True, array_like=True):
    gap_from: int
    gap_to: int
    reason: GapReason
    ts: int


class LeaseImage(Struct, frozen=True, array_like=True):
    seq: int
    node: str
    lease_id: int
    deadline_ms: int


class QueueImage(Struct, frozen=True, kw_only=True):
    """What a queue knows of its jobs. `reclaimable` are those without a lease; one that has expired is a lease."""

    claim_cursor: int
    dead_lettered: int
    last_lease_id: int
    leases: list[LeaseImage]
    deliveries: dict[int, int]
    delayed: dict[int, int]
    reclaimable: list[int]


class MoveImage(Struct, frozen=True, array_like=True):
    key: str
    seqs: list[int]
    dest_id: int
    dead_letters: bool


class RouterImage(Struct, frozen=True, array_like=True):
    """A router into the topic. `cursor` is the last seq of its source that is dealt with: its copies are in the topic
    as this image has it."""

    router_id: int
    name: str
    source_id: int
    settings: RouterSettings
    created_ts: int
    cursor: int
    forwarded_total: int


class TopicImage(Struct, frozen=True, kw_only=True):
    topic_id: int
    name: str
    config: TopicConfig
    config_version: int
    head_seq: int
    earliest_seq: int
    last_ts: int
    cap_lost_seq: int
    ttl_lost_seq: int
    crash_lost_seq: int
    lost_ranges: list[LostRange]
    ceiling: int
    last_write_ts: int | None
    keys: list[KeyImage]
    segments: list[SegmentImage]
    cursors: list[CursorImage] = []
    losses: list[LossImage] = []
    queue: QueueImage | None = None
    moves: list[MoveImage] = []
    event_number: int = 0
    source_trim_lost_seq: int = 0
    routers: list[RouterImage] = []
    hops: dict[int, int] = {}
