"""The id of a data directory: made once, kept ever after."""

import errno

import pytest

from topics.storage import paths
from topics.storage.backup import back_up, restore
from topics.storage.identity import read_id, write_id
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, SimulatedServer

ID = f"{15:032x}"


def opened(disk: FakeDisk) -> str:
    server = SimulatedServer(disk, FakeClock())
    server.start()
    server.stop()
    return server.store.server_id


def test_a_new_directory_has_one_and_keeps_it() -> None:
    disk = FakeDisk()
    first = opened(disk)
    assert read_id(disk, DATA_DIR) == first != ""
    write_id(disk, DATA_DIR, ID)
    assert opened(disk) == ID


def test_a_backup_and_what_is_restored_have_the_same() -> None:
    disk = FakeDisk()
    opened(disk)
    write_id(disk, DATA_DIR, ID)
    back_up(disk, DATA_DIR, "", "/backup")
    restore(disk, "/backup", "/restored")
    assert read_id(disk, "/backup") == read_id(disk, "/restored") == ID


@pytest.mark.parametrize("content", [b"", b"\n", ID.encode(), ID.upper().encode() + b"\n", b"\0" * 33])
def test_a_damaged_one_counts_as_missing(content: bytes) -> None:
    disk = FakeDisk()
    made = opened(disk)
    disk.remove(paths.id_path(DATA_DIR))
    file = disk.create(paths.id_path(DATA_DIR))
    file.write(content)
    file.close()
    assert read_id(disk, DATA_DIR) is None
    assert opened(disk) == made == read_id(disk, DATA_DIR)


def test_a_directory_nobody_opened_has_none() -> None:
    assert read_id(FakeDisk(), DATA_DIR) is None


def test_one_that_cannot_be_looked_at_is_not_made_anew() -> None:
    disk = FakeDisk()
    write_id(disk, DATA_DIR, ID)
    disk.reading_faults[disk.reading_calls + 1] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        read_id(disk, DATA_DIR)
    assert opened(disk) == ID
