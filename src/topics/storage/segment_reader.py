"""Reads one segment from maps. A reader costs no heap per record; drop it to unmap its files.

`.data` is the evidence: every record given out has been checked (length, seq, checksum), and a mismatch is
`CorruptFile` with file and offset. `.idx` and `.tags` only say where to look: an entry that leads to another
record, or a file that is missing, short or damaged, is rebuilt from `.data` in memory (`index_rebuilt`,
`tags_rebuilt` tell), and `segment_writer.rewrite_sidecars` writes them anew.

A position is the number of a record in the segment, from 0. Whether the segment holds all it should (a file
cut between two records looks whole) is for the caller to check, who knows what `last_seq` must be.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

from xxhash import xxh3_64_digest

from topics.storage import paths
from topics.storage.errors import CorruptFile, UnknownVersion, failing_as
from topics.storage.frame import HAS_NODE, HAS_TAG
from topics.storage.fs import Disk, MappedBytes
from topics.storage.segment_format import (
    DELETED,
    DELETED_BYTE,
    ENTRY,
    FIXED_LENGTH,
    HEADER,
    OVERHEAD_BYTES,
    SegmentRecord,
)
from topics.storage.segment_tags import TagTable, encode_tags

_unpack_seq = Struct("<Q").unpack_from
_unpack_length = Struct("<I").unpack_from
_unpack_length_and_seq = Struct("<IBQ").unpack_from
_SEQ_AT = 5
_TS_AT = 13


@dataclass(frozen=True, slots=True)
class Problem:
    """Something `verify` found."""

    path: str
    offset: int
    reason: str


class SegmentReader:
    """See the module. `data_bytes` bounds an active segment to the bytes known to be good; not `mapped`, its files are
    read whole."""

    def __init__(
        self, disk: Disk, directory: str, first_seq: int, data_bytes: int | None = None, *, mapped: bool = True
    ) -> None:
        self._disk = disk
        self._map: Callable[[str], MappedBytes] = disk.map if mapped else disk.read
        self.data_path = paths.segment_path(directory, first_seq, paths.SegmentPart.DATA)
        self.index_path = paths.segment_path(directory, first_seq, paths.SegmentPart.INDEX)
        self.tags_path = paths.segment_path(directory, first_seq, paths.SegmentPart.TAGS)
        self.first_seq = first_seq
        self._data = self._map(self.data_path)
        self.data_bytes = len(self._data) if data_bytes is None else data_bytes
        if self.data_bytes > len(self._data):
            raise CorruptFile(self.data_path, len(self._data), f"shorter than its {data_bytes} durable bytes")
        self._index = self._map(self.index_path) if disk.exists(self.index_path) else b""
        self._offsets: array[int] | None = None
        self._tags: TagTable | None = None
        self._deleted: bytearray | None = None
        self.tags_rebuilt = False
        self.count = len(self._index) // ENTRY.size
        if not self._index_fits():
            self._rebuild_index()

    @property
    def last_seq(self) -> int:
        """The seq of the last record; `first_seq - 1` when there is none."""
        return self.first_seq + self.count - 1

    @property
    def index_rebuilt(self) -> bool:
        return self._offsets is not None

    # Records

    def record(self, position: int) -> SegmentRecord:
        """One record, deleted or not."""
        return self.slices(position, position + 1, with_deleted=True)[0]

    def slices(self, start: int, stop: int, *, with_deleted: bool = False) -> list[SegmentRecord]:
        """The live records at positions [start, stop). Hot: one pass of slicing, checksum included."""
        stop = min(stop, self.count)
        if start >= stop:
            return []
        # One copy out of the map: slicing bytes costs half of slicing a map.
        base = self._offset(start)
        data = self._data[base : self._offset(stop) if stop < self.count else self.data_bytes]
        unpack, digest, size = HEADER.unpack_from, xxh3_64_digest, len(data)
        records: list[SegmentRecord] = []
        add = records.append
        offset = 0
        last = size - OVERHEAD_BYTES
        for seq in range(self.first_seq + start, self.first_seq + stop):
            if offset > last:
                raise self._corrupt(base + offset, seq)
            length, flags, found_seq, ts, node_len, tag_len, data_len = unpack(data, offset)
            end = offset + 4 + length
            if end > size or found_seq != seq or node_len + tag_len + data_len + 34 != length:
                raise self._corrupt(base + offset, seq)
            checksum_at = end - 9
            if digest(data[offset + 4 : checksum_at])[::-1] != data[checksum_at : end - 1]:
                raise self._corrupt(base + offset, seq)
            if with_deleted or data[end - 1] != DELETED:
                node_at = offset + 29
                if flags & 3:
                    tag_at = node_at + node_len
                    data_at = tag_at + tag_len
                    node = data[node_at:tag_at] if flags & HAS_NODE else None
                    tag = data[tag_at:data_at] if flags & HAS_TAG else None
                    add((seq, ts, node, tag, data[data_at:checksum_at]))
                else:
                    add((seq, ts, None, None, data[node_at:checksum_at]))
            offset = end
        return records

    def frames(self, start: int, stop: int) -> "tuple[bytes, int, array[int] | memoryview[int]]":
        """The bytes of the frames at positions [start, stop), not checked; the offset of the first; and the offsets of
        all as the index has them. For a reader in bulk, who checks every one."""
        base = self._offset(start)
        data = self._data[base : self._offset(stop) if stop < self.count else self.data_bytes]
        if self._offsets is not None:
            return data, base, self._offsets[start:stop]
        entries = memoryview(self._index[start * ENTRY.size : stop * ENTRY.size])
        return data, base, entries.cast("I")[:: ENTRY.size // 4]  # the first field of each

    def rebuild_index(self) -> None:
        """For a reader in bulk who found the index to lead astray. Raises `CorruptFile` where it is the data."""
        self._rebuild_index()

    def ts(self, position: int) -> int:
        found: tuple[int] = _unpack_seq(self._data, self._offset(position) + _TS_AT)
        return found[0]

    def record_bytes(self, position: int) -> int:
        """What the record takes in `.data`, which is also what it counts for in its topic."""
        length: int = _unpack_length(self._data, self._offset(position))[0]
        return 4 + length

    def bytes_between(self, start: int, stop: int) -> int:
        """What the records at positions [start, stop) take."""
        return (self._offset(stop) if stop < self.count else self.data_bytes) - self._offset(start)

    def bisect_ts(self, ts: int) -> int:
        """The first position whose record is of `ts` or later; `count` when there is none."""
        return bisect_left(range(self.count), ts, key=self.ts)

    def preload(self) -> "SegmentReader":
        """Has everything at hand that is otherwise looked up when first asked for."""
        self._tag_table()
        _ = self.deleted_bitmap
        return self

    # Deletes

    def deleted(self, position: int) -> bool:
        return bool(self.deleted_bitmap[position >> 3] >> (position & 7) & 1)

    @property
    def deleted_bitmap(self) -> bytearray:
        """Bit `i & 7` of byte `i >> 3` is set when record i is deleted. Built when first asked for."""
        if self._deleted is None:
            self._deleted = bytearray(self.count + 7 >> 3)
            for position, end in enumerate(self._frame_ends()):
                if self._data[end - 1] == DELETED:
                    self._deleted[position >> 3] |= 1 << (position & 7)
        return self._deleted

    def flag_deleted(self, positions: Sequence[int]) -> None:
        """Flip the delete byte of these records; durable when it returns. Doing it again changes nothing."""
        bitmap = self.deleted_bitmap
        ends = [self._end(position) for position in positions]
        with failing_as(self.data_path, "flagging deletes"):
            file = self._disk.open_append(self.data_path)
            try:
                for end in ends:
                    file.write_at(end - 1, DELETED_BYTE)
                file.sync()
            finally:
                file.close()
            self._data = self._map(self.data_path)
        for position in positions:
            bitmap[position >> 3] |= 1 << (position & 7)

    # Tags

    def find_tag(self, tag: bytes) -> list[int]:
        """Positions of the records with this tag, deleted or not, ascending."""
        return self._tag_table().find(tag)

    def find_tag_prefix(self, prefix: bytes) -> list[int]:
        """Positions of the records whose tag begins so, deleted or not, ascending."""
        return self._tag_table().find_prefix(prefix)

    def encoded_tags(self) -> bytes:
        """What `.tags` should hold, derived from `.data`."""
        positions: dict[bytes, list[int]] = {}
        for position, (_, _, _, tag, _) in enumerate(self.slices(0, self.count, with_deleted=True)):
            if tag is not None:
                positions.setdefault(tag, []).append(position)
        return encode_tags(self.first_seq, self.count, positions)

    def encoded_index(self) -> bytes:
        """What `.idx` should hold, derived from `.data`."""
        data, entries, offset = self._data, [], 0
        for end in self._frame_ends():
            _, flags, _, ts, _, _, _ = HEADER.unpack_from(data, offset)
            entries.append(ENTRY.pack(offset, end - offset, ts, flags))
            offset = end
        return b"".join(entries)

    # Checking

    def verify(self) -> Iterator[Problem]:
        """Everything wrong with the three files. Goes on after a bad record if its lengths make sense."""
        damaged = False
        offset = 0
        for position in range(self.count):
            end = self._plausible_end(offset)
            try:
                self._checked_end(offset, self.first_seq + position)
            except CorruptFile as error:
                damaged = True
                yield Problem(error.path, error.offset, error.reason)
            if end is None:
                return
            if self._data[end - 1] not in (0, DELETED):
                yield Problem(self.data_path, end - 1, "a delete byte that is neither 00 nor D5; the record is live")
            offset = end
        if offset != self.data_bytes:
            yield Problem(self.data_path, offset, "bytes after the last record of the index")
        if not damaged:
            yield from self._verify_sidecars()

    def _verify_sidecars(self) -> Iterator[Problem]:
        expected = self.encoded_index()
        if len(self._index) != len(expected):
            yield Problem(self.index_path, 0, f"{len(self._index)} bytes where {len(expected)} are due")
        for at in range(0, min(len(expected), len(self._index)), ENTRY.size):
            if self._index[at : at + ENTRY.size] != expected[at : at + ENTRY.size]:
                yield Problem(self.index_path, at, "the entry does not match its record")
        if not self._disk.exists(self.tags_path):
            yield Problem(self.tags_path, 0, "missing")
        elif self._disk.read(self.tags_path) != self.encoded_tags():
            yield Problem(self.tags_path, 0, "the tag table does not match the records")

    # Where frames are

    def _index_fits(self) -> bool:
        """Whether the index ends where the data ends, at a frame with the seq it should have."""
        if len(self._index) != self.count * ENTRY.size:
            return False
        if self.count == 0:
            return self.data_bytes == 0
        offset, length, _, _ = ENTRY.unpack_from(self._index, (self.count - 1) * ENTRY.size)
        return offset + length == self.data_bytes and self._is_at(offset, self.count - 1)

    def _is_at(self, offset: int, position: int) -> bool:
        if offset > self.data_bytes - OVERHEAD_BYTES:
            return False
        return bool(_unpack_seq(self._data, offset + _SEQ_AT)[0] == self.first_seq + position)

    def _offset(self, position: int) -> int:
        if self._offsets is not None:
            return self._offsets[position]
        offset: int = ENTRY.unpack_from(self._index, position * ENTRY.size)[0]
        if not self._is_at(offset, position):
            return self._rebuild_index()[position]
        return offset

    def _end(self, position: int) -> int:
        return self._checked_end(self._offset(position), self.first_seq + position)

    def _rebuild_index(self) -> "array[int]":
        """Walk the data, checking every record; from then on the index file is not used."""
        offsets = array("I")
        offset = 0
        while offset < self.data_bytes:
            offsets.append(offset)
            offset = self._checked_end(offset, self.first_seq + len(offsets) - 1)
        self._offsets = offsets
        self.count = len(offsets)
        return offsets

    def _frame_ends(self) -> Iterator[int]:
        """Where each frame ends, by lengths and seqs alone."""
        data, unpack, last = self._data, _unpack_length_and_seq, self.data_bytes - OVERHEAD_BYTES
        offset = 0
        for seq in range(self.first_seq, self.first_seq + self.count):
            if offset > last:
                raise self._corrupt(offset, seq)
            length, _, found_seq = unpack(data, offset)
            if found_seq != seq or length > self.data_bytes - offset - 4:
                raise self._corrupt(offset, seq)
            offset += 4 + length
            yield offset

    def _plausible_end(self, offset: int) -> int | None:
        if offset > self.data_bytes - OVERHEAD_BYTES:
            return None
        length, _, _, _, node_len, tag_len, data_len = HEADER.unpack_from(self._data, offset)
        end: int = offset + 4 + length
        fits = end <= self.data_bytes and node_len + tag_len + data_len + FIXED_LENGTH == length
        return end if fits else None

    def _checked_end(self, offset: int, seq: int) -> int:
        """Where the frame ends, once everything about it was found right."""
        end = self._plausible_end(offset)
        if end is None or _unpack_seq(self._data, offset + _SEQ_AT)[0] != seq:
            raise self._corrupt(offset, seq)
        if xxh3_64_digest(self._data[offset + 4 : end - 9])[::-1] != self._data[end - 9 : end - 1]:
            raise self._corrupt(offset, seq)
        return end

    def _corrupt(self, offset: int, seq: int) -> CorruptFile:
        end = self._plausible_end(offset)
        if end is None:
            reason = "a frame whose lengths do not fit"
        elif (found := _unpack_seq(self._data, offset + _SEQ_AT)[0]) != seq:
            reason = f"seq {found} where {seq} is due"
        else:
            reason = "a frame whose checksum does not match"
        return CorruptFile(self.data_path, offset, reason)

    def _tag_table(self) -> TagTable:
        if self._tags is None:
            self._tags = self._stored_tags() or self._rebuilt_tags()
        return self._tags

    def _stored_tags(self) -> TagTable | None:
        if not self._disk.exists(self.tags_path):
            return None
        buffer: MappedBytes = self._map(self.tags_path)
        try:
            return TagTable(buffer, self.tags_path, self.first_seq, self.count)
        except (CorruptFile, UnknownVersion):
            # An index is never evidence: what it should say is in the data.
            return None

    def _rebuilt_tags(self) -> TagTable:
        self.tags_rebuilt = True
        return TagTable(self.encoded_tags(), self.tags_path, self.first_seq, self.count)
