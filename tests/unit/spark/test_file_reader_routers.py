"""Copies read from files as they do from the server, also those that no file has yet."""

from random import Random

import pytest
from file_readings import assert_as_served, kinds, read_topic
from msgspec import Raw

from sampling import EXHAUSTIVE
from topics.model.gap import GapReason
from topics.model.record import NewRecord
from topics.model.router import Guarantee, RouterSettings
from topics.spark import file_log
from topics.spark.file_log import FileLog
from topics.spark.file_partition import InlinePiece, WalPiece
from topics.spark.offsets import Gap
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


def test_copies_among_many_logged_records_are_sent_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "INLINE_BYTES_MAX", 0)
    disk = FakeDisk()
    server = started(disk)
    server.put_router("a->b", "a", "b")
    for _ in range(3):
        server.write("b", 2)
        server.write("a", 2)
        server.read_all("b")
    log = FileLog(DATA_DIR, disk=disk)
    assert kinds(log.partitions("b", 1, 12)) == {WalPiece, InlinePiece}
    assert_as_served(server, log, disk)
    assert_as_served(server, log, disk, max_records=3)


def test_a_topic_that_began_to_exchange_records_is_read_from_both_of_its_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_log, "INLINE_BYTES_MAX", 0)
    disk = FakeDisk()
    server = started(disk, shards=3)
    for name in "abcdef":
        server.write(name, 3, config={"durability": "fsync"})
    for name in "abcdef":
        server.put_router(f"{name}->all", name, f"all-{name}")
        server.write(name, 3)
        server.write(f"all-{name}", 1)
        server.read_all(f"all-{name}")
    log = FileLog(DATA_DIR, disk=disk)
    assert_as_served(server, log, disk)
    paths = {
        len({piece.path for part in log.partitions(name, 1, 6) for piece in part.pieces if isinstance(piece, WalPiece)})
        for name in "abcdef"
    }
    assert paths == {1, 2}, "topics of the shard that records are exchanged in have not moved"


def test_copies_of_and_in_ephemeral_topics_are_in_no_file() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.put("a", {"durability": "fsync"})
    server.put("b", {"durability": "ephemeral"})
    server.put("c", {"durability": "fsync"})
    server.put_router("a->b", "a", "b")
    server.put_router("b->c", "b", "c")
    server.write("a", 3)
    server.write("b", 2)
    server.read_all("c")
    server.write("c", 1)
    server.sync()
    log = FileLog(DATA_DIR, disk=disk)
    assert {name: found.head_seq for name, found in log.topics().items()} == {"a": 3, "b": 0, "c": 0}
    server.checkpoint()
    log = FileLog(DATA_DIR, disk=disk)
    assert {name: found.head_seq for name, found in log.topics().items()} == {"a": 3, "b": 0, "c": 6}
    assert read_topic(log, "c", disk).seqs == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("seed", range(30 if EXHAUSTIVE else 12))
def test_whatever_happened_copies_in_files_are_those_the_server_has(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = Random(seed)
    monkeypatch.setattr(file_log, "INLINE_BYTES_MAX", choice.choice((0, 1 << 16)))
    disk, clock = FakeDisk(), FakeClock()

    def start() -> SimulatedServer:
        server = SimulatedServer(disk, clock, segment_events_max=4, wal_file_bytes=1000, wal_shards=shards)
        server.start(serve_first=choice.random() < 0.5)
        return server

    shards = choice.choice((1, 3))
    server = start()
    names = ("a", "b", "c")
    for name in names:
        server.put(name, {"durability": choice.choice(("fsync", "disk"))})
    for _ in range(50):
        topic = choice.choice(names)
        match choice.randrange(12):
            case 0:
                server.put_router("a->b", "a", "b", choice.choice((None, STAMPED)))
            case 1:
                server.put_router("b->c", "b", "c")
            case 2:
                server.delete_router(choice.choice(("a->b", "b->c")))
            case 3:
                server.checkpoint()
            case 4:
                server.delete_records(topic, before_seq=choice.randrange(1, 30))
            case 5:
                server.delete_records(topic, match="x")
            case 6:
                server.put(topic, {"cap_records": choice.choice((0, 5, 20))})
            case 7:
                clock.advance(choice.choice((1, 100, 2000)))
            case 8 if choice.random() < 0.4:
                disk = choice.choice((disk.crash_keep_all, disk.crash_drop_all))()
                server = start()
            case _:
                tag = choice.choice((None, "x", "y"))
                server.write(topic, [NewRecord(Raw(b"1"), tag=tag)] * choice.choice((1, 1, 3)))
        for name in names:
            server.read_all(name)
        server.sync()
        assert_as_served(server, FileLog(DATA_DIR, disk=disk), disk, max_records=choice.choice((0, 3)))
