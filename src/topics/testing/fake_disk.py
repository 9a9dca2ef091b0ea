"""A disk in memory that can crash, for tests of anything written against `topics.storage.fs.Disk`.

It keeps apart what was written and what is durable, with exactly the promises `storage/fs.py` assumes:

- a file's bytes become durable by `sync` of that file; a name (created, renamed, removed) by `sync_dir` of
  its directory; a directory made by `make_dir` at once;
- `crash(seed)` gives the disk a restarted machine would find: everything durable, and of the rest what
  the seed picks: whole writes, single 512-byte sectors, later ones without earlier ones, any pending names;
- `crash_keep_all()` is a killed process (the kernel keeps every written byte), `crash_drop_all()` the
  opposite;
- `fail_at(n, …)` makes the n-th mutating call raise an `OSError`; a failed sync loses the bytes it should
  have kept, as kernels do; `stop_at(n, …)` ends the world there with `SimulatedCrash`;
- `reading_faults` has errors for calls that only look: an open for changing, a read, a map, names and sizes.

Mutating calls are counted from 1 in `mutating_calls`, those that only look in `reading_calls`; `write_calls` says which
of the first wrote bytes. The same calls and the same seed give the same bytes.
"""

import errno
import os
import random
from dataclasses import dataclass, field
from enum import Enum, auto

from topics.storage.errors import DirectoryInUse
from topics.storage.fs import MappedBytes, SharedBytes

SECTOR_BYTES = 512
FREE_BYTES = 1 << 40


class SimulatedCrash(BaseException):
    """The machine stopped here. Not an `Exception`, so that no handler in the tested code survives it."""


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Resize:
    size: int


@dataclass(slots=True, eq=False)
class _Inode:
    """One file: what a reader sees now, what a power cut leaves for certain, and the changes between them."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Write | _Resize] = field(default_factory=list)

    def change(self, change: _Write | _Resize) -> None:
        _apply(self.content, change)
        self.pending.append(change)

    def make_durable(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A pending change of names in one directory: `gone` leads nowhere any more, `name` leads to `inode`."""

    directory: str
    gone: str | None
    name: str | None
    inode: _Inode | None


@dataclass(frozen=True, slots=True)
class _TreeMove:
    """A pending rename of a directory with all that is in it."""

    directory: str
    source: str
    target: str


