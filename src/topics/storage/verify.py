"""Checks a data directory without changing it: bases, increments and their tails, WAL, segments of both tiers, and how
they fit together.

The newest state says what must be there. What only the snapshot before it points to is checked for damage too, as it
would be needed should the newest increment be lost; what neither points to is an orphan, a note.
Nothing may write to the directory meanwhile: hold its lock.

The checks of single segments and WAL shards know nothing of each other. `each` runs them: one after the other, or, as
`topics pipeline audit` does, on many machines.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from msgspec import structs

from topics import limits
from topics.model.image import SegmentImage, TopicImage
from topics.storage import paths, snapshot, snapshot_chain
from topics.storage.cold_tier import ColdTier
from topics.storage.errors import CorruptFile, DirectoryInUse, NoDataDirectory, UnknownVersion
from topics.storage.findings import Finding, Findings, Severity
from topics.storage.fs import Disk
from topics.storage.paths import SegmentPart
from topics.storage.segment_reader import SegmentReader
from topics.storage.snapshot_chain import LoadedState, Numbers
from topics.storage.verify_topic import TopicCheck, TopicSummary, check_bytes
from topics.storage.verify_wal import ShardCheck, WalSummary
from topics.storage.wal_positions import read_positions
from topics.storage.wal_writer import shard_names, wal_files

Progress = Callable[[int, int], None]
"""Called now and then with the bytes checked so far and the bytes there are."""

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class ShardDue:
    """A WAL shard to check; see `ShardCheck`."""

    directory: str
    from_lsn: int | None
    heads: Mapping[int, int]
    synced_lsn: int = 0


@dataclass(frozen=True, slots=True)
class SegmentDue:
    """A segment to check. `image` is its topic, without its segments; None for a segment that only the snapshot before
    the newest one points to."""

    topic_id: int
    directory: str
    segment: SegmentImage
    snapshot_path: str = ""
    image: TopicImage | None = None


@dataclass(slots=True)
class Checked:
    """What one check found."""

    findings: list[Finding] = field(default_factory=list)
    problems_by_topic: Counter[int] = field(default_factory=Counter)
    checked_bytes: int = 0
    wal: WalSummary | None = None
    topic: TopicSummary | None = None


class Each(Protocol):
    """Runs a check of everything that is due. What comes back is in the same order."""

    def __call__(self, check: Callable[[D], Checked], dues: Sequence[D]) -> Iterable[Checked]: ...


def one_by_one(check: Callable[[D], Checked], dues: Sequence[D]) -> Iterable[Checked]:
    return map(check, dues)


@dataclass(frozen=True, slots=True)
class Report:
    topics: list[TopicSummary]
    findings: list[Finding]
    snapshots: int
    wal_frames: int
    """Frames the next start replays."""
    checked_bytes: int

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is severity]

    @property
    def sound(self) -> bool:
        return not self.of(Severity.PROBLEM) and not self.of(Severity.UNCHECKED)


Segments = dict[tuple[int, int, bool], SegmentImage]
"""By topic id, first seq, and whether it is on the cold tier."""


def verify_directory(
    disk: Disk,
    root: str,
    cold_root: str,
    progress: Progress = lambda done, total: None,
    each: Each = one_by_one,
) -> Report:
    """`cold_root` is empty when there is no cold tier. Raises `NoDataDirectory`, `ColdTierNotOurs`."""
    return _Verification(disk, root, cold_root, progress, each).run()


@contextmanager
def unused(disk: Disk, root: str) -> Iterator[None]:
    """Holds a directory's lock. Raises `DirectoryInUse` while a server runs. A backup has no LOCK, and gets none."""
    lock = disk.lock(paths.lock_path(root)) if disk.exists(paths.lock_path(root)) else None
    try:
        yield
        if lock is None and disk.exists(paths.lock_path(root)):
            raise DirectoryInUse(paths.lock_path(root))
    finally:
        if lock is not None:
            lock.release()


def check_shard(disk: Disk, due: ShardDue) -> Checked:
    findings, checked = Findings(), Checked(wal=WalSummary())
    assert checked.wal is not None
    advanced: list[int] = []
    ShardCheck(
        disk, due.directory, due.from_lsn, due.heads, findings, checked.wal, advanced.append, due.synced_lsn
    ).run()
    return _checked(checked, findings, advanced)


