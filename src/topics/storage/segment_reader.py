"""Reads one segment from maps. A reader costs no heap per record; drop it to unmap its files.

`.data` is the evidence: every record given out has been checked (length, seq, checksum), and a mismatch is
`CorruptFile` with file and offset. `.idx` and `.tags` only say where to look: an entry that leads to another
record, or a file that is missing, short or damaged, is rebuilt from `.data` in memory (`index.rebuilt`,
`tags_rebuilt` tell), and `segment_writer.rewrite_sidecars` writes them anew. `.text` saves rendering records again.

A position is the number of a record in the segment, from 0. Whether the segment holds all it should (a file
cut between two records looks whole) is for the caller to check, who knows what `last_seq` must be.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from topics.storage import paths
from topics.storage.errors import CorruptFile, UnknownVersion, unreadable
from topics.storage.frame import LENGTH_BYTES, StoredRecord
from topics.storage.fs import Disk, MappedBytes
from topics.storage.segment_data import Load, SegmentData
from topics.storage.segment_format import DELETED, decode_records, unpack_length, unpack_ts
from topics.storage.segment_index import SegmentIndex
from topics.storage.segment_tags import TagTable, encode_tags
from topics.storage.segment_text import SegmentText, open_text


def _load(load: Load, path: str) -> MappedBytes:
    try:
        return load(path)
    except FileNotFoundError:
        raise  # who reads beside a server looks for it elsewhere
    except OSError as error:
        raise unreadable(path, error) from error


def _is_there(disk: Disk, path: str) -> bool:
    try:
        return disk.exists(path)
    except OSError as error:
        raise unreadable(path, error) from error


class SegmentReader:
    """See the module. `data_bytes` bounds an active segment to the bytes known to be good; not `mapped`, its files are
    read whole."""

    def __init__(
        self, disk: Disk, directory: str, first_seq: int, data_bytes: int | None = None, *, mapped: bool = True
    ) -> None:
        self._disk = disk
        self._load: Load = partial(_load, disk.map if mapped else disk.read)
        data_path = paths.segment_path(directory, first_seq, paths.SegmentPart.DATA)
        index_path = paths.segment_path(directory, first_seq, paths.SegmentPart.INDEX)
        self.tags_path = paths.segment_path(directory, first_seq, paths.SegmentPart.TAGS)
        self.first_seq = first_seq
        self.data = SegmentData(disk, self._load, data_path, first_seq, data_bytes)
        entries = self._load(index_path) if _is_there(disk, index_path) else b""
        self.index = SegmentIndex(self.data, index_path, entries)
        self.text_path = paths.segment_path(directory, first_seq, paths.SegmentPart.TEXT)
        self._text: SegmentText | None = None
        self._text_looked_up = False
        self._tags: TagTable | None = None
        self._deleted: bytearray | None = None
        self.tags_rebuilt = False

    @property
    def count(self) -> int:
        return self.index.count

    @property
    def last_seq(self) -> int:
        """The seq of the last record; `first_seq - 1` when there is none."""
        return self.first_seq + self.count - 1

    # Records

    def record(self, position: int) -> StoredRecord:
        """One record, deleted or not."""
        return self.slices(position, position + 1, with_deleted=True)[0]

    def slices(self, start: int, stop: int, *, with_deleted: bool = False) -> list[StoredRecord]:
        """The live records at positions [start, stop)."""
        data, index = self.data, self.index
        stop = min(stop, index.count)
        if start >= stop:
            return []
        # One copy out of the map: slicing bytes costs half of slicing a map.
        base = index.offset(start)
        content = data.content[base : index.end_before(stop)]
        first, last = self.first_seq + start, self.first_seq + stop
        return decode_records(content, base, first, last, data.corrupt, with_deleted=with_deleted)

    def frames(self, start: int, stop: int) -> "tuple[memoryview, int, array[int] | memoryview[int]]":
        """The bytes of the frames at positions [start, stop), where they lie and not checked; the offset of the first;
        and the offsets of all as the index has them. For a reader in bulk, who checks every one: to it, a copy would
        cost as much as the checksums."""
        index = self.index
        base = index.offset(start)
        content = memoryview(self.data.content)[base : index.end_before(stop)]
        return content, base, index.offsets(start, stop)

    def ts(self, position: int) -> int:
        found: tuple[int] = unpack_ts(self.data.content, self.index.offset(position))
        return found[0]

    def record_bytes(self, position: int) -> int:
        """What the record takes in `.data`, which is also what it counts for in its topic."""
        length: int = unpack_length(self.data.content, self.index.offset(position))[0]
        return LENGTH_BYTES + length

    def bytes_between(self, start: int, stop: int) -> int:
        """What the records at positions [start, stop) take."""
        return self.index.end_before(stop) - self.index.offset(start)

    def bisect_ts(self, ts: int) -> int:
        """The first position whose record is of `ts` or later; `count` when there is none."""
        return bisect_left(range(self.count), ts, key=self.ts)

    def preload(self) -> "SegmentReader":
        """Has everything at hand that is otherwise looked up when first asked for."""
        self._tag_table()
        _ = self.deleted_bitmap
        return self

    @property
    def text(self) -> SegmentText | None:
        """The records as readers get them, where the segment has them at hand."""
        if not self._text_looked_up:
            if _is_there(self._disk, self.text_path):
                self._text = open_text(self._load(self.text_path), self.first_seq, self.count)
            self._text_looked_up = True
        return self._text

    # Deletes

    def deleted(self, position: int) -> bool:
        return bool(self.deleted_bitmap[position >> 3] >> (position & 7) & 1)

    @property
    def deleted_bitmap(self) -> bytearray:
        """Bit `i & 7` of byte `i >> 3` is set when record i is deleted. Built when first asked for."""
        if self._deleted is None:
            content, bitmap = self.data.content, bytearray(self.count + 7 >> 3)
            for position, (_, end, _, _) in enumerate(self.data.heads(self.count)):
                if content[end - 1] == DELETED:
                    bitmap[position >> 3] |= 1 << (position & 7)
            self._deleted = bitmap
        return self._deleted

    def flag_deleted(self, positions: Sequence[int]) -> None:
        """Flip the delete byte of these records; durable when it returns. Doing it again changes nothing."""
        bitmap, data, index = self.deleted_bitmap, self.data, self.index
        ends = [data.checked_end(index.offset(position), self.first_seq + position) for position in positions]
        data.flag_deleted(ends)
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
        records = self.slices(0, self.count, with_deleted=True)
        return encode_tags(self.first_seq, [tag for _, _, _, tag, _ in records])

    def _tag_table(self) -> TagTable:
        if self._tags is None:
            self._tags = self._stored_tags() or self._rebuilt_tags()
        return self._tags

    def _stored_tags(self) -> TagTable | None:
        if not _is_there(self._disk, self.tags_path):
            return None
        try:
            return TagTable(self._load(self.tags_path), self.tags_path, self.first_seq, self.count)
        except (CorruptFile, UnknownVersion):
            # An index is never evidence: what it should say is in the data.
            return None

    def _rebuilt_tags(self) -> TagTable:
        self.tags_rebuilt = True
        return TagTable(self.encoded_tags(), self.tags_path, self.first_seq, self.count)
