"""The door for who reads a data directory without its server: nothing is written, nothing is locked.

What a start does is done here, too, by the same code: base and increments, segments, WAL; a torn tail is the end.
Images and operations are handed over, with the WAL file each operation is in; whoever reads folds them as the server
does.

A running server goes on meanwhile. Whatever snapshot n needs is there until there is an n + 2 (`backup.py` says why),
so: read everything, then look whether it was overtaken; if so, begin again. Damage counts as such when it is found
twice in the same place, because a reader that is overtaken by the writer sees holes.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from topics import limits
from topics.model.config import DEFAULT_CONFIG
from topics.model.image import SegmentImage, TopicImage
from topics.model.operation import Operation
from topics.storage import paths, snapshot_chain
from topics.storage.backup import is_overtaken
from topics.storage.errors import CorruptFile, FilesChanging, NoDataDirectory
from topics.storage.fs import Disk
from topics.storage.heads import Heads
from topics.storage.recovery import Recovery
from topics.storage.segments import Segments
from topics.storage.snapshot_chain import Tails
from topics.storage.tiers import Tiers

ATTEMPTS_MAX = 20


class History(Protocol):
    """What a reader makes of a directory."""

    def load(self, images: list[TopicImage], tails: Tails) -> None:
        """Everything there was at the snapshot, and the records of it that no segment has."""
        ...

    def apply(self, operation: Operation, wal_path: str) -> None:
        """What happened next, and the file that says so."""
        ...

    def end(self, heads: Mapping[int, int] | None) -> None:
        """That was all. `heads`: last seqs given out before the WAL was read, by topic; None when nobody knows."""
        ...


H = TypeVar("H", bound=History)


def read_directory(disk: Disk, root: str, tiers: Tiers, begin: Callable[[], H]) -> H:
    """Reads all of `root` into what `begin` makes, which is called anew for every attempt.

    Raises `NoDataDirectory`, `CorruptFile`, `UnknownVersion`, `ColdTierUnknown`, `ColdTierNotOurs`, or, when the server
    is too fast, `FilesChanging`.
    """
    tiers.cold.check()
    failed: tuple[str, int, str] | None = None
    for _ in range(ATTEMPTS_MAX):
        history = begin()
        if not snapshot_chain.numbers(disk, paths.meta_dir(root)).newest and not disk.list_dir(paths.wal_dir(root)):
            history.load(_bare_images(disk, root), {})
            history.end(None)
            return history
        try:
            # First: a head that is newer than the log could be that of a record the log does not have yet.
            heads = Heads(disk, paths.meta_dir(root)).read()
            source = _Source(history)
            recovered = Recovery(disk, root, tiers, source, lambda share: None, source.begin_file).run()
            if not is_overtaken(disk, root, recovered.snapshot_number, recovered.absorbed.keys()):
                history.end(heads)
                return history
        except CorruptFile as error:
            if failed == (error.path, error.offset, error.reason):
                raise
            failed = (error.path, error.offset, error.reason)
        except FileNotFoundError as error:
            if failed == (error.filename, 0, "missing"):
                raise CorruptFile(error.filename, 0, "missing") from error
            failed = (error.filename, 0, "missing")
    raise FilesChanging(root, ATTEMPTS_MAX)


class _Source:
    """Says of each operation which file it is in."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._wal_path = ""

    def begin_file(self, path: str) -> None:
        self._wal_path = path

    def load(self, images: list[TopicImage], tails: Tails) -> None:
        self._history.load(images, tails)

    def apply(self, operation: Operation) -> None:
        self._history.apply(operation, self._wal_path)


def _bare_images(disk: Disk, root: str) -> list[TopicImage]:
    """Segments without a snapshot: the cold tier by itself. Names, floors and losses are in the snapshot, so topics are
    called by their ids, as `#0000000A`, and seqs that no segment has are passed over."""
    segments = Segments(disk, root, "", limits.SEGMENTS_OPEN_MAX, 0)
    images: list[TopicImage] = []
    for directory_name in disk.list_dir(paths.topics_dir(root)):
        topic_id = paths.parse_topic_name(directory_name)
        if topic_id is not None and (found := _bare_segments(disk, root, segments, topic_id)):
            images.append(
                TopicImage(
                    topic_id=topic_id,
                    name=f"#{directory_name}",
                    config=DEFAULT_CONFIG,
                    exchange=False,
                    head_seq=found[-1].first_seq + found[-1].count - 1,
                    earliest_seq=found[0].first_seq,
                    last_ts=found[-1].last_ts,
                    cap_lost_seq=0,
                    ttl_lost_seq=0,
                    crash_lost_seq=0,
                    source_trim_lost_seq=0,
                    lost_ranges=[],
                    ceiling=0,
                    last_write_ts=None,
                    keys=[],
                    cursors={},
                    losses=[],
                    queue=None,
                    routers=[],
                    hops={},
                    segments=found,
                )
            )
    if not images:
        raise NoDataDirectory(root)
    return images


def _bare_segments(disk: Disk, root: str, segments: Segments, topic_id: int) -> list[SegmentImage]:
    found: list[SegmentImage] = []
    names = map(paths.parse_segment_name, disk.list_dir(paths.topic_dir(root, topic_id)))
    for first_seq in sorted(name[0] for name in names if name is not None and name[1] is paths.SegmentPart.DATA):
        reader = segments.reader(topic_id, first_seq, cold=False)
        count, size = reader.count, reader.data.size
        if count:
            first_ts, last_ts = reader.ts(0), reader.ts(count - 1)
            found.append(SegmentImage(first_seq, count, size, count, size, first_ts, last_ts, sealed=True))
    return found
