"""A topic as a snapshot keeps it: everything but the records, which are in its segments."""

from msgspec import Struct

from topics.model.config import TopicConfig
from topics.model.gap import GapReason


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


class TopicImage(Struct, frozen=True, kw_only=True):
    topic_id: int
    name: str
    config: TopicConfig
    head_seq: int
    earliest_seq: int
    last_ts: int
    cap_lost_seq: int
    ttl_lost_seq: int
    crash_lost_seq: int
    lost_ranges: list[tuple[int, int]]
    ceiling: int
    last_write_ts: int | None
    keys: list[KeyImage]
    segments: list[SegmentImage]
    cursors: list[CursorImage] = []
    losses: list[LossImage] = []
