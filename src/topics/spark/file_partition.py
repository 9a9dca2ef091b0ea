"""Plans for reading a data directory's files: small frozen values, picklable and self-contained.

A partition is a run of seqs of one topic, cut into pieces: parts of segments, snapshots and WAL files, a few records
sent inline, and the seqs that are lost. The pieces name files and seqs, so a task reads them without the planner.
"""

from dataclasses import dataclass

from topics.errors import TopicsError
from topics.model.gap import LostRange
from topics.spark.offsets import Gap
from topics.storage.frame import StoredRecord

SeqRun = tuple[int, int]
"""(first, last), both included."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A run of seqs of a topic. `cleared`: all were deleted, no file is left. If it is not `sealed`, its newest records
    may be only in the WAL."""

    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    sealed: bool
    cold: bool
    cleared: bool


@dataclass(frozen=True, slots=True)
class TopicRange:
    """A topic as the files have it. `epoch` tells it from an earlier or later one of the same name.

    Its records are the seqs of [earliest_seq, head_seq] that are neither deleted nor in `lost_ranges`. Caps and TTLs
    took records below `evict_floor`. Each `…_lost_seq` is the highest seq lost to that cause, 0 if none.
    """

    name: str
    epoch: int
    earliest_seq: int
    head_seq: int
    evict_floor: int
    cap_lost_seq: int
    ttl_lost_seq: int
    crash_lost_seq: int
    source_trim_lost_seq: int
    lost_ranges: tuple[LostRange, ...]
    segments: tuple[SegmentRange, ...]
    last_ts: int
    schema: str | None


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """Records [start, end] of a segment, which is in one of `directories`, searched in this order. `deleted` adds to
    the seqs that have their delete byte set."""

    directories: tuple[str, ...]
    first_seq: int
    data_bytes: int
    start: int
    end: int
    deleted: tuple[SeqRun, ...]


@dataclass(frozen=True, slots=True)
class TailPiece:
    """Records [start, end] of a tail in snapshots. Its bytes are at `places` (path, offset, length) and begin with
    `first_seq`."""

    places: tuple[tuple[str, int, int], ...]
    first_seq: int
    start: int
    end: int
    deleted: tuple[SeqRun, ...]


@dataclass(frozen=True, slots=True)
class WalPiece:
    """Records [start, end] of a topic in one WAL file, without the `deleted` ones."""

    path: str
    start: int
    end: int
    deleted: tuple[SeqRun, ...]


@dataclass(frozen=True, slots=True)
class InlinePiece:
    """The records of [start, end] themselves: few enough to send to the task."""

    start: int
    end: int
    records: tuple[StoredRecord, ...]


@dataclass(frozen=True, slots=True)
class GapPiece:
    """Seqs that are lost: no file has them."""

    gap: Gap

    @property
    def start(self) -> int:
        return self.gap.gap_from

    @property
    def end(self) -> int:
        assert self.gap.gap_to is not None, "a gap within a log has an end"
        return self.gap.gap_to


Piece = SegmentPiece | TailPiece | WalPiece | InlinePiece | GapPiece


@dataclass(frozen=True, slots=True)
class FilePartition:
    """Seqs [start, end] of one topic. Seqs in no piece are deleted."""

    root: str
    cold_root: str
    topic: str
    epoch: int
    start: int
    end: int
    pieces: tuple[Piece, ...]

    @property
    def seqs(self) -> int:
        return self.end - self.start + 1


class OutOfRange(TopicsError):
    """Seqs beyond the last one in the files. Plan again from the topic's range."""

    def __init__(self, topic: str, start: int, end: int, head_seq: int) -> None:
        super().__init__(
            f"seqs {start} to {end} of topic {topic!r} were asked for, and its last one is {head_seq}",
            topic=topic,
            start=start,
            end=end,
            head_seq=head_seq,
        )


class TopicReplaced(TopicsError):
    """The topic was deleted, or deleted and recreated, after the read was planned. Plan again."""

    def __init__(self, topic: str, epoch: int) -> None:
        super().__init__(
            f"topic {topic!r} is no longer the one (id {epoch}) that was planned", topic=topic, epoch=epoch
        )
