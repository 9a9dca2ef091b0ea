"""The only door to the disk.

`Disk` is what the rest of the storage room may ask of a file system; `RealDisk` asks the kernel,
`topics.testing.FakeDisk` keeps everything in memory and can crash.

What is assumed of a disk, and nothing more:

- written bytes survive a power cut only after `sync` of their file has returned;
- a created, renamed or removed name survives only after `sync_dir` of its directory has returned;
- before that, any part of it may survive, in any order, torn at 512-byte sectors;
- a rename is atomic: after a crash the name leads to the old file or to the new one;
- after a failed sync nothing is known about the bytes it should have kept.

Paths are `str`. Operations raise `OSError`; only the caller knows what a failure means. Files are created
with mode 0600, directories with 0700.
"""

import errno
import fcntl
import mmap
import os
import threading
from contextlib import suppress
from typing import Protocol

from topics.storage import paths
from topics.storage.errors import DirectoryInUse, is_out_of_descriptors

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

_FALLOCATE_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})
_FULLFSYNC_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})

MappedBytes = bytes | mmap.mmap
"""A read-only view of a file, sliced like bytes. It is unmapped when the last reference to it is dropped.

It shows the file as it was when it was mapped; later writes may or may not be seen through it.
"""


SharedBytes = bytearray | mmap.mmap
"""A writable view of a file, sliced and assigned to like a bytearray of fixed length."""


class Lock(Protocol):
    def release(self) -> None:
        """Let another process have it. Releasing twice is fine."""
        ...


class WritableFile(Protocol):
    """An open file. Every call but `close` is a crash point."""

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it at the position, and move the position. After an error, part of it may be there."""
        ...

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Write all of it at the offset; the position stays."""
        ...

    def preallocate(self, size: int) -> None:
        """Make the file `size` bytes long, zeros that need no more space. Does nothing where unsupported."""
        ...

    def truncate(self, size: int) -> None:
        """Cut (or extend) to the size. A position beyond the new end moves to it."""
        ...

    def sync(self) -> None:
        """Make bytes and length durable."""
        ...

    def full_sync(self) -> None:
        """Make bytes and all metadata durable."""
        ...

    def close(self) -> None:
        """Let go of it. Makes nothing durable. Closing twice is fine."""
        ...


class Disk(Protocol):
    # Changing: each call is a crash point.
    def make_dir(self, path: str) -> None:
        """Create the directory and its missing parents, durably. Existing is fine."""
        ...

    def create(self, path: str) -> WritableFile:
        """A new empty file; `FileExistsError` if the name is taken."""
        ...

    def open_append(self, path: str) -> WritableFile:
        """An existing file, positioned at its end. Not itself a crash point."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically give the file the target name, replacing what had it; a directory replaces only an empty one."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. Missing is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it. Missing is fine."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in this directory durable."""
        ...

    # Reading
    def read(self, path: str) -> bytes: ...

    def map(self, path: str) -> MappedBytes: ...

    def map_shared(self, path: str) -> SharedBytes:
        """A writable view of a file: what is stored in it survives the process, but not a power cut."""
        ...

    def boot_id(self) -> str:
        """Changes with every power cut or restart of the machine; empty if unknown."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Sorted names; empty when there is no such directory."""
        ...

    def exists(self, path: str) -> bool:
        """Raises if the disk does not tell: what cannot be looked at is not missing."""
        ...

    def size(self, path: str) -> int: ...

    def free_bytes(self, path: str) -> int: ...

    def lock(self, path: str) -> Lock:
        """Take the lock file for this process, or raise `DirectoryInUse`."""
        ...

    def is_locked(self, path: str) -> bool:
        """Whether a process holds the lock file. Who asks holds it for an instant: `lock` is to be tried twice."""
        ...


def write_file(disk: Disk, path: str, content: bytes, *, unsafe_no_sync: bool = False) -> None:
    """A new file with this content. Its bytes are durable when it returns, its name once the directory is synced."""
    file = disk.create(path)
    try:
        file.write(content)
        if not unsafe_no_sync:
            file.full_sync()
    finally:
        file.close()


