"""The two CheckpointMark frames the log itself writes. Their body is JSON; topic id, seq and ts are 0.

    file mark    {"format":2,"shard":n,"first_lsn":n,"start":n}    the first frame of every WAL file
    sync mark    {"synced_bytes":n}                                everything before it, n bytes, was synced

`start` numbers the processes that wrote to the directory: what an earlier one wrote, to whatever shards, came first.

A writer begins its first write after a successful sync with a sync mark. So a valid sync mark proves that
every byte before it was once durable: a bad frame before it is corruption, and never a torn tail. The mark
names its own offset, so bytes that only look like one (in a payload, left over from another file) prove
nothing.
"""

from typing import NamedTuple

import msgspec

from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.frame import DATA_LEN_AT, LENGTH_BYTES, FrameKind, control_frame
from topics.storage.fs import MappedBytes

WAL_FORMAT = 2


class FileMark(NamedTuple):
    shard: int
    first_lsn: int
    start: int


def file_mark(shard: int, first_lsn: int, start: int) -> bytes:
    body = b'{"format":%d,"shard":%d,"first_lsn":%d,"start":%d}' % (WAL_FORMAT, shard, first_lsn, start)
    return control_frame(FrameKind.CHECKPOINT_MARK, 0, 0, 0, body)


def parse_file_mark(body: bytes, path: str) -> FileMark:
    """What the first frame of a file says; the frame's checksum is already known to be good."""
    try:
        fields = msgspec.json.decode(body)
        version = fields["format"]
    except (msgspec.DecodeError, TypeError, KeyError):
        raise CorruptFile(path, 0, "the first frame is not a file mark") from None
    if version != WAL_FORMAT:
        raise UnknownVersion(path, f"WAL format {version}", earlier=isinstance(version, int) and version < WAL_FORMAT)
    return FileMark(fields["shard"], fields["first_lsn"], fields["start"])


def sync_mark(synced_bytes: int) -> bytes:
    return control_frame(FrameKind.CHECKPOINT_MARK, 0, 0, 0, sync_mark_body(synced_bytes))


def sync_mark_body(synced_bytes: int) -> bytes:
    return b'{"synced_bytes":%d}' % synced_bytes


_PREFIX = sync_mark(0)[LENGTH_BYTES:DATA_LEN_AT]
"""How every sync mark goes on after its length, up to the length of its body."""


def find_sync_mark(buffer: MappedBytes, start: int) -> int | None:
    """The offset of the first valid sync mark that begins at or after `start`."""
    at = buffer.find(_PREFIX, start + LENGTH_BYTES)
    while at >= 0:
        mark_at = at - LENGTH_BYTES
        mark = sync_mark(mark_at)
        if buffer[mark_at : mark_at + len(mark)] == mark:
            return mark_at
        at = buffer.find(_PREFIX, at + 1)
    return None
