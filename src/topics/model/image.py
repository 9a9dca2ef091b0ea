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
    """A run of seqs. `sealed`: in a segment file; else it is a tail, and its `data_bytes` are in snapshots. `cleared`:
    all deleted, and no file is left. `deleted`: positions whose records were deleted and whose delete bytes may not be
    set yet; of a tail they never are."""

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
    claimed_ms: int
    deadline_ms: int


class QueueImage(Struct, frozen=True, kw_only=True):
    """What a queue knows about its jobs. `reclaimable` are jobs without a lease; an expired lease still counts as
    one."""

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


class BlockCapture(NamedTuple):
    """One block. `columns` are its records from `flushed_count` on, which no snapshot and no segment has yet, and will
    be `added_bytes` there; before them are `flushed_bytes` that one has. Copies, so the log may go on changing while
    they are written."""

    first_seq: int
    record_count: int
    live_count: int
    live_bytes: int
    first_ts: int
    last_ts: int
    sealed: bool  # it is a sealed segment, of `flushed_bytes`
    cold: bool
    flushed_count: int
    flushed_bytes: int
    added_bytes: int
    columns: Columns | None
    unflagged: list[int]  # positions on disk, deleted since, whose delete byte is not known to be set


class TopicCapture(NamedTuple):
    """Without the blocks that are never written (class `ephemeral`)."""

    image: TopicImage  # without segments
    blocks: list[BlockCapture]
