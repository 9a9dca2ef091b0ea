"""Whose a cold tier is: nobody else's segments are read, written or removed, whatever the settings say."""

from collections.abc import Callable

import pytest

from topics.storage import paths
from topics.storage.backup import back_up, restore
from topics.storage.cold_tier import read_owner
from topics.storage.errors import ColdTierNotOurs, CorruptFile, DirectoryInUse
from topics.storage.fs import replace_file
from topics.storage.verify import verify_directory
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import COLD_DIR, DATA_DIR, Reading, SimulatedServer

OTHER_DIR = "/other"
FSYNC = {"durability": "fsync"}


def prepared(disk: FakeDisk, data_dir: str = DATA_DIR, *, cold_dir: str = COLD_DIR, number: int = 7) -> SimulatedServer:
    return SimulatedServer(
        disk,
        FakeClock(),
        data_dir=data_dir,
        cold_dir=cold_dir,
        hot_retain_segments=0,
        segment_events_max=4,
        server_number=number,
    )


def started(disk: FakeDisk, data_dir: str = DATA_DIR, *, cold_dir: str = COLD_DIR, number: int = 7) -> SimulatedServer:
    server = prepared(disk, data_dir, cold_dir=cold_dir, number=number)
    server.start()
    return server


def with_cold_segments(disk: FakeDisk) -> Reading:
    """A server that was stopped, and what its topic holds: nearly all of it is on the cold tier."""
    server = started(disk)
    server.write("t", 30, config=FSYNC)
    server.checkpoint()
    server.checkpoint()
    read = server.read_all("t")
    server.stop()
    assert cold_files(disk)
    return read


def cold_files(disk: FakeDisk) -> dict[str, bytes]:
    return {name: content for name, content in disk.dump().items() if name.startswith(f"{COLD_DIR}/topics/")}


def copy_tree(disk: FakeDisk, source: str, target: str) -> None:
    """As `cp -r` does it."""
    for name, content in disk.dump().items():
        if name.startswith(f"{source}/"):
            path = target + name[len(source) :]
            disk.make_dir(paths.parent(path))
            disk.remove(path)
            replace_file(disk, path, content)


def refused(start: Callable[[], object], *words: str) -> None:
    with pytest.raises(ColdTierNotOurs) as error:
        start()
    for word in words:
        assert word in error.value.message


def test_a_new_server_beside_the_cold_tier_of_another_is_refused_and_removes_nothing() -> None:
    disk = FakeDisk()
    read = with_cold_segments(disk)
    before = cold_files(disk)
    refused(lambda: started(disk, OTHER_DIR, number=8), COLD_DIR, "is empty", "mount it", "TOPICS_COLD_DIR")
    assert cold_files(disk) == before
    assert started(disk).read_all("t") == read


def test_another_server_with_data_of_its_own_is_refused_also_while_the_first_one_runs() -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    other = started(disk, OTHER_DIR, cold_dir="/cold-of-other", number=8)
    other.write("t", 30, config=FSYNC)
    other.stop()
    first = started(disk)
    before = cold_files(disk)
    refused(lambda: started(disk, OTHER_DIR, number=8), "another data directory", "correct it")
    assert cold_files(disk) == before
    assert not list(first.read_all("t").missing())


def test_a_copied_data_directory_does_not_start_while_the_first_one_runs() -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    copy_tree(disk, DATA_DIR, OTHER_DIR)
    started(disk)
    with pytest.raises(DirectoryInUse, match=f"{COLD_DIR}/LOCK"):
        prepared(disk, OTHER_DIR).store.acquire()


def test_a_data_directory_older_than_its_cold_tier_is_refused_and_removes_nothing() -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    copy_tree(disk, DATA_DIR, OTHER_DIR)
    server = started(disk)
    server.write("t", 30, config=FSYNC)
    server.checkpoint()
    server.checkpoint()
    read = server.read_all("t")
    server.stop()
    before = cold_files(disk)
    refused(lambda: started(disk, OTHER_DIR), "a newer copy", "has used it since")
    assert cold_files(disk) == before
    assert started(disk.crash_keep_all()).read_all("t") == read


