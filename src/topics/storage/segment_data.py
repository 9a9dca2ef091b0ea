"""`.data` of one segment, mapped or read whole: the evidence its other files are derived from and checked against.

Owns the bytes, how many of them count, and the words for what is wrong with a frame. It goes from frame to frame by
their lengths; where a certain record is, `segment_index` knows.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from topics.storage.errors import CorruptFile, failing_as
from topics.storage.fs import Disk, MappedBytes
from topics.storage.segment_format import (
    DELETED_BYTE,
    OVERHEAD_BYTES,
    decode_records,
    frame_at,
    frame_heads,
    unpack_seq,
)

Load = Callable[[str], MappedBytes]
"""Gives the content of a file: a map of it, or a copy."""

Head = tuple[int, int, int, int]
"""(offset, end, ts, flags) of a frame."""


class SegmentData:
    """`size` bounds an active segment to the bytes known to be good; without it, all of them are."""

    __slots__ = ("_disk", "_load", "content", "first_seq", "path", "size")

    def __init__(self, disk: Disk, load: Load, path: str, first_seq: int, size: int | None) -> None:
        self._disk = disk
        self._load = load
        self.path = path
        self.first_seq = first_seq
        self.content = load(path)
        self.size = len(self.content) if size is None else size
        if self.size > len(self.content):
            raise CorruptFile(path, len(self.content), f"shorter than its {size} durable bytes")

    def has_seq(self, offset: int, seq: int) -> bool:
        """Whether a frame at the offset would have this seq. Hot: the check of every index entry that is used."""
        return offset <= self.size - OVERHEAD_BYTES and unpack_seq(self.content, offset)[0] == seq

    def heads(self, count: int) -> Iterator[Head]:
        """The first `count` frames, by lengths and seqs alone; raises `CorruptFile` at one that does not fit."""
        found = end = 0
        for head in islice(frame_heads(self.content, self.size, self.first_seq), count):
            yield head
            end = head[1]
            found += 1
        if found < count:
            raise self.corrupt(end, self.first_seq + found)

    def checked_heads(self) -> list[Head]:
        """Every frame, once everything about all of them was found right."""
        heads = list(frame_heads(self.content, self.size, self.first_seq))
        end = heads[-1][1] if heads else 0
        stop_seq = self.first_seq + len(heads)
        decode_records(self.content[:end], 0, self.first_seq, stop_seq, self.corrupt, with_deleted=False)
        if end < self.size:
            raise self.corrupt(end, stop_seq)
        return heads

    def checked_end(self, offset: int, seq: int) -> int:
        """Where the frame ends, once everything about it was found right."""
        frame = frame_at(self.content, offset, self.size)
        if frame is None or frame.seq != seq or not frame.intact:
            raise self.corrupt(offset, seq)
        return frame.end

    def corrupt(self, offset: int, seq: int) -> CorruptFile:
        """What is wrong with the frame at the offset, which should have this seq."""
        frame = frame_at(self.content, offset, self.size)
        if frame is None:
            reason = "a frame whose lengths do not fit"
        elif frame.seq != seq:
            reason = f"seq {frame.seq} where {seq} is due"
        else:
            reason = "a frame whose checksum does not match"
        return CorruptFile(self.path, offset, reason)

    def flag_deleted(self, ends: Iterable[int]) -> None:
        """Flip the delete byte of the frames that end there; durable when it returns."""
        with failing_as(self.path, "flagging deletes"):
            file = self._disk.open_append(self.path)
            try:
                for end in ends:
                    file.write_at(end - 1, DELETED_BYTE)
                file.sync()
            finally:
                file.close()
            self.content = self._load(self.path)
