"""The tasks of an audit: reading shares of a topic, and comparing files of an archive with live records.

A task gets a small value that names files and seqs, and returns one with counts; no record leaves it. A picture is the
counts of seqs in `BUCKETS` equal parts of the topic's seq line.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from topics.errors import TopicsError
from topics.spark.archive.errors import ArchiveDiffers
from topics.spark.archive.place import Place
from topics.spark.archive.rows import require_file, rows_of, to_forget
from topics.spark.archive.state import ArchivedFile, Forgotten
from topics.spark.columns import Columns
from topics.spark.file_partition import FilePartition, GapPiece
from topics.spark.file_reader import read_partition

BUCKETS = 200
COMPARED = ("ts", "node", "tag", "data")

Ints = NDArray[np.int64]


def bucket_width(head_seq: int) -> int:
    return max(1, -(-head_seq // BUCKETS))


def buckets_of(seqs: Ints, width: int) -> Ints:
    return np.bincount((seqs - 1) // width, minlength=BUCKETS)[:BUCKETS].astype(np.int64)


@dataclass(frozen=True, slots=True)
class ShareDue:
    """A part of a topic to read. `width`: seqs in a bucket."""

    partition: FilePartition
    width: int


@dataclass(slots=True)
class ShareRead:
    """`seqs` is how many there were to read; `deleted` counts records in the files that are marked as deleted."""

    topic: str
    seqs: int
    read: int = 0
    deleted: int = 0
    lost: list[tuple[int, int, str]] = field(default_factory=list)
    live: Ints = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    problems: list[str] = field(default_factory=list)


def read_share(due: ShareDue) -> ShareRead:
    partition = due.partition
    found = ShareRead(partition.topic, partition.seqs)
    stored = sum(piece.end - piece.start + 1 for piece in partition.pieces if not isinstance(piece, GapPiece))
    try:
        for columns in read_partition(partition):
            found.lost += [(gap.gap_from, gap.gap_to or 0, str(gap.reason)) for gap in columns.gaps]
            if len(columns):
                found.read += len(columns)
                found.live += buckets_of(columns.seq.to_numpy(), due.width)
    except TopicsError as error:
        found.problems.append(error.message)
        return found
    found.deleted = stored - found.read
    return found


@dataclass(frozen=True, slots=True)
class SpanDue:
    """Seqs [start, end] of an archived topic, the file that has them (None: the archive has none of them), and where
    the same seqs are in the data directory."""

    place: Place
    topic: str
    start: int
    end: int
    file: ArchivedFile | None
    partitions: tuple[FilePartition, ...]
    width: int
    forgotten: tuple[Forgotten, ...] = ()


@dataclass(slots=True)
class SpanCompared:
    """`seqs` is how many there were to compare. `matched`: live, archived and identical. `archived_only`: deleted or
    lost since they were archived."""

    topic: str
    seqs: int
    matched: int = 0
    archived_only: int = 0
    archived: Ints = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    problems: list[str] = field(default_factory=list)


def compare_span(due: SpanDue) -> SpanCompared:
    found = SpanCompared(due.topic, due.end - due.start + 1)
    rows = _ArchivedRows(due, found)
    try:
        for partition in due.partitions:
            for columns in read_partition(partition):
                if len(columns):
                    _compare(due, rows, columns, found)
        rows.finish()
    except (TopicsError, OSError, pa.ArrowException) as error:
        found.problems.append(f"{due.file.path if due.file else due.topic}: {error}")
    found.archived_only = rows.count - found.matched
    return found


class _ArchivedRows:
    """The rows of a file in the order of seqs, read as needed and dropped once passed."""

    def __init__(self, due: SpanDue, found: SpanCompared) -> None:
        self.count = 0
        self._due = due
        self._found = found
        self._last_seq = due.start - 1
        self._batches = self._read()
        self._waiting: list[pa.RecordBatch] = []

    def up_to(self, seq: int) -> pa.Table | None:
        """The rows not returned yet, at least up to this seq if there are that many."""
        while not self._waiting or self._waiting[-1].column("seq")[-1].as_py() < seq:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._waiting.append(batch)
        return pa.Table.from_batches(self._waiting) if self._waiting else None

    def drop_to(self, seq: int) -> None:
        self._waiting = [batch for batch in self._waiting if batch.column("seq")[-1].as_py() > seq]

    def finish(self) -> None:
        for _ in self._batches:
            pass
        file = self._due.file
        if file is not None and self.count != file.count:
            self._found.problems.append(f"{file.path}: {self.count} records, but {file.count} were archived")

    def _read(self) -> Iterator[pa.RecordBatch]:
        file = self._due.file
        if file is None:
            return
        try:
            path = require_file(self._due.place, file)
        except ArchiveDiffers as error:
            self._found.problems.append(error.message)
            return
        for batch in rows_of(self._due.place, path):
            seqs = batch.column("seq").to_numpy()
            if seqs[0] <= self._last_seq or (np.diff(seqs) <= 0).any() or seqs[-1] > self._due.end:
                self._found.problems.append(f"{file.path}: its seqs are out of order, or not those that were archived")
                return
            self._last_seq = int(seqs[-1])
            _require_forgotten(self._due, "the archive", seqs, batch.column("tag"), self._found)
            self.count += len(seqs)
            self._found.archived += buckets_of(seqs, self._due.width)
            yield batch


def _require_forgotten(due: SpanDue, where: str, seqs: Ints, tags: pa.Array, found: SpanCompared) -> None:
    for entry in due.forgotten:
        left = seqs[to_forget(seqs, tags, entry)]
        if len(left):
            found.problems.append(
                f'topic "{due.topic}": {len(left)} records with the tag {entry.match} were to be forgotten and are in '
                f"{where}, the first is seq {left[0]}"
            )


def _compare(due: SpanDue, rows: _ArchivedRows, live: Columns, found: SpanCompared) -> None:
    live_seqs = live.seq.to_numpy()
    _require_forgotten(due, "the topic", live_seqs, live.tag, found)
    archived = rows.up_to(int(live_seqs[-1]))
    archived_seqs = np.empty(0, np.int64) if archived is None else archived.column("seq").to_numpy()
    at = np.searchsorted(archived_seqs, live_seqs)
    there = np.zeros(len(live_seqs), bool)
    inside = at < len(archived_seqs)
    there[inside] = archived_seqs[at[inside]] == live_seqs[inside]
    if not there.all():
        missing = live_seqs[~there]
        found.problems.append(
            f'topic "{due.topic}": {len(missing)} live records are not in the archive, the first is seq {missing[0]}'
        )
    if archived is not None and there.any():
        same = archived.take(pa.array(at[there]))
        kept = pa.array(np.flatnonzero(there))
        differ = _differing(same, live, kept)
        found.matched += len(kept)
        if differ.any():
            first = int(live_seqs[there][np.flatnonzero(differ)[0]])
            found.problems.append(
                f'topic "{due.topic}": {int(differ.sum())} archived records differ from the live ones, '
                f"the first is seq {first}"
            )
    rows.drop_to(int(live_seqs[-1]))


def _differing(archived: pa.Table, live: Columns, kept: pa.Array) -> NDArray[np.bool_]:
    differ = np.zeros(len(kept), bool)
    for name in COMPARED:
        theirs = archived.column(name).combine_chunks()
        ours = getattr(live, name).take(kept)
        if name == "ts":
            theirs = theirs.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        same = pc.fill_null(pc.equal(theirs, ours), False)
        neither = pc.and_(pc.is_null(theirs), pc.is_null(ours))
        differ |= ~pc.or_(same, neither).to_numpy(zero_copy_only=False)
    metas = archived.column("meta").combine_chunks()
    ours = live.meta_map().take(kept)
    if metas.null_count < len(metas) or ours.null_count < len(ours):
        pairs = zip(metas.to_pylist(), ours.to_pylist(), strict=True)
        differ |= np.fromiter((theirs != own for theirs, own in pairs), bool, len(kept))
    return differ
