"""Writes segments, each as a whole: from then on only delete bytes change. Failures are `DiskFailed`.

Nobody points to a segment while it is written: what a crash leaves of one is removed before it is written again.
"""

from collections.abc import Iterable, Sequence

from topics.storage import paths
from topics.storage.errors import failing_as
from topics.storage.fs import Disk, replace_file, write_file
from topics.storage.segment_format import DATA_BYTES_MAX, SegmentInput, encode_records, flagged_deleted
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_tags import encode_tags


def remove_segment(disk: Disk, directory: str, first_seq: int) -> None:
    """Drop a whole segment. `.data` goes first: without it the others mean nothing. Repeating it is fine, and so is one
    that was never written."""
    with failing_as(directory, "dropping a segment"):
        if not disk.exists(directory):
            return
        for part in paths.SegmentPart:
            disk.remove(paths.segment_path(directory, first_seq, part))
        disk.sync_dir(directory)


def rewrite_sidecars(disk: Disk, directory: str, first_seq: int) -> None:
    """Write `.idx` and `.tags` of a sealed segment anew from its `.data`. It goes without `.text`."""
    reader = SegmentReader(disk, directory, first_seq)
    with failing_as(directory, "rewriting an index"):
        disk.remove(reader.text_path)
        replace_file(disk, reader.index.path, reader.index.encoded(), sync_dir=False)
        replace_file(disk, reader.tags_path, reader.encoded_tags())


def write_segment(
    disk: Disk,
    directory: str,
    first_seq: int,
    records: Sequence[SegmentInput],
    dead: Iterable[int] = (),
    text: bytes | None = None,
) -> int:
    """A segment of these records, those at the positions `dead` marked deleted; returns the length of `.data`. `text`:
    what `.text` is to hold. `.data`, `.idx` and `.tags` are durable when it returns. `.text` is not: nobody needs it,
    and its checksums tell whether it is whole."""
    frames, entries = encode_records(first_seq, records, 0)
    for position in dead:
        frames[position] = flagged_deleted(frames[position])
    data = b"".join(frames)
    if len(data) > DATA_BYTES_MAX:
        raise ValueError(f"a segment cannot have more than {DATA_BYTES_MAX} bytes, and these are {len(data)}")
    tags = encode_tags(first_seq, [tag for _, _, tag, _ in records])
    with failing_as(directory, "writing a segment"):
        remove_segment(disk, directory, first_seq)  # what a crash may have left
        disk.make_dir(directory)
        write_file(disk, paths.segment_path(directory, first_seq, paths.SegmentPart.DATA), data)
        write_file(disk, paths.segment_path(directory, first_seq, paths.SegmentPart.INDEX), b"".join(entries))
        if text is not None:
            text_path = paths.segment_path(directory, first_seq, paths.SegmentPart.TEXT)
            replace_file(disk, text_path, text, unsafe_no_sync=True)
        tags_path = paths.segment_path(directory, first_seq, paths.SegmentPart.TAGS)
        replace_file(disk, tags_path, tags)
    return len(data)
