"""The fake disk keeps its promises about crashes, faults and determinism."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.storage.errors import DirectoryInUse
from topics.storage.fs import Disk
from topics.testing.fake_disk import SECTOR_BYTES, FakeDisk, SimulatedCrash

SEEDS = range(40)


def disk_with(content: bytes) -> FakeDisk:
    """A disk with a durable /d/file."""
    disk = FakeDisk()
    disk.make_dir("/d")
    file = disk.create("/d/file")
    file.write(content)
    file.sync()
    file.close()
    disk.sync_dir("/d")
    return disk


def test_it_is_a_disk() -> None:
    disk: Disk = FakeDisk()
    assert disk.free_bytes("/") > 0


def test_synced_bytes_under_a_synced_name_survive_every_crash() -> None:
    disk = disk_with(b"kept")
    assert disk.crash_drop_all().dump() == {"/d/file": b"kept"}
    for seed in SEEDS:
        assert disk.crash(seed).dump() == {"/d/file": b"kept"}


def test_unsynced_bytes_survive_a_killed_process_but_not_the_worst_power_cut() -> None:
    disk = disk_with(b"old")
    file = disk.open_append("/d/file")
    file.write(b"new")
    assert disk.read("/d/file") == b"oldnew"
    assert disk.crash_keep_all().read("/d/file") == b"oldnew"
    assert disk.crash_drop_all().read("/d/file") == b"old"


def test_synced_bytes_under_an_unsynced_name_may_be_lost() -> None:
    disk = FakeDisk()
    disk.make_dir("/d")
    file = disk.create("/d/file")
    file.write(b"x")
    file.sync()
    assert disk.crash_drop_all().dump() == {}
    outcomes = {tuple(disk.crash(seed).dump().items()) for seed in SEEDS}
    assert outcomes == {(), (("/d/file", b"x"),)}


def test_an_unsynced_rename_leads_to_the_old_or_the_new_file() -> None:
    disk = disk_with(b"old")
    file = disk.create("/d/temporary")
    file.write(b"new")
    file.sync()
    disk.rename("/d/temporary", "/d/file")
    assert disk.read("/d/file") == b"new"
    assert {disk.crash(seed).read("/d/file") for seed in SEEDS} == {b"old", b"new"}
    disk.sync_dir("/d")
    assert {tuple(disk.crash(seed).dump().items()) for seed in SEEDS} == {(("/d/file", b"new"),)}


def test_an_unsynced_removal_may_be_undone() -> None:
    disk = disk_with(b"x")
    disk.remove("/d/file")
    disk.remove("/d/file")
    assert not disk.exists("/d/file")
    assert {disk.crash(seed).exists("/d/file") for seed in SEEDS} == {True, False}
    disk.sync_dir("/d")
    assert disk.crash_drop_all().dump() == {}


def test_an_unsynced_removal_of_a_tree_may_be_undone_in_part() -> None:
    disk = FakeDisk()
    disk.make_dir("/d/tree")
    for name in "ab":
        disk.create(f"/d/tree/{name}").sync()
    disk.sync_dir("/d/tree")
    disk.remove_tree("/d/tree")
    assert disk.list_dir("/d") == []
    assert len({tuple(disk.crash(seed).dump()) for seed in SEEDS}) == 4
    disk.sync_dir("/d")
    assert disk.crash_drop_all().dump() == {}


def test_an_unsynced_write_is_torn_at_sectors_and_out_of_order() -> None:
    disk = disk_with(bytes(3 * SECTOR_BYTES))
    disk.open_append("/d/file").write_at(0, b"x" * 3 * SECTOR_BYTES)
    outcomes = set()
    for seed in range(200):
        content = disk.crash(seed).read("/d/file")
        sectors = [content[at : at + SECTOR_BYTES] for at in range(0, len(content), SECTOR_BYTES)]
        assert all(sector in (bytes(SECTOR_BYTES), b"x" * SECTOR_BYTES) for sector in sectors)
        outcomes.add(tuple(sector[0] for sector in sectors))
    assert len(outcomes) == 8


def test_the_length_may_survive_without_the_bytes() -> None:
    disk = disk_with(b"")
    disk.open_append("/d/file").write(b"x" * 100)
    assert {disk.crash(seed).read("/d/file") for seed in SEEDS} == {b"", bytes(100), b"x" * 100}


def test_a_failed_sync_loses_the_bytes_for_good() -> None:
    disk = disk_with(b"old")
    file = disk.open_append("/d/file")
    file.write(b"new")
    disk.fail_at(disk.mutating_calls + 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert disk.crash_drop_all().read("/d/file") == b"old"


def test_a_failing_write_leaves_what_it_wrote_before_the_error() -> None:
    disk = disk_with(b"")
    file = disk.open_append("/d/file")
    disk.fail_at(disk.mutating_calls + 1, errno.ENOSPC, written_bytes=2)
    with pytest.raises(OSError, match="No space left"):
        file.write(b"abc")
    assert disk.read("/d/file") == b"ab"


def test_a_disk_that_stays_full_refuses_every_later_call() -> None:
    disk = disk_with(b"")
    disk.fail_at(disk.mutating_calls + 1, errno.ENOSPC, and_after=True)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            disk.create("/d/other")


@pytest.mark.parametrize(("applied", "torn_bytes", "expected"), [(False, 0, b""), (False, 1, b"a"), (True, 0, b"abc")])
def test_a_stop_comes_before_within_or_after_the_call(applied: bool, torn_bytes: int, expected: bytes) -> None:
    disk = disk_with(b"")
    file = disk.open_append("/d/file")
    disk.stop_at(disk.mutating_calls + 1, applied=applied, torn_bytes=torn_bytes)
    with pytest.raises(SimulatedCrash):
        file.write(b"abc")
    with pytest.raises(SimulatedCrash):
        file.sync()
    assert disk.crash_keep_all().read("/d/file") == expected


def test_reads_are_not_counted_as_mutating() -> None:
    disk = disk_with(b"x")
    before = disk.mutating_calls
    disk.read("/d/file")
    disk.map("/d/file")
    disk.list_dir("/d")
    disk.open_append("/d/file").close()
    disk.lock("/d/LOCK")
    assert disk.mutating_calls == before == 5


def test_a_lock_is_exclusive_and_gone_after_a_crash() -> None:
    disk = disk_with(b"")
    lock = disk.lock("/d/LOCK")
    with pytest.raises(DirectoryInUse):
        disk.lock("/d/LOCK")
    disk.crash(1).lock("/d/LOCK")
    lock.release()
    disk.lock("/d/LOCK")


def test_missing_files_and_directories_are_errors() -> None:
    disk = FakeDisk()
    with pytest.raises(FileNotFoundError):
        disk.create("/nowhere/file")
    with pytest.raises(FileNotFoundError):
        disk.read("/file")
    with pytest.raises(FileNotFoundError):
        disk.sync_dir("/nowhere")
    disk.create("/file")
    with pytest.raises(FileExistsError):
        disk.create("/file")
    with pytest.raises(FileExistsError):
        disk.make_dir("/file/below")


def test_a_closed_file_takes_no_writes() -> None:
    disk = disk_with(b"")
    file = disk.open_append("/d/file")
    file.close()
    with pytest.raises(OSError, match="Bad file"):
        file.write(b"x")


@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=1500)), max_size=8))
def test_the_same_seed_gives_the_same_bytes(seed: int, writes: list[tuple[int, bytes]]) -> None:
    dumps = []
    for _ in range(2):
        disk = disk_with(b"start")
        file = disk.open_append("/d/file")
        for number, (offset, data) in enumerate(writes):
            file.write_at(offset, data)
            disk.create(f"/d/{number}")
        dumps.append(disk.crash(seed).dump())
    assert dumps[0] == dumps[1]
