"""Reads a planned partition into Arrow columns. The seq and lengths of every record are checked, and its checksum
unless only seqs are wanted.

Reading a partition again gives the same rows, except for records deleted since.

A running server replaces its files: it seals the WAL into segments, moves segments to the cold tier, and removes them
with their records. If the file of a piece is gone, the piece is planned again, and what was lost meanwhile becomes a
gap. After `REPLANS_MAX` attempts in a row the read fails with `FilesChanging`.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from topics.model.payload import SEPARATOR, split_payload
from topics.spark.columns import ALL_FIELDS, PAYLOAD, Columns
from topics.spark.file_log import FileLog
from topics.spark.file_partition import (
    FilePartition,
    GapPiece,
    InlinePiece,
    Piece,
    SegmentPiece,
    SeqRun,
    TailPiece,
    TopicReplaced,
    WalPiece,
)
from topics.spark.offsets import Gap
from topics.storage import paths
from topics.storage.errors import CorruptFile, FilesChanging
from topics.storage.frame import APPEND, HAS_NODE, HAS_TAG, StoredRecord
from topics.storage.fs import Disk, RealDisk
from topics.storage.segment_columns import FrameColumns, Ints, read_columns, read_texts
from topics.storage.segment_format import decode_records
from topics.storage.segment_reader import SegmentReader
from topics.storage.wal_reader import scan
from topics.wire.arrow import array_of, numbers_of

BATCH_RECORDS_MAX = 10_000
BATCH_BYTES_MAX = 16 * 1024 * 1024
REPLANS_MAX = 5
FOUND_IN_TEXTS = frozenset({"seq", PAYLOAD})


class _Vanished(Exception):
    """What was planned is no longer where it was."""


def read_partition(
    partition: FilePartition, disk: Disk | None = None, fields: frozenset[str] = ALL_FIELDS
) -> Iterator[Columns]:
    """The partition's records and gaps, at most 10 000 records or 16 MiB at a time (a larger record comes alone).
    Fields not in `fields` stay null; `PAYLOAD` among them leaves the choice between `data` and `served`.

    Raises `CorruptFile` with file and offset, `TopicReplaced`, `FilesChanging`, and `OutOfRange` if a power cut took
    records that were planned.
    """
    return _read(disk or RealDisk(), partition, fields, REPLANS_MAX)


def _read(disk: Disk, partition: FilePartition, fields: frozenset[str], replans: int) -> Iterator[Columns]:
    for piece in partition.pieces:
        try:
            # Opened here and now: from then on nothing can vanish.
            batches = _open(disk, partition, piece, fields)
        except (FileNotFoundError, _Vanished) as error:
            if not replans:
                raise FilesChanging(partition.root, REPLANS_MAX) from error
            for again in _planned_anew(disk, partition, piece):
                yield from _read(disk, again, fields, replans - 1)
        else:
            yield from batches


def _planned_anew(disk: Disk, partition: FilePartition, piece: Piece) -> list[FilePartition]:
    log = FileLog(partition.root, partition.cold_root, disk)
    topic = log.topics().get(partition.topic)
    if topic is None or topic.epoch != partition.epoch:
        raise TopicReplaced(partition.topic, partition.epoch)
    return log.partitions(partition.topic, piece.start, piece.end)


def _open(disk: Disk, partition: FilePartition, piece: Piece, fields: frozenset[str]) -> Iterator[Columns]:
    match piece:
        case SegmentPiece():
            return _segment_batches(_segment_reader(disk, piece, fields), piece, fields)
        case TailPiece():
            return _batches_of(_tail_records(disk, piece))
        case WalPiece():
            return _batches_of(_wal_records(disk, partition.epoch, piece))
        case InlinePiece():
            return _batches_of(piece.records)
        case GapPiece():
            return iter([_columns_of((), (piece.gap,))])


# Segments


def _segment_reader(disk: Disk, piece: SegmentPiece, fields: frozenset[str]) -> SegmentReader:
    for directory in piece.directories:
        path = paths.segment_path(directory, piece.first_seq, paths.SegmentPart.DATA)
        if disk.exists(path):
            reader = SegmentReader(disk, directory, piece.first_seq, piece.data_bytes)
            if fields <= FOUND_IN_TEXTS and PAYLOAD in fields:
                _ = reader.text  # opened now, too
            if reader.last_seq < piece.end:
                raise CorruptFile(path, piece.data_bytes, f"it ends at seq {reader.last_seq}, before {piece.end}")
            return reader
    raise _Vanished


def _segment_batches(reader: SegmentReader, piece: SegmentPiece, fields: frozenset[str]) -> Iterator[Columns]:
    start, end = piece.start - piece.first_seq, piece.end - piece.first_seq + 1
    # Seqs alone do not need the content of a record: its place says that it is there. The text has its own checksum.
    takes_texts = fields <= FOUND_IN_TEXTS and (PAYLOAD not in fields or reader.text is not None)
    while start < end:
        stop = min(start + BATCH_RECORDS_MAX, end)
        while stop - start > 1 and reader.bytes_between(start, stop) > BATCH_BYTES_MAX:
            stop = start + (stop - start) // 2
        found = read_columns(reader, start, stop, with_sums=not takes_texts)
        kept = _live(found, piece)
        if PAYLOAD in fields and takes_texts:
            texts = read_texts(reader, start, stop) if len(kept) == stop - start else None
            if texts is not None:
                yield _served(found, texts)
                start = stop
                continue
            found = read_columns(reader, start, stop)
        if len(kept):
            yield _columns_from(found, kept, fields)
        start = stop


def _live(found: FrameColumns, piece: SegmentPiece) -> Ints:
    dead = found.deleted
    batch_seq = int(found.seq[0])
    for first, last in piece.deleted:
        dead[max(first - batch_seq, 0) : max(last - batch_seq + 1, 0)] = True
    return np.flatnonzero(~dead)


def _served(found: FrameColumns, texts: memoryview) -> Columns:
    nothing = pa.nulls(len(found.seq), pa.string())
    no_times = pa.nulls(len(found.seq), pa.int64())
    return Columns(numbers_of(found.seq), no_times, nothing, nothing, nothing, nothing, served=texts)


def _columns_from(found: FrameColumns, kept: Ints, fields: frozenset[str]) -> Columns:
    """Creates no Python object for a record, unless it has meta."""
    nothing = pa.nulls(len(kept), pa.string())
    data, meta = nothing, nothing
    if not fields.isdisjoint(("data", PAYLOAD, "meta")):
        data, meta = _split(_texts(found.data, found.payload_at, found.payload_end, kept))
    node = (found.flags & HAS_NODE) != 0
    tag = (found.flags & HAS_TAG) != 0
    return Columns(
        seq=numbers_of(found.seq[kept]),
        ts=numbers_of(found.ts[kept]),
        node=_optional(found.data, found.node_at, found.tag_at, kept, node) if "node" in fields else nothing,
        tag=_optional(found.data, found.tag_at, found.payload_at, kept, tag) if "tag" in fields else nothing,
        data=data,
        meta=meta,
    )


def _texts(data: memoryview, starts: Ints, ends: Ints, kept: Ints) -> pa.Array:
    """The bytes [start, end) of each kept record. Arrow copies them in one call: it sees the fields and the bytes
    between them as one long array of texts, of which every second one is taken."""
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    whole = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)], null_count=0
    )
    return whole.take(numbers_of(2 * kept))


def _optional(data: memoryview, starts: Ints, ends: Ints, kept: Ints, there: NDArray[np.bool_]) -> pa.Array:
    there = there[kept]
    if not there.any():
        return pa.nulls(len(kept), pa.string())
    found = _texts(data, starts, ends, kept)
    if not there.all():
        validity = pa.py_buffer(np.packbits(there, bitorder="little"))
        found = pa.Array.from_buffers(pa.binary(), len(found), [validity, *found.buffers()[1:]])
    return found.cast(pa.string())


def _split(payload: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Data and meta of payloads."""
    content = payload.buffers()[2]
    if content is None or SEPARATOR not in memoryview(content).tobytes():
        return payload.cast(pa.string()), pa.nulls(len(payload), pa.string())
    return _split_each(payload.to_pylist())


