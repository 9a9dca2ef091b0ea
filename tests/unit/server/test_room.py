"""Room on the disk: what is refused while there is too little, what goes on, and that writing resumes by itself."""

import errno
import logging
from contextlib import suppress

import pytest
from msgspec import Raw

from topics import limits
from topics.engine.queues import Claimer
from topics.errors import StorageFailed, StorageFull
from topics.model.record import NewRecord
from topics.server.room import Room
from topics.storage import paths
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, SimulatedServer

FSYNC = {"durability": "fsync"}
MIB = limits.MIB
LARGE = NewRecord(Raw(b'"%s"' % (b"." * (MIB - 1000))))


class StickyDisk(FakeDisk):
    """While `sticks`, segments cannot be removed."""

    sticks = False

    def remove(self, path: str) -> None:
        if self.sticks and path.endswith(".data"):
            raise OSError(errno.EIO, "it sticks")
        super().remove(path)


def started(disk: FakeDisk, free_bytes_min: int = 0) -> SimulatedServer:
    server = SimulatedServer(
        disk, FakeClock(), wal_file_bytes=2000, segment_events_max=4, free_bytes_min=free_bytes_min
    )
    server.start()
    return server


def with_free_bytes(server: SimulatedServer, free_bytes: int) -> None:
    """As if the disk had been looked at, and had so much."""
    server.store.room.judge(free_bytes)
    server.store.looked_at_room()


def test_below_the_mark_writes_and_new_topics_are_refused_and_above_it_they_are_taken_again() -> None:
    server = started(FakeDisk(), free_bytes_min=100 * MIB)
    for durability in ("fsync", "disk", "memory"):
        server.write(durability, 2, config={"durability": durability})
    with_free_bytes(server, 99 * MIB)
    for durability in ("fsync", "disk", "memory"):
        with pytest.raises(StorageFull, match="kept free"):
            server.write(durability, 1)
    with pytest.raises(StorageFull):
        server.put("new", FSYNC)
    assert server.engine.find_topic("new") is None
    with_free_bytes(server, 101 * MIB)
    for durability in ("fsync", "disk", "memory"):
        server.write(durability, 1)
        assert sorted(server.read_all(durability).records) == [1, 2, 3]


def test_below_the_mark_deletes_acks_and_smaller_caps_still_work() -> None:
    server = started(FakeDisk(), free_bytes_min=100 * MIB)
    server.write("t", 5, config=FSYNC)
    server.write("q", 3, config=FSYNC | {"type": "queue"})
    with_free_bytes(server, 0)
    assert server.delete_records("t", before_seq=3).count == 2
    (claim,) = server.claim("q", Claimer("w", 3))
    server.ack("q", "w", [job.seq for job in claim.jobs])
    server.put("t", {"cap_records": 1})
    assert server.checkpoint()
    assert sorted(server.read_all("t").records) == [5]
    assert not server.read_all("q").records


def test_what_is_taken_and_not_on_the_disk_yet_counts_as_used() -> None:
    owed = 10 * MIB
    room = Room(FakeDisk(), "/data", 100 * MIB, lambda: owed)
    room.judge(109 * MIB)
    assert room.full is not None
    assert room.full.detail == {"free_bytes": 99 * MIB, "free_bytes_min": 100 * MIB}
    owed = 0
    room.judge(109 * MIB)
    assert room.full is None


def test_what_is_not_sealed_yet_is_owed_its_segment() -> None:
    server = started(FakeDisk())
    server.write("t", [LARGE] * 3, config=FSYNC)
    assert server.checkpoint(), "what the log has is in an increment"
    assert server.store.owed_bytes > 2 * 3 * len(LARGE.data)
    server.write("t", 1)
    server.seal()
    server.checkpoint()
    assert server.store.owed_bytes < MIB


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_what_is_taken_before_somebody_looks_again_is_bounded_by_what_is_left(durability: str) -> None:
    server = started(FakeDisk(), free_bytes_min=100 * MIB)
    server.put("t", {"durability": durability})
    server.write("t", 1)
    with_free_bytes(server, 150 * MIB)
    taken = 0
    with suppress(StorageFull):
        while taken < 100:
            server.write("t", [LARGE])
            taken += 1
    assert 0 <= taken - 50 // limits.ROOM_PER_BYTE_TAKEN <= 1, "the one that needs more may be taken"
    assert isinstance(server.store.trouble(), StorageFull)
    server.delete_records("t", before_seq=3)
    with_free_bytes(server, 200 * MIB)
    server.write("t", 1)


