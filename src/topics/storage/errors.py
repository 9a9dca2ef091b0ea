"""What can go wrong on disk. Torn tails are not here: they are an expected end, not an error."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from topics.errors import StorageFailed, TooManyOpenFiles, TopicsError


class StorageError(TopicsError):
    """Root of what the storage room raises on purpose."""


class DirectoryInUse(StorageError):
    """Another process has this directory open. Stop it, or start this one on another directory."""

    def __init__(self, path: str, holder: str = "") -> None:
        by = f" by process {holder}" if holder else ""
        super().__init__(
            f"{path} is locked{by}: the directory is in use; stop that process, or name another directory",
            path=path,
            holder=holder,
        )
        self.path = path
        self.holder = holder


class CorruptFile(StorageError):
    """Bytes that were durable no longer read back. Keep the file, run `topics verify`, restore a backup."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {offset}: {reason}", path=path, offset=offset, reason=reason)
        self.path = path
        self.offset = offset
        self.reason = reason


class UnknownVersion(StorageError):
    """The file is intact, but another version of this program wrote it. Start that version. To go on with this one
    instead, export from that one what is to be kept, and begin with an empty directory."""

    def __init__(self, path: str, version: str, *, earlier: bool = False) -> None:
        if earlier:
            message = (
                f"{path} was written by an earlier version of topics, and this one does not read its format "
                f"({version}): start that version on the directory and export your topics, "
                "then start this one on an empty directory"
            )
        else:
            message = (
                f"{path} has a format this version of topics does not know ({version}): start the version that wrote it"
            )
        super().__init__(message, path=path, version=version)
        self.path = path
        self.version = version


class DiskFailed(StorageError):
    """The operating system refused a write or sync. Repair or replace the disk, then restart. Nothing is retried: after
    a failed sync the kernel may have dropped the bytes a retry would call durable.
    """

    def __init__(self, path: str, operation: str, os_error: OSError) -> None:
        reason = os_error.strerror or str(os_error)
        super().__init__(f"{operation} of {path} failed: {reason}", path=path, operation=operation, reason=reason)
        self.path = path
        self.operation = operation
        self.os_error = os_error


class NoRoom(StorageError):
    """The system had nothing left to give: space, or files a process may have open. Nothing is broken and nothing is
    unknown; the same call may be made again."""

    def __init__(self, path: str, operation: str, os_error: OSError) -> None:
        reason = os_error.strerror or str(os_error)
        super().__init__(f"{operation} of {path} has to wait: {reason}", path=path, operation=operation, reason=reason)
        self.os_error = os_error
        self.path = path
        self.operation = operation


RUN_OUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What the system says when there is nothing left of something, and may be again."""


@contextmanager
def failing_as(path: str, operation: str) -> Iterator[None]:
    """Within it, an `OSError` becomes a `DiskFailed` that names the path and what was being done."""
    try:
        yield
    except OSError as error:
        raise DiskFailed(path, operation, error) from error


_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether this process, or the machine, has too many files open: then neither the file nor the disk is at fault."""
    return error.errno in _OUT_OF_DESCRIPTORS


def unreadable(path: str, error: OSError) -> StorageFailed:
    """The error for a reader when the operating system cannot read the bytes of a file."""
    reason = error.strerror or str(error)
    if is_out_of_descriptors(error):
        return TooManyOpenFiles(f"{path} cannot be opened: {reason}. Try again, or raise the limit of open files")
    return StorageFailed(f"{path} cannot be read: {reason}")


class NoDataDirectory(StorageError):
    """There is neither a snapshot nor a log. Name the directory the server has in TOPICS_DATA_DIR."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not a data directory: there is neither a snapshot nor a log in it", path=path)
        self.path = path


class TargetNotEmpty(StorageError):
    """Nothing is ever written over. Name a directory that is empty or does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not empty: name a directory that is empty or does not exist", path=path)
        self.path = path


class BackupFailed(StorageError):
    """No sound copy could be made, and none is left. Run `topics verify` on the source."""


class ColdTierUnknown(StorageError):
    """Some segments are on the cold tier. Name its directory, the server's TOPICS_COLD_DIR."""

    def __init__(self, path: str) -> None:
        super().__init__(f"segments of {path} are on the cold tier: name its directory", path=path)
        self.path = path


class ColdTierNotOurs(StorageError):
    """The cold tier belongs to another data directory. Name the right one, or an empty one for a new server."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the cold tier {path} is not used: {reason}", path=path)
        self.path = path


class FilesChanging(StorageError):
    """The server replaced its files faster than they could be read. Read a backup, or more slowly growing ranges."""

    def __init__(self, path: str, attempts: int) -> None:
        super().__init__(f"{path} changed while it was read, {attempts} times in a row", path=path, attempts=attempts)
        self.path = path
