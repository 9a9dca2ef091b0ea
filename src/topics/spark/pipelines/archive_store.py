"""Writes to an archive: one job at a time, and every change whole or not at all.

The order of a change, and what a crash between two steps leaves:

1. files are written under `staging`      → rubbish, removed by the next job
2. each is synced and renamed into place  → files no commit names, removed by the next job
3. the commit is renamed into place       → the change is made
4. files the commit replaced are removed  → files no commit names, removed by the next job

Readers that go by the manifest see the change at step 3, and only then.
"""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from topics.clock import Clock, SystemClock
from topics.spark.pipelines import archive_layout as layout
from topics.spark.pipelines import manifest
from topics.spark.pipelines.errors import ArchiveDiffers, ArchiveInUse, DirectoryNotEmpty, TargetDiskFull
from topics.spark.pipelines.manifest import (
    ArchiveColumns,
    ArchivedFile,
    ArchivedLoss,
    ArchiveState,
    Commit,
    CommitKind,
    TopicCut,
)
from topics.storage.errors import DirectoryInUse
from topics.storage.fs import Lock, RealDisk, replace_file

LOSSES_SCHEMA = pa.schema(
    [("topic", pa.string()), ("gap_from", pa.int64()), ("gap_to", pa.int64()), ("reason", pa.string())]
)

NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished file under `staging`, and what it will be."""

    path: str
    file: ArchivedFile


class ArchiveStore:
    """An archive that this process alone writes to. Close it, or use it in a `with`."""

    def __init__(self, root: str, state: ArchiveState | None, lock: Lock, clock: Clock) -> None:
        self.root = root
        self._state = state
        self._lock = lock
        self._clock = clock
        self._disk = RealDisk()

    @property
    def exists(self) -> bool:
        return self._state is not None

    @property
    def state(self) -> ArchiveState:
        assert self._state is not None, "the archive is created first"
        return self._state

    def create(self, columns: ArchiveColumns, server_id: str = "") -> None:
        """The first commit: from now on the directory is an archive."""
        self._state = ArchiveState(uuid4().hex, columns, 0, "", server_id=server_id)
        self._disk.make_dir(layout.manifest_dir(self.root))
        self._write(self._commit(CommitKind.CREATE))

    def note_server(self, server_id: str) -> None:
        """For an archive that was begun before there were ids: the next commit has it."""
        self.state.server_id = self.state.server_id or server_id

    @contextmanager
    def staging(self) -> Iterator[str]:
        """A new directory for what is being written; gone when this ends, whatever happened."""
        path = os.path.join(layout.staging_dir(self.root), uuid4().hex)
        try:
            yield path
        except Exception as error:
            if _is_disk_full(error):
                raise TargetDiskFull(self.root) from error
            raise
        finally:
            # Tasks of a job that was interrupted may still be writing; then the next job does it.
            with suppress(OSError):
                self._remove_staging()

    def append(self, topics: Sequence[TopicCut], staged: Sequence[StagedFile], losses: Sequence[ArchivedLoss]) -> None:
        self._place(staged)
        if losses:
            self._write_losses(losses)
        added = tuple(entry.file for entry in staged)
        self._write(self._commit(CommitKind.APPEND, topics=tuple(topics), added=added, losses=tuple(losses)))

    def compact(self, staged: Sequence[StagedFile], removed: Sequence[ArchivedFile]) -> None:
        self._place(staged)
        added = tuple(entry.file for entry in staged)
        self._write(self._commit(CommitKind.COMPACT, added=added, removed=tuple(file.path for file in removed)))
        for file in removed:
            self._disk.remove(os.path.join(self.root, file.path))

    def fold_manifest(self) -> int:
        """One commit that stands for all, and the others away; how many those were."""
        state = self.state
        files = tuple(state.files[path] for path in sorted(state.files))
        commit = self._commit(
            CommitKind.SNAPSHOT, topics=manifest.snapshot_topics(state), added=files, losses=tuple(state.losses)
        )
        before = manifest.commit_numbers(self._disk, self.root)
        content = self._put(commit)
        state.number, state.digest = commit.number, manifest.digest_of(content)
        for number in before:
            self._disk.remove(layout.commit_path(self.root, number))
        return len(before)

    def require_files(self) -> None:
        """Every file is there and as long as it should be. Raises `ArchiveDiffers`; the bytes are for `audit`."""
        for file in self.state.files.values():
            require_file(self.root, file)

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> "ArchiveStore":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def remove_leftovers(self) -> None:
        """What a killed job left: staged files, and files that no commit names."""
        # Tasks of a job that was just killed may still be writing there, each in a directory nobody else uses.
        with suppress(OSError):
            self._remove_staging()
        if not self.exists:
            return
        for directory, _, names in os.walk(layout.records_dir(self.root)):
            for name in names:
                path = os.path.join(directory, name)
                if layout.is_records_file(name) and os.path.relpath(path, self.root) not in self.state.files:
                    self._disk.remove(path)
        for name in self._disk.list_dir(layout.losses_dir(self.root)):
            number = int(name.partition(".")[0]) if layout.is_losses_file(name) else 0
            if number > self.state.number:
                self._disk.remove(os.path.join(layout.losses_dir(self.root), name))

    def _commit(
        self,
        kind: CommitKind,
        *,
        topics: tuple[TopicCut, ...] = (),
        added: tuple[ArchivedFile, ...] = (),
        removed: tuple[str, ...] = (),
        losses: tuple[ArchivedLoss, ...] = (),
    ) -> Commit:
        return Commit(
            format=manifest.FORMAT,
            number=self.state.number + 1,
            parent_xxh3=self.state.digest,
            kind=kind,
            archive_id=self.state.archive_id,
            at_ms=self._clock.now_ms(),
            columns=self.state.columns,
            topics=topics,
            added=added,
            removed=removed,
            losses=losses,
            server_id=self.state.server_id,
        )

    def _write(self, commit: Commit) -> None:
        content = self._put(commit)
        self.state.apply(commit, manifest.digest_of(content))

    def _put(self, commit: Commit) -> bytes:
        content = manifest.encode(commit)
        path = layout.commit_path(self.root, commit.number)
        with self._room():
            replace_file(self._disk, path, content)
        return content

    def _place(self, staged: Sequence[StagedFile]) -> None:
        """The bytes were synced when they were checksummed; here the names are."""
        directories = set()
        with self._room():
            for entry in staged:
                target = os.path.join(self.root, entry.file.path)
                directory = os.path.dirname(target)
                self._disk.make_dir(directory)
                self._disk.rename(entry.path, target)
                directories.add(directory)
            for directory in directories:
                self._disk.sync_dir(directory)

    def _write_losses(self, losses: Sequence[ArchivedLoss]) -> None:
        path = os.path.join(self.root, layout.losses_path(self.state.number + 1))
        with self._room():
            self._disk.make_dir(layout.losses_dir(self.root))
            rows = [{name: getattr(loss, name) for name in LOSSES_SCHEMA.names} for loss in losses]
            pq.write_table(pa.Table.from_pylist(rows, LOSSES_SCHEMA), path, compression="zstd")
            file = self._disk.open_append(path)
            file.full_sync()
            file.close()
            self._disk.sync_dir(layout.losses_dir(self.root))

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if _is_disk_full(error):
                raise TargetDiskFull(self.root) from error
            raise

    def _remove_staging(self) -> None:
        self._disk.remove_tree(layout.staging_dir(self.root))


def open_archive(root: str, clock: Clock | None = None) -> ArchiveStore:
    """Takes the archive for this process, or a directory to become one, and removes what a killed job left. Raises
    `ArchiveInUse`, `DirectoryNotEmpty`, `ManifestDamaged`."""
    disk = RealDisk()
    disk.make_dir(root)
    is_archive = bool(manifest.commit_numbers(disk, root))
    if not is_archive:
        foreign = sorted(set(disk.list_dir(root)) - {layout.LOCK, layout.MANIFEST, layout.STAGING})
        if foreign:
            raise DirectoryNotEmpty(root, foreign[0])
    try:
        lock = disk.lock(layout.lock_path(root))
    except DirectoryInUse as error:
        raise ArchiveInUse(root, error.holder) from None
    try:
        # Only now: another job may have committed until it let go of the lock.
        state = manifest.load(root, disk) if manifest.commit_numbers(disk, root) else None
        store = ArchiveStore(root, state, lock, clock or SystemClock())
        store.remove_leftovers()
    except BaseException:
        lock.release()
        raise
    return store


def require_file(root: str, file: ArchivedFile) -> None:
    path = os.path.join(root, file.path)
    if not os.path.exists(path):
        raise ArchiveDiffers(path, "it is missing")
    size = os.path.getsize(path)
    if size != file.size_bytes:
        raise ArchiveDiffers(path, f"{size} bytes where {file.size_bytes} are due")


def _is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return True
    return NO_SPACE.search(str(error)) is not None