def _split_each(payloads: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    parts = [split_payload(payload) for payload in payloads]
    datas = array_of([data for data, _, _ in parts], pa.binary())
    metas = array_of([meta for _, meta, _ in parts], pa.binary())
    return datas.cast(pa.string()), metas.cast(pa.string())


# Records one by one: those not in a segment yet


def _tail_records(disk: Disk, piece: TailPiece) -> list[StoredRecord]:
    deleted = {seq for run in piece.deleted for seq in _seqs(run)}
    path, content = piece.places[-1][0], b""
    for path, offset, length in piece.places:
        content += disk.map(path)[offset : offset + length]

    def corrupt(offset: int, seq: int) -> CorruptFile:
        return CorruptFile(path, offset, f"seq {seq}, of a tail, cannot be read")

    records = decode_records(content, 0, piece.first_seq, piece.end + 1, corrupt, with_deleted=True)
    return [record for record in records if record[0] >= piece.start and record[0] not in deleted]


def _wal_records(disk: Disk, topic_id: int, piece: WalPiece) -> list[StoredRecord]:
    deleted = {seq for run in piece.deleted for seq in _seqs(run)}
    records: list[StoredRecord] = []
    due = piece.start
    # Read, not mapped: the server may truncate the file behind the records that are wanted.
    for frame in scan(disk.read(piece.path), piece.path):
        kind, flags, of_topic, seq, ts, node, tag, payload, _ = frame
        if kind == APPEND and of_topic == topic_id and seq == due:
            if seq not in deleted:
                records.append((seq, ts, node if flags & HAS_NODE else None, tag if flags & HAS_TAG else None, payload))
            if seq == piece.end:
                return records
            due += 1
    raise _Vanished


def _seqs(run: SeqRun) -> range:
    return range(run[0], run[1] + 1)


def _batches_of(records: Sequence[StoredRecord]) -> Iterator[Columns]:
    left = iter(records)
    while batch := list(islice(left, BATCH_RECORDS_MAX)):
        yield _columns_of(batch)


def _columns_of(records: Sequence[StoredRecord], gaps: tuple[Gap, ...] = ()) -> Columns:
    data, meta = _split_each([record[4] for record in records])
    return Columns(
        seq=array_of([record[0] for record in records], pa.int64()),
        ts=array_of([record[1] for record in records], pa.int64()),
        node=array_of([record[2] for record in records], pa.binary()).cast(pa.string()),
        tag=array_of([record[3] for record in records], pa.binary()).cast(pa.string()),
        data=data,
        meta=meta,
        gaps=gaps,
    )
