"""What tests of sealed segments share: a topic's segments on a disk in memory, hot and cold."""

from collections.abc import Callable
from typing import NoReturn

from topics.model.record import render_fragment
from topics.storage import paths
from topics.storage.fs import Disk
from topics.storage.segment_format import SegmentInput
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_text import encode_text
from topics.storage.segment_writer import encode_files, write_segment
from topics.storage.segments import Key, Segments

HOT, COLD = "/hot", "/cold"
TOPIC_ID = 10
FIRST_SEQ = 5

RECORDS: list[SegmentInput] = [
    (100, b"me", b"a:1", b'{"x":1}'),
    (100, None, b"a:2", b'2\0{"k":"v"}'),
    (107, None, None, b"null"),
    (110, b"", b"b", b'"four"'),
    (110, b"you", b"a:1", b"5"),
]
FRAGMENTS = [
    render_fragment(5, 100, "me", b'{"x":1}', b"")[0],
    render_fragment(6, 100, None, b"2", b'{"k":"v"}')[0],
    render_fragment(7, 107, None, b"null", b"")[0],
    render_fragment(8, 110, "", b'"four"', b"")[0],
    render_fragment(9, 110, "you", b"5", b"")[0],
]


def seal(
    disk: Disk,
    root: str = HOT,
    first_seq: int = FIRST_SEQ,
    records: list[SegmentInput] = RECORDS,
    text: bytes | None = None,
) -> None:
    files = encode_files(first_seq, records)._replace(text=text)
    write_segment(disk, paths.topic_dir(root, TOPIC_ID), first_seq, files)


def text_of_records() -> bytes:
    """What `.text` of the segment with `RECORDS` holds."""
    nodes = [None if node is None else node.decode() for _, node, _, _ in RECORDS]
    tags = [None if tag is None else tag.decode() for _, _, tag, _ in RECORDS]
    text = encode_text(FIRST_SEQ, FRAGMENTS, nodes, tags, has_meta=True)
    assert text is not None
    return text


def reader_of(disk: Disk, root: str = HOT, first_seq: int = FIRST_SEQ) -> SegmentReader:
    return SegmentReader(disk, paths.topic_dir(root, TOPIC_ID), first_seq)


def segments_of(disk: Disk, *, open_max: int = 100, cold_bytes_max: int = 1 << 20) -> Segments:
    """As a server has them: who asks for a cold one that is not at hand is told so."""
    segments = Segments(disk, HOT, COLD, open_max, cold_bytes_max)
    segments.on_miss = _not_at_hand
    return segments


def _not_at_hand(key: Key, fetch: Callable[[], SegmentReader]) -> NoReturn:
    raise AssertionError(f"{key} is not at hand")
