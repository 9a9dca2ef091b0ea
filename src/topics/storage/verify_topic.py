"""Checks one topic of a snapshot: its floors, that no seq is unaccounted for, and every segment byte by byte."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from topics.model.config import Durability
from topics.model.image import SegmentImage, TopicImage
from topics.storage import paths
from topics.storage.errors import CorruptFile
from topics.storage.findings import Findings
from topics.storage.fs import Disk
from topics.storage.paths import SegmentPart
from topics.storage.recovery import read_tail
from topics.storage.segment_reader import SegmentReader
from topics.storage.snapshot_chain import TailPiece
from topics.storage.verify_segment import segment_problems


@dataclass(slots=True)
class TopicSummary:
    """`live` and `deleted`: records in segments. `lost`: seqs a crash took. `in_wal`: records in no segment yet."""

    topic_id: int
    name: str
    live: int = 0
    deleted: int = 0
    lost: int = 0
    in_wal: int = 0
    segments: int = 0
    problems: int = 0


@dataclass(frozen=True, slots=True)
class SegmentCounts:
    live: int
    live_bytes: int
    deleted: int


class TopicCheck:
    """`snapshot_path` is named by what is wrong with the image itself. `heads`: the last seq of every topic of the
    snapshot."""

    def __init__(
        self,
        disk: Disk,
        snapshot_path: str,
        image: TopicImage,
        findings: Findings,
        advance: Callable[[int], None],
        *,
        heads: Mapping[int, int],
    ) -> None:
        self._disk = disk
        self._snapshot_path = snapshot_path
        self._image = image
        self._findings = findings
        self._advance = advance
        self._heads = heads
        self.summary = TopicSummary(image.topic_id, image.name)

    def check_image(self) -> None:
        """Floors in order, lost ranges in order, every seq from the first live one to the head accounted for."""
        image = self._image
        evict_floor = max(image.cap_lost_seq, image.ttl_lost_seq, image.crash_lost_seq, image.source_trim_lost_seq) + 1
        if evict_floor > image.earliest_seq:
            self._wrong(f"evict_floor {evict_floor} is above earliest_seq {image.earliest_seq}")
        if image.earliest_seq > image.head_seq + 1:
            self._wrong(f"earliest_seq {image.earliest_seq} is above head_seq {image.head_seq} + 1")
        before = 0
        for first, last, _ in image.lost_ranges:
            if not before < first <= last <= image.head_seq:
                self._wrong(f"lost range {first} to {last} is out of order")
            before = last
            self.summary.lost += last - first + 1
        self._check_coverage()
        for router in image.routers:
            if router.source_id not in self._heads:
                self._wrong(f"router {router.name!r} has a source, topic {router.source_id}, that is not there")
            elif router.cursor > self._heads[router.source_id]:
                self._wrong(f"router {router.name!r} is at seq {router.cursor}, beyond the head of its source")
        if len({router.source_id for router in image.routers}) > 1:
            self._wrong("its routers have more than one source")

    def check_segment(self, segment: SegmentImage, directory: str) -> None:
        """Its files, whether they are all it should be, its counts against delete bytes and listed deletes."""
        self.summary.segments += 1
        path = paths.segment_path(directory, segment.first_seq, SegmentPart.DATA)
        topic_id = self._image.topic_id
        if not self._disk.exists(path):
            self._findings.problem(path, 0, "missing", topic_id)
            return
        size = self._disk.size(path)
        if size != segment.data_bytes:
            self._findings.problem(path, size, f"{size} bytes long, expected {segment.data_bytes}", topic_id)
            return
        try:
            reader = SegmentReader(self._disk, directory, segment.first_seq, segment.data_bytes)
        except CorruptFile as error:
            self._findings.corrupt(error, topic_id)
            return
        if check_bytes(self._disk, reader, self._findings, topic_id):
            self._check_counts(segment, reader)
        self._advance(segment.data_bytes)

    def check_tail(self, segment: SegmentImage, pieces: list[TailPiece]) -> None:
        """The records that snapshots have, and their counts."""
        try:
            tail = read_tail(self._image, segment, pieces)
        except CorruptFile as error:
            self._findings.corrupt(error, self._image.topic_id)
            return
        below = max(self._image.earliest_seq - segment.first_seq, 0)
        live = [size for size, dead in zip(tail.batch.sizes[below:], tail.deleted[below:], strict=True) if not dead]
        self.summary.live += len(live)
        self.summary.deleted += sum(tail.deleted)
        if sum(live) != segment.live_bytes:
            self._wrong(f"its tail has {sum(live)} bytes of live records, expected {segment.live_bytes}")

    def _check_counts(self, segment: SegmentImage, reader: SegmentReader) -> None:
        topic_id = self._image.topic_id
        if reader.count != segment.count:
            reason = f"{reader.count} records, expected {segment.count}"
            self._findings.problem(reader.data.path, segment.data_bytes, reason, topic_id)
            return
        counts = count_live(reader, self._image.earliest_seq, segment.deleted)
        self.summary.live += counts.live
        self.summary.deleted += counts.deleted
        found, due = (counts.live, counts.live_bytes), (segment.live_count, segment.live_bytes)
        if found != due:
            reason = f"{found[0]} live records ({found[1]} bytes) where the snapshot has {due[0]} ({due[1]} bytes)"
            self._findings.problem(reader.data.path, 0, reason, topic_id)

    def _check_coverage(self) -> None:
        image = self._image
        runs = [(segment.first_seq, segment.first_seq + segment.count - 1) for segment in image.segments]
        if runs != sorted(runs):
            self._wrong("its segments are out of order")
        due = image.earliest_seq
        for first, last in sorted([*runs, *((lost.first, lost.last) for lost in image.lost_ranges)]):
            if first < due and first > image.earliest_seq:
                self._wrong(f"seqs {first} to {last} overlap what is before them")
            if first > due and image.config.durability is not Durability.EPHEMERAL:
                self._wrong(f"seqs {due} to {first - 1} are in no segment and not lost")
            due = max(due, last + 1)
        if due > image.head_seq + 1:
            self._wrong(f"a segment goes on to seq {due - 1}, beyond head_seq {image.head_seq}")
        if due <= image.head_seq and image.config.durability is not Durability.EPHEMERAL:
            self._wrong(f"seqs {due} to {image.head_seq} are in no segment and not lost")

    def _wrong(self, reason: str) -> None:
        self._findings.problem(self._snapshot_path, 0, f"topic {self._image.name!r}: {reason}", self._image.topic_id)


def check_bytes(disk: Disk, reader: SegmentReader, findings: Findings, topic_id: int | None) -> bool:
    """Every checksum and seq, and the sidecars. Whether `.data` is sound."""
    sound = True
    for problem in segment_problems(disk, reader):
        findings.corrupt(problem, topic_id)
        sound = sound and problem.path != reader.data.path
    return sound


def count_live(reader: SegmentReader, earliest_seq: int, listed: Iterable[int]) -> SegmentCounts:
    """What is live: neither flagged nor listed as deleted, nor below the first live record of the topic."""
    dead = {*_flagged(reader.deleted_bitmap), *listed}
    deleted = len(dead)
    dead.update(range(min(max(earliest_seq - reader.first_seq, 0), reader.count)))
    return SegmentCounts(reader.count - len(dead), reader.data.size - sum(map(reader.record_bytes, dead)), deleted)


def _flagged(bitmap: bytearray) -> Iterable[int]:
    for at, byte in enumerate(bitmap):
        if byte:
            yield from (8 * at + bit for bit in range(8) if byte >> bit & 1)
