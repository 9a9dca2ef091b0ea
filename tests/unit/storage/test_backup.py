"""Backups: what is in them whatever the server does meanwhile, and that an interrupted one never looks whole."""

import errno
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

from sampling import EXHAUSTIVE
from topics.engine.queues import Claimer
from topics.model.record import NewRecord
from topics.storage import backup, paths
from topics.storage.backup import ATTEMPTS_MAX, BackupResult, restore
from topics.storage.errors import BackupFailed, CorruptFile, DirectoryInUse, DiskFailed, NoDataDirectory, TargetNotEmpty
from topics.storage.fs import Disk, MappedBytes, RealDisk
from topics.storage.verify import verify_directory
from topics.testing.fake_clock import FakeClock
from topics.testing.fake_disk import FakeDisk, SimulatedCrash
from topics.testing.simulated_server import COLD_DIR, DATA_DIR, Reading, SimulatedServer

TARGET = "/backup"
FSYNC = {"durability": "fsync"}


class WatchedDisk(FakeDisk):
    """Calls `before_read` with the path before a file or directory of the source is read, so that a test can let
    the server go on at any point of a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.before_read: Callable[[str], None] = lambda path: None

    def read(self, path: str) -> bytes:
        self._tell(path)
        return super().read(path)

    def map(self, path: str) -> MappedBytes:
        return FakeDisk.read(self, path)

    def list_dir(self, path: str) -> list[str]:
        self._tell(path)
        return super().list_dir(path)

    def _tell(self, path: str) -> None:
        if not path.startswith(TARGET):
            # Once: what the server itself reads is no point of the copy.
            tell, self.before_read = self.before_read, lambda path: None
            tell(path)
            self.before_read = tell


RUNNING: list[SimulatedServer] = []
"""Those of the current test, the last one to be started last."""


@pytest.fixture(autouse=True)
def none_runs() -> None:
    RUNNING.clear()


def back_up(
    disk: Disk, root: str, cold_root: str, target: str, meanwhile: Callable[[], None] = lambda: None
) -> BackupResult:
    """While the copy waits, the loop and the log of the server go on; `meanwhile` is what happens in between."""

    def wait(seconds: float) -> None:
        server = RUNNING[-1]
        server.store.note_cut()
        meanwhile()
        server.step()

    return backup.back_up(disk, root, cold_root, target, wait=wait)


def tagged(*tags: str) -> list[NewRecord]:
    return [NewRecord(Raw(b'"%d"' % number), tag=tag) for number, tag in enumerate(tags)]


def started(
    disk: FakeDisk, *, cold_dir: str = "", data_dir: str = DATA_DIR, wal_shards: int = 1, clock: FakeClock | None = None
) -> SimulatedServer:
    server = SimulatedServer(
        disk,
        clock or FakeClock(),
        wal_file_bytes=4096,
        data_dir=data_dir,
        wal_shards=wal_shards,
        segment_events_max=4,
        cold_dir=cold_dir,
        hot_retain_segments=1,
    )
    server.start()
    if data_dir == DATA_DIR:
        RUNNING.append(server)
    return server


def with_history(disk: FakeDisk, *, cold_dir: str = "") -> SimulatedServer:
    """Sealed segments (cold ones too), an unsealed one, deletes in and beyond the snapshot, records only in the WAL."""
    server = started(disk, cold_dir=cold_dir)
    for _ in range(4):
        server.write("orders", tagged("a", "b", "a", "c"), config=FSYNC)
    server.delete_records("orders", match="b", before_seq=9)
    server.write("orders", tagged("a", "b"))
    server.checkpoint()
    server.checkpoint()
    server.delete_records("orders", match="c", before_seq=6)
    server.write("orders", tagged("d", "d"))
    return server


def readings(server: SimulatedServer) -> dict[str, Reading]:
    return {topic.name: server.read_all(topic.name) for topic in server.engine.topics}


def restored(disk: FakeDisk, target: str = TARGET) -> SimulatedServer:
    assert verify_directory(disk, target, "").findings == []
    return started(disk.crash_drop_all(), data_dir=target)


def test_a_backup_of_an_idle_server_is_what_it_holds() -> None:
    disk = FakeDisk()
    server = with_history(disk)
    result = back_up(disk, DATA_DIR, "", TARGET)
    assert (result.topics, result.attempts) == (1, 1)
    assert readings(restored(disk)) == readings(server)


def test_a_backup_has_neither_lock_nor_heads_nor_anything_temporary() -> None:
    disk = FakeDisk()
    with_history(disk)
    back_up(disk, DATA_DIR, "", TARGET)
    names = {name.rpartition("/")[2] for name in disk.dump() if name.startswith(TARGET)}
    assert not {name for name in names if name in {"LOCK", paths.HEADS} or paths.is_temporary(name)}
    assert not disk.exists(paths.temporary(TARGET))


def test_cold_segments_are_in_the_backup_itself() -> None:
    disk = FakeDisk()
    server = with_history(disk, cold_dir=COLD_DIR)
    assert any(name.startswith(COLD_DIR) for name in disk.dump())
    with pytest.raises(BackupFailed, match="cold tier"):
        back_up(disk, DATA_DIR, "", TARGET)
    back_up(disk, DATA_DIR, COLD_DIR, TARGET)
    assert readings(restored(disk)) == readings(server)


def test_a_backup_of_a_cleanly_stopped_server_invents_no_loss() -> None:
    disk = FakeDisk()
    server = started(disk)
    server.write("events", 3, config={"durability": "disk"})
    server.stop()
    back_up(disk, DATA_DIR, "", TARGET)
    found = restored(disk).read_all("events")
    assert (sorted(found.records), found.gaps, found.head_seq) == ([1, 2, 3], [], 3)


def test_a_backup_of_a_backup_is_the_same() -> None:
    disk = FakeDisk()
    with_history(disk)
    back_up(disk, DATA_DIR, "", TARGET)
    restore(disk, TARGET, "/again")
    files = disk.dump()
    copies = {name.removeprefix("/again"): content for name, content in files.items() if name.startswith("/again/")}
    assert copies == {
        name.removeprefix(TARGET): content for name, content in files.items() if name.startswith(f"{TARGET}/")
    }


def test_an_idempotency_key_is_still_known_after_a_restore() -> None:
    disk, clock = FakeDisk(), FakeClock()
    server = started(disk, clock=clock)
    server.write("orders", 1, key="k", config=FSYNC)
    server.checkpoint()
    server.write("orders", 2, key="l")
    back_up(disk, DATA_DIR, "", TARGET)
    again = started(disk.crash_drop_all(), data_dir=TARGET, clock=clock)
    assert [again.write("orders", 1, key=key).deduped for key in ("k", "l", "m")] == [True, True, False]


# A server that goes on


def go_on(server: SimulatedServer, checkpoints: int) -> None:
    """Writes, deletes and checkpoints, so that segments are sealed, flagged, relocated, cleared and removed."""
    server.write("orders", tagged("e", "e", "a"))
    server.delete_records("orders", match="a", before_seq=12)
    for _ in range(checkpoints):
        server.checkpoint()
        server.write("orders", tagged("f", "f", "f"))
        server.delete_records("orders", before_seq=5)


@pytest.mark.parametrize("cold_dir", ["", COLD_DIR])
@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3])
def test_whenever_the_server_goes_on_the_backup_is_a_state_it_was_in(checkpoints: int, cold_dir: str) -> None:
    # A sample has every third point, each test other ones.
    point, step = (0, 1) if EXHAUSTIVE else (checkpoints % 3, 3)
    while True:
        disk = WatchedDisk()
        server = with_history(disk, cold_dir=cold_dir)
        before = server.read_all("orders")
        seen = 0

        def at_point(path: str, point: int = point, server: SimulatedServer = server) -> None:
            nonlocal seen
            seen += 1
            if seen == point + 1:
                go_on(server, checkpoints)

        disk.before_read = at_point
        back_up(disk, DATA_DIR, cold_dir, TARGET)
        disk.before_read = lambda path: None
        after = server.read_all("orders")
        found = restored(disk).read_all("orders")
        if seen <= point:
            assert found == before
            break
        assert_between(before, found, after)
        point += step
    assert point > 5


def assert_between(before: Reading, found: Reading, after: Reading) -> None:
    """Nothing that was there before and still is is missing; nothing deleted before is back; nothing is invented."""
    assert before.records.keys() & after.records.keys() <= found.records.keys()
    assert found.records.keys() <= before.records.keys() | after.records.keys() | set(range(before.head_seq + 1, 10**6))
    assert all((before.records | after.records).get(seq, text) == text for seq, text in found.records.items())
    assert found.head_seq <= after.head_seq
    assert found.gaps == []
    deleted = set(range(1, before.head_seq + 1)) - before.records.keys()
    assert not deleted & found.records.keys()


QUEUES = ("orders", "payments", "mails", "bills")


def move_jobs(server: SimulatedServer, turn: int) -> None:
    """A queue gets jobs, before and after all it has become dead letters; those of another one come back."""
    queue, other = QUEUES[turn % 4], QUEUES[(turn + 2) % 4]
    server.write(queue, [NewRecord(Raw(b'"before %d"' % turn))])
    (claim,) = server.claim(queue, Claimer("w", 9))
    server.nack(queue, "w", [job.seq for job in claim.jobs])
    server.claim(queue, Claimer("w", 1))
    server.write(queue, [NewRecord(Raw(b'"after %d"' % turn))])
    server.redrive(other)


@pytest.mark.parametrize("checkpoint_every", [3, 1000])
@pytest.mark.parametrize("wal_shards", [1, 3])
def test_a_job_that_moves_meanwhile_is_in_one_topic_of_the_copy(wal_shards: int, checkpoint_every: int) -> None:
    """Also one whose queue begins to exchange records, and so changes its shard, at any point of the copy."""
    jobs = [f"{queue} {number}" for queue in QUEUES for number in range(2)]
    point = seen = 0
    while seen >= point:
        disk, clock = WatchedDisk(), FakeClock()
        server = started(disk, wal_shards=wal_shards, clock=clock)
        server.put("dead", FSYNC)
        for queue in QUEUES:
            config = FSYNC | {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"}
            server.write(queue, [NewRecord(Raw(b'"%s 0"' % queue.encode()))], config=config)
        server.checkpoint()
        for queue in QUEUES:
            server.write(queue, [NewRecord(Raw(b'"%s 1"' % queue.encode()))])
        seen = 0

        def move_on(path: str, point: int = point, server: SimulatedServer = server) -> None:
            nonlocal seen
            seen += 1
            if point <= seen < point + 12:
                move_jobs(server, seen)
                if seen % checkpoint_every == 0:
                    server.checkpoint()

        disk.before_read = move_on
        back_up(disk, DATA_DIR, "", TARGET)
        disk.before_read = lambda path: None
        assert verify_directory(disk, TARGET, "").findings == []
        copy = started(disk.crash_drop_all(), data_dir=TARGET, wal_shards=wal_shards, clock=clock)
        found = readings(copy).values()
        times = Counter(json.loads(text)["data"] for reading in found for text in reading.records.values())
        assert set(times.values()) == {1}, point
        assert times.keys() >= set(jobs), point
        assert [reading.gaps for reading in found if reading.gaps] == [], point
        point += 1
    assert point > 5


ORDERED = ("a", "b", "c", "d")


def write_in_order(server: SimulatedServer, number: int) -> None:
    """A record to each topic, one after the other: whoever has seen one knows that those before it are there."""
    for topic in ORDERED:
        server.write(topic, [NewRecord(Raw(b"%d" % number))])


@pytest.mark.parametrize("durability", ["fsync", "disk"])
@pytest.mark.parametrize("checkpoint_every", [3, 1000])
def test_a_copy_is_one_instant_of_all_shards(durability: str, checkpoint_every: int) -> None:
    """Unrelated topics, each in a shard of its own as far as there are so many."""
    disk = WatchedDisk()
    server = started(disk, wal_shards=4)
    for topic in ORDERED:
        server.put(topic, {"durability": durability})
    shards = {server.journal.lane(server.engine.topic(topic).topic_id) for topic in ORDERED}
    assert len(shards) > 1, "the topics are all in one shard, and prove nothing"
    write_in_order(server, 0)
    server.checkpoint()
    seen = 0

    def go_on(path: str = "") -> None:
        nonlocal seen
        seen += 1
        if seen < 100:
            server.write(ORDERED[seen % 4], [NewRecord(Raw(b"%d" % seen))])
            if seen % checkpoint_every == 0:
                server.checkpoint()

    disk.before_read = go_on
    back_up(disk, DATA_DIR, "", TARGET, meanwhile=go_on)
    disk.before_read = lambda path: None
    assert seen > 10
    found = readings(restored(disk))
    numbers = sorted(json.loads(text)["data"] for reading in found.values() for text in reading.records.values())
    in_order = [0, 0, 0, *range(max(numbers) + 1)]
    assert numbers == in_order, "a record is there and one written before it is not"


def test_what_was_acknowledged_before_the_copy_began_is_in_it_also_what_no_file_had_yet() -> None:
    disk = FakeDisk()
    server = started(disk, wal_shards=3)
    for topic in ORDERED:
        server.put(topic, {"durability": "disk"})
        server.write(topic, 1)
    server.lazy = True
    write_in_order(server, 7)
    assert server.journal.shards[0].writer.next_lsn < server.journal.shards[0].submitted_lsn
    back_up(disk, DATA_DIR, "", TARGET)
    for topic, found in readings(restored(disk)).items():
        assert sorted(found.records) == [1, 2], topic


def test_a_server_that_is_killed_before_it_has_written_a_cut_is_copied_as_it_is_then() -> None:
    disk = FakeDisk()
    server = started(disk, wal_shards=3)
    for topic in ORDERED:
        server.write(topic, 1, config=FSYNC)
    server.lazy = True

    handed = server.hand_over("a", 1)
    assert handed.commit is not None
    waits = 0

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        server.store.note_cut()
        if waits == 3:
            disk.locked.clear()

    result = backup.back_up(disk, DATA_DIR, "", TARGET, wait=wait)
    assert result.attempts == 2
    assert {topic: found.head_seq for topic, found in readings(restored(disk)).items()} == dict.fromkeys(ORDERED, 1)


def test_a_locked_directory_whose_holder_says_nothing_is_not_copied() -> None:
    disk = FakeDisk()
    with_history(disk)
    with pytest.raises(BackupFailed, match="starting or stopping"):
        backup.back_up(disk, DATA_DIR, "", TARGET, wait=lambda seconds: None)
    assert not any(name.startswith(TARGET) for name in disk.dump())


def test_a_start_while_a_stopped_directory_is_copied_begins_the_copy_again() -> None:
    disk = WatchedDisk()
    with_history(disk).stop()
    servers: list[SimulatedServer] = []

    def start(path: str) -> None:
        if not servers and path.startswith(f"{DATA_DIR}/wal"):
            servers.append(started(disk))
            servers[0].write("orders", tagged("y"))

    disk.before_read = start
    result = back_up(disk, DATA_DIR, "", TARGET)
    disk.before_read = lambda path: None
    assert result.attempts == 2
    assert readings(restored(disk)) == readings(servers[0])


def test_a_server_that_never_rests_is_copied_in_the_end() -> None:
    """A checkpoint at every read: sealed segments that were copied need not be copied again."""
    disk = WatchedDisk()
    server = with_history(disk)
    turns = 0

    def always(path: str) -> None:
        nonlocal turns
        turns += 1
        if turns < 60 and path.endswith(".data"):
            server.write("orders", tagged("g"))
            server.checkpoint()

    disk.before_read = always
    result = back_up(disk, DATA_DIR, "", TARGET)
    assert 1 < result.attempts < ATTEMPTS_MAX
    disk.before_read = lambda path: None
    assert readings(restored(disk)).keys() == {"orders"}


def test_a_delete_between_two_attempts_is_in_the_segment_that_was_kept() -> None:
    disk = WatchedDisk()
    server = with_history(disk)
    acted = False

    def once(path: str) -> None:
        nonlocal acted
        if not acted and path.startswith(f"{DATA_DIR}/wal"):
            acted = True
            server.delete_records("orders", match="a", before_seq=12)
            for _ in range(3):
                server.checkpoint()
                server.write("orders", tagged("x"))

    disk.before_read = once
    result = back_up(disk, DATA_DIR, "", TARGET)
    disk.before_read = lambda path: None
    assert result.attempts == 2
    assert readings(restored(disk)) == readings(server)


def test_a_start_with_another_shard_count_meanwhile_begins_the_copy_again() -> None:
    disk = WatchedDisk()
    with_history(disk)
    servers: list[SimulatedServer] = []

    def restart(path: str) -> None:
        if not servers and path.startswith(f"{DATA_DIR}/wal"):
            disk.locked.clear()
            servers.append(started(disk, wal_shards=3))
            servers[0].write("orders", tagged("y"))

    disk.before_read = restart
    result = back_up(disk, DATA_DIR, "", TARGET)
    disk.before_read = lambda path: None
    assert result.attempts == 2
    assert readings(restored(disk)) == readings(servers[0])


def test_a_log_read_while_it_grows_is_read_again_and_not_called_corrupt() -> None:
    disk = WatchedDisk()
    server = with_history(disk)
    path = server.journal.shards[0].writer.active_path
    read = WatchedDisk.read
    holes = 0

    class Overtaken(WatchedDisk):
        def read(self, wanted: str) -> bytes:
            nonlocal holes
            content = read(self, wanted)
            if wanted == path and not holes:
                # The reader was at this page before the writer was, and at the next ones after it.
                holes += 1
                at = content.rindex(b'{"synced_bytes"')
                return content[: at - 200] + bytes(100) + content[at - 100 :]
            return content

    disk.__class__ = Overtaken
    back_up(disk, DATA_DIR, "", TARGET)
    assert holes == 1
    assert readings(restored(disk)) == readings(server)


# Damage, interruption, refusals


def test_a_damaged_source_is_named_and_leaves_no_backup() -> None:
    disk = FakeDisk()
    with_history(disk)
    path = f"{DATA_DIR}/topics/00000001/seg-0000000000000005.data"
    file = disk.open_append(path)
    file.write_at(30, b"\xff")
    with pytest.raises(CorruptFile) as caught:
        back_up(disk, DATA_DIR, "", TARGET)
    assert caught.value.path == path
    assert not any(name.startswith(TARGET) for name in disk.dump())


@pytest.mark.parametrize("part", ["idx", "tags"])
def test_a_damaged_or_missing_index_is_whole_in_the_backup(part: str) -> None:
    disk = FakeDisk()
    server = with_history(disk)
    disk.open_append(f"{DATA_DIR}/topics/00000001/seg-0000000000000005.{part}").write_at(0, b"\xff")
    disk.remove(f"{DATA_DIR}/topics/00000001/seg-0000000000000009.{part}")
    back_up(disk, DATA_DIR, "", TARGET)
    assert readings(restored(disk)) == readings(server)


def test_a_segment_that_is_missing_is_said_to_be() -> None:
    disk = FakeDisk()
    with_history(disk)
    path = f"{DATA_DIR}/topics/00000001/seg-0000000000000005.data"
    disk.remove(path)
    with pytest.raises(CorruptFile, match="missing"):
        back_up(disk, DATA_DIR, "", TARGET)


def test_a_backup_interrupted_anywhere_leaves_nothing_or_all_of_it() -> None:
    whole = 0
    for call in range(1, 1000):
        disk = FakeDisk()
        with_history(disk)
        disk.stop_at(disk.mutating_calls + call)
        try:
            back_up(disk, DATA_DIR, "", TARGET)
        except SimulatedCrash:
            for after in (disk.crash_keep_all(), disk.crash_drop_all(), disk.crash(call)):
                if after.list_dir(TARGET):
                    whole += 1
                    assert verify_directory(after, TARGET, "").findings == []
                    continue
                # And the next try is not in the way of what was left.
                back_up(after, DATA_DIR, "", TARGET)
                assert verify_directory(after, TARGET, "").findings == []
        else:
            assert whole
            return
    pytest.fail("the backup never came to its end")


def test_a_disk_that_fills_up_leaves_nothing_behind() -> None:
    disk = FakeDisk()
    with_history(disk)
    disk.fail_at(disk.mutating_calls + 20, errno.ENOSPC)
    with pytest.raises(DiskFailed):
        back_up(disk, DATA_DIR, "", TARGET)
    assert not any(name.startswith(TARGET) for name in disk.dump())


def test_a_target_that_is_not_empty_is_refused() -> None:
    disk = FakeDisk()
    with_history(disk)
    disk.make_dir(TARGET)
    disk.create(f"{TARGET}/mine").close()
    with pytest.raises(TargetNotEmpty):
        back_up(disk, DATA_DIR, "", TARGET)
    disk.make_dir("/other.tmp")
    disk.create("/other.tmp/mine").close()
    with pytest.raises(TargetNotEmpty):
        back_up(disk, DATA_DIR, "", "/other")
    assert disk.exists("/other.tmp/mine")


def test_two_backups_to_one_target_are_not_mixed() -> None:
    disk = FakeDisk()
    with_history(disk)
    disk.make_dir(paths.temporary(TARGET))
    disk.lock(paths.lock_path(paths.temporary(TARGET)))
    with pytest.raises(DirectoryInUse):
        back_up(disk, DATA_DIR, "", TARGET)


@pytest.mark.parametrize("target", [DATA_DIR, f"{DATA_DIR}/backup", f"{COLD_DIR}/backup"])
def test_a_target_within_the_source_is_refused(target: str) -> None:
    disk = FakeDisk()
    with_history(disk, cold_dir=COLD_DIR)
    with pytest.raises(BackupFailed, match="outside"):
        back_up(disk, DATA_DIR, COLD_DIR, target)


def test_there_is_nothing_to_back_up_in_an_empty_directory() -> None:
    with pytest.raises(NoDataDirectory):
        back_up(FakeDisk(), DATA_DIR, "", TARGET)


def test_on_a_real_disk_only_the_owner_may_read_a_backup(tmp_path: Path) -> None:
    disk, root, target = RealDisk(), str(tmp_path / "data"), str(tmp_path / "backup")
    server = SimulatedServer(disk, FakeClock(), data_dir=root, segment_events_max=4)
    server.start()
    RUNNING.append(server)
    server.write("orders", 6, config=FSYNC)
    server.checkpoint()
    os.mkdir(target)
    back_up(disk, root, "", target)
    found = list(Path(target).rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in [Path(target), *found] if path.is_dir()} == {0o700}
    assert verify_directory(disk, target, "").sound
