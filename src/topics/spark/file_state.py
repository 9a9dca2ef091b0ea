"""A data directory as it is now: what `storage.reading` returns, folded as the server folds it.

So floors, caps and deletes come out as they would after a start. Some things may surprise:

- Seqs that were given out but have no record yet are not lost here: a running server may be about to write them. After
  a crash, only the next start declares them lost. If the log refers to records that it does not have, the topic ends
  before them, whatever follows.
- No clock is read: records past their TTL stay until the server has logged that they are gone.
- As on a start, a cap does not reach into the cold tier: what the server has evicted there since its last snapshot is
  still here.
- Routers' copies are made again here, as far as `meta/heads` or later operations say that they existed.
- Records of class `ephemeral` are in no file: for this reader, the topic ends before them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import UNSET, structs

from topics import limits
from topics.engine.apply import apply
from topics.engine.block import AnyBlock
from topics.engine.image import load_tail
from topics.engine.replay import derive_copies, end_of_log, load_images
from topics.engine.state import State
from topics.engine.topic_log import TopicLog
from topics.model.gap import LostRange
from topics.model.image import SegmentImage, TopicImage
from topics.model.operation import Appended, Forwarded, Operation, Restarted
from topics.storage.fs import Disk
from topics.storage.reading import read_directory
from topics.storage.recovery import read_tail
from topics.storage.sealed_block import stored_block
from topics.storage.segments import Segments
from topics.storage.snapshot_chain import TailPiece, Tails
from topics.storage.tiers import Tiers


@dataclass(slots=True)
class WalRun:
    """Consecutive records of a topic in one WAL file."""

    path: str
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class StoredTopic:
    """`segments` and `tails` (the pieces of segments still in snapshots) are keyed by first seq; `wal_runs` are in the
    order of seqs. A record in none of them is a router's copy, which no file has yet."""

    name: str
    topic_id: int
    schema: str | None
    log: TopicLog
    segments: dict[int, SegmentImage]
    tails: dict[int, list[TailPiece]]
    wal_runs: list[WalRun] = field(default_factory=list)


def load(disk: Disk, root: str, cold_root: str) -> dict[str, StoredTopic]:
    """Every topic by name. Raises what `read_directory` does."""
    tiers = Tiers(disk, root, cold_root, 0, 0)
    segments = Segments(disk, root, cold_root, limits.SEGMENTS_OPEN_MAX, limits.COLD_LOADED_BYTES_MAX)
    return read_directory(disk, root, tiers, lambda: _Fold(segments)).by_name()


class _End(NamedTuple):
    """The first seq of a topic that is missing from the files although later ones are there, and when that was noticed.
    The server may still write it; `apply` would call it lost, as a start does."""

    seq: int
    ts: int


