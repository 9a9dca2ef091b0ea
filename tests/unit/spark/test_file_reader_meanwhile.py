"""Files read while their server goes on, and whatever a topic has been through."""

import json
from collections.abc import Callable
from random import Random

import pytest
from file_readings import assert_as_served, read_partitions, read_topic
from msgspec import UNSET, Raw

from sampling import EXHAUSTIVE
from topics.model.gap import GapReason
from topics.model.record import NewRecord
from topics.spark import file_log
from topics.spark.file_log import FileLog
from topics.spark.file_partition import TopicReplaced
from topics.spark.offsets import Gap
from topics.storage.errors import FilesChanging
from topics.storage.fs import MappedBytes
from topics.storage.reading import ATTEMPTS_MAX
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk
from topics.testing.simulated_server import COLD_DIR, DATA_DIR, SimulatedServer

FSYNC: dict[str, object] = {"durability": "fsync"}


class WatchedDisk(FakeDisk):
    """Calls `before_read` before a file or directory is read, so that a test can let the server go on at that point."""

    def __init__(self) -> None:
        super().__init__()
        self.before_read: Callable[[str], None] = lambda path: None

    def read(self, path: str) -> bytes:
        self._tell(path)
        return super().read(path)

    def map(self, path: str) -> MappedBytes:
        return self.read(path)

    def list_dir(self, path: str) -> list[str]:
        self._tell(path)
        return super().list_dir(path)

    def _tell(self, path: str) -> None:
        # Once: what the server itself reads is not to be told.
        tell, self.before_read = self.before_read, lambda path: None
        tell(path)
        self.before_read = tell


def started(
    disk: FakeDisk, clock: FakeClock | None = None, *, cold_dir: str = "", wal_shards: int = 1
) -> SimulatedServer:
    server = SimulatedServer(
        disk,
        clock or FakeClock(),
        wal_file_bytes=1000,
        segment_events_max=4,
        hot_retain_segments=1,
        cold_dir=cold_dir,
        wal_shards=wal_shards,
    )
    server.start()
    return server


def write_each(server: SimulatedServer, count: int, config: dict[str, object] | None = None) -> None:
    for _ in range(count):
        server.write("orders", 1, config=config)


def test_the_server_may_go_on_at_any_point_of_opening() -> None:
    """Before the nth read of anything, the server writes, checkpoints and trims its WAL."""
    opened_without_event = False
    for point in range(200):
        disk = WatchedDisk()
        server = started(disk, cold_dir=COLD_DIR)
        write_each(server, 10, FSYNC)
        server.checkpoint()
        write_each(server, 5)
        reads = 0

        def go_on(path: str, point: int = point, server: SimulatedServer = server) -> None:
            nonlocal reads
            if reads == point:
                write_each(server, 6)
                for _ in range(3):
                    server.checkpoint()
            reads += 1

        disk.before_read = go_on
        log = FileLog(DATA_DIR, COLD_DIR, disk)
        disk.before_read = lambda path: None
        read = read_topic(log, "orders", disk)
        head_seq = log.topics()["orders"].head_seq
        assert head_seq in {15, 21}
        assert read.seqs == list(range(1, head_seq + 1)), point
        assert read.gaps == []
        if reads <= point:
            opened_without_event = True
            break
    assert opened_without_event, "there were more points than were tried"


@pytest.mark.parametrize("inline_bytes", [0, 1 << 16])
@pytest.mark.parametrize("cold", ["", COLD_DIR])
def test_what_was_planned_is_read_after_the_files_were_replaced(
    monkeypatch: pytest.MonkeyPatch, inline_bytes: int, cold: str
) -> None:
    monkeypatch.setattr(file_log, "INLINE_BYTES_MAX", inline_bytes)
    disk = FakeDisk()
    server = started(disk, cold_dir=cold)
    write_each(server, 10, FSYNC)
    server.checkpoint()
    write_each(server, 10)
    partitions = FileLog(DATA_DIR, cold, disk).partitions("orders", 1, 20, max_records=6)
    before = read_partitions(partitions, disk)
    for _ in range(3):
        write_each(server, 10)
        server.checkpoint()
    assert read_partitions(partitions, disk) == before
    assert before.seqs == list(range(1, 21))


def test_what_was_lost_since_the_planning_is_a_gap() -> None:
    disk = FakeDisk()
    server = started(disk)
    write_each(server, 12, FSYNC)
    server.checkpoint()
    partitions = FileLog(DATA_DIR, disk=disk).partitions("orders", 1, 12, max_records=2)
    server.put("orders", {"cap_records": 6})
    for _ in range(3):
        write_each(server, 1)
        server.checkpoint()
    read = read_partitions(partitions, disk)
    lost = [seq for gap in read.gaps for seq in range(gap.gap_from, (gap.gap_to or 0) + 1)]
    assert sorted([*read.seqs, *lost]) == list(range(1, 13))
    assert {gap.reason for gap in read.gaps} == {GapReason.CAP}