class _Tree:
    """The names of a disk: where they lead now, where they lead for certain after a power cut, and what is between.
    What is there from the beginning is durable, and so are the directories it is in."""

    def __init__(self, names: dict[str, _Inode] | None = None, directories: set[str] | None = None) -> None:
        self.names = names or {}
        self.durable = dict(self.names)
        self.pending: list[_Entry | _TreeMove] = []
        self.directories = {"", "/"} if directories is None else set(directories)
        for name in self.names:
            directory = _parent(name)
            while directory not in self.directories:
                self.directories.add(directory)
                directory = _parent(directory)

    def change(self, entry: _Entry | _TreeMove) -> None:
        _change_names(self.names, entry)
        self.pending.append(entry)

    def rename_directory(self, source: str, target: str) -> None:
        if any(name.startswith(f"{target}/") for name in (*self.names, *self.directories)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        # What is not durable within it yet would have to be followed to its new place.
        assert not any(f"{entry.directory}/".startswith(f"{source}/") for entry in self.pending), "sync it first"
        self.directories = {_moved(name, source, target) for name in self.directories}
        self.change(_TreeMove(_parent(target), source, target))

    def sync(self, directory: str) -> None:
        self.check_directory(directory)
        still_pending = []
        for entry in self.pending:
            if entry.directory == directory:
                _change_names(self.durable, entry)
            else:
                still_pending.append(entry)
        self.pending = still_pending

    def inode(self, path: str) -> _Inode:
        inode = self.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def check_directory(self, path: str) -> None:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class _Plan(Enum):
    FAIL = auto()
    STOP_BEFORE = auto()
    STOP_AFTER = auto()


@dataclass(frozen=True, slots=True)
class _Fault:
    plan: _Plan
    error_number: int = 0
    torn_bytes: int = 0
    and_after: bool = False


class FakeFile:
    """See `topics.storage.fs.WritableFile`."""

    def __init__(self, disk: "FakeDisk", path: str, inode: _Inode, position: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._position = position
        self._closed = False

    def write(self, data: bytes | memoryview) -> None:
        self.write_at(self._position, data)
        self._position += len(data)

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        self._check_open()
        with _Mutation(self._disk, self._inode, _Write(offset, bytes(data))):
            self._inode.change(_Write(offset, bytes(data)))

    def preallocate(self, size: int) -> None:
        self._check_open()
        with _Mutation(self._disk):
            if size > len(self._inode.content):
                self._inode.change(_Resize(size))

    def truncate(self, size: int) -> None:
        self._check_open()
        with _Mutation(self._disk):
            self._inode.change(_Resize(size))
        self._position = min(self._position, size)

    def sync(self) -> None:
        self._check_open()
        with _Mutation(self._disk, self._inode):
            self._inode.make_durable()

    def full_sync(self) -> None:
        self.sync()

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


class FakeLock:
    def __init__(self, disk: "FakeDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class _Mutation:
    """The moment of one mutating call: fails or stops before the change, or stops after it, as planned."""

    __slots__ = ("_disk", "_inode", "_write", "stop_after")

    def __init__(self, disk: "FakeDisk", inode: _Inode | None = None, write: _Write | None = None) -> None:
        self._disk = disk
        self._inode = inode
        self._write = write
        self.stop_after = False

    def __enter__(self) -> None:
        disk = self._disk
        if disk.stopped:
            raise SimulatedCrash
        disk.mutating_calls += 1
        if self._write is not None:
            disk.write_calls.append(disk.mutating_calls)
        fault = disk.fault_of_this_call()
        if fault is None:
            return
        if fault.plan is _Plan.STOP_AFTER:
            self.stop_after = True
            return
        if self._inode is not None and self._write is not None and fault.torn_bytes:
            self._inode.change(_Write(self._write.offset, self._write.data[: fault.torn_bytes]))
        if fault.plan is _Plan.STOP_BEFORE:
            disk.stopped = True
            raise SimulatedCrash
        if self._inode is not None and self._write is None:
            # A failed sync: the kernel marks the pages clean, so a second sync would keep nothing either.
            self._inode.pending.clear()
        raise OSError(fault.error_number, os.strerror(fault.error_number))

    def __exit__(self, *_: object) -> None:
        if self.stop_after:
            self._disk.stopped = True
            raise SimulatedCrash


class FakeDisk:
    """See the module and `topics.storage.fs.Disk`."""

    def __init__(self, tree: _Tree | None = None, boots: int = 1) -> None:
        """An empty disk; or, after `boots` starts of the machine, one with these names on it."""
        self.mutating_calls = 0
        self.reading_calls = 0
        self.write_calls: list[int] = []
        self.stopped = False
        self.locked: set[str] = set()
        self._tree = tree or _Tree()
        self._faults: dict[int, _Fault] = {}
        self.reading_faults: dict[int, int] = {}
        self._boots = boots

    # Faults

    def fail_at(
        self, call: int, error_number: int = errno.EIO, *, written_bytes: int = 0, and_after: bool = False
    ) -> None:
        """Make that call raise; a write leaves its first `written_bytes`. `and_after`: so do later calls."""
        self._faults[call] = _Fault(_Plan.FAIL, error_number, written_bytes, and_after)

    def stop_at(self, call: int, *, applied: bool = False, torn_bytes: int = 0) -> None:
        """Crash at that call: before it, after it (`applied`), or within a write, after `torn_bytes`."""
        plan = _Plan.STOP_AFTER if applied else _Plan.STOP_BEFORE
        self._faults[call] = _Fault(plan, torn_bytes=torn_bytes)

    def fault_of_this_call(self) -> _Fault | None:
        fault = self._faults.get(self.mutating_calls)
        if fault is None:
            for call, earlier in self._faults.items():
                if earlier.and_after and call < self.mutating_calls:
                    return earlier
        return fault

    # Crashes

    def crash(self, seed: int) -> "FakeDisk":
        """What a restart after a power cut finds, as the seed has it."""
        choice = random.Random(seed)
        names, directories = dict(self._tree.durable), self._tree.directories
        keep_names = choice.choice((0.0, 0.5, 1.0))
        for entry in self._tree.pending:
            if choice.random() < keep_names:
                _change_names(names, entry)
            elif isinstance(entry, _TreeMove):
                directories = {_moved(name, entry.target, entry.source) for name in directories}
        survivors: dict[int, _Inode] = {}
        for name in sorted(names):
            inode = names[name]
            if id(inode) not in survivors:
                survivors[id(inode)] = _settled(_survivor(inode, choice))
        kept = {name: survivors[id(inode)] for name, inode in names.items()}
        return FakeDisk(_Tree(kept, directories), self._boots + 1)

    def crash_keep_all(self) -> "FakeDisk":
        """What a restart after a killed process finds: every byte and name."""
        names = {name: _settled(inode.content) for name, inode in self._tree.names.items()}
        return FakeDisk(_Tree(names, self._tree.directories), self._boots)

    def crash_drop_all(self) -> "FakeDisk":
        """What a restart after the worst power cut finds: only what was made durable."""
        directories = self._tree.directories
        for entry in reversed(self._tree.pending):
            if isinstance(entry, _TreeMove):
                directories = {_moved(name, entry.target, entry.source) for name in directories}
        names = {name: _settled(inode.durable) for name, inode in self._tree.durable.items()}
        return FakeDisk(_Tree(names, directories), self._boots + 1)

    def dump(self) -> dict[str, bytes]:
        """Every file as a reader sees it now."""
        return {name: bytes(self._tree.names[name].content) for name in sorted(self._tree.names)}

    # Disk: changing

    def make_dir(self, path: str) -> None:
        path = _clean(path)
        with _Mutation(self):
            while path not in self._tree.directories:
                if path in self._tree.names:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
                self._tree.directories.add(path)
                path = _parent(path)

    def create(self, path: str) -> FakeFile:
        path = _clean(path)
        with _Mutation(self):
            self._tree.check_directory(_parent(path))
            if path in self._tree.names or path in self._tree.directories:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            inode = _Inode()
            self._tree.change(_Entry(_parent(path), None, path, inode))
        return FakeFile(self, path, inode, 0)

    def open_append(self, path: str) -> FakeFile:
        path = _look(self, path)
        inode = self._tree.inode(path)
        return FakeFile(self, path, inode, len(inode.content))

    def rename(self, source: str, target: str) -> None:
        source, target = _clean(source), _clean(target)
        with _Mutation(self):
            self._tree.check_directory(_parent(target))
            if source in self._tree.directories:
                self._tree.rename_directory(source, target)
            else:
                self._tree.change(_Entry(_parent(target), source, target, self._tree.inode(source)))

    def remove(self, path: str) -> None:
        path = _clean(path)
        with _Mutation(self):
            if path in self._tree.names:
                self._tree.change(_Entry(_parent(path), path, None, None))

    def remove_tree(self, path: str) -> None:
        path = _clean(path)
        with _Mutation(self):
            for name in sorted(self._tree.names):
                if name.startswith(path + "/"):
                    # The directory goes with its names, so their fate is decided by its parent's sync.
                    self._tree.change(_Entry(_parent(path), name, None, None))
            self._tree.directories = {
                name for name in self._tree.directories if name != path and not name.startswith(path + "/")
            }

    def sync_dir(self, path: str) -> None:
        path = _clean(path)
        with _Mutation(self):
            self._tree.sync(path)

    # Disk: reading

    def read(self, path: str) -> bytes:
        return bytes(self._tree.inode(_look(self, path)).content)

    def map(self, path: str) -> MappedBytes:
        return self.read(path)

    def map_shared(self, path: str) -> SharedBytes:
        """Stores show at once and survive `crash_keep_all`; no power cut keeps them."""
        return self._tree.inode(_look(self, path)).content

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def list_dir(self, path: str) -> list[str]:
        prefix = _look(self, path) + "/"
        everything = [*self._tree.names, *self._tree.directories]
        return sorted({name[len(prefix) :].partition("/")[0] for name in everything if name.startswith(prefix)} - {""})

    def exists(self, path: str) -> bool:
        path = _look(self, path)
        return path in self._tree.names or path in self._tree.directories

    def size(self, path: str) -> int:
        return len(self._tree.inode(_look(self, path)).content)

    def free_bytes(self, path: str) -> int:
        self._tree.check_directory(_look(self, path))
        return FREE_BYTES

    def is_locked(self, path: str) -> bool:
        return _clean(path) in self.locked

    def lock(self, path: str) -> FakeLock:
        path = _clean(path)
        self._tree.check_directory(_parent(path))
        if path in self.locked:
            raise DirectoryInUse(path)
        if path not in self._tree.names:
            self._tree.change(_Entry(_parent(path), None, path, _Inode()))
        self.locked.add(path)
        return FakeLock(self, path)


def _apply(content: bytearray, change: _Write | _Resize) -> None:
    match change:
        case _Write(offset, data):
            if offset > len(content):
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(data)] = data
        case _Resize(size):
            if size > len(content):
                content.extend(bytes(size - len(content)))
            else:
                del content[size:]


def _moved(name: str, source: str, target: str) -> str:
    return target + name[len(source) :] if f"{name}/".startswith(f"{source}/") else name


def _change_names(names: dict[str, _Inode], entry: _Entry | _TreeMove) -> None:
    if isinstance(entry, _TreeMove):
        moved = {_moved(name, entry.source, entry.target): inode for name, inode in names.items()}
        names.clear()
        names.update(moved)
        return
    if entry.gone is not None:
        names.pop(entry.gone, None)
    if entry.name is not None and entry.inode is not None:
        names[entry.name] = entry.inode


def _survivor(inode: _Inode, choice: random.Random) -> bytes:
    """The durable bytes and a seeded part of the pending changes.

    A sector holds some prefix of the writes that touched it (a page reaches the disk with all that is in it),
    but each sector its own: later sectors may be there when earlier ones are not. Lengths may be there
    without their bytes.
    """
    content = bytearray(inode.durable)
    keep = choice.choice((0.0, 0.3, 0.7, 1.0))
    lengths_survive = choice.random() < 0.5
    settled_sectors: set[int] = set()
    for change in inode.pending:
        match change:
            case _Write(offset, data):
                if lengths_survive and offset + len(data) > len(content):
                    _apply(content, _Resize(offset + len(data)))
                for sector, piece in _sectors(offset, data):
                    if sector not in settled_sectors and choice.random() < keep:
                        _apply(content, piece)
                    else:
                        settled_sectors.add(sector)
            case _Resize():
                if choice.random() < keep:
                    _apply(content, change)
    return bytes(content)


def _sectors(offset: int, data: bytes) -> list[tuple[int, _Write]]:
    pieces = []
    end = offset + len(data)
    at = offset
    while at < end:
        sector = at // SECTOR_BYTES
        until = min(end, (sector + 1) * SECTOR_BYTES)
        pieces.append((sector, _Write(at, data[at - offset : until - offset])))
        at = until
    return pieces


def _settled(content: bytes | bytearray) -> _Inode:
    return _Inode(bytearray(content), bytearray(content))


def _look(disk: FakeDisk, path: str) -> str:
    """The path as it is kept, unless it is this call's turn to fail."""
    disk.reading_calls += 1
    error_number = disk.reading_faults.get(disk.reading_calls)
    if error_number is not None:
        raise OSError(error_number, os.strerror(error_number), path)
    return _clean(path)


def _clean(path: str) -> str:
    return path.rstrip("/")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