def test_an_idle_server_gives_back_what_a_checkpoint_could_not_remove() -> None:
    disk = StickyDisk()
    server = started(disk)
    server.write("t", 4, config=FSYNC)
    server.write("t", 1)
    server.seal()
    server.checkpoint()
    segments = [path for path in disk.dump() if path.endswith(".data")]
    assert segments
    server.put("t", {"cap_records": 1})
    disk.sticks = True
    for _ in range(5):
        server.checkpoint()
    assert server.store.checkpointer.has_work
    disk.sticks = False
    for _ in range(5):
        if server.store.checkpointer.has_work:
            server.checkpoint()
    assert not [path for path in disk.dump() if path.endswith(".data")]
    assert not server.store.checkpointer.has_work


def test_a_fold_the_disk_has_no_room_for_leaves_nothing_behind() -> None:
    for call in range(1, 20):
        disk = FakeDisk()
        server = started(disk)
        server.write("t", 3, config=FSYNC)
        server.checkpoint()
        last = disk.mutating_calls + call
        disk.fail_at(last, errno.ENOSPC)
        server.store.checkpointer.folds.fold()
        if disk.mutating_calls < last:
            break
        assert not [name for name in disk.list_dir(paths.meta_dir(DATA_DIR)) if paths.is_temporary(name)], call
    assert call > 3


def test_the_log_of_the_server_tells_it_once_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    room = Room(FakeDisk(), "/data", 100, lambda: 0)
    with caplog.at_level(logging.INFO, "topics.room"):
        for free_bytes in (50, 40, 30, 200, 300):
            room.judge(free_bytes)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_a_disk_that_runs_full_all_the_same_makes_writes_wait_and_loses_none() -> None:
    """At any call of the log but a sync: it is tried again, and then everything is there, in its order."""
    waited = 0
    for call in range(1, 200):
        disk = FakeDisk()
        server = started(disk)
        server.put("t", FSYNC)
        first = disk.mutating_calls
        disk.fail_at(first + call, errno.ENOSPC, written_bytes=20)
        try:
            for number in range(1, 30):
                server.write("t", 1)
                assert server.read_all("t").head_seq == number
        except StorageFailed:
            continue  # it was a sync
        if disk.mutating_calls < first + call:
            break
        waited += 1
        assert started(disk.crash_drop_all()).read_all("t") == server.read_all("t")
    assert waited > 20


def test_while_the_log_waits_for_room_nothing_new_is_taken_and_the_reason_is_told() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("t", 1, config=FSYNC)
    disk.fail_at(disk.mutating_calls + 1, errno.ENOSPC)
    waiting = server.hand_over("t", 1)
    server.step()
    assert waiting.commit is not None
    assert not waiting.commit.done
    trouble = server.store.trouble()
    assert isinstance(trouble, StorageFull)
    assert "No space left" in trouble.message
    with pytest.raises(StorageFull):
        server.hand_over("t", 1)
    server.step()
    assert waiting.commit.done
    assert server.store.trouble() is None
    assert sorted(server.read_all("t").records) == [1, 2]


def test_a_server_that_stops_while_it_waits_for_room_says_that_something_was_not_written() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("t", 1, config=FSYNC)
    disk.fail_at(disk.mutating_calls + 1, errno.ENOSPC, and_after=True)
    waiting = server.hand_over("t", 1)
    for shard in server.journal.shards:
        shard.close()
    assert waiting.commit is not None
    assert isinstance(waiting.commit.error, StorageFailed)
    assert isinstance(server.store.trouble(), StorageFailed)