def test_a_restored_directory_never_takes_the_cold_tier_of_its_original() -> None:
    disk = FakeDisk()
    read = with_cold_segments(disk)
    back_up(disk, DATA_DIR, COLD_DIR, "/backup")
    restore(disk, "/backup", "/restored")
    before = cold_files(disk)
    for directory in ("/backup", "/restored"):
        refused(lambda: started(disk, directory, number=8), "restored data directory name an empty")  # noqa: B023
    assert cold_files(disk) == before
    disk = disk.crash_keep_all()  # the processes that refused have ended
    restored = started(disk, "/restored", cold_dir="/cold-of-restored", number=8)
    assert restored.read_all("t") == read
    original, own = read_owner(disk, COLD_DIR), read_owner(disk, "/cold-of-restored")
    assert original is not None
    assert own is not None
    assert original.owner != own.owner


def test_a_cold_volume_that_is_not_mounted_is_told_from_a_damaged_one() -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    refused(lambda: started(disk, cold_dir="/mount-point"), "/mount-point", "not mounted")


def test_a_cold_volume_that_goes_away_while_the_server_runs_gets_nothing_below_its_mount_point() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("t", 30, config=FSYNC)
    disk.remove_tree(COLD_DIR)
    disk.make_dir(COLD_DIR)
    assert server.checkpoint()
    assert server.checkpoint()
    assert disk.list_dir(COLD_DIR) == []
    assert sorted(server.read_all("t").records) == list(range(1, 31))


def test_segments_name_their_owner_and_those_of_another_are_neither_served_nor_removed() -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    other = started(disk, OTHER_DIR, cold_dir="/cold-of-other", number=8)
    other.write("t", 30, config=FSYNC)
    other.checkpoint()
    other.stop()
    # Somebody puts the files of one cold tier where those of the other were: the same names, the same lengths.
    disk.remove_tree(f"{COLD_DIR}/topics")
    copy_tree(disk, "/cold-of-other/topics", f"{COLD_DIR}/topics")
    before = cold_files(disk)
    server = started(disk)
    refused(lambda: server.read_all("t"), "another data directory")
    server.delete_topic("t")
    for _ in range(3):
        assert server.checkpoint()
    assert cold_files(disk) == before


def test_segments_of_nobody_beside_a_new_data_directory_are_left_alone() -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    for name in disk.dump():
        if name.endswith(paths.OWNER):
            disk.remove(name)
    before = cold_files(disk)
    refused(lambda: started(disk, OTHER_DIR, number=8), "do not belong to", "mount it")
    assert cold_files(disk) == before


def test_a_cold_tier_from_before_there_were_owners_is_taken_over_with_its_data_directory() -> None:
    disk = FakeDisk()
    read = with_cold_segments(disk)
    for name in disk.dump():
        if name.endswith((paths.OWNER, "meta/cold")):
            disk.remove(name)
    server = started(disk)
    assert server.read_all("t") == read
    owner = read_owner(disk, COLD_DIR)
    assert owner is not None


@pytest.mark.parametrize("path", [f"{COLD_DIR}/OWNER", f"{DATA_DIR}/meta/cold"])
def test_an_owner_that_cannot_be_read_is_damage(path: str) -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    replace_file(disk, path, b"?")
    before = cold_files(disk)
    with pytest.raises(CorruptFile, match=path):
        started(disk)
    assert cold_files(disk) == before


@pytest.mark.parametrize("tool", ["backup", "verify"])
def test_the_tools_refuse_a_cold_tier_of_another(tool: str) -> None:
    disk = FakeDisk()
    with_cold_segments(disk)
    started(disk, OTHER_DIR, cold_dir="/cold-of-other", number=8).stop()
    if tool == "backup":
        refused(lambda: back_up(disk, DATA_DIR, "/cold-of-other", "/backup"), "/cold-of-other")
    else:
        refused(lambda: verify_directory(disk, DATA_DIR, "/cold-of-other"), "/cold-of-other")


def test_a_first_start_that_stops_anywhere_can_be_repeated() -> None:
    for call in range(1, 200):
        disk = FakeDisk()
        disk.stop_at(call)
        try:
            started(disk)
        except SimulatedCrash:
            for survivor in (disk.crash_keep_all(), disk.crash_drop_all()):
                started(survivor).write("t", 3, config=FSYNC)
        else:
            assert call > 20
            return
    pytest.fail("the start never came to its end")
