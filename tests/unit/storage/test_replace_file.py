"""A file that is given new content: at every moment, and after every crash, it has the old one or the new one."""

import errno

import pytest

from topics.storage.fs import replace_file, write_file
from topics.testing.fake_disk import FakeDisk, SimulatedCrash

PATH = "/data/meta/id"
OLD, NEW = b"old", b"new" * 400


def with_old() -> FakeDisk:
    disk = FakeDisk()
    disk.make_dir("/data/meta")
    replace_file(disk, PATH, OLD)
    return disk


def calls_of_a_replacement() -> int:
    disk = with_old()
    before = disk.mutating_calls
    replace_file(disk, PATH, NEW)
    return disk.mutating_calls - before


@pytest.mark.parametrize("call", range(1, calls_of_a_replacement() + 1))
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_at_any_call_leaves_the_old_content_or_the_new(call: int, seed: int) -> None:
    disk = with_old()
    disk.stop_at(disk.mutating_calls + call)
    with pytest.raises(SimulatedCrash):
        replace_file(disk, PATH, NEW)
    after = disk.crash(seed)
    assert after.read(PATH) in (OLD, NEW)
    replace_file(after, PATH, NEW)
    assert after.crash_drop_all().read(PATH) == NEW


def test_it_is_durable_when_it_returns_and_leaves_nothing_else() -> None:
    disk = with_old()
    replace_file(disk, PATH, NEW)
    assert disk.crash_drop_all().dump() == {PATH: NEW}


def test_a_failed_sync_leaves_the_old_content() -> None:
    disk = with_old()
    disk.fail_at(disk.mutating_calls + 4, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        replace_file(disk, PATH, NEW)
    assert disk.read(PATH) == OLD


def test_the_name_can_be_left_to_the_caller() -> None:
    disk = with_old()
    replace_file(disk, PATH, NEW, sync_dir=False)
    assert disk.crash_drop_all().read(PATH) == OLD
    disk.sync_dir("/data/meta")
    assert disk.crash_drop_all().read(PATH) == NEW


def test_a_file_nobody_believes_after_a_power_cut_costs_no_sync() -> None:
    disk = with_old()
    replace_file(disk, PATH, NEW, unsafe_no_sync=True)
    assert disk.crash_keep_all().read(PATH) == NEW
    assert disk.crash_drop_all().read(PATH) == OLD


def test_a_new_file_is_never_written_over_another() -> None:
    with pytest.raises(FileExistsError):
        write_file(with_old(), PATH, NEW)