def test_what_was_deleted_since_the_planning_is_left_out() -> None:
    disk = FakeDisk()
    server = started(disk)
    write_each(server, 12, FSYNC)
    server.checkpoint()
    partitions = FileLog(DATA_DIR, disk=disk).partitions("orders", 1, 12)
    server.delete_records("orders", before_seq=7)
    for _ in range(3):
        write_each(server, 1)
        server.checkpoint()
    read = read_partitions(partitions, disk)
    assert set(range(7, 13)) <= set(read.seqs) <= set(range(5, 13))
    assert read.gaps == []


def test_a_topic_recreated_since_the_planning_is_an_error() -> None:
    disk = FakeDisk()
    server = started(disk)
    write_each(server, 12, FSYNC)
    server.checkpoint()
    partitions = FileLog(DATA_DIR, disk=disk).partitions("orders", 1, 12)
    server.delete_topic("orders")
    write_each(server, 12, FSYNC)
    server.checkpoint()
    server.checkpoint()
    with pytest.raises(TopicReplaced):
        read_partitions(partitions, disk)


def test_a_server_that_is_always_faster_is_given_up_on() -> None:
    disk = WatchedDisk()
    server = started(disk)
    write_each(server, 3, FSYNC)
    checkpoints = 0

    def go_on(path: str) -> None:
        nonlocal checkpoints
        if path.endswith(".bin"):
            checkpoints += 1
            for _ in range(3):
                write_each(server, 1)
                server.checkpoint()

    disk.before_read = go_on
    with pytest.raises(FilesChanging):
        FileLog(DATA_DIR, disk=disk)
    assert checkpoints >= ATTEMPTS_MAX


@pytest.mark.parametrize("seed", range(40 if EXHAUSTIVE else 16))
def test_whatever_happened_the_files_say_what_the_server_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = Random(seed)
    monkeypatch.setattr(file_log, "INLINE_BYTES_MAX", choice.choice((0, 1 << 16)))
    disk, clock = FakeDisk(), FakeClock()
    # A cap reaches into the cold tier only when the server has it at hand, so not both.
    cold = choice.choice(("", COLD_DIR))
    shards = choice.choice((1, 3))
    server = started(disk, clock, cold_dir=cold, wal_shards=shards)
    written = 0

    def write() -> None:
        nonlocal written
        records = []
        for _ in range(choice.choice((1, 1, 2, 7))):
            written += 1
            tag = choice.choice((None, "a", "a.b", "c"))
            meta = Raw(b'{"k":"%d"}' % written) if choice.random() < 0.2 else UNSET
            data = Raw(json.dumps({"n": written, "t": "x" * choice.randrange(60)}).encode())
            records.append(NewRecord(data, tag=tag, node=choice.choice((None, "n1")), meta=meta))
        server.write(choice.choice("xyz"), records, key=f"k{written}", config={"durability": choice.choice(classes)})

    classes = ("fsync", "disk", "memory")
    for _ in range(60):
        topic = choice.choice("xyz")
        there = server.engine.find_topic(topic) is not None
        match choice.randrange(14):
            case 0 | 1:
                server.checkpoint()
            case 2 if there:
                server.delete_records(topic, match=choice.choice(("a", "a*", "c")))
            case 3 if there:
                server.delete_records(topic, before_seq=choice.randrange(1, 40))
            case 4 if there and not cold:
                server.put(topic, {"cap_records": choice.choice((0, 5, 20)), "cap_bytes": choice.choice((0, 2000))})
            case 5 if there:
                server.put(topic, {"ttl_ms": choice.choice((0, 300))})
            case 6 if there and choice.random() < 0.3:
                server.delete_topic(topic)
            case 7:
                clock.advance(choice.randrange(200))
            case 8 if choice.random() < 0.5:
                cut = choice.randrange(3)
                disk = disk.crash(seed) if cut == 0 else disk.crash_keep_all() if cut == 1 else disk.crash_drop_all()
                server = started(disk, clock, cold_dir=cold, wal_shards=shards)
            case 9 if choice.random() < 0.3:
                server.stop()
                shards = choice.choice((1, 2))
                server = started(disk, clock, cold_dir=cold, wal_shards=shards)
            case _:
                write()
        server.engine.expire_due()
        server.sync()
        assert_as_served(server, FileLog(DATA_DIR, cold, disk), disk, max_records=choice.choice((0, 3)))


def test_gaps_are_told_from_where_the_reading_begins() -> None:
    disk = FakeDisk()
    server = started(disk)
    write_each(server, 12, FSYNC | {"cap_records": 4})
    log = FileLog(DATA_DIR, disk=disk)
    assert read_partitions(log.partitions("orders", 3, 6), disk).gaps == [Gap(3, 6, GapReason.CAP)]
    assert read_partitions(log.partitions("orders", 9, 12), disk).gaps == []
