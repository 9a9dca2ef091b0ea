"""What a data directory is worth after restarts that change something, or that fail half way."""

import pytest

from topics.errors import ConfigurationError, StorageFailed
from topics.storage import paths, snapshot_chain
from topics.storage.recovery import StoredTail, Tail
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import DATA_DIR, SimulatedServer

FSYNC = {"durability": "fsync"}


def started(disk: FakeDisk, *, wal_shards: int = 1, serve_first: bool = False) -> SimulatedServer:
    server = SimulatedServer(disk, FakeClock(), wal_file_bytes=2000, wal_shards=wal_shards, segment_events_max=4)
    server.start(serve_first=serve_first)
    return server


def test_operations_of_an_earlier_shard_count_are_not_replayed_over_later_ones() -> None:
    disk = FakeDisk()
    server = started(disk, wal_shards=2)
    for topic in ("a", "b"):
        server.write(topic, 3, config=FSYNC)
        server.put(topic, {"cap_records": 50})
    server = started(disk := disk.crash_keep_all(), wal_shards=1)
    for topic in ("a", "b"):
        server.put(topic, {"cap_records": 70})
    server = started(disk.crash_keep_all(), wal_shards=1)
    assert [server.engine.topic(topic).config.cap_records for topic in ("a", "b")] == [70, 70]


@pytest.mark.parametrize("counts", [(2, 1), (1, 2), (3, 2)])
def test_a_server_stopped_anywhere_after_its_shard_count_changed_starts_again(counts: tuple[int, int]) -> None:
    before, after = counts
    first = FakeDisk()
    server = started(first, wal_shards=before)
    for _ in range(30):
        for topic in ("a", "b", "c"):
            server.write(topic, 3, config=FSYNC)
        server.checkpoint()  # so that the first files of the log are gone
    for call in range(1, 1000):
        disk = first.crash_keep_all()
        disk.stop_at(call)
        try:
            server = started(disk, wal_shards=after)
            for _ in range(3):
                server.checkpoint()
        except SimulatedCrash:
            again = started(disk.crash_keep_all(), wal_shards=after)
            assert [again.read_all(topic).head_seq for topic in ("a", "b", "c")] == [90, 90, 90]
        else:
            return
    pytest.fail("the start never came to its end")


def test_after_a_start_the_snapshot_before_it_can_still_be_fallen_back_to() -> None:
    disk = FakeDisk()
    server = started(disk)
    for _ in range(3):
        server.write("orders", 4, config=FSYNC)
    server.checkpoint()
    server.delete_records("orders", before_seq=9)
    started(disk := disk.crash_keep_all())
    newest = snapshot_chain.numbers(disk, paths.meta_dir(DATA_DIR)).newest
    damaged = disk.open_append(snapshot_chain.increment_path(paths.meta_dir(DATA_DIR), newest))
    damaged.write_at(40, b"\xff")
    assert sorted(started(disk.crash_keep_all()).read_all("orders").records) == [9, 10, 11, 12]


def test_a_checkpoint_goes_well_after_one_the_disk_refused_anywhere() -> None:
    refused = 0
    for call in range(1, 1000):
        disk = FakeDisk()
        server = started(disk)
        for topic in ("a", "b"):
            server.write(topic, 3, config=FSYNC)
        server.checkpoint()
        for topic in ("a", "b"):
            server.write(topic, 3)
        disk.fail_at(disk.mutating_calls + call)
        try:
            sealed = server.seal()
            if server.checkpoint() and sealed:
                break
            assert server.checkpoint()
        except StorageFailed:
            pass  # it was the log the disk refused to write: nothing goes on until a restart
        refused += 1
        again = started(disk.crash_keep_all())
        assert [sorted(again.read_all(topic).records) for topic in ("a", "b")] == [[1, 2, 3, 4, 5, 6]] * 2
    assert refused > 10


@pytest.mark.parametrize("call", [1, 2])
def test_a_data_directory_that_cannot_be_made_is_refused_by_the_name_of_its_setting(call: int) -> None:
    disk = FakeDisk()
    disk.fail_at(call)
    server = SimulatedServer(disk, FakeClock(), cold_dir="/cold")
    with pytest.raises(ConfigurationError, match=["TOPICS_DATA_DIR=/data", "TOPICS_COLD_DIR=/cold"][call - 1]):
        server.store.acquire()


def test_a_start_reads_no_record_of_a_tail_until_somebody_wants_one(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    server = started(disk)
    for topic in ("a", "b"):
        server.write(topic, 2, config=FSYNC)
    server.delete_records("a", before_seq=2)
    before = {topic: server.read_all(topic).records for topic in ("a", "b")}
    assert server.stop()
    read: list[str] = []

    def noted(found: StoredTail) -> Tail:
        read.append(found.name)
        return read_whole(found)

    read_whole = StoredTail.read
    monkeypatch.setattr(StoredTail, "read", noted)
    server = started(disk, serve_first=True)
    assert (read, server.engine.state.records_live) == ([], 3)
    assert {topic: server.read_all(topic).records for topic in ("a", "b")} == before
    assert read == ["a", "b"]
    server.write("a", 1)
    assert server.stop()
    read.clear()
    server = started(disk, serve_first=True)
    assert sorted(server.read_all("a").records) == [2, 3]
    assert read == ["a"]
