"""Reads one WAL file: its frames, and why they end.

How a file may end, and what each means:

- clean: at the end of the file, or where only zeros follow (preallocated space);
- torn: bad bytes with no sync mark after them were never synced, nobody was promised them: cut there.
  Pages of an unsynced write reach the disk in any order, so good frames may follow the bad one; they go too.
  A batch whose last frame is missing is torn at its first frame;
- corrupt: bad bytes followed anywhere by a valid sync mark were once durable: `CorruptFile`, never a cut.
  So is any bad byte in a file that another file follows, because a file is synced before the next is begun,
  and a bad first frame, because a file gets its name only after its first frame was synced;
- of another version: the file mark or a frame type is intact but unknown: `UnknownVersion`.

A file too short for its first frame, or all zeros, is torn at 0.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from xxhash import xxh3_64_digest

from topics.storage.errors import CorruptFile, UnknownVersion
from topics.storage.frame import BATCH_CONTINUES, FRAME_KIND_MAX, HEADER, OVERHEAD_BYTES, FrameKind
from topics.storage.fs import MappedBytes
from topics.storage.wal_mark import SYNC_MARK_PREFIX, FileMark, file_mark, parse_file_mark, sync_mark

Frame = tuple[int, int, int, int, int, bytes, bytes, bytes, int]
"""(kind, flags, topic_id, seq, ts, node, tag, payload, end_offset)"""

_FILE_MARK_BYTES_MIN = len(file_mark(0, 0))
_ZEROS = bytes(1 << 20)


class EndReason(Enum):
    CLEAN = auto()
    TORN = auto()


@dataclass(frozen=True, slots=True)
class End:
    """Where the frames worth keeping end: past the last frame of the last whole batch."""

    reason: EndReason
    offset: int
    detail: str = ""


class WalScan:
    """Iterate once over the frames; `end` is set when the iteration is over, `mark` after the first frame."""

    __slots__ = ("_buffer", "_followed", "_path", "_start", "end", "mark")

    def __init__(self, buffer: MappedBytes, path: str, start: int, followed: bool) -> None:
        self._buffer = buffer
        self._path = path
        self._start = start
        self._followed = followed
        self.end: End | None = None
        self.mark: FileMark | None = None

    def __iter__(self) -> Iterator[Frame]:
        """Hot: one pass of plain slicing, checksum included; everything rare is out of line."""
        buffer, unpack, digest = self._buffer, HEADER.unpack_from, xxh3_64_digest
        size = len(buffer)
        offset = self._start
        kept = offset  # the end of the last whole batch
        last = size - OVERHEAD_BYTES
        while offset <= last:
            length, kind, flags, topic_id, seq, ts, node_len, tag_len, data_len = unpack(buffer, offset)
            end = offset + 4 + length
            if end > size or node_len + tag_len + data_len + 42 != length:
                break
            checksum_at = end - 8
            if digest(buffer[offset + 4 : checksum_at])[::-1] != buffer[checksum_at:end]:
                break
            node_at = offset + 38
            if kind != 1 or offset == 0:
                self._check_control(offset, kind, offset != kept, buffer[node_at:checksum_at])
            if flags & 3:
                tag_at = node_at + node_len
                data_at = tag_at + tag_len
                yield (
                    kind, flags, topic_id, seq, ts,
                    buffer[node_at:tag_at], buffer[tag_at:data_at], buffer[data_at:checksum_at], end,
                )  # fmt: skip
            else:
                yield kind, flags, topic_id, seq, ts, b"", b"", buffer[node_at:checksum_at], end
            offset = end
            if not flags & BATCH_CONTINUES:
                kept = end
        self.end = self._ending(offset, kept)

    def _check_control(self, offset: int, kind: int, batch_open: bool, body: bytes) -> None:
        if offset == 0:
            if kind != FrameKind.CHECKPOINT_MARK:
                raise CorruptFile(self._path, 0, "the first frame is no file mark")
            self.mark = parse_file_mark(body, self._path)
        elif not 1 <= kind <= FRAME_KIND_MAX:
            raise UnknownVersion(self._path, f"frame type {kind} at byte {offset}")
        elif kind == FrameKind.CHECKPOINT_MARK and batch_open:
            raise CorruptFile(self._path, offset, "a mark where a batch should go on")

    def _ending(self, offset: int, kept: int) -> End:
        buffer, path = self._buffer, self._path
        if _is_zero(buffer, offset):
            if offset == 0:
                detail = "the file ends before its first frame"
            elif kept == offset:
                return End(EndReason.CLEAN, kept)
            else:
                detail = "the last batch is incomplete"
        else:
            detail = what_is_wrong(buffer, offset)
            mark_at = find_sync_mark(buffer, offset + 1)
            if mark_at is not None:
                raise CorruptFile(path, offset, f"{detail}, and it was synced (mark at byte {mark_at})")
            if offset == 0 and len(buffer) >= _FILE_MARK_BYTES_MIN:
                raise CorruptFile(path, 0, f"{detail} in the file mark")
        if self._followed:
            raise CorruptFile(path, offset, f"{detail}, and a newer file follows")
        return End(EndReason.TORN, kept, f"{detail} (byte {offset})")


def scan(buffer: MappedBytes, path: str, start: int = 0, *, followed: bool = False) -> WalScan:
    """The frames of one WAL file from `start`. `followed`: a newer file of the same shard exists."""
    return WalScan(buffer, path, start, followed)


def whole_batches(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The same frames without those of a batch that never ends."""
    open_batch: list[Frame] = []
    for frame in frames:
        if frame[1] & BATCH_CONTINUES:
            open_batch.append(frame)
        else:
            if open_batch:
                yield from open_batch
                open_batch.clear()
            yield frame


def find_sync_mark(buffer: MappedBytes, start: int) -> int | None:
    """The offset of the first valid sync mark that begins at or after `start`."""
    at = buffer.find(SYNC_MARK_PREFIX, start + 4)
    while at >= 0:
        mark = sync_mark(at - 4)
        if buffer[at - 4 : at - 4 + len(mark)] == mark:
            return at - 4
        at = buffer.find(SYNC_MARK_PREFIX, at + 1)
    return None


def _is_zero(buffer: MappedBytes, start: int) -> bool:
    size = len(buffer)
    for at in range(start, size, len(_ZEROS)):
        piece = buffer[at : at + len(_ZEROS)]
        if piece != _ZEROS[: len(piece)]:
            return False
    return True


def what_is_wrong(buffer: MappedBytes, offset: int) -> str:
    """Why the bytes at the offset are no frame. They are known not to be one."""
    left = len(buffer) - offset
    if left < OVERHEAD_BYTES:
        return "an incomplete frame"
    length, _, _, _, _, _, node_len, tag_len, data_len = HEADER.unpack_from(buffer, offset)
    if 4 + length > left:
        return "a frame longer than the file"
    if node_len + tag_len + data_len + 42 != length:
        return "a frame whose lengths do not add up"
    return "a frame whose checksum does not match"
