"""A data directory as it is now, read without the server's help and without changing anything.

What a start does is done here, too, by the same code (`storage.recovery`, `engine.rebuild`): newest snapshot, segments,
WAL; a torn tail is the end. So floors, caps and deletes come out as they would on a start. What may surprise:

- Seqs that were handed out but have no record yet are not lost here: a running server may be about to write them. After
  a crash, the next start is what declares them lost.
- The clock takes nothing: records past their TTL are there until the server has noted that they are gone.
- A cap does not reach into the cold tier, as on a start: what the server has evicted there since its last snapshot is
  still there.
- Copies that routers have made are made again here, as far as `meta/heads` or operations after them say that they were.
- Records of class `ephemeral` are in no file: to this reader the topic ends before them.

A running server goes on meanwhile. Whatever a snapshot needs is there as long as the snapshot is (`storage.backup` says
why), so: read everything, then look whether the snapshot is still there; if not, begin again. Damage counts as such
when it is found twice in the same place, because a reader that is overtaken by the writer sees holes.
"""

from dataclasses import dataclass, field

from msgspec import structs

from topics import limits
from topics.clock import SystemClock
from topics.engine.block import AnyBlock
from topics.engine.engine import Engine
from topics.engine.rebuild import Rebuild
from topics.engine.topic_log import TopicLog
from topics.model.image import SegmentImage, TopicImage
from topics.spark.file_partition import ColdTierUnknown, FilesChanging
from topics.storage import paths, snapshot
from topics.storage.backup import is_overtaken
from topics.storage.errors import CorruptFile, NoDataDirectory
from topics.storage.fs import Disk
from topics.storage.heads import Heads
from topics.storage.recovery import Recovery, ReplayedRecord, Tail
from topics.storage.sealed_block import SealedBlock, stored_block
from topics.storage.segments import Segments
from topics.storage.tiers import Tiers

ATTEMPTS_MAX = 20


@dataclass(slots=True)
class WalRun:
    """Consecutive records of a topic in one WAL file."""

    path: str
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class StoredTopic:
    """`segments`: by first seq. `wal_runs` may begin with records that segments have, too. `has_copies`: routers copy
    to it, and copies that no segment has yet are in no file."""

    name: str
    topic_id: int
    log: TopicLog
    segments: dict[int, SegmentImage]
    wal_runs: list[WalRun] = field(default_factory=list)
    has_copies: bool = False


def load(disk: Disk, root: str, cold_root: str) -> dict[str, StoredTopic]:
    """Every topic by name. Raises `NoDataDirectory`, `CorruptFile`, `UnknownVersion`, `ColdTierUnknown`, or, when the
    server is too fast, `FilesChanging`."""
    failed: tuple[str, int, str] | None = None
    for _ in range(ATTEMPTS_MAX):
        if not snapshot.numbers(disk, paths.meta_dir(root)) and not disk.list_dir(paths.wal_dir(root)):
            return _load_bare(disk, root)
        replay = _Replay(disk, root, cold_root)
        try:
            recovered = Recovery(
                disk, root, _Tiers(disk, root, cold_root, 0, 0), replay, lambda share: None, replay.begin_file
            ).run()
            if not is_overtaken(disk, root, recovered.snapshot_number, recovered.absorbed.keys()):
                replay.rederive(Heads(disk, paths.meta_dir(root)).read())
                return replay.by_name()
        except CorruptFile as error:
            if failed == (error.path, error.offset, error.reason):
                raise
            failed = (error.path, error.offset, error.reason)
        except FileNotFoundError as error:
            if failed == (error.filename, 0, "missing"):
                raise CorruptFile(error.filename, 0, "missing") from error
            failed = (error.filename, 0, "missing")
    raise FilesChanging(root, ATTEMPTS_MAX)


class _Tiers(Tiers):
    def directory(self, topic_id: int, *, cold: bool) -> str:
        if cold and not self._cold_root:
            raise ColdTierUnknown(self._hot_root)
        return super().directory(topic_id, cold=cold)


