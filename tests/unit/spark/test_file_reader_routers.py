"""Copies read from files as they do from the server, also those that no file has yet."""

import pytest
from file_readings import assert_as_served, read_topic
from msgspec import Raw

from topics.model.gap import Gap, GapReason
from topics.model.record import NewRecord
from topics.model.router import Guarantee, RouterSettings
from topics.spark.file_log import FileLog
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import DATA_DIR, SimulatedServer

STAMPED = RouterSettings(guarantee=Guarantee.EXACTLY_ONCE)


def started(disk: FakeDisk, shards: int = 2) -> SimulatedServer:
    server = SimulatedServer(disk, FakeClock(), segment_events_max=4, wal_shards=shards)
    server.start()
    return server


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
@pytest.mark.parametrize("shards", [1, 3])
def test_copies_are_there_before_and_after_a_checkpoint(checkpoints: int, shards: int) -> None:
    disk = FakeDisk()
    server = started(disk, shards)
    server.put_router("a->b", "a", "b", STAMPED)
    server.put_router("b->c", "b", "c")
    for _ in range(checkpoints):
        server.write("a", [NewRecord(Raw(b"1"), tag="x", node="n")] * 5)
        server.read_all("c")
        assert server.checkpoint()
    server.write("a", 3)
    server.write("b", 2)
    server.read_all("c")
    assert_as_served(server, FileLog(DATA_DIR, disk=disk), disk)


def test_what_a_server_has_not_forwarded_yet_is_not_made_up() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("b", {"cap_records": 2, "discard": "reject"})
    server.put_router("a->b", "a", "b")
    server.write("a", 5)
    server.read_all("b")
    assert sorted(read_topic(FileLog(DATA_DIR, disk=disk), "b", disk).seqs) == [1, 2]


def test_what_the_source_lost_is_a_gap_in_the_files() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"cap_records": 2})
    server.put_router("a->b", "a", "b")
    server.write("a", 9)
    server.read_all("b")
    server.sync()
    for _ in range(2):
        log = FileLog(DATA_DIR, disk=disk)
        assert_as_served(server, log, disk)
        assert read_topic(log, "b", disk).gaps == [Gap(1, 1, GapReason.SOURCE_TRIM)]
        assert server.checkpoint()
