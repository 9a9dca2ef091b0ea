"""Plans the reading of a data directory, a backup or a cold directory: which files have which seqs.

Nothing is written and nothing locked: the server may be running. `file_state` says what is read and when.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from topics import limits
from topics.engine import log_reading
from topics.engine.block import Block
from topics.engine.topic_log import TopicLog
from topics.errors import TopicNotFound
from topics.model.record import payload_of
from topics.spark.file_partition import (
    FilePartition,
    GapPiece,
    InlinePiece,
    OutOfRange,
    Piece,
    SegmentPiece,
    SegmentRange,
    SeqRun,
    TailPiece,
    TopicRange,
    WalPiece,
)
from topics.spark.file_state import StoredTopic, load
from topics.spark.offsets import Gap
from topics.storage import paths
from topics.storage.fs import Disk, RealDisk
from topics.storage.sealed_block import ClearedBlock

PARTITION_RECORDS = 250_000
"""Records in a partition by default, at most: some 25 segments, read in a fraction of a second."""

PARTITIONS_EVEN = 4
"""By default the number of partitions is a multiple of this, all of the same size: with five on two cores, one core
would do three of them."""

BATCH_PARTITION_RECORDS = 500_000
"""In a partition of a batch query, at most: a task costs 15 ms of CPU and more, whatever it reads. Their number is a
multiple of the cores of the machine that plans."""

INLINE_BYTES_MAX = 64 * 1024
"""Records that only the WAL has travel with the partition, up to this size."""


class FileLog:
    """The files as they were when this object was created; create another one to see what came since.

    `cold_path` is needed when segments are on the cold tier. `path` may also be a cold directory alone: then topics go
    by their ids, as `#0000000A`, and have neither floors nor gaps, because only a snapshot knows those.
    """

    def __init__(self, path: str, cold_path: str | None = None, disk: Disk | None = None) -> None:
        self.path = path.rstrip("/") or "/"
        self.cold_path = (cold_path or "").rstrip("/")
        self._topics = load(disk or RealDisk(), self.path, self.cold_path)

    def topics(self) -> dict[str, TopicRange]:
        return {name: _range_of(topic) for name, topic in self._topics.items()}

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int:
        """The first seq with a time of `ts` (ms) or later; all seqs before it are older. Lost seqs, whose time is
        unknown, count as later, or, with `behind_losses`, as older."""
        log = self._topic(topic).log
        seq = _seq_at(log, ts)
        while behind_losses and seq <= log.head_seq and (gap := log_reading.gap_at(log, seq - 1)) is not None:
            seq = gap.gap_to + 1
        return seq

    def partitions(
        self,
        topic: str,
        start: int,
        end: int,
        min_partitions: int = 0,
        max_records: int = 0,
        from_ts: int | None = None,
        to_ts: int | None = None,
    ) -> list[FilePartition]:
        """Seqs [start, end] as partitions, in order; those of `from_ts <= ts < to_ts` (ms) if given.

        Every seq is either deleted, or a record or part of a gap in exactly one partition. A partition has at most
        `max_records` seqs (0: 250 000, and all about the same). There are at least `min_partitions`, unless some would
        be empty. The same arguments give the same partitions.
        """
        stored = self._topic(topic)
        if start < 1 or end > stored.log.head_seq:
            raise OutOfRange(topic, start, end, stored.log.head_seq)
        if from_ts is not None:
            start = max(start, _seq_at(stored.log, from_ts))
        if to_ts is not None:
            end = min(end, _seq_at(stored.log, to_ts) - 1)
        if start > end:
            return []
        pieces = [*self._gaps(stored.log, start, end), *self._pieces(stored, start, end)]
        pieces.sort(key=lambda piece: piece.start)
        total = sum(map(_seqs, pieces))
        records = max_records or even_share(total)
        if min_partitions:
            records = min(records, -(-total // min_partitions))
        partitions: list[FilePartition] = []
        first = start
        for group in _grouped(pieces, max(records, 1)):
            partitions.append(
                FilePartition(self.path, self.cold_path, topic, stored.topic_id, first, group[-1].end, tuple(group))
            )
            first = group[-1].end + 1
        if partitions:
            partitions[-1] = replace(partitions[-1], end=end)
        return partitions

    def _topic(self, name: str) -> StoredTopic:
        if name not in self._topics:
            raise TopicNotFound(name)
        return self._topics[name]

    @staticmethod
    def _gaps(log: TopicLog, start: int, end: int) -> Iterator[GapPiece]:
        """The losses a reader that begins at `start` is told about."""
        at = start
        while at <= end:
            gap = log_reading.gap_at(log, at - 1)
            if gap is not None:
                yield GapPiece(Gap(gap.gap_from, min(gap.gap_to, end), gap.reason))
                at = gap.gap_to + 1
            else:
                at = next((lost.first for lost in log.lost_ranges if lost.first > at), end + 1)

    def _pieces(self, stored: StoredTopic, start: int, end: int) -> Iterator[Piece]:
        start = max(start, stored.log.earliest_seq)
        for block in stored.log.blocks:
            first, last = max(start, block.first_seq), min(end, block.last_seq)
            if first > last or block.live_count == 0 or isinstance(block, ClearedBlock):
                continue
            if not isinstance(block, Block):
                deleted = [block.first_seq + position for position in sorted(set(block.unflagged))]
                yield self._segment_piece(stored, block.first_seq, first, last, deleted)
                continue
            dead = [seq for seq in range(first, last + 1) if not block.is_live(seq - block.first_seq)]
            flushed = block.first_seq + block.flushed_count - 1
            if first <= flushed:
                yield _tail_piece(stored, block, first, min(last, flushed), dead)
            if last > flushed:
                yield from _wal_pieces(stored, block, max(first, flushed + 1), last, dead)

    def _segment_piece(
        self, stored: StoredTopic, first_seq: int, start: int, end: int, deleted: Iterable[int]
    ) -> SegmentPiece:
        image = stored.segments[first_seq]
        # If it is not there yet, it may be by the time it is read.
        roots = [root for root in (self.path, self.cold_path) if root]
        directories = [paths.topic_dir(root, stored.topic_id) for root in roots]
        return SegmentPiece(
            tuple(reversed(directories) if image.cold else directories),
            first_seq,
            image.data_bytes,
            start,
            end,
            _runs(deleted, start, end),
        )


def _tail_piece(stored: StoredTopic, block: Block, start: int, end: int, dead: list[int]) -> Piece:
    """Records that are in a snapshot and not yet in a segment."""
    base = block.first_seq
    if sum(block.sizes[start - base : end - base + 1]) <= INLINE_BYTES_MAX:
        return _inline_piece(block, start, end)
    places = tuple((piece.file.path, *piece.place) for piece in stored.tails[base])
    return TailPiece(places, base, start, end, _runs(dead, start, end))


def _wal_pieces(stored: StoredTopic, block: Block, start: int, end: int, dead: list[int]) -> Iterator[Piece]:
    """Records that are not in a segment yet. Routers' copies are not in the WAL either, so they travel inline."""
    base = block.first_seq
    if sum(block.sizes[start - base : end - base + 1]) <= INLINE_BYTES_MAX:
        yield _inline_piece(block, start, end)
        return
    at = start
    for run in stored.wal_runs:
        first, last = max(at, run.first_seq), min(end, run.last_seq)
        if first <= last:
            if at < first:
                yield _inline_piece(block, at, first - 1)
            yield WalPiece(run.path, first, last, _runs(dead, first, last))
            at = last + 1
    if at <= end:
        yield _inline_piece(block, at, end)


