"""`audit`: proves that a data directory accounts for every seq, and that an archive matches it.

It changes nothing and works in parallel. It checks every segment, WAL shard and snapshot byte by byte
(`storage.verify`); reads every record, and checks that `read + deleted + lost = head` for each topic; and compares
every file of the archive with the live records. The directory must not be in use: audit a backup, or stop the server.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from pyspark.sql import SparkSession

from topics.clock import Clock, SystemClock
from topics.spark.archive import table
from topics.spark.archive.place import Place
from topics.spark.archive.state import ArchivedFile, ArchiveState, TopicCut
from topics.spark.errors import InvalidOption
from topics.spark.file_log import FileLog
from topics.spark.file_partition import FilePartition, TopicRange
from topics.spark.jobs.audit_report import AuditSummary, LostRange, Picture, TopicAudit, page
from topics.spark.jobs.audit_tasks import (
    BUCKETS,
    Ints,
    ShareDue,
    ShareRead,
    SpanCompared,
    SpanDue,
    bucket_width,
    compare_span,
    read_share,
)
from topics.spark.jobs.progress import Progress, Silent
from topics.storage.errors import ColdTierUnknown, FilesChanging, NoDataDirectory, StorageError
from topics.storage.findings import Severity
from topics.storage.fs import RealDisk
from topics.storage.identity import read_id
from topics.storage.verify import Checked, Report, unused, verify_directory

T = TypeVar("T")
R = TypeVar("R")

SLICES_PER_CORE = 8


@dataclass(frozen=True, slots=True)
class AuditSpec:
    """`html`: where to write the report as a page."""

    data: str
    cold: str | None = None
    archive: str | None = None
    html: str | None = None


@dataclass(slots=True)
class _Topic:
    """What the audit has found out about a topic so far."""

    range: TopicRange
    read: int = 0
    deleted: int = 0
    unaccounted: int = 0
    lost: list[LostRange] = field(default_factory=list)
    live: Ints = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    archived: Ints = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    matched: int = 0
    archive_only: int = 0
    cut: TopicCut | None = None
    problems: list[str] = field(default_factory=list)


def audit(
    spark: SparkSession, spec: AuditSpec, progress: Progress | None = None, *, clock: Clock | None = None
) -> AuditSummary:
    """Raises `NoDataDirectory`, `DirectoryInUse`, `NotAnArchive`, `ArchiveDamaged`. Damage is not raised: the summary
    reports it."""
    state = check_spec(spec)
    with unused(RealDisk(), spec.data):
        return _Run(spark, spec, state, progress or Silent(), clock or SystemClock()).run()


def check_spec(spec: AuditSpec) -> ArchiveState | None:
    """Checks what needs no Spark: that the directory exists and nobody uses it, and that the archive is one."""
    if not os.path.isdir(spec.data):
        raise NoDataDirectory(spec.data)
    if spec.html is not None and not os.path.isdir(os.path.dirname(os.path.abspath(spec.html))):
        raise InvalidOption("html", f"{spec.html}: there is no such directory")
    with unused(RealDisk(), spec.data):
        return None if spec.archive is None else table.load(spec.archive)


class _Run:
    def __init__(
        self, spark: SparkSession, spec: AuditSpec, state: ArchiveState | None, progress: Progress, clock: Clock
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._state = state
        self._progress = progress
        self._clock = clock
        self._problems: list[str] = []
        self._forgotten = [] if state is None else state.forgotten

    def run(self) -> AuditSummary:
        began_ns = self._clock.monotonic_ns()
        report = self._verify()
        topics = self._read(report)
        if self._state is not None:
            self._compare(topics, self._state)
        self._progress.end()
        summary = self._summary(report, topics, (self._clock.monotonic_ns() - began_ns) // 1_000_000)
        if self._spec.html is not None:
            _write(self._spec.html, page(summary, [_picture(found) for found in topics.values()]))
        return summary

    def _verify(self) -> Report:
        self._progress.begin("checking files", unit="bytes")
        done = 0

        def show(done_bytes: int, _: int) -> None:
            nonlocal done
            self._progress.advance(done_bytes - done)
            done = done_bytes

        return verify_directory(RealDisk(), self._spec.data, self._spec.cold or "", show, self._each)

    def _each(self, check: Callable[[T], Checked], dues: Sequence[T]) -> Iterable[Checked]:
        return self._map(check, dues)

    def _map(self, work: Callable[[T], R], dues: Sequence[T]) -> Iterable[R]:
        if not dues:
            return []
        context = self._spark.sparkContext
        slices = min(len(dues), SLICES_PER_CORE * context.defaultParallelism)
        # Results are small, and the driver holds one partition of them at a time.
        return context.parallelize(dues, slices).map(work).toLocalIterator(prefetchPartitions=True)

    def _read(self, report: Report) -> dict[str, _Topic]:
        try:
            log = FileLog(self._spec.data, self._spec.cold)
        except (ColdTierUnknown, FilesChanging):
            raise  # the files may be sound
        except StorageError as error:
            # `report` says what is wrong with the files; without a replay there are no floors to account by.
            self._problems.append(f"the records cannot be read: {error.message}")
            return {}
        topics = {name: _Topic(found) for name, found in log.topics().items()}
        shares = []
        for name, topic in topics.items():
            head = topic.range.head_seq
            partitions = log.partitions(name, 1, head) if head else []
            topic.unaccounted += self._account(topic, partitions)
            shares += [ShareDue(partition, bucket_width(head)) for partition in partitions]
        self._progress.begin("reading", sum(share.partition.seqs for share in shares), unit="seqs")
        found: ShareRead
        for found in self._map(read_share, shares):
            topic = topics[found.topic]
            topic.read += found.read
            topic.deleted += found.deleted
            topic.live += found.live
            topic.lost += [LostRange(*lost) for lost in found.lost]
            topic.problems += found.problems
            self._progress.advance(found.seqs)
        for topic in topics.values():
            self._require_sum(topic)
        return topics

    @staticmethod
    def _account(topic: _Topic, partitions: Sequence[FilePartition]) -> int:
        """The number of seqs in no file, in no known loss, and not cleared by a delete. Counts cleared ones as
        deleted."""
        known = topic.range
        cleared = [(block.first_seq, block.last_seq) for block in known.segments]
        unaccounted, at = 0, 1
        pieces = sorted((piece.start, piece.end) for partition in partitions for piece in partition.pieces)
        for start, end in [*pieces, (known.head_seq + 1, known.head_seq + 1)]:
            for first, last in _without_prefix(at, start - 1, known.earliest_seq):
                inside = sum(max(0, min(last, to) - max(first, since) + 1) for since, to in cleared)
                topic.deleted += inside
                unaccounted += last - first + 1 - inside
            topic.deleted += max(0, min(start, known.earliest_seq) - at)
            at = max(at, end + 1)
        return unaccounted

    @staticmethod
    def _require_sum(topic: _Topic) -> None:
        lost = sum(loss.gap_to - loss.gap_from + 1 for loss in topic.lost)
        total = topic.read + topic.deleted + lost
        if topic.problems:
            return
        topic.unaccounted = topic.range.head_seq - total
        if topic.unaccounted:
            topic.problems.append(
                f'topic "{topic.range.name}": {topic.read} read + {topic.deleted} deleted + {lost} lost = {total}, '
                f"but its head is {topic.range.head_seq}"
            )

    def _compare(self, topics: dict[str, _Topic], state: ArchiveState) -> None:
        assert self._spec.archive is not None
        place = Place.of(self._spec.archive)
        spans: list[SpanDue] = []
        server_id = read_id(RealDisk(), self._spec.data)
        if server_id and state.server_id and server_id != state.server_id:
            self._problems.append(
                f"archive: it belongs to another server (its id is {state.server_id}, but "
                f"{self._spec.data} has {server_id})"
            )
            return
        log = FileLog(self._spec.data, self._spec.cold) if topics else None
        for name, cut in sorted(state.topics.items()):
            topic = topics.get(name)
            if topic is None:
                self._problems.append(f'archive: its topic "{name}" is not in {self._spec.data}')
                continue
            topic.cut = cut
            if wrong := _wrong_cut(cut, topic.range):
                topic.problems.append(wrong)
                continue
            assert log is not None
            width = bucket_width(topic.range.head_seq)
            for start, end, file in _spans(state.files_of(name), cut):
                partitions = tuple(log.partitions(name, start, end))
                forgotten = tuple(entry for entry in state.forgotten if entry.topic == name)
                spans.append(SpanDue(place, name, start, end, file, partitions, width, forgotten))
        self._progress.begin("comparing the archive", sum(span.end - span.start + 1 for span in spans), unit="seqs")
        found: SpanCompared
        for found in self._map(compare_span, spans):
            topic = topics[found.topic]
            topic.matched += found.matched
            topic.archive_only += found.archived_only
            topic.archived += found.archived
            topic.problems += found.problems
            self._progress.advance(found.seqs)

    def _summary(self, report: Report, topics: dict[str, _Topic], elapsed_ms: int) -> AuditSummary:
        audited = tuple(_audited(topics[name]) for name in sorted(topics))
        problems = [
            f"{finding.path} at byte {finding.offset}: {finding.reason}" for finding in report.of(Severity.PROBLEM)
        ]
        problems += self._problems
        unchecked = tuple(finding.reason for finding in report.of(Severity.UNCHECKED))
        found_any = bool(problems) or any(topic.problems for topic in audited)
        return AuditSummary(
            data=self._spec.data,
            archive=self._spec.archive,
            sound=not found_any and not unchecked,
            topics=audited,
            problems=tuple(problems),
            unchecked=unchecked,
            notes=(
                *(f"{finding.path}: {finding.reason}" for finding in report.of(Severity.NOTE)),
                *(f"forgotten of {entry.topic}: {entry.match}, up to seq {entry.to_seq}" for entry in self._forgotten),
            ),
            checked_bytes=report.checked_bytes,
            wal_frames=report.wal_frames,
            records=sum(topic.read for topic in audited),
            archived_records=sum(topic.archive_matched + topic.archive_only for topic in audited),
            elapsed_ms=elapsed_ms,
        )


def _without_prefix(first: int, last: int, earliest_seq: int) -> list[tuple[int, int]]:
    """The part of a hole from the first live record on: seqs below it that are not lost were deleted."""
    first = max(first, earliest_seq)
    return [(first, last)] if first <= last else []


def _spans(files: Sequence[ArchivedFile], cut: TopicCut) -> Iterable[tuple[int, int, ArchivedFile | None]]:
    """Puts every archived seq in exactly one span; a file's span begins where the one before it ended."""
    at = cut.from_seq + 1
    for file in files:
        yield at, file.last_seq, file
        at = file.last_seq + 1
    if at <= cut.to_seq:
        yield at, cut.to_seq, None


