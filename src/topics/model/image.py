"""A topic as a snapshot keeps it: everything but the records, which are in its segments.

`engine/image.py` makes one of a topic, and a topic of one. A snapshot is one instant of the log: every operation before
it is in here, and none after it.
"""

from typing import NamedTuple

from msgspec import Struct

from topics.model.config import TopicConfig
from topics.model.gap import Loss, LostRange
from topics.model.producer import RememberedWrite
from topics.model.record import Columns
from topics.model.router import RouterSettings


class SegmentImage(Struct, frozen=True, array_like=True):
    """A run of seqs on disk. `data_bytes` are known to be good; `cleared`: all deleted, and no file is left. `deleted`:
    positions whose records were deleted and whose delete bytes may not be set yet."""

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
    deleted: list[int] = []


class NamedCursor(NamedTuple):
    """How far somebody has read, kept for them under a name."""

    seq: int
    updated_ts: int


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
    exchange: bool
    head_seq: int
    earliest_seq: int
    last_ts: int
    cap_lost_seq: int
    ttl_lost_seq: int
    crash_lost_seq: int
    source_trim_lost_seq: int
    lost_ranges: list[LostRange]
    ceiling: int
    last_write_ts: int | None
    keys: list[tuple[str, RememberedWrite]]
    cursors: dict[str, NamedCursor]
    losses: list[Loss]
    queue: QueueImage | None
    routers: list[RouterImage]
    hops: dict[int, int]
    segments: list[SegmentImage] = []


class Texts(NamedTuple):
    """A whole block as its readers get it, None for a dead record: what a sealed segment keeps beside its records."""

    fragments: list[bytes | None]
    nodes: list[str | None]
    tags: list[str | None]
    has_meta: bool


class BlockCapture(NamedTuple):
    """One block. `columns` are its records from `flushed_count` on, which no segment file has yet. Copies, so the log
    may go on changing while they are written."""

    first_seq: int
    record_count: int
    live_count: int
    live_bytes: int
    first_ts: int
    last_ts: int
    sealed: bool  # it is a sealed segment already
    seal: bool  # it takes no more records: seal it
    cold: bool
    flushed_count: int
    columns: Columns | None
    unflagged: list[int]  # positions on disk, deleted since, whose delete byte is not known to be set
    texts: Texts | None = None  # of a block to seal


class TopicCapture(NamedTuple):
    """Without the blocks that are never written (class `ephemeral`)."""

    image: TopicImage  # without segments
    blocks: list[BlockCapture]
