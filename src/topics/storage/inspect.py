"""Dumps one file of a data directory entry by entry, good or bad, without trusting any of it. The log in the words of
`model/operation.py`.

Which kind of file it is says its magic, else its name. A bad frame is shown with what is wrong with it, and the
dump goes on behind it where its lengths, an index or a sync mark tell where that is. The last entry of a WAL file
is the verdict its reader would give.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from topics.storage import heads, paths, segment_format, segment_tags, snapshot, wal_positions
from topics.storage.errors import CorruptFile, StorageError, UnknownVersion
from topics.storage.frame import (
    APPEND,
    BATCH_CONTINUES,
    CHECKPOINT_MARK,
    DURABLE,
    FRAME_KIND_MAX,
    HAS_NODE,
    HAS_TAG,
    OVERHEAD_BYTES,
    Frame,
    FrameDecoder,
    FrameKind,
    start_of,
)
from topics.storage.fs import Disk, MappedBytes
from topics.storage.operation_codec import decode_control
from topics.storage.paths import SegmentPart
from topics.storage.segment_format import SegmentFrame, frame_at
from topics.storage.snapshot_chain import decode_image
from topics.storage.wal_mark import find_sync_mark
from topics.storage.wal_reader import EndReason, scan
from topics.storage.wal_writer import wal_files

_FLAG_NAMES = {HAS_TAG: "tag", HAS_NODE: "node", DURABLE: "durable", BATCH_CONTINUES: "continues"}
_CHECKSUM_WRONG = "the checksum does not match"


class FileKind(StrEnum):
    WAL = "WAL file"
    SEGMENT = "segment data"
    INDEX = "segment index"
    TAGS = "segment tags"
    SNAPSHOT = "snapshot"
    HEADS = "heads"
    POSITIONS = "WAL positions"


class NotInspectable(StorageError):
    """The file is none this program writes. Name a WAL file, a segment's file, a snapshot or `heads`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece of a file. `wrong` is empty when nothing is. `seq` is 0 where there is none."""

    offset: int
    kind: str
    wrong: str = ""
    flags: str = ""
    topic_id: int = 0
    seq: int = 0
    ts: int = 0
    node: bytes | None = None
    tag: bytes | None = None
    payload: bytes = b""
    fields: dict[str, object] = field(default_factory=dict)


def kind_of(disk: Disk, path: str) -> FileKind:
    name = path.rpartition("/")[2]
    magic = bytes(disk.map(path)[:8])
    for known, kind in (
        (snapshot.MAGIC, FileKind.SNAPSHOT),
        (segment_tags.MAGIC, FileKind.TAGS),
        (heads.MAGIC, FileKind.HEADS),
        (wal_positions.MAGIC, FileKind.POSITIONS),
    ):
        if magic == known:
            return kind
    for suffix, kind in (
        (".log", FileKind.WAL),
        (".data", FileKind.SEGMENT),
        (".idx", FileKind.INDEX),
        (".tags", FileKind.TAGS),
        (".bin", FileKind.SNAPSHOT),
    ):
        if name.removesuffix(paths.TEMPORARY_SUFFIX).endswith(suffix):
            return kind
    raise NotInspectable(f"{path} is neither a WAL file, a segment's file, a snapshot nor a heads file")


def entries(disk: Disk, path: str, kind: FileKind) -> Iterator[Entry]:
    match kind:
        case FileKind.WAL:
            return _wal_entries(disk, path)
        case FileKind.SEGMENT:
            return _segment_entries(disk, path)
        case FileKind.INDEX:
            return _index_entries(disk, path)
        case FileKind.TAGS:
            return _tag_entries(disk, path)
        case FileKind.SNAPSHOT:
            return _snapshot_entries(disk, path)
        case FileKind.POSITIONS:
            return iter((_positions_entry(disk, path),))
        case FileKind.HEADS:
            return _head_entries(disk, path)


# WAL


def _wal_entries(disk: Disk, path: str) -> Iterator[Entry]:
    buffer = disk.map(path)
    decoder = FrameDecoder(buffer)
    intact = 0
    for frame in decoder:
        intact += 1
        yield _wal_entry(frame)
    while _is_something(buffer, decoder.stop.offset):
        bad = decoder.stop
        if bad.frame is not None:
            yield _wal_entry(bad.frame, _CHECKSUM_WRONG)
            behind = bad.frame[8]
        else:
            yield Entry(bad.offset, "?", bad.problem)
            behind = find_sync_mark(buffer, bad.offset + 1) or len(buffer)
        decoder = FrameDecoder(buffer, behind)
        yield from map(_wal_entry, decoder)
    yield _wal_verdict(disk, buffer, path, intact)


