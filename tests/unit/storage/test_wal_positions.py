"""How far the log is: what a reader believes of it, and what it must not."""

import pytest

from topics.storage import paths
from topics.storage.fs import replace_file
from topics.storage.wal_positions import TO_ITS_END, Cut, WalPositions, read_positions
from topics.testing.fake_disk import FakeDisk

ROOT = "/data"


def created(disk: FakeDisk, *synced: int) -> WalPositions:
    positions = WalPositions(disk, ROOT)
    positions.create(3, synced)
    return positions


def test_a_cut_and_what_is_synced_are_read_as_they_were_noted() -> None:
    disk = FakeDisk()
    positions = created(disk, 5, 0, 7)
    positions.note_cut([8, 1, TO_ITS_END])
    positions.noting_synced(1)(1)
    found = read_positions(disk, ROOT)
    assert found is not None
    assert found.cut == Cut(3, 1, {"shard-00": 8, "shard-01": 1})
    assert found.synced == {"shard-00": 5, "shard-01": 1, "shard-02": 7}


def test_one_shard_lives_flat_and_before_the_first_cut_there_is_none() -> None:
    disk = FakeDisk()
    positions = created(disk, 5)
    found = read_positions(disk, ROOT)
    assert found is not None
    assert (found.cut, found.synced) == (None, {"": 5})
    positions.note_cut([6])
    positions.note_cut([9])
    found = read_positions(disk, ROOT)
    assert found is not None
    assert found.cut == Cut(3, 2, {"": 9})


def test_there_may_be_no_file() -> None:
    assert read_positions(FakeDisk(), ROOT) is None


def test_a_damaged_byte_makes_no_other_position() -> None:
    disk = FakeDisk()
    positions = created(disk, 5, 6)
    positions.note_cut([10, 11])
    path = paths.positions_path(ROOT)
    content = disk.read(path)
    whole = read_positions(disk, ROOT)
    assert whole is not None
    for offset in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[offset] ^= 1 << bit
            replace_file(disk, path, bytes(damaged))
            found = read_positions(disk, ROOT)
            if found is not None:
                assert found.cut in (None, whole.cut)
                assert found.synced.items() <= whole.synced.items()


@pytest.mark.parametrize("size", [0, 10, 47, 60])
def test_a_file_that_is_cut_short_says_nothing(size: int) -> None:
    disk = FakeDisk()
    created(disk, 5)
    path = paths.positions_path(ROOT)
    replace_file(disk, path, disk.read(path)[:size])
    assert read_positions(disk, ROOT) is None
