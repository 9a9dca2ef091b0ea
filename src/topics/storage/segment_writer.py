"""Writes segments, each as a whole: from then on only delete bytes change. Failures are `DiskFailed`.

Nobody points to a segment while it is written: what a crash leaves of one is removed before it is written again.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from topics.model.record import Columns, payload_of
from topics.storage import paths
from topics.storage.errors import failing_as
from topics.storage.fs import Disk, replace_file, write_file
from topics.storage.segment_format import DATA_BYTES_MAX, SegmentInput, encode_records, flagged_deleted
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_tags import encode_tags
from topics.storage.segment_text import encode_text


class SegmentFiles(NamedTuple):
    """What the files of a segment hold. Without `text`, readers render its records."""

    data: bytes
    idx: bytes
    tags: bytes
    text: bytes | None = None


class EncodeSegment(Protocol):
    def __call__(self, first_seq: int, columns: Columns, *, with_text: bool) -> SegmentFiles: ...


def _inputs_of(columns: Columns) -> list[SegmentInput]:
    """Hot: once per record. A dead record keeps its place with an empty payload, marked deleted."""
    return [
        (ts, None, None, b"")
        if fragment is None
        else (
            ts,
            None if node is None else node.encode(),
            None if tag is None else tag.encode(),
            payload_of(fragment, meta_at),
        )
        for fragment, ts, meta_at, node, tag in zip(*columns, strict=True)
    ]


def encode_segment(first_seq: int, columns: Columns, *, with_text: bool) -> SegmentFiles:
    """Hot, 0.8 us a record and more."""
    text = None
    fragments = columns.fragments
    if with_text:  # the records as readers get them
        text = encode_text(first_seq, fragments, columns.nodes, columns.tags, has_meta=any(columns.meta_at))
    dead = [position for position, fragment in enumerate(fragments) if fragment is None]
    return encode_files(first_seq, _inputs_of(columns), dead)._replace(text=text)


def encode_files(first_seq: int, records: Sequence[SegmentInput], dead: Iterable[int] = ()) -> SegmentFiles:
    """The files of these records, those at the positions `dead` marked deleted."""
    frames, entries = encode_records(first_seq, records, 0)
    for position in dead:
        frames[position] = flagged_deleted(frames[position])
    data = b"".join(frames)
    if len(data) > DATA_BYTES_MAX:
        raise ValueError(f"a segment cannot have more than {DATA_BYTES_MAX} bytes, and these are {len(data)}")
    return SegmentFiles(data, b"".join(entries), encode_tags(first_seq, [tag for _, _, tag, _ in records]))


def remove_segment(disk: Disk, directory: str, first_seq: int) -> None:
    """Drop a whole segment. `.data` goes first: without it the others mean nothing. Repeating it is fine, and so is one
    that was never written."""
    parts = [paths.segment_path(directory, first_seq, part) for part in paths.SegmentPart]
    with failing_as(directory, "dropping a segment"):
        found = [path for path in parts if disk.exists(path)]
        for path in found:
            disk.remove(path)
        if found:
            disk.sync_dir(directory)


def rewrite_sidecars(disk: Disk, directory: str, first_seq: int) -> None:
    """Write `.idx` and `.tags` of a sealed segment anew from its `.data`. It goes without `.text`."""
    reader = SegmentReader(disk, directory, first_seq)
    with failing_as(directory, "rewriting an index"):
        disk.remove(reader.text_path)
        replace_file(disk, reader.index.path, reader.index.encoded(), sync_dir=False)
        replace_file(disk, reader.tags_path, reader.encoded_tags())


def write_segment(disk: Disk, directory: str, first_seq: int, files: SegmentFiles) -> None:
    """`.data`, `.idx` and `.tags` are durable when it returns. `.text` is not: nobody needs it, and its checksums tell
    whether it is whole."""
    data_path, index_path, tags_path, text_path = (
        paths.segment_path(directory, first_seq, part)
        for part in (paths.SegmentPart.DATA, paths.SegmentPart.INDEX, paths.SegmentPart.TAGS, paths.SegmentPart.TEXT)
    )
    with failing_as(directory, "writing a segment"):
        remove_segment(disk, directory, first_seq)  # what a crash may have left
        disk.make_dir(directory)
        write_file(disk, data_path, files.data)
        write_file(disk, index_path, files.idx)
        if files.text is not None:
            replace_file(disk, text_path, files.text, unsafe_no_sync=True)
        replace_file(disk, tags_path, files.tags)