def _is_something(buffer: MappedBytes, offset: int) -> bool:
    """Whether a frame could be here that is worth a line: not what is left of one, nor preallocated space."""
    found = buffer[offset : offset + OVERHEAD_BYTES]
    return len(found) == OVERHEAD_BYTES and bool(found.strip(b"\0"))


def _wal_entry(frame: Frame, wrong: str = "") -> Entry:
    kind, flags, topic_id, seq, ts, node, tag, payload, _ = frame
    if kind not in (APPEND, CHECKPOINT_MARK):
        try:
            about = msgspec.to_builtins(decode_control(payload))
        except msgspec.DecodeError as error:
            wrong = wrong or f"no operation this version knows: {error}"
        else:
            name = about.pop("is")
            about.pop("topic_id", None)
            about.pop("ts")
            return Entry(start_of(frame), name, wrong, _flag_names(flags), topic_id, seq, ts, fields=about)
    return Entry(
        start_of(frame),
        _frame_name(kind),
        wrong,
        _flag_names(flags),
        topic_id,
        seq,
        ts,
        node if flags & HAS_NODE else None,
        tag if flags & HAS_TAG else None,
        payload,
    )


def _frame_name(kind: int) -> str:
    if kind == APPEND:
        return "appended"
    return FrameKind(kind).name.lower() if 1 <= kind <= FRAME_KIND_MAX else f"type {kind}"


def _wal_verdict(disk: Disk, buffer: MappedBytes, path: str, intact: int) -> Entry:
    """`intact`: the frames before the first bad one."""
    first_lsn = paths.parse_wal_file_name(_name(path))
    followed = first_lsn is not None and wal_files(disk, paths.parent(path))[-1].first_lsn > first_lsn
    frames = scan(buffer, path, followed=followed)
    try:
        for _ in frames:
            pass
    except CorruptFile as error:
        return Entry(error.offset, "corrupt", error.reason)
    except UnknownVersion as error:
        return Entry(0, "unknown version", error.version)
    end = frames.end
    assert end is not None, "the scan is over"
    if end.reason is EndReason.TORN:
        return Entry(end.offset, "torn tail", fields={"frames": intact, "reason": end.detail})
    return Entry(end.offset, "clean end", fields={"frames": intact})


# Segments


def _segment_entries(disk: Disk, path: str) -> Iterator[Entry]:
    buffer = disk.map(path)
    starts = _starts_in_index(disk, path)
    offset, size = 0, len(buffer)
    while offset < size:
        frame = frame_at(buffer, offset, size)
        if frame is not None:
            yield _segment_entry(offset, frame)
            offset = frame.end
        else:
            incomplete = size - offset < segment_format.OVERHEAD_BYTES
            yield Entry(offset, "?", "an incomplete frame" if incomplete else "a frame whose lengths do not fit")
            offset = next((start for start in starts if start > offset), size)


def _segment_entry(offset: int, frame: SegmentFrame) -> Entry:
    return Entry(
        offset,
        "deleted" if frame.delete_byte == segment_format.DELETED else "record",
        "" if frame.intact else _CHECKSUM_WRONG,
        _flag_names(frame.flags),
        seq=frame.seq,
        ts=frame.ts,
        node=frame.node,
        tag=frame.tag,
        payload=frame.payload,
    )


def _starts_in_index(disk: Disk, path: str) -> list[int]:
    """Where frames begin according to the index beside the file: only used to find a way on."""
    index = path.removesuffix(f".{SegmentPart.DATA}") + f".{SegmentPart.INDEX}"
    if not path.endswith(f".{SegmentPart.DATA}") or not disk.exists(index):
        return []
    content = disk.read(index)
    whole = content[: len(content) - len(content) % segment_format.ENTRY.size]
    return sorted(offset for offset, _, _, _ in segment_format.ENTRY.iter_unpack(whole))