def check_segment(disk: Disk, due: SegmentDue) -> Checked:
    findings, checked = Findings(), Checked()
    advanced: list[int] = []
    if due.image is not None:
        check = TopicCheck(disk, due.snapshot_path, due.image, findings, advanced.append, heads={})
        check.check_segment(due.segment, due.directory)
        checked.topic = check.summary
    else:
        _check_kept(disk, due, findings)
        advanced.append(due.segment.data_bytes)
    return _checked(checked, findings, advanced)


def _checked(checked: Checked, findings: Findings, advanced: list[int]) -> Checked:
    checked.findings, checked.problems_by_topic = findings.all, findings.problems_by_topic
    checked.checked_bytes = sum(advanced)
    return checked


def _check_kept(disk: Disk, due: SegmentDue, findings: Findings) -> None:
    """A segment of the snapshot before: damage is a problem, but that it is gone only takes the way back."""
    path = paths.segment_path(due.directory, due.segment.first_seq, SegmentPart.DATA)
    if not disk.exists(path):
        findings.note(path, 0, "missing, but needed only should the newest snapshot be lost")
        return
    try:
        reader = SegmentReader(disk, due.directory, due.segment.first_seq, due.segment.data_bytes)
        check_bytes(disk, reader, findings, due.topic_id)
    except CorruptFile as error:
        findings.corrupt(error, due.topic_id)


