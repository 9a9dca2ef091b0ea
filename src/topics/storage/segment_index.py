"""Where the records of one segment are: the offsets in `.idx`, or those found by walking `.data`.

`.idx` is never evidence. Every entry that is used is checked against the frame it leads to; when one leads astray, or
the file is missing or of the wrong length, all offsets are taken from `.data`, and `rebuilt` tells.
"""

from array import array

from topics.storage.fs import MappedBytes
from topics.storage.segment_data import SegmentData
from topics.storage.segment_format import ENTRY, unpack_entry_offset


class SegmentIndex:
    """`entries` is what `.idx` holds, good or bad; empty when there is none. `count` is the number of records."""

    __slots__ = ("_data", "_offsets", "count", "entries", "path")

    def __init__(self, data: SegmentData, path: str, entries: MappedBytes) -> None:
        self._data = data
        self._offsets: array[int] | None = None
        self.path = path
        self.entries = entries
        self.count = len(entries) // ENTRY.size
        if not self._fits():
            self.rebuild()

    @property
    def rebuilt(self) -> bool:
        return self._offsets is not None

    def offset(self, position: int) -> int:
        """Where the frame at the position begins. Hot: twice for every read."""
        if self._offsets is not None:
            return self._offsets[position]
        offset: int = unpack_entry_offset(self.entries, position * ENTRY.size)[0]
        data = self._data
        if not data.has_seq(offset, data.first_seq + position):
            return self.rebuild()[position]
        return offset

    def end_before(self, position: int) -> int:
        """Where the frame before the position ends."""
        return self.offset(position) if position < self.count else self._data.size

    def offsets(self, start: int, stop: int) -> "array[int] | memoryview[int]":
        """Where the frames at positions [start, stop) begin, as the index has it: not checked."""
        if self._offsets is not None:
            return self._offsets[start:stop]
        entries = memoryview(self.entries[start * ENTRY.size : stop * ENTRY.size])
        return entries.cast("I")[:: ENTRY.size // 4]  # the first field of each

    def rebuild(self) -> "array[int]":
        """Walk the data, checking every record; from then on the entries are not used. Also for a reader in bulk who
        found them to lead astray. Raises `CorruptFile` where it is the data."""
        heads = self._data.checked_heads()
        self.count = len(heads)
        self._offsets = array("I", [offset for offset, _, _, _ in heads])
        return self._offsets

    def encoded(self) -> bytes:
        """What `.idx` should hold, derived from `.data`."""
        heads = self._data.heads(self.count)
        return b"".join([ENTRY.pack(offset, end - offset, ts, flags) for offset, end, ts, flags in heads])

    def _fits(self) -> bool:
        """Whether the entries end where the data ends, at a frame with the seq it should have."""
        data, last = self._data, self.count - 1
        if len(self.entries) != self.count * ENTRY.size:
            return False
        if self.count == 0:
            return data.size == 0
        offset, length, _, _ = ENTRY.unpack_from(self.entries, last * ENTRY.size)
        return bool(offset + length == data.size and data.has_seq(offset, data.first_seq + last))