def _index_entries(disk: Disk, path: str) -> Iterator[Entry]:
    content = disk.read(path)
    parsed = paths.parse_segment_name(_name(path))
    first_seq = parsed[0] if parsed else 0
    data_path = path.removesuffix(f".{SegmentPart.INDEX}") + f".{SegmentPart.DATA}"
    data = disk.map(data_path) if disk.exists(data_path) else None
    size = segment_format.ENTRY.size
    for position in range(len(content) // size):
        offset, length, ts, flags = segment_format.ENTRY.unpack_from(content, position * size)
        seq = first_seq + position
        wrong = ""
        if data is not None:
            frame = frame_at(data, offset, len(data))
            if frame is None or (frame.seq, frame.ts, frame.end) != (seq, ts, offset + length):
                wrong = "the entry does not match its record"
        fields: dict[str, object] = {"data_offset": offset, "data_len": length}
        yield Entry(position * size, "entry", wrong, _flag_names(flags), 0, seq, ts, fields=fields)
    if len(content) % size:
        yield Entry(len(content) - len(content) % size, "?", "an incomplete entry")


def _tag_entries(disk: Disk, path: str) -> Iterator[Entry]:
    buffer = disk.map(path)
    if len(buffer) < segment_tags.HEADER.size:
        yield Entry(0, "?", "too short for a tag table")
        return
    _, version, count, first_seq, record_count, positions_at = segment_tags.HEADER.unpack_from(buffer)
    fields = {"version": version, "tags": count, "records": record_count, "positions_at": positions_at}
    try:
        table = segment_tags.TagTable(buffer, path, first_seq, record_count)
    except (CorruptFile, UnknownVersion) as error:
        yield Entry(0, "tag table", error.message, seq=first_seq, fields=fields)
        return
    yield Entry(0, "tag table", seq=first_seq, fields=fields)
    for row, (tag, positions) in enumerate(table.rows()):
        at = segment_tags.HEADER.size + row * segment_tags.ROW.size
        seqs = [first_seq + position for position in positions]
        yield Entry(at, "tag", seq=seqs[0] if seqs else 0, tag=tag, fields={"records": len(seqs), "seqs": seqs})


# Snapshots and heads


def _snapshot_entries(disk: Disk, path: str) -> Iterator[Entry]:
    try:
        file = snapshot.load(disk, path)
    except (CorruptFile, UnknownVersion) as error:
        yield Entry(getattr(error, "offset", 0), "snapshot", error.message)
        return
    fields: dict[str, object] = msgspec.to_builtins(file.head) | {"topics": len(file.offsets), "removed": file.removed}
    yield Entry(0, "snapshot", fields=fields)
    for found in file.topics():
        at = found.image.offset
        try:
            image = decode_image(file.at(found.image))
        except msgspec.DecodeError as error:
            yield Entry(at, "topic", str(error), topic_id=found.topic_id)
            continue
        about = msgspec.to_builtins(image)
        segments, keys = about.pop("segments"), about.pop("keys")
        about |= {"segments": len(segments), "keys": len(keys)}
        yield Entry(at, "topic", topic_id=image.topic_id, seq=image.head_seq, fields=about)
        for segment in image.segments:
            parts = {name: getattr(segment, name) for name in segment.__struct_fields__}
            kind = "segment" if segment.sealed else "tail"
            yield Entry(at, kind, topic_id=image.topic_id, seq=segment.first_seq, fields=parts)
        for tail in found.tails:
            yield from _tail_entries(file.at(tail.place), tail.place.offset, found.topic_id)


def _tail_entries(content: bytes, base: int, topic_id: int) -> Iterator[Entry]:
    """The records of a tail that this file has."""
    offset = 0
    while offset < len(content):
        frame = frame_at(content, offset, len(content))
        if frame is None:
            yield Entry(base + offset, "?", "a frame whose lengths do not fit", topic_id=topic_id)
            return
        yield replace(_segment_entry(base + offset, frame), topic_id=topic_id)
        offset = frame.end


def _head_entries(disk: Disk, path: str) -> Iterator[Entry]:
    found = heads.decode_heads(disk.read(path))
    if found is None:
        yield Entry(0, "heads", "not a heads file of a known format")
        return
    yield Entry(0, "heads", fields={"boot_id": found.boot_id.decode("ascii", "replace"), "topics": len(found.slots)})
    for offset, topic_id, seq in found.slots:
        yield Entry(offset, "head", topic_id=topic_id, seq=seq)


def _positions_entry(disk: Disk, path: str) -> Entry:
    found = wal_positions.decode_positions(disk.read(path))
    if found is None:
        return Entry(0, "positions", "not a file of WAL positions of a known format")
    cut = found.cut
    if cut is None:
        return Entry(0, "positions", fields={"synced": found.synced})
    return Entry(
        0, "positions", fields={"start": cut.start, "cut": cut.number, "lsns": cut.lsns, "synced": found.synced}
    )


def _flag_names(flags: int) -> str:
    return "+".join(name for bit, name in _FLAG_NAMES.items() if flags & bit)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
