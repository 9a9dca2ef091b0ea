"""The real file system behind `Disk`: modes, locks, short writes, and reading back."""

import errno
import fcntl
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from topics.storage.errors import DirectoryInUse
from topics.storage.fs import Disk, RealDisk


@pytest.fixture
def disk() -> Disk:
    return RealDisk()


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """The kernel cuts writes short at this size, then refuses them: a full disk without a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_files_are_0600_and_directories_0700(disk: Disk, directory: str) -> None:
    disk.make_dir(f"{directory}/a/b")
    disk.create(f"{directory}/a/b/file").close()
    disk.lock(f"{directory}/LOCK").release()
    assert mode(f"{directory}/a") == 0o700
    assert mode(f"{directory}/a/b") == 0o700
    assert mode(f"{directory}/a/b/file") == 0o600
    assert mode(f"{directory}/LOCK") == 0o600


def test_a_directory_may_exist_already_but_not_as_a_file(disk: Disk, directory: str) -> None:
    disk.make_dir(f"{directory}/a")
    disk.make_dir(f"{directory}/a")
    disk.create(f"{directory}/file").close()
    with pytest.raises(FileExistsError):
        disk.make_dir(f"{directory}/file")


def test_creating_over_an_existing_file_is_refused(disk: Disk, directory: str) -> None:
    disk.create(f"{directory}/file").close()
    with pytest.raises(FileExistsError):
        disk.create(f"{directory}/file")


def test_what_is_written_reads_back_and_maps(disk: Disk, directory: str) -> None:
    path = f"{directory}/file"
    file = disk.create(path)
    file.write(b"hello ")
    file.write(b"world")
    file.write_at(0, b"J")
    file.write(b"!")
    file.sync()
    file.full_sync()
    file.close()
    file.close()
    assert disk.read(path) == b"Jello world!"
    assert disk.map(path)[6:11] == b"world"
    assert disk.size(path) == 12
    assert disk.exists(path)
    assert disk.free_bytes(directory) > 0


def test_an_empty_file_maps_to_nothing(disk: Disk, directory: str) -> None:
    disk.create(f"{directory}/file").close()
    assert disk.map(f"{directory}/file") == b""


def test_writes_go_to_the_front_of_a_preallocated_file(disk: Disk, directory: str) -> None:
    path = f"{directory}/file"
    file = disk.create(path)
    file.preallocate(4096)
    file.write(b"abc")
    file.close()
    assert disk.read(path) == b"abc" + bytes(4093)


def test_appending_goes_on_where_the_file_was_cut(disk: Disk, directory: str) -> None:
    path = f"{directory}/file"
    file = disk.create(path)
    file.write(b"good bad")
    file.close()
    file = disk.open_append(path)
    file.truncate(5)
    file.write(b"better")
    file.close()
    assert disk.read(path) == b"good better"


def test_renames_and_removals(disk: Disk, directory: str) -> None:
    disk.make_dir(f"{directory}/tree/leaf")
    disk.create(f"{directory}/tree/leaf/x").close()
    disk.create(f"{directory}/a").close()
    disk.create(f"{directory}/b").close()
    disk.rename(f"{directory}/a", f"{directory}/b")
    disk.sync_dir(directory)
    assert disk.list_dir(directory) == ["b", "tree"]
    disk.remove(f"{directory}/b")
    disk.remove(f"{directory}/b")
    disk.remove_tree(f"{directory}/tree")
    disk.remove_tree(f"{directory}/tree")
    assert disk.list_dir(directory) == []
    assert disk.list_dir(f"{directory}/nowhere") == []


def test_a_short_write_is_finished_or_reported(disk: Disk, directory: str) -> None:
    path = f"{directory}/file"
    file = disk.create(path)
    with files_limited_to(1000), pytest.raises(OSError, match="File too large"):
        file.write(b"x" * 1001)
    file.close()
    assert disk.size(path) == 1000


def test_preallocation_without_room_is_an_error(disk: Disk, directory: str) -> None:
    file = disk.create(f"{directory}/file")
    with files_limited_to(1000), pytest.raises(OSError, match="File too large"):
        file.preallocate(2000)
    file.close()


def test_a_second_lock_is_refused_and_names_the_holder(disk: Disk, directory: str) -> None:
    path = f"{directory}/LOCK"
    lock = disk.lock(path)
    with pytest.raises(DirectoryInUse) as caught:
        disk.lock(path)
    assert caught.value.path == path
    assert caught.value.holder == str(os.getpid())
    lock.release()
    lock.release()
    disk.lock(path).release()


def test_another_process_cannot_take_the_lock(disk: Disk, directory: str) -> None:
    path = f"{directory}/LOCK"
    lock = disk.lock(path)
    program = (
        "import sys\n"
        "from topics.storage.fs import RealDisk\n"
        "from topics.storage.errors import DirectoryInUse\n"
        "try: RealDisk().lock(sys.argv[1])\n"
        "except DirectoryInUse: sys.exit(3)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    refused = subprocess.run([sys.executable, "-c", program, path], env=environment, check=False)
    lock.release()
    allowed = subprocess.run([sys.executable, "-c", program, path], env=environment, check=False)
    assert (refused.returncode, allowed.returncode) == (3, 0)


@pytest.mark.parametrize(
    ("full_fsync", "fdatasync", "refused_with", "calls"),
    [
        (False, True, 0, ["fdatasync", "fsync"]),
        (False, False, 0, ["fsync", "fsync"]),
        (True, False, 0, ["F_FULLFSYNC", "F_FULLFSYNC"]),
        (True, False, errno.ENOTSUP, ["F_FULLFSYNC", "fsync", "F_FULLFSYNC", "fsync"]),
    ],
    ids=["linux", "neither", "macos", "macos-on-a-file-system-without"],
)
def test_a_sync_is_the_strongest_the_platform_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    full_fsync: bool,
    fdatasync: bool,
    refused_with: int,
    calls: list[str],
) -> None:
    called: list[str] = []

    def fcntl_call(descriptor: int, command: int) -> None:
        called.append("F_FULLFSYNC")
        assert command == 51
        if refused_with:
            raise OSError(refused_with, os.strerror(refused_with))

    file = RealDisk().create(str(tmp_path / "file"))
    if full_fsync:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", fcntl_call)
    monkeypatch.setattr(os, "fsync", lambda descriptor: called.append("fsync"))
    if fdatasync:
        monkeypatch.setattr(os, "fdatasync", lambda descriptor: called.append("fdatasync"))
    else:
        monkeypatch.delattr(os, "fdatasync")
    file.sync()
    file.full_sync()
    file.close()
    assert called == calls


def test_a_sync_that_failed_on_macos_is_an_error_and_not_tried_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fcntl_call(descriptor: int, command: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = RealDisk().create(str(tmp_path / "file"))
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fcntl_call)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.close()


# Without descriptors


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """This process can open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with suppress(OSError):
            while len(taken) < 256:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_are_made_written_and_synced_without_a_descriptor_left(directory: str) -> None:
    disk = RealDisk(spare_descriptors=2)
    first = disk.create(f"{directory}/0")
    with no_descriptor_left():
        for number in range(1, 20):
            # As the log begins its next file: the one before is closed, then names are made durable.
            first.close()
            first = disk.create(f"{directory}/{number}")
            first.write(b"content")
            first.full_sync()
            disk.sync_dir(directory)
            again = disk.open_append(f"{directory}/{number}")
            again.write(b" and more")
            again.close()
        with pytest.raises(OSError, match="Too many open files"):
            disk.map(f"{directory}/1")
    first.close()
    assert [disk.read(f"{directory}/{number}") for number in range(1, 20)] == [b"content and more"] * 19


def test_more_files_at_once_than_there_are_spare_descriptors_are_refused_and_what_is_closed_is_spare_again(
    directory: str,
) -> None:
    disk = RealDisk(spare_descriptors=2)
    with no_descriptor_left():
        for attempt in range(3):
            opened = [disk.create(f"{directory}/{attempt}-{number}") for number in range(2)]
            with pytest.raises(OSError, match="Too many open files"):
                disk.create(f"{directory}/{attempt}-refused")
            for file in opened:
                file.close()


def test_without_spare_descriptors_nothing_is_kept_open(directory: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    disk = RealDisk()
    disk.create(f"{directory}/a").close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_looked_at_is_not_missing(disk: Disk, directory: str) -> None:
    os.symlink(f"{directory}/loop", f"{directory}/loop")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        disk.exists(f"{directory}/loop")
    assert not disk.exists(f"{directory}/nothing")
    assert not disk.exists(f"{directory}/nothing/below")