def _inline_piece(block: Block, start: int, end: int) -> InlinePiece:
    records = []
    for seq in range(start, end + 1):
        at = seq - block.first_seq
        fragment, node, tag = block.fragments[at], block.nodes[at], block.tags[at]
        if fragment is not None:
            records.append(
                (
                    seq,
                    block.timestamps[at],
                    None if node is None else node.encode(),
                    None if tag is None else tag.encode(),
                    payload_of(fragment, block.meta_at[at]),
                )
            )
    return InlinePiece(start, end, tuple(records))


def _grouped(pieces: Iterable[Piece], records_max: int) -> Iterator[list[Piece]]:
    """The pieces in groups of at most `records_max` records; a piece that does not fit is cut. Gaps do not count."""
    group: list[Piece] = []
    room = records_max
    for piece in pieces:
        rest = piece
        while _seqs(rest) > room:
            if room:
                group.append(_cut(rest, rest.start, rest.start + room - 1))
                rest = _cut(rest, rest.start + room, rest.end)
            yield group
            group, room = [], records_max
        group.append(rest)
        room -= _seqs(rest)
    if group:
        yield group


def even_share(total: int, records_max: int = PARTITION_RECORDS, even: int = PARTITIONS_EVEN) -> int:
    """How many records each partition has when their number is a multiple of `even`."""
    partitions = -(-total // records_max)
    partitions += -partitions % even
    return max(-(-total // max(partitions, 1)), limits.SPARK_TASK_RECORDS)


def _seqs(piece: Piece) -> int:
    return 0 if isinstance(piece, GapPiece) else piece.end - piece.start + 1


def _cut(piece: Piece, start: int, end: int) -> Piece:
    match piece:
        case SegmentPiece() | TailPiece() | WalPiece():
            deleted = ((max(first, start), min(last, end)) for first, last in piece.deleted)
            return replace(piece, start=start, end=end, deleted=tuple(run for run in deleted if run[0] <= run[1]))
        case InlinePiece():
            return InlinePiece(start, end, tuple(record for record in piece.records if start <= record[0] <= end))
        case GapPiece():
            return piece


def _runs(seqs: Iterable[int], start: int, end: int) -> tuple[SeqRun, ...]:
    """Ascending seqs as runs, those within [start, end]."""
    runs: list[SeqRun] = []
    for seq in seqs:
        if start <= seq <= end:
            if runs and runs[-1][1] == seq - 1:
                runs[-1] = (runs[-1][0], seq)
            else:
                runs.append((seq, seq))
    return tuple(runs)


def _seq_at(log: TopicLog, ts: int) -> int:
    older_to = 0
    for block in log.blocks:
        if block.last_ts >= ts:
            older = block.expired_before(ts)
            return block.first_seq + older if older else older_to + 1
        older_to = block.last_seq
    return older_to + 1 if log.blocks or ts <= log.last_ts else log.head_seq + 1


def _range_of(stored: StoredTopic) -> TopicRange:
    log = stored.log
    return TopicRange(
        name=stored.name,
        epoch=stored.topic_id,
        earliest_seq=log.earliest_seq,
        head_seq=log.head_seq,
        evict_floor=log.evict_floor,
        cap_lost_seq=log.cap_lost_seq,
        ttl_lost_seq=log.ttl_lost_seq,
        crash_lost_seq=log.crash_lost_seq,
        source_trim_lost_seq=log.source_trim_lost_seq,
        lost_ranges=tuple(log.lost_ranges),
        segments=tuple(
            SegmentRange(
                block.first_seq,
                block.last_seq,
                block.first_ts,
                block.last_ts,
                sealed=not isinstance(block, Block),
                cold=block.first_seq in stored.segments and stored.segments[block.first_seq].cold,
                cleared=isinstance(block, ClearedBlock),
            )
            for block in log.blocks
        ),
        last_ts=log.last_ts,
        schema=stored.schema,
    )
