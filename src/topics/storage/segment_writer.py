"""Writes segments: an active one that grows at checkpoints, and its sealing. Failures are `DiskFailed`.

What is durable when each returns:

    append     nothing
    flush      every record appended so far, in `.data`; its length is the known-good length after a crash.
               `.idx` is written too but not synced: it can be rebuilt
    seal       `.data`, `.idx` and `.tags`; from then on only delete bytes change. `.text` is written and not synced:
               nobody needs it, and its checksums tell whether it is whole

After a crash an active segment may hold more than its last flush, torn or not. `reopen` cuts it back to the
known-good length: whatever lies beyond is still in the WAL.
"""

from collections.abc import Iterable

from topics.storage import paths
from topics.storage.errors import CorruptFile, failing_as
from topics.storage.fs import Disk, WritableFile, replace_file
from topics.storage.segment_format import DATA_BYTES_MAX, SegmentInput, encode_records
from topics.storage.segment_reader import SegmentReader
from topics.storage.segment_tags import encode_tags


def remove_segment(disk: Disk, directory: str, first_seq: int) -> None:
    """Drop a whole segment. `.data` goes first: without it the others mean nothing. Repeating it is fine."""
    with failing_as(directory, "dropping a segment"):
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


class SegmentAppender:
    """An active segment, made by `create` or `reopen`."""

    def __init__(self, disk: Disk, directory: str, first_seq: int, data: WritableFile, index: WritableFile) -> None:
        self._disk = disk
        self._directory = directory
        self._data_path = paths.segment_path(directory, first_seq, paths.SegmentPart.DATA)
        self._data = data
        self._index = index
        self._frames: list[bytes] = []
        self._entries: list[bytes] = []
        self._tags: dict[bytes, list[int]] = {}
        self._names_durable = False
        self.first_seq = first_seq
        self.next_seq = first_seq
        self.data_bytes = 0
        self.flushed_bytes = 0

    @classmethod
    def create(cls, disk: Disk, directory: str, first_seq: int) -> "SegmentAppender":
        """A new segment. Its name must be free: `remove_segment` clears away what a crash left."""
        data_path = paths.segment_path(directory, first_seq, paths.SegmentPart.DATA)
        index_path = paths.segment_path(directory, first_seq, paths.SegmentPart.INDEX)
        with failing_as(data_path, "creating a segment"):
            disk.make_dir(directory)
            disk.remove(index_path)
            return cls(disk, directory, first_seq, disk.create(data_path), disk.create(index_path))

    @classmethod
    def reopen(cls, disk: Disk, directory: str, first_seq: int, data_bytes: int) -> "SegmentAppender":
        """Go on with a segment of which `data_bytes` are known to be good; the rest is cut off."""
        data_path = paths.segment_path(directory, first_seq, paths.SegmentPart.DATA)
        index_path = paths.segment_path(directory, first_seq, paths.SegmentPart.INDEX)
        if disk.size(data_path) < data_bytes:
            raise CorruptFile(data_path, disk.size(data_path), f"shorter than its {data_bytes} durable bytes")
        with failing_as(data_path, "reopening a segment"):
            data = disk.open_append(data_path)
            # Not synced: should the cut be lost in another crash, it is made again.
            data.truncate(data_bytes)
            disk.remove(index_path)
            # Of a sealing that a crash undid. Gone for certain after the next flush, so before other records can be
            # sealed under its name.
            disk.remove(paths.segment_path(directory, first_seq, paths.SegmentPart.TEXT))
            appender = cls(disk, directory, first_seq, data, disk.create(index_path))
        reader = SegmentReader(disk, directory, first_seq)
        records = reader.slices(0, reader.count, with_deleted=True)
        appender._entries.append(reader.index.encoded())
        appender._note_tags(record[3] for record in records)
        appender.next_seq += reader.count
        appender.data_bytes = appender.flushed_bytes = data_bytes
        return appender

    @property
    def count(self) -> int:
        return self.next_seq - self.first_seq

    def append(self, records: list[SegmentInput]) -> None:
        """Take the next records, in seq order without gaps. Kept in memory until `flush`."""
        frames, entries = encode_records(self.next_seq, records, self.data_bytes)
        size = sum(map(len, frames))
        if self.data_bytes + size > DATA_BYTES_MAX:
            raise ValueError(f"{self._data_path} cannot grow beyond {DATA_BYTES_MAX} bytes")
        self._note_tags(record[2] for record in records)
        self._frames += frames
        self._entries += entries
        self.data_bytes += size
        self.next_seq += len(records)

    def flush(self) -> int:
        """Make every record durable. Returns the length of `.data` that a later `reopen` may rely on."""
        with failing_as(self._data_path, "flushing a segment"):
            if self._frames:
                self._data.write(b"".join(self._frames))
                self._data.sync()
                self._frames.clear()
            if not self._names_durable:
                self._disk.sync_dir(self._directory)
                self._names_durable = True
            if self._entries:
                self._index.write(b"".join(self._entries))
                self._entries.clear()
        self.flushed_bytes = self.data_bytes
        return self.flushed_bytes

    def seal(self, text: bytes | None = None) -> None:
        """Make the segment complete and durable, and let go of it. `text`: what `.text` is to hold."""
        self.flush()
        tags_path = paths.segment_path(self._directory, self.first_seq, paths.SegmentPart.TAGS)
        with failing_as(self._data_path, "sealing a segment"):
            self._index.sync()
            if text is not None:
                text_path = paths.segment_path(self._directory, self.first_seq, paths.SegmentPart.TEXT)
                replace_file(self._disk, text_path, text, unsafe_no_sync=True)
            replace_file(self._disk, tags_path, encode_tags(self.first_seq, self.count, self._tags))
        self.close()

    def close(self) -> None:
        """Let go of the files; what was not flushed is dropped."""
        self._data.close()
        self._index.close()

    def _note_tags(self, tags: Iterable[bytes | None]) -> None:
        """Called with the tags of the records from `next_seq` on."""
        position = self.count
        for tag in tags:
            if tag is not None:
                self._tags.setdefault(tag, []).append(position)
            position += 1
