"""Checks one segment: every record of its `.data`, and that `.idx`, `.tags` and `.text` say what the records say."""

from collections.abc import Iterator

from topics.model.record import fragment_of, with_tag
from topics.storage.errors import CorruptFile
from topics.storage.frame import StoredRecord
from topics.storage.fs import Disk
from topics.storage.segment_format import DELETED, ENTRY, LIVE, frame_at
from topics.storage.segment_reader import SegmentReader


def segment_problems(disk: Disk, reader: SegmentReader) -> Iterator[CorruptFile]:
    """Everything wrong with `.data` and with the other files. Goes on after a bad record if its lengths make sense."""
    if _is_sound(disk, reader):
        return
    data = reader.data
    damaged = False
    offset = 0
    for seq in range(reader.first_seq, reader.last_seq + 1):
        frame = frame_at(data.content, offset, data.size)
        if frame is None or frame.seq != seq or not frame.intact:
            damaged = True
            yield data.corrupt(offset, seq)
        if frame is None:
            return
        offset = frame.end
        if frame.delete_byte not in (LIVE, DELETED):
            neither = "a delete byte that is neither 00 nor D5; the record is live"
            yield CorruptFile(data.path, offset - 1, neither)
    if offset != data.size:
        yield CorruptFile(data.path, offset, "bytes after the last record of the index")
    if not damaged:
        yield from _sidecar_problems(disk, reader)


def _is_sound(disk: Disk, reader: SegmentReader) -> bool:
    """Whether there is nothing to report: the usual answer, in a third of the time of the search for what is."""
    try:
        tags = reader.encoded_tags()  # reads every record
        index = reader.index.encoded()
    except CorruptFile:
        return False
    if not _text_matches(reader):
        return False
    if any(
        not disk.exists(path) or disk.read(path) != expected
        for path, expected in ((reader.index.path, index), (reader.tags_path, tags))
    ):
        return False
    content = reader.data.content
    delete_bytes = {content[offset + length - 1] for offset, length, _, _ in ENTRY.iter_unpack(index)}
    return delete_bytes <= {LIVE, DELETED}


def _sidecar_problems(disk: Disk, reader: SegmentReader) -> Iterator[CorruptFile]:
    path, entries, expected = reader.index.path, reader.index.entries, reader.index.encoded()
    if len(entries) != len(expected):
        yield CorruptFile(path, 0, f"{len(entries)} bytes, expected {len(expected)}")
    for at in range(0, min(len(expected), len(entries)), ENTRY.size):
        if entries[at : at + ENTRY.size] != expected[at : at + ENTRY.size]:
            yield CorruptFile(path, at, "the entry does not match its record")
    if not disk.exists(reader.tags_path):
        yield CorruptFile(reader.tags_path, 0, "missing")
    elif disk.read(reader.tags_path) != reader.encoded_tags():
        yield CorruptFile(reader.tags_path, 0, "the tag table does not match the records")
    if not _text_matches(reader):
        yield CorruptFile(reader.text_path, 0, "the texts do not match the records; readers go by the records")


def _text_matches(reader: SegmentReader) -> bool:
    """Whether `.text` says what the records say, where there is one and it is whole: it is not synced, so a power cut
    may leave it torn, and then nobody reads it. A record that was dead when the segment was sealed has no text."""
    text = reader.text
    return text is None or all(
        text.slice(position, position + 1, tags=True) in (None, b"", _text_of(record))
        for position, record in enumerate(reader.slices(0, reader.count, with_deleted=True))
    )


def _text_of(record: StoredRecord) -> bytes:
    seq, ts, node, tag, payload = record
    text, _ = fragment_of(seq, ts, None if node is None else node.decode(), payload)
    return text if tag is None else with_tag(text, tag.decode())