class _Replay(Rebuild):
    """Rebuilds the logs, and notes which file each record is in."""

    def __init__(self, disk: Disk, root: str, cold_root: str) -> None:
        super().__init__(Engine(SystemClock()), self._open_block, _recount)
        self._segments = Segments(disk, root, cold_root, limits.SEGMENTS_OPEN_MAX, limits.COLD_LOADED_BYTES_MAX)
        self._images: dict[int, dict[int, SegmentImage]] = {}
        self._runs: dict[int, list[WalRun]] = {}
        self._path = ""

    def begin_file(self, path: str) -> None:
        self._path = path

    def load_topic(self, image: TopicImage, tails: list[Tail]) -> None:  # type: ignore[override]  # what it gets
        self._images[image.topic_id] = {segment.first_seq: segment for segment in image.segments}
        super().load_topic(structs.replace(image, head_seq=_head_on_disk(image)), tails)

    def appended(self, topic_id: int, first_seq: int, records: list[ReplayedRecord]) -> None:  # type: ignore[override]
        runs = self._runs.setdefault(topic_id, [])
        last_seq = first_seq + len(records) - 1
        if runs and runs[-1].path == self._path and runs[-1].last_seq == first_seq - 1:
            runs[-1].last_seq = last_seq
        else:
            runs.append(WalRun(self._path, first_seq, last_seq))
        super().appended(topic_id, first_seq, records)

    def by_name(self) -> dict[str, StoredTopic]:
        return {
            topic.name: StoredTopic(
                topic.name,
                topic.topic_id,
                topic.log,
                self._images.get(topic.topic_id, {}),
                self._runs.get(topic.topic_id, []),
                topic.topic_id in self.dest_ids,
            )
            for topic in sorted(self.topics, key=lambda topic: topic.topic_id)
        }

    def _open_block(self, image: TopicImage, segment: SegmentImage) -> AnyBlock:
        return stored_block(self._segments, image, segment, cold=segment.cold)


def _head_on_disk(image: TopicImage) -> int:
    """The last seq that a segment has or that is known to be gone."""
    stored = [segment.first_seq + segment.count - 1 for segment in image.segments]
    return max(image.earliest_seq - 1, *stored[-1:], *(lost.last for lost in image.lost_ranges[-1:]), 0)


def _recount(block: AnyBlock, dead_below: int) -> None:
    if isinstance(block, SealedBlock):
        block.recount(dead_below)


def _load_bare(disk: Disk, root: str) -> dict[str, StoredTopic]:
    """Segments without a snapshot: the cold tier by itself. Names, floors and losses are in the snapshot, so topics are
    called by their ids, as `#0000000A`, and seqs that no segment has are passed over."""
    segments = Segments(disk, root, "", limits.SEGMENTS_OPEN_MAX, 0)
    topics: dict[str, StoredTopic] = {}
    for directory_name in disk.list_dir(paths.topics_dir(root)):
        topic_id = paths.parse_topic_name(directory_name)
        if topic_id is None:
            continue
        stored = StoredTopic(f"#{directory_name}", topic_id, TopicLog(), {})
        log = stored.log
        names = map(paths.parse_segment_name, disk.list_dir(paths.topic_dir(root, topic_id)))
        for first_seq in sorted(name[0] for name in names if name is not None and name[1] is paths.SegmentPart.DATA):
            reader = segments.reader(topic_id, first_seq, cold=False)
            count = reader.count
            if count:
                first_ts, last_ts, size = reader.ts(0), reader.ts(count - 1), reader.data_bytes
                log.add_block(SealedBlock(segments, topic_id, first_seq, count, count, size, first_ts, last_ts))
                stored.segments[first_seq] = SegmentImage(
                    first_seq, count, size, count, size, first_ts, last_ts, sealed=True
                )
                log.count += count
                log.head_seq, log.last_ts = reader.last_seq, last_ts
        if log.blocks:
            log.earliest_seq = log.blocks[0].first_seq
            topics[stored.name] = stored
    if not topics:
        raise NoDataDirectory(root)
    return topics
