"""Writes one shard of the WAL: files, marks, rotation. No thread, no queue, no clock: see `group_commit`.

The life of a shard: every start begins a fresh file (an old file is never appended to), writes go to the
active file until it is full, then the next file is begun, and files are removed once a snapshot has absorbed
all they hold.

A new file gets its name only when it is ready, so a named file always has its first frame:

    create wal-N.log.tmp, preallocate, write the file mark, sync     nothing is visible yet
    rename to wal-N.log, sync the directory                          commit point: the file is part of the log
    the same for CURRENT                                             advisory; may lag behind by one file

What is durable: after `write` returns, nothing; after `sync` returns, every frame written so far. A frame is
durable only if its file's name is, and the name was synced before the first frame was written.

An lsn is the number of a frame in its shard, from 0; marks are not counted. A file is named by the lsn of the
first frame it will hold.

After an `OSError` the writer is poisoned: it raises `DiskFailed` then and at every later call. But a write, or a new
file, that the system had no space or no descriptor for raises `NoRoom`: the same bytes may be written again to the same
place, and a file that has no name yet is nobody's. What the log reads the same without (the last mark, the cut behind
it, CURRENT) is left out then. Of a failed sync nothing is known, whatever the reason.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec import Struct

from topics.storage import paths
from topics.storage.errors import RUN_OUT, DiskFailed, NoRoom, failing_as
from topics.storage.fs import Disk, WritableFile, replace_file
from topics.storage.wal_mark import file_mark, sync_mark


class WalFile(NamedTuple):
    first_lsn: int
    path: str


class WalCounters(Struct):
    """What a writer has done since it was opened; only ever counted up."""

    frames: int = 0
    batches: int = 0
    written_bytes: int = 0
    fsyncs: int = 0
    rotations: int = 0


def wal_files(disk: Disk, directory: str) -> list[WalFile]:
    """The shard's files, oldest first."""
    found = [
        WalFile(first_lsn, f"{directory}/{name}")
        for name in disk.list_dir(directory)
        if (first_lsn := paths.parse_wal_file_name(name)) is not None
    ]
    return sorted(found, key=lambda file: file.first_lsn)


def shard_names(disk: Disk, root: str) -> list[str]:
    """Every shard directory there is, relative to the WAL's; the flat layout as an empty name."""
    names = disk.list_dir(paths.wal_dir(root))
    flat = [""] if any(paths.parse_wal_file_name(name) is not None for name in names) else []
    return flat + [name for name in names if paths.parse_shard_name(name) is not None]


@contextmanager
def _if_there_is_room() -> Iterator[None]:
    """For what may be left out when the system has run out of something. Everything else it says is raised."""
    try:
        yield
    except OSError as error:
        if error.errno not in RUN_OUT:
            raise


def truncate_tail(disk: Disk, path: str, offset: int) -> None:
    """Cut a torn tail off for good. A file torn at 0 holds nothing and goes altogether."""
    with failing_as(path, "cutting a torn tail"):
        if offset == 0:
            disk.remove(path)
            disk.sync_dir(paths.parent(path))
            return
        file = disk.open_append(path)
        try:
            file.truncate(offset)
            file.full_sync()
        finally:
            file.close()