class _Verification:
    def __init__(self, disk: Disk, root: str, cold_root: str, progress: Progress, each: Each) -> None:
        self._disk = disk
        self._each = each
        self._root = root
        self._cold_root = cold_root
        self._progress = progress
        self._findings = Findings()
        self._done_bytes = 0
        self._total_bytes = 0

    def run(self) -> Report:
        shards = shard_names(self._disk, self._root)
        numbers = snapshot_chain.numbers(self._disk, paths.meta_dir(self._root))
        if not shards and not numbers.newest:
            raise NoDataDirectory(self._root)
        ColdTier(self._disk, self._root, self._cold_root).check()
        snapshots = self._check_snapshots(numbers)
        newest = self._load(limits.U64_MAX)
        before = None if newest is None else self._load(newest.number - 1)
        number = 0 if newest is None else newest.number
        images = [] if newest is None else newest.images
        absorbed = {} if newest is None else newest.head.shards
        needed = _segments_of(images)
        kept = {} if before is None else _segments_of(before.images)
        self._total_bytes = sum(segment.data_bytes for segment in (kept | needed).values())
        self._total_bytes += sum(self._wal_bytes(name) for name in shards)
        heads = {image.topic_id: image.head_seq for image in images}
        positions = read_positions(self._disk, self._root)
        wal = self._check_wal(
            [
                ShardDue(
                    paths.shard_path(self._root, name),
                    absorbed.get(name) if number else 0,
                    heads,
                    0 if positions is None else positions.synced.get(name, 0),
                )
                for name in shards
            ]
        )
        topics = self._check_topics(newest, {key: kept[key] for key in kept.keys() - needed.keys()})
        # Without a snapshot nothing says which files belong to something.
        if number:
            self._note_orphans(needed.keys() | kept.keys())
        for topic in topics:
            topic.in_wal = wal.appended[topic.topic_id]
            topic.problems = self._findings.problems_by_topic[topic.topic_id]
        return Report(topics, self._findings.all, snapshots, wal.frames, self._done_bytes)

    def _check_snapshots(self, numbers: Numbers) -> int:
        """Every file by itself; how many there are."""
        directory = paths.meta_dir(self._root)
        files = [snapshot_chain.base_path(directory, number) for number in numbers.bases]
        files += [snapshot_chain.increment_path(directory, number) for number in numbers.increments]
        for path in files:
            try:
                snapshot.load(self._disk, path)
            except CorruptFile as error:
                self._findings.corrupt(error)
            except UnknownVersion as error:
                self._findings.unchecked(path, f"another version of topics wrote it: {error.version}")
        return len(files)

    def _load(self, through: int) -> LoadedState | None:
        """What the files make together."""
        try:
            return snapshot_chain.load_latest(self._disk, paths.meta_dir(self._root), through)
        except CorruptFile as error:
            if not any(finding.path == error.path for finding in self._findings.all):
                self._findings.corrupt(error)
        except UnknownVersion as error:
            if not any(finding.path == error.path for finding in self._findings.all):
                self._findings.unchecked(error.path, f"another version of topics wrote it: {error.version}")
        return None

    def _check_wal(self, dues: list[ShardDue]) -> WalSummary:
        wal = WalSummary()
        for checked in self._each(partial(check_shard, self._disk), dues):
            assert checked.wal is not None
            self._take(checked)
            wal.frames += checked.wal.frames
            wal.appended.update(checked.wal.appended)
        return wal

    def _check_topics(self, newest: LoadedState | None, kept: Segments) -> list[TopicSummary]:
        summaries: dict[int, TopicSummary] = {}
        dues: list[SegmentDue] = []
        images = [] if newest is None else newest.images
        heads = {image.topic_id: image.head_seq for image in images}
        snapshot_path = "" if newest is None else newest.path
        for image in images:
            check = TopicCheck(self._disk, snapshot_path, image, self._findings, self._advance, heads=heads)
            check.check_image()
            for segment in image.segments:
                if not segment.sealed and newest is not None:
                    check.check_tail(segment, newest.tails.get((image.topic_id, segment.first_seq), []))
            summaries[image.topic_id] = check.summary
            dues += self._segments_due(snapshot_path, image, check.summary)
        for (topic_id, _, cold), segment in kept.items():
            if not cold or self._cold_root:
                dues.append(SegmentDue(topic_id, self._directory(topic_id, cold=cold), segment))
        for checked in self._each(partial(check_segment, self._disk), dues):
            self._take(checked)
            found = checked.topic
            if found is not None:
                summary = summaries[found.topic_id]
                summary.live += found.live
                summary.deleted += found.deleted
                summary.segments += found.segments
        return list(summaries.values())

    def _segments_due(self, snapshot_path: str, image: TopicImage, summary: TopicSummary) -> Iterator[SegmentDue]:
        alone = structs.replace(image, segments=[], keys=[], cursors={}, losses=[], routers=[], queue=None, hops={})
        unnamed_cold = 0
        for segment in image.segments:
            if not segment.sealed:
                continue
            if segment.cleared:
                summary.deleted += segment.count
            elif segment.cold and not self._cold_root:
                unnamed_cold += 1
            else:
                directory = self._directory(image.topic_id, cold=segment.cold)
                yield SegmentDue(image.topic_id, directory, segment, snapshot_path, alone)
        if unnamed_cold:
            reason = f"{unnamed_cold} segments of topic {image.name!r} are on the cold tier: name its directory"
            self._findings.unchecked(snapshot_path, reason)

    def _take(self, checked: Checked) -> None:
        self._findings.take(checked.findings, checked.problems_by_topic)
        self._advance(checked.checked_bytes)

    def _note_orphans(self, known: set[tuple[int, int, bool]]) -> None:
        for root in (self._root, self._cold_root) if self._cold_root else (self._root,):
            for name in self._disk.list_dir(paths.topics_dir(root)):
                topic_id = paths.parse_topic_name(name)
                directory = f"{paths.topics_dir(root)}/{name}"
                if topic_id is None:
                    self._findings.note(directory, 0, "not a directory of this program")
                    continue
                orphans: set[int] = set()
                for entry in self._disk.list_dir(directory):
                    parsed = paths.parse_segment_name(entry)
                    if entry == paths.OWNER:
                        continue
                    if parsed is None:
                        self._findings.note(f"{directory}/{entry}", 0, "orphan: not part of a segment")
                    elif parsed[0] not in orphans and (topic_id, parsed[0], root == self._cold_root) not in known:
                        orphans.add(parsed[0])
                        self._findings.note(f"{directory}/{entry}", 0, "orphan: no snapshot points to this segment")

    def _directory(self, topic_id: int, *, cold: bool) -> str:
        return paths.topic_dir(self._cold_root if cold else self._root, topic_id)

    def _wal_bytes(self, name: str) -> int:
        return sum(self._disk.size(file.path) for file in wal_files(self._disk, paths.shard_path(self._root, name)))

    def _advance(self, size: int) -> None:
        self._done_bytes += size
        self._progress(self._done_bytes, self._total_bytes)


def _segments_of(images: list[TopicImage]) -> Segments:
    return {
        (image.topic_id, segment.first_seq, segment.cold): segment
        for image in images
        for segment in image.segments
        if segment.sealed and not segment.cleared
    }
