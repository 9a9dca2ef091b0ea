"""Reads one shard's directory from a given lsn: every file in order, nothing missing between them.

Iterate to the end, apply each frame, then `repair` before a `ShardWriter` is opened at `next_lsn`. Replaying
again gives the same frames: `repair` only removes what the replay did not give out.

The names and the file marks say which lsns each file holds, so a lost file or lost frames are noticed:
`CorruptFile`. CURRENT is advisory, except that it never names a file that was not there.
"""

from collections.abc import Iterator
from typing import NamedTuple

from topics.storage import paths
from topics.storage.errors import CorruptFile
from topics.storage.frame import CHECKPOINT_MARK, Frame
from topics.storage.fs import Disk
from topics.storage.wal_reader import EndReason, behind, first_mark, scan
from topics.storage.wal_writer import WalFile, truncate_tail, wal_files


class TornTail(NamedTuple):
    path: str
    offset: int
    reason: str


class WalPiece(NamedTuple):
    """The frames of one file. `start`: which process wrote it."""

    start: int
    path: str
    frames: Iterator[Frame]


class ShardReplay:
    """One pass over a shard. Frames below `from_lsn` are already in the snapshot and are not given out."""

    def __init__(self, disk: Disk, directory: str, from_lsn: int = 0) -> None:
        self._disk = disk
        self._directory = directory
        self._from_lsn = from_lsn
        self._files = self._files_needed(wal_files(disk, directory))
        self.next_lsn = from_lsn
        self._end: TornTail | None = None  # of the last file
        self._end_lsn = 0
        self.torn: TornTail | None = None
        self.total_bytes = sum(disk.size(file.path) for file in self._files)
        self.read_bytes = 0
        self.frame_count = 0

    def __iter__(self) -> Iterator[Frame]:
        """Frames in order, marks left out, only whole batches."""
        for piece in self.pieces():
            yield from piece.frames

    def pieces(self) -> list[WalPiece]:
        """The same, file by file; a batch never spans two. They have to be read in order, each to its end."""
        found: list[WalPiece] = []
        start = 0
        for position, file in enumerate(self._files):
            mark = first_mark(self._disk.map(file.path), file.path)
            if mark is not None and mark.first_lsn != file.first_lsn:
                raise CorruptFile(file.path, 0, f"its mark says it begins at lsn {mark.first_lsn}")
            start = start if mark is None else mark.start
            frames = self._file_frames(file, followed=position + 1 < len(self._files))
            found.append(WalPiece(start, file.path, frames))
        return found

    def check_end(self, synced_lsn: int) -> None:
        """Call once everything was read. `synced_lsn`: every frame below it is known to have been synced, as every
        frame in the snapshot is."""
        due = max(synced_lsn, self._from_lsn)
        if self._end is not None and self._end_lsn < due:
            raise CorruptFile(
                self._end.path,
                self._end.offset,
                f"the log ends here, before frame {self._end_lsn} of its shard, and frames up to {due - 1} were synced"
                + (f": {self._end.reason}" if self._end.reason else ""),
            )

    def repair(self) -> None:
        """Cut off the torn tail the replay found, if any, for good."""
        if self.torn is not None:
            truncate_tail(self._disk, self.torn.path, self.torn.offset)

    def _files_needed(self, found: list[WalFile]) -> list[WalFile]:
        self._check_current(found)
        begun = [position for position, file in enumerate(found) if file.first_lsn <= self._from_lsn]
        needed = found[begun[-1] :] if begun else found
        if needed and needed[0].first_lsn > self._from_lsn:
            missing = f"frames {self._from_lsn} to {needed[0].first_lsn - 1} are missing before this file"
            raise CorruptFile(needed[0].path, 0, missing)
        return needed

    def _check_current(self, found: list[WalFile]) -> None:
        path = f"{self._directory}/{paths.CURRENT}"
        if not self._disk.exists(path):
            return
        named = paths.parse_wal_file_name(self._disk.read(path).decode("ascii", "replace").strip())
        if named is not None and (not found or named > found[-1].first_lsn):
            raise CorruptFile(path, 0, f"it names {paths.wal_file_name(named)}, which is not there")

    def _file_frames(self, file: WalFile, *, followed: bool) -> Iterator[Frame]:
        buffer = self._disk.read(file.path)
        lsn = file.first_lsn
        if lsn > self.next_lsn:
            missing = f"frames {self.next_lsn} to {lsn - 1} are missing before this file"
            raise CorruptFile(file.path, 0, missing)
        start, mark, skipped_below = 0, CHECKPOINT_MARK, self._from_lsn
        if lsn < skipped_below and first_mark(buffer, file.path) is not None:
            beyond = behind(buffer, skipped_below - lsn)
            if beyond is not None:
                start, lsn = beyond, skipped_below
        frames = scan(buffer, file.path, start, followed=followed)
        for frame in frames:
            if frame[0] == mark:
                continue
            if lsn >= skipped_below:
                yield frame
            lsn += 1
        self.frame_count += max(lsn - max(file.first_lsn, self._from_lsn), 0)
        self.next_lsn = max(lsn, self._from_lsn)
        self.read_bytes += len(buffer)
        end = frames.end
        if end is not None:
            self._end, self._end_lsn = TornTail(file.path, end.offset, end.detail), lsn
        if end is not None and end.reason is EndReason.TORN:
            self.torn = TornTail(file.path, end.offset, end.detail)