class ShardWriter:
    """Begins a fresh file at `first_lsn`: 0 in a new directory, `ShardReplay.next_lsn` after a recovery. `start`: which
    process this is, of all that have written to the directory."""

    def __init__(
        self, disk: Disk, directory: str, shard: int, file_bytes_max: int, first_lsn: int, start: int = 1
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._shard = shard
        self._start = start
        self._file_bytes_max = file_bytes_max
        self._failure: DiskFailed | None = None
        self._mark_due = False
        self._unsynced = False
        self.counters = WalCounters()
        self.next_lsn = first_lsn
        self.synced_lsn = first_lsn
        with self._poisoning(directory, "opening"):
            disk.make_dir(directory)
            for name in disk.list_dir(directory):
                if paths.is_temporary(name):
                    disk.remove(f"{directory}/{name}")
            found = wal_files(disk, directory)
            if found and found[-1].first_lsn > first_lsn:
                raise ValueError(f"{found[-1].path} begins after lsn {first_lsn}: the log was not replayed whole")
            # A file that would have begun here holds no frame, and the new one takes its name.
            self._files = [file for file in found if file.first_lsn < first_lsn]
            self._file = self._begin(self._prepare_file())

    @property
    def active_path(self) -> str:
        return self._files[-1].path

    @property
    def offset(self) -> int:
        """Where the next write goes in the active file."""
        return self._offset

    @property
    def failure(self) -> DiskFailed | None:
        return self._failure

    @property
    def unsynced(self) -> bool:
        return self._unsynced

    def write(self, chunks: list[bytes], frame_count: int) -> int:
        """Append whole batches of frames; not durable yet. Returns the lsn after the last of them.

        A batch is written in one piece into one file: a write that does not fit rotates first, and one larger
        than a file gets a file of its own that outgrows the bound.
        """
        data = b"".join(chunks)
        # A file without a frame (there may be marks in it) is never followed by another: they would share a name.
        if self._offset + len(data) > self._file_bytes_max and self.next_lsn > self._files[-1].first_lsn:
            self._rotate()
        if self._mark_due:
            data = sync_mark(self._offset) + data
        with self._poisoning(self.active_path, "write", retriable=True):
            # At its place, and not where an earlier try has ended.
            self._file.write_at(self._offset, data)
        self._offset += len(data)
        self._mark_due = False
        self._unsynced = True
        self.next_lsn += frame_count
        counters = self.counters
        counters.frames += frame_count
        counters.batches += 1
        counters.written_bytes += len(data)
        return self.next_lsn

    def sync(self) -> None:
        """Make every frame written so far durable. Without any since the last sync it does nothing."""
        with self._poisoning(self.active_path, "sync"):
            if not self._unsynced:
                return
            self._file.sync()
        self.counters.fsyncs += 1
        self.synced_lsn = self.next_lsn
        self._unsynced = False
        self._mark_due = True

    def close(self) -> None:
        """Sync, and leave a last mark so that later damage to the final frames is told from a torn tail."""
        if self._failure is not None:
            self._file.close()
            return
        self.sync()
        with self._poisoning(self.active_path, "closing"):
            with _if_there_is_room():
                if self._mark_due:
                    mark = sync_mark(self._offset)
                    self._file.write_at(self._offset, mark)
                    self._offset += len(mark)
                    self._mark_due = False
            with _if_there_is_room():
                self._file.truncate(self._offset)
            self._file.sync()
            self._file.close()

    def files_absorbed_before(self, lsn: int) -> list[WalFile]:
        """Files that hold only frames below `lsn`; never the active one."""
        pairs = zip(self._files, self._files[1:], strict=False)
        return [file for file, after in pairs if after.first_lsn <= lsn]

    def remove_files_below(self, lsn: int) -> int:
        """Remove those files, oldest first. Returns how many. A crash may bring some back: harmless. So is a file that
        cannot be removed: on `DiskFailed` it and those behind it are still there, and the writer goes on."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        absorbed = self.files_absorbed_before(lsn)
        with failing_as(self._directory, "trimming"):
            for file in absorbed:
                self._disk.remove(file.path)
                self._files.remove(file)
            if absorbed:
                self._disk.sync_dir(self._directory)
        return len(absorbed)

    def _rotate(self) -> None:
        # The whole file is durable before the next one exists: a reader relies on it.
        self.sync()
        before, offset = self._file, self._offset
        with self._poisoning(self.active_path, "rotation", retriable=True):
            file = self._prepare_file()
        with self._poisoning(self.active_path, "rotation"):
            self._file = self._begin(file)
            with _if_there_is_room():
                before.truncate(offset)
            before.close()
        self.counters.rotations += 1

    def _prepare_file(self) -> WritableFile:
        """The next file. It is durable, and has its name; that is not durable yet."""
        temporary = paths.temporary(self._next_path)
        with suppress(OSError):  # if it is there, the next call says so
            self._disk.remove(temporary)  # what an earlier try has left
        file = self._disk.create(temporary)
        try:
            file.preallocate(self._file_bytes_max)
            file.write(file_mark(self._shard, self.next_lsn, self._start))
            file.full_sync()
            self._disk.rename(temporary, self._next_path)
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.remove(temporary)
            raise
        return file

    def _begin(self, file: WritableFile) -> WritableFile:
        self._disk.sync_dir(self._directory)
        self._files.append(WalFile(self.next_lsn, self._next_path))
        with _if_there_is_room():  # else it lags behind, which it may
            replace_file(
                self._disk, f"{self._directory}/{paths.CURRENT}", f"{paths.wal_file_name(self.next_lsn)}\n".encode()
            )
        self._offset = len(file_mark(self._shard, self.next_lsn, self._start))
        self._mark_due = False
        self.counters.written_bytes += self._offset
        self.counters.fsyncs += 1
        return file

    @property
    def _next_path(self) -> str:
        return f"{self._directory}/{paths.wal_file_name(self.next_lsn)}"

    @contextmanager
    def _poisoning(self, path: str, operation: str, *, retriable: bool = False) -> Iterator[None]:
        if self._failure is not None:
            # Without its old traceback, which would grow with every refusal.
            raise self._failure.with_traceback(None)
        try:
            yield
        except OSError as error:
            if retriable and error.errno in RUN_OUT:
                raise NoRoom(path, operation, error) from error
            self._failure = DiskFailed(path, operation, error)
            raise self._failure from error
        except DiskFailed as failure:
            self._failure = failure
            raise