def _wrong_cut(cut: TopicCut, known: TopicRange) -> str:
    """Why a comparison would be pointless; empty if it is not."""
    if cut.epoch != known.epoch:
        return f'archive: it has another topic "{cut.topic}" (epoch {cut.epoch}, here {known.epoch})'
    if cut.to_seq > known.head_seq:
        return f'archive: topic "{cut.topic}" is archived up to seq {cut.to_seq}, but ends at {known.head_seq}'
    if cut.deleted < 0:
        return f'archive: topic "{cut.topic}" has {cut.records} records and {cut.lost} lost of {cut.to_seq} seqs'
    return ""


def _audited(topic: _Topic) -> TopicAudit:
    return TopicAudit(
        topic=topic.range.name,
        epoch=topic.range.epoch,
        head_seq=topic.range.head_seq,
        read=topic.read,
        deleted=topic.deleted,
        lost=sum(loss.gap_to - loss.gap_from + 1 for loss in topic.lost),
        unaccounted=topic.unaccounted,
        lost_ranges=tuple(sorted(topic.lost, key=lambda loss: loss.gap_from)),
        archived_to=None if topic.cut is None else topic.cut.to_seq,
        archive_matched=topic.matched,
        archive_only=topic.archive_only,
        problems=tuple(topic.problems),
    )


def _picture(topic: _Topic) -> Picture:
    """For every bucket: how many of its seqs are live, deleted, lost and archived."""
    head = topic.range.head_seq
    width = bucket_width(head)
    sizes = [max(0, min(head, (number + 1) * width) - number * width) for number in range(BUCKETS)]
    lost = np.zeros(BUCKETS, np.int64)
    for loss in topic.lost:
        for number in range((loss.gap_from - 1) // width, (loss.gap_to - 1) // width + 1):
            first, last = number * width + 1, (number + 1) * width
            lost[number] += min(last, loss.gap_to) - max(first, loss.gap_from) + 1
    return Picture(topic.range.name, head, sizes, topic.live.tolist(), lost.tolist(), topic.archived.tolist())


def _write(path: str, text: str) -> None:
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