def replace_file(disk: Disk, path: str, content: bytes, *, sync_dir: bool = True, unsafe_no_sync: bool = False) -> None:
    """Gives the file this content, in place of what it had if it was there: at every moment it is one or the other.

    Durable when it returns. Without `sync_dir` that is left to the caller, who has more names to make durable. With
    `unsafe_no_sync` nothing is durable: for a file that nobody believes after a power cut.
    """
    temporary = paths.temporary(path)
    disk.remove(temporary)  # what a crash may have left
    try:
        write_file(disk, temporary, content, unsafe_no_sync=unsafe_no_sync)
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            disk.remove(temporary)  # a disk without room needs it
        raise
    if sync_dir and not unsafe_no_sync:
        disk.sync_dir(paths.parent(path))


class _Spares:
    """Descriptors kept open for operations that must not fail for lack of one, such as opening the next file of the
    log.

    When the process has none left, one of these is let go and its place taken. A file that is closed makes good what is
    missing, without a moment in which somebody else could have its place. Used from any thread.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if count else -1
        self._held = [os.dup(self._nothing) for _ in range(count)]

    def __reduce__(self) -> tuple[type["_Spares"], tuple[int]]:
        # The tasks of an audit take a disk along: in another process it keeps nothing back.
        return _Spares, (0,)

    def open(self, path: str, flags: int, mode: int = FILE_MODE) -> int:
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, mode)
            except OSError as error:
                if not is_out_of_descriptors(error):
                    raise
                with self._lock:
                    if not self._held:
                        raise
                    os.close(self._held.pop())

    def close(self, descriptor: int) -> None:
        with self._lock:
            if len(self._held) < self._count:
                os.dup2(self._nothing, descriptor, inheritable=False)
                self._held.append(descriptor)
                return
        os.close(descriptor)


class RealFile:
    """A descriptor and its own position: a preallocated file's end says nothing about what is written."""

    __slots__ = ("_descriptor", "_position", "_spares")

    def __init__(self, descriptor: int, position: int, spares: _Spares) -> None:
        self._descriptor = descriptor
        self._position = position
        self._spares = spares

    def write(self, data: bytes | memoryview) -> None:
        self.write_at(self._position, data)
        self._position += len(data)

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(data):
            count = os.pwrite(self._descriptor, rest[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, "write made no progress")
            written += count

    def preallocate(self, size: int) -> None:
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            if error.errno not in _FALLOCATE_UNSUPPORTED:
                raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._position = min(self._position, size)

    def sync(self) -> None:
        _sync(self._descriptor, metadata=False)

    def full_sync(self) -> None:
        _sync(self._descriptor, metadata=True)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._spares.close(descriptor)


def _sync(descriptor: int, *, metadata: bool) -> None:
    """With the strongest the platform has. On macOS `fsync` leaves the bytes in the drive's cache, and there is no
    `fdatasync`: what reaches the platter there is F_FULLFSYNC, where the file system knows it."""
    full_fsync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_fsync is not None:
        try:
            fcntl.fcntl(descriptor, full_fsync)
        except OSError as error:
            if error.errno not in _FULLFSYNC_UNSUPPORTED:
                raise
        else:
            return
    if metadata or not hasattr(os, "fdatasync"):
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


class RealLock:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class RealDisk:
    """The machine's file system. `spare_descriptors` are kept for writing, however many others the process has open."""

    __slots__ = ("_spares",)

    def __init__(self, spare_descriptors: int = 0) -> None:
        self._spares = _Spares(spare_descriptors)

    def make_dir(self, path: str) -> None:
        if self.exists(path) and os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/")) or "."
        self.make_dir(parent)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        self.sync_dir(parent)

    def create(self, path: str) -> RealFile:
        return RealFile(self._spares.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), 0, self._spares)

    def open_append(self, path: str) -> RealFile:
        descriptor = self._spares.open(path, os.O_RDWR)
        return RealFile(descriptor, os.fstat(descriptor).st_size, self._spares)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        from shutil import rmtree  # noqa: PLC0415 (it loads what packs archives, and few starts remove a topic)

        if self.exists(path):
            rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = self._spares.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(descriptor, metadata=True)
        finally:
            self._spares.close(descriptor)

    def read(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def map(self, path: str) -> MappedBytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The kernel refuses to map nothing.
            if os.fstat(descriptor).st_size == 0:
                return b""
            return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)

    def map_shared(self, path: str) -> SharedBytes:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return mmap.mmap(descriptor, 0, access=mmap.ACCESS_WRITE)
        finally:
            os.close(descriptor)

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def free_bytes(self, path: str) -> int:
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize

    def is_locked(self, path: str) -> bool:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def lock(self, path: str) -> RealLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DirectoryInUse(path, holder) from None
        except OSError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return RealLock(descriptor)