class _Fold:
    """The topics as the log has them, and which file each record is in."""

    def __init__(self, files: Segments) -> None:
        self._files = files
        self._tails: Tails = {}
        self._state = State()
        self._segments: dict[int, dict[int, SegmentImage]] = {}
        self._runs: dict[int, list[WalRun]] = {}
        self._ends: dict[int, _End] = {}

    def load(self, images: list[TopicImage], tails: Tails) -> None:
        self._tails = tails
        self._segments = {image.topic_id: {each.first_seq: each for each in image.segments} for image in images}
        on_disk = [structs.replace(image, head_seq=_head_on_disk(image)) for image in images]
        load_images(self._state, on_disk, self._load_block)

    def _load_block(self, image: TopicImage, segment: SegmentImage) -> AnyBlock:
        if segment.sealed:
            return stored_block(self._files, image, segment, cold=segment.cold)
        tail = read_tail(image, segment, self._tails.get((image.topic_id, segment.first_seq), []))
        return load_tail(image.earliest_seq, segment, tail.batch, tail.timestamps, tail.deleted)

    def apply(self, operation: Operation, wal_path: str) -> None:
        match operation:
            case Appended():
                self._note_run(operation, wal_path)
                changed = {operation.topic_id}
            case Forwarded(lost=None):
                routers = map(self._state.routers.by_id, operation.routers)
                changed = {router.dest.topic_id for router in routers if router is not None}
            case Restarted(ts=ts):
                # A seq that is not in the log by then never will be.
                self._ends = {topic_id: end for topic_id, end in self._ends.items() if end.ts > ts}
                changed = set()
            case _:
                changed = set()
        before = {topic.topic_id: _ends_at(topic.log) for topic in map(self._state.topics.by_id, changed) if topic}
        apply(self._state, operation)
        for topic_id, (head_seq, lost_seq) in before.items():
            topic = self._state.topics.by_id(topic_id)
            if topic is not None and _ends_at(topic.log)[1] > lost_seq:
                self._ends.setdefault(topic_id, _End(head_seq + 1, operation.ts))

    def _note_run(self, appended: Appended, wal_path: str) -> None:
        runs = self._runs.setdefault(appended.topic_id, [])
        first_seq, last_seq = appended.first_seq, appended.writes[-1].last_seq
        if runs and runs[-1].path == wal_path and runs[-1].last_seq == first_seq - 1:
            runs[-1].last_seq = last_seq
        else:
            runs.append(WalRun(wal_path, first_seq, last_seq))

    def end(self, heads: Mapping[int, int] | None) -> None:
        end_of_log(self._state)
        if heads is not None:
            derive_copies(self._state, heads)

    def by_name(self) -> dict[str, StoredTopic]:
        return {
            topic.name: StoredTopic(
                topic.name,
                topic.topic_id,
                None if topic.config.schema is UNSET else topic.config.schema,
                self._on_disk(topic.topic_id, topic.log),
                self._segments.get(topic.topic_id, {}),
                {
                    first_seq: self._tails[topic.topic_id, first_seq]
                    for first_seq in self._segments.get(topic.topic_id, {})
                    if (topic.topic_id, first_seq) in self._tails
                },
                sorted(self._runs.get(topic.topic_id, []), key=lambda run: run.first_seq),
            )
            for topic in self._state.topics
        }

    def _on_disk(self, topic_id: int, log: TopicLog) -> TopicLog:
        """The log up to the first record that is in no file."""
        ends = [] if log.resident_from is None else [log.resident_from]
        if topic_id in self._ends:
            ends.append(self._ends[topic_id].seq)
        end_seq = min(ends, default=log.head_seq + 1)
        return log if end_seq > log.head_seq else _ending_before(log, end_seq)


def _head_on_disk(image: TopicImage) -> int:
    """The last seq that a segment has or that is known to be gone."""
    stored = [segment.first_seq + segment.count - 1 for segment in image.segments]
    return max(image.earliest_seq - 1, *stored[-1:], *(lost.last for lost in image.lost_ranges[-1:]), 0)


def _ends_at(log: TopicLog) -> tuple[int, int]:
    """The last seq, and the last one lost to something other than a cap or a TTL."""
    lost_seq = log.lost_ranges[-1].last if log.lost_ranges else max(log.crash_lost_seq, log.source_trim_lost_seq)
    return log.head_seq, lost_seq


def _ending_before(log: TopicLog, end_seq: int) -> TopicLog:
    """The part of the log before `end_seq` that is still there. No block spans that seq."""
    left = TopicLog()
    for block in log.blocks:
        if block.first_seq < end_seq:
            left.add_block(block)
            left.count += block.live_count
            left.bytes += block.live_bytes
    head_seq = left.head_seq = end_seq - 1
    left.earliest_seq = min(log.earliest_seq, end_seq)
    left.last_ts = log.last_ts
    left.cap_lost_seq = min(log.cap_lost_seq, head_seq)
    left.ttl_lost_seq = min(log.ttl_lost_seq, head_seq)
    left.crash_lost_seq = min(log.crash_lost_seq, head_seq)
    left.source_trim_lost_seq = min(log.source_trim_lost_seq, head_seq)
    left.lost_ranges = [
        LostRange(first, min(last, head_seq), reason) for first, last, reason in log.lost_ranges if first <= head_seq
    ]
    return left
