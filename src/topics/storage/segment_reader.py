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
from itertools import islice

from topics.storage import paths
from topics.storage.errors import CorruptFile, UnknownVersion, failing_as
from topics.storage.frame import LENGTH_BYTES, StoredRecord
from topics.storage.fs import Disk, MappedBytes
from topics.storage.segment_format import (
    DELETED,
    DELETED_BYTE,
    ENTRY,
    LIVE,
    OVERHEAD_BYTES,
    decode_records,
    frame_at,
    frame_heads,
    unpack_length,
    unpack_seq,
    unpack_ts,
)
from topics.storage.segment_tags import TagTable, encode_tags


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
            self.rebuild_index()

    @property
    def last_seq(self) -> int:
        """The seq of the last record; `first_seq - 1` when there is none."""
        return self.first_seq + self.count - 1

    @property
    def index_rebuilt(self) -> bool:
        return self._offsets is not None

    # Records

    def record(self, position: int) -> StoredRecord:
        """One record, deleted or not."""
        return self.slices(position, position + 1, with_deleted=True)[0]

    def slices(self, start: int, stop: int, *, with_deleted: bool = False) -> list[StoredRecord]:
        """The live records at positions [start, stop)."""
        stop = min(stop, self.count)
        if start >= stop:
            return []
        # One copy out of the map: slicing bytes costs half of slicing a map.
        base = self._offset(start)
        data = self._data[base : self._end_before(stop)]
        first, last = self.first_seq + start, self.first_seq + stop
        return decode_records(data, base, first, last, self._corrupt, with_deleted=with_deleted)

    def frames(self, start: int, stop: int) -> "tuple[bytes, int, array[int] | memoryview[int]]":
        """The bytes of the frames at positions [start, stop), not checked; the offset of the first; and the offsets of
        all as the index has them. For a reader in bulk, who checks every one."""
        base = self._offset(start)
        data = self._data[base : self._end_before(stop)]
        if self._offsets is not None:
            return data, base, self._offsets[start:stop]
        entries = memoryview(self._index[start * ENTRY.size : stop * ENTRY.size])
        return data, base, entries.cast("I")[:: ENTRY.size // 4]  # the first field of each

    def ts(self, position: int) -> int:
        found: tuple[int] = unpack_ts(self._data, self._offset(position))
        return found[0]

    def record_bytes(self, position: int) -> int:
        """What the record takes in `.data`, which is also what it counts for in its topic."""
        length: int = unpack_length(self._data, self._offset(position))[0]
        return LENGTH_BYTES + length

    def bytes_between(self, start: int, stop: int) -> int:
        """What the records at positions [start, stop) take."""
        return self._end_before(stop) - self._offset(start)

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
            data, bitmap = self._data, bytearray(self.count + 7 >> 3)
            position = end = 0
            for _, end, _, _ in self._heads():
                if data[end - 1] == DELETED:
                    bitmap[position >> 3] |= 1 << (position & 7)
                position += 1
            self._require_all(position, end)
            self._deleted = bitmap
        return self._deleted

    def flag_deleted(self, positions: Sequence[int]) -> None:
        """Flip the delete byte of these records; durable when it returns. Doing it again changes nothing."""
        bitmap = self.deleted_bitmap
        ends = [self._checked_end(self._offset(position), self.first_seq + position) for position in positions]
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
        entries: list[bytes] = []
        end = 0
        for offset, end, ts, flags in self._heads():
            entries.append(ENTRY.pack(offset, end - offset, ts, flags))
        self._require_all(len(entries), end)
        return b"".join(entries)

    # Checking

    def verify(self, *, sealed: bool = True) -> Iterator[CorruptFile]:
        """Everything wrong with `.data` and, of a sealed segment, with the other files. Goes on after a bad record if
        its lengths make sense."""
        if self._is_sound(sealed=sealed):
            return
        damaged = False
        offset = 0
        for seq in range(self.first_seq, self.last_seq + 1):
            frame = frame_at(self._data, offset, self.data_bytes)
            if frame is None or frame.seq != seq or not frame.intact:
                damaged = True
                yield self._corrupt(offset, seq)
            if frame is None:
                return
            offset = frame.end
            if frame.delete_byte not in (LIVE, DELETED):
                neither = "a delete byte that is neither 00 nor D5; the record is live"
                yield CorruptFile(self.data_path, offset - 1, neither)
        if offset != self.data_bytes:
            yield CorruptFile(self.data_path, offset, "bytes after the last record of the index")
        if sealed and not damaged:
            yield from self._verify_sidecars()

    def _is_sound(self, *, sealed: bool) -> bool:
        """Whether there is nothing to report: the usual answer, in a third of the time of the search for what is."""
        try:
            tags = self.encoded_tags()  # reads every record
            index = self.encoded_index()
        except CorruptFile:
            return False
        if sealed and any(
            not self._disk.exists(path) or self._disk.read(path) != expected
            for path, expected in ((self.index_path, index), (self.tags_path, tags))
        ):
            return False
        data = self._data
        delete_bytes = {data[offset + length - 1] for offset, length, _, _ in ENTRY.iter_unpack(index)}
        return delete_bytes <= {LIVE, DELETED}

    def _verify_sidecars(self) -> Iterator[CorruptFile]:
        expected = self.encoded_index()
        if len(self._index) != len(expected):
            yield CorruptFile(self.index_path, 0, f"{len(self._index)} bytes where {len(expected)} are due")
        for at in range(0, min(len(expected), len(self._index)), ENTRY.size):
            if self._index[at : at + ENTRY.size] != expected[at : at + ENTRY.size]:
                yield CorruptFile(self.index_path, at, "the entry does not match its record")
        if not self._disk.exists(self.tags_path):
            yield CorruptFile(self.tags_path, 0, "missing")
        elif self._disk.read(self.tags_path) != self.encoded_tags():
            yield CorruptFile(self.tags_path, 0, "the tag table does not match the records")

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
        return bool(unpack_seq(self._data, offset)[0] == self.first_seq + position)

    def _offset(self, position: int) -> int:
        if self._offsets is not None:
            return self._offsets[position]
        offset: int = ENTRY.unpack_from(self._index, position * ENTRY.size)[0]
        if not self._is_at(offset, position):
            return self.rebuild_index()[position]
        return offset

    def _end_before(self, position: int) -> int:
        """Where the frame before the position ends."""
        return self._offset(position) if position < self.count else self.data_bytes

    def rebuild_index(self) -> "array[int]":
        """Walk the data, checking every record; from then on the index file is not used. Also for a reader in bulk who
        found the index to lead astray. Raises `CorruptFile` where it is the data."""
        heads = list(frame_heads(self._data, self.data_bytes, self.first_seq))
        end = heads[-1][1] if heads else 0
        stop_seq = self.first_seq + len(heads)
        decode_records(self._data[:end], 0, self.first_seq, stop_seq, self._corrupt, with_deleted=False)
        if end < self.data_bytes:
            raise self._corrupt(end, stop_seq)
        self.count = len(heads)
        self._offsets = array("I", [offset for offset, _, _, _ in heads])
        return self._offsets

    def _heads(self) -> Iterator[tuple[int, int, int, int]]:
        """(offset, end, ts, flags) of each frame, up to one that does not fit: see `_require_all`."""
        return islice(frame_heads(self._data, self.data_bytes, self.first_seq), self.count)

    def _require_all(self, found: int, end: int) -> None:
        if found < self.count:
            raise self._corrupt(end, self.first_seq + found)

    def _checked_end(self, offset: int, seq: int) -> int:
        """Where the frame ends, once everything about it was found right."""
        frame = frame_at(self._data, offset, self.data_bytes)
        if frame is None or frame.seq != seq or not frame.intact:
            raise self._corrupt(offset, seq)
        return frame.end

    def _corrupt(self, offset: int, seq: int) -> CorruptFile:
        frame = frame_at(self._data, offset, self.data_bytes)
        if frame is None:
            reason = "a frame whose lengths do not fit"
        elif frame.seq != seq:
            reason = f"seq {frame.seq} where {seq} is due"
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
